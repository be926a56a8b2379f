// One page that shows plans and runs: ranked table, Pareto chart, accounting, memory, timeline, links.
#pragma once

#include <string>
#include <vector>

#include "analysis/pareto.hpp"
#include "analysis/table.hpp"
#include "traces/trace.hpp"

namespace orrery {

struct ReportPoint {
  std::string label;  // the plan, as the table calls it
  ParetoPoint point;
};

struct ReportTrace {
  std::string title;
  Trace trace;
};

// Empty parts are left out of the page.
struct ReportInput {
  std::string title;
  std::string summary = {};  // a sentence or two under the title
  Table plans = {};
  std::vector<ReportPoint> points = {};
  std::vector<ReportTrace> traces = {};
};

// The page as HTML. It needs no network when opened, and is the same for the same input.
std::string report_page(const ReportInput&);

// Throws InputError naming the path when it cannot be written.
void write_report(const std::string& path, const ReportInput&);

}  // namespace orrery
