// A plan file priced and ready to be played, for the commands that take one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "costmodels/memory/memory.hpp"
#include "costmodels/plans/layer_pricing.hpp"
#include "costmodels/plans/price_book.hpp"
#include "sim/commands/command_line.hpp"
#include "strategies/plan.hpp"

namespace orrery {

struct PlayableFile {
  std::string path;
  Plan plan;
  std::unique_ptr<PriceBook> book;  // holds model and cluster
  std::vector<StageMemory> memory;  // [kind * P + stage], of one GPU
  Topology topology;
  PricedPlan priced;

  [[nodiscard]] const ParallelStrategy& strategy() const { return plan.strategy; }
};

// Model or cluster as `read` reads what the plan file says under `key`. Where nothing has that name the error
// says file and line.
template <class Read>
auto read_named(const std::string& path, const std::string& key, const Read& read) {
  try {
    return read();
  } catch (const InputError& error) {
    if (error.place != key) throw;
    throw InputError(YamlValue::read_file(path).at(key).place(), error.found, error.expected);
  }
}

// Reads --no-contention, --pricing and --layer-profile. Says on stderr, unless --quiet, when a stage does not
// fit in memory: what if is a fair question. Throws InputError for a plan that cannot run.
PlayableFile load_plan(const CommandLine&, const std::string& path, const CostModels&);

// --layer-profile [GROUP=]PATH: measured times of layers, of one node group or of all.
void declare_layer_profiles(CommandLine&);
GroupProfiles read_layer_profiles(const CommandLine&, const ClusterSpec&);
// Reads it into a book that has not predicted yet.
void use_layer_profiles(const CommandLine&, PriceBook&);

}  // namespace orrery
