// A plan file: which model runs on which cluster, and how.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "platforms/cluster.hpp"
#include "platforms/errors.hpp"
#include "strategies/model.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

struct Plan {
  std::string model;    // as given: a built-in name or a path
  std::string cluster;  // likewise
  ParallelStrategy strategy;
  std::string stack = {};  // software stack, a preset's name or a path; empty: Orrery's default
  bool operator==(const Plan&) const = default;
};

// Plan YAML (PLANS.md of this folder). Throws InputError; unknown keys are errors. Whether the plan fits its
// model and cluster is for check_shape to say.
Plan read_plan(const std::string& path);
Plan parse_plan(std::string_view yaml, const std::string& file);
// YAML that parse_plan reads back to an equal value.
std::string to_yaml(const Plan&);

// Why the strategy cannot run on this model and cluster whatever its times and memory are; absent when it
// can. The reason is a sentence with the numbers.
std::optional<Infeasible> check_shape(const ModelSpec&, const ParallelStrategy&, const ClusterSpec&);
// The part of it that a search never breaks, since it deals GPUs, microbatches and layers itself: stages,
// replicas and their shares, the GPUs they stand on, the layers of each part.
std::optional<Infeasible> check_places(const ModelSpec&, const ParallelStrategy&, const ClusterSpec&);

}  // namespace orrery
