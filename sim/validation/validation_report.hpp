// A validation as a table for people and as JSON (DESIGN 2.6).
#pragma once

#include <string>

#include "sim/validation/interval_fit.hpp"
#include "sim/validation/validation.hpp"

namespace orrery {

// Errors by group, what was skipped and why, and what was assumed. `every_run`: a row for each run too.
enum class RunRows { left_out, listed };
// How far intervals and chances hold for runs that they were made without.
struct Coverages {
  std::vector<Coverage> time, memory;
  std::vector<ForeseenChances> out_of_memory;
};
std::string validation_text(const Validation&, RunRows, const Coverages& = {});
std::string validation_json(const Validation&, const Coverages& = {});

// One table: the groups, and for each named validation (a switch off) their error and bias.
struct NamedValidation {
  std::string name;
  Validation validation;
};
std::string ablation_text(const std::vector<NamedValidation>&);
std::string ablation_json(const std::vector<NamedValidation>&);  // {"ablation": [{"name", "validation"}]}

}  // namespace orrery
