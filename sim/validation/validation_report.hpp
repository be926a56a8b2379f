// A validation as a table for people and as JSON (DESIGN 2.6).
#pragma once

#include <string>

#include "sim/validation/interval_fit.hpp"
#include "sim/validation/validation.hpp"

namespace orrery {

// What has a row of its own: nothing but what runs have in common (breakdown.hpp) where the groups are many;
// each group, with what was assumed of its runs; each run too.
enum class Listed { digest, groups, runs };
// How far intervals and chances hold for runs that they were made without.
struct Coverages {
  std::vector<Coverage> time, memory;
  std::vector<ForeseenChances> out_of_memory;
};
// Errors of times and memory, how far intervals hold, what was skipped and why, and what was assumed.
std::string validation_text(const Validation&, Listed, const Coverages& = {});
std::string validation_json(const Validation&, const Coverages& = {});

// One table: the groups, or where they are many the programs, and for each named validation (a switch off)
// their error and bias.
struct NamedValidation {
  std::string name;
  Validation validation;
};
std::string ablation_text(const std::vector<NamedValidation>&);
std::string ablation_json(const std::vector<NamedValidation>&);  // {"ablation": [{"name", "validation"}]}

}  // namespace orrery
