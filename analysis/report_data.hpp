// The numbers of a report as JSON, for the script of the page.
#pragma once

#include <string>

#include "analysis/report.hpp"

namespace orrery {

// More spans than these make the page slow to open; the page says how many it leaves out.
inline constexpr std::size_t kMostDrawnSpans = 60000;
// The busiest links are the ones to look at.
inline constexpr std::size_t kMostDrawnLinks = 24;

std::string report_json(const ReportInput&);

}  // namespace orrery
