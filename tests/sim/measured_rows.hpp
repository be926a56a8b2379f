// Rows of published runs, made up, and the plans they become.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/measured/measured_plan.hpp"

namespace orrery::test {

// `columns`: after those that `gpt` fills, each with its comma before it.
std::vector<MeasuredRun> runs_of(const std::string& rows, const std::string& columns = "");
// Two nodes; `layout` is microbatch to replicas, `end` what follows.
std::string gpt(const std::string& id, const std::string& layout, const std::string& end);
// Of four layers of 1024 on eight H100, with these cells beside or in place of its own.
MeasuredRun small_run(std::map<std::string, std::string> cells);
MeasuredPlan mapped(const MeasuredRun&);   // fails the test where a row is no plan
std::string unmapped(const MeasuredRun&);  // why; empty where it is one
// Of the program that a row with these cells names.
SoftwareStack stack_of(std::map<std::string, std::string> cells);

}  // namespace orrery::test
