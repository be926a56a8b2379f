// A strategy in Megatron-LM's terms: one list of arguments for rules, JSON and launch files.
// Names follow megatron/training/arguments.py, core/transformer/transformer_config.py and
// core/model_parallel_config.py of Megatron-LM (August 2026). The strategies here have passed check_shape.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "platforms/cluster.hpp"
#include "strategies/arguments.hpp"
#include "strategies/model.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// All names of `argument_examples`, in that order, for every strategy. What Megatron-LM has only one of and
// the strategy several (tensor ways of its stages) is the largest. Shapes are those of the model's first
// layer.
ArgumentTable megatron_arguments(const ModelSpec&, const ParallelStrategy&);

// One of them: its name, and its value for a strategy.
struct ArgumentRow {
  std::string_view name;
  Argument (*value)(const ModelSpec&, const ParallelStrategy&);
};
const std::vector<ArgumentRow>& argument_rows();  // in their order

// "Et*3|(tt|)*2,tttL": E embedding, t layer, L loss, | between model parts in model order, repeats folded.
// Megatron-LM core/transformer/pipeline_parallel_layer_layout.py.
std::string pipeline_layout(const ParallelStrategy&);

// Which parts of the plan Megatron-LM cannot run, and why; empty: it runs.
std::vector<std::string> megatron_gaps(const ModelSpec&, const ParallelStrategy&, const ClusterSpec&);

struct LaunchFiles {
  std::string arguments;  // Megatron-LM's command line, one flag a line
  std::string script;     // bash; run on every node with NODE_RANK, MASTER_ADDR and MEGATRON_LM set
  std::string rank_map;   // for people: which node group hosts which ranks and stages
};

// The files, or the gaps.
std::variant<LaunchFiles, std::vector<std::string>> launch_files(const ModelSpec&, const ParallelStrategy&,
                                                                 const ClusterSpec&);

}  // namespace orrery
