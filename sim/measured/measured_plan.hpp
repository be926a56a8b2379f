// A published run as model, cluster, plan and software stack: what it says, and what had to be assumed.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "costmodels/stacks/software_stack.hpp"
#include "platforms/cluster.hpp"
#include "sim/measured/measured_run.hpp"
#include "strategies/model.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// Between nodes: cards of a node, and the link that each is.
struct NodeNetwork {
  int nics = 1;
  LinkSpec nic;
};
// A cluster whose first group has that network.
ClusterSpec on_network(ClusterSpec, const NodeNetwork&);

// A cell that a row leaves blank, and what it was taken for.
struct FilledCell {
  std::string column, value;
  std::string from;  // "stack nemo-24.07", "usual nodes"
  bool operator==(const FilledCell&) const = default;
};

struct MeasuredPlan {
  ModelSpec model;
  ClusterSpec cluster;                // the row's, or one group, on the first of
  std::vector<NodeNetwork> networks;  // all that its (first) nodes can have had
  SoftwareStack stack;
  // Several where a fact that matters is not known (chunks, microbatch): all that it can have been.
  std::vector<ParallelStrategy> strategies;
  std::vector<std::string> assumptions;  // in words, of facts the row does not give
  std::vector<FilledCell> filled;        // the facts that programs, models and machines give in their place
};

// Why a run cannot be expressed.
struct Unmapped {
  std::string reason;
};

// `stack_override`: a stack to use in place of the framework's own. Throws nothing: cells that nobody can
// read leave their run out.
std::variant<MeasuredPlan, Unmapped> map_run(const MeasuredRun&,
                                             const std::optional<SoftwareStack>& stack_override);

// Seconds of an iteration as published: printed, or from the printed FLOP rate or tokens a second. Absent
// when none was.
std::optional<double> measured_seconds(const MeasuredRun&, const MeasuredPlan&);
// What FLOPs its rate was taken to count, where that makes the time and nobody knows what the row says of it.
std::optional<std::string> assumed_convention(const MeasuredRun&);
// Why no card can have done what the row says: a rate above the data sheet's, a peak above its memory, a
// time too short for the model's FLOPs.
std::optional<std::string> beyond_data_sheet(const MeasuredRun&, const MeasuredPlan&);
// Why no GPUs can have run an iteration of the plan in so many seconds: a time too short for the model's
// FLOPs, with half of a causal model's attention.
std::optional<std::string> beyond_data_sheet(const ModelSpec&, const ClusterSpec&, const ParallelStrategy&,
                                             double seconds);
// Why nobody would have run it: a share of the peak below 1 %, a time in which a GPU would compute less than
// a thousandth of its peak.
std::optional<std::string> far_below_data_sheet(const MeasuredRun&, const MeasuredPlan&);
// Its `peak_mem_gb`, of 2^30 bytes; more than its card has is of 1e9.
std::optional<double> measured_gibibytes(const MeasuredRun&, const MeasuredPlan&);
// Which memory its `peak_mem_gb` is: as it says, or as its program's reports do. Throws InputError.
MemoryFigure measured_figure(const MeasuredRun&, const SoftwareStack&);

// The parts of map_run. Each throws nothing and says what it assumed.
std::variant<ModelSpec, Unmapped> model_of_run(const MeasuredRun&, std::vector<std::string>& assumptions);
struct MeasuredCluster {
  ClusterSpec cluster;
  std::vector<NodeNetwork> networks;
};
// GB200 and GB300: NVLink joins the trays of a rack of 72.
bool comes_in_racks(const GpuSpec&);
std::variant<MeasuredCluster, Unmapped> cluster_of_run(const MeasuredRun&,
                                                       std::vector<std::string>& assumptions);
// Of a plan that is known, the cells of its row that its program, its model or its machine filled.
// `stack_override`: as of map_run.
std::vector<FilledCell> filled_cells(const MeasuredRun&, const MeasuredPlan&,
                                     const std::optional<SoftwareStack>& stack_override);
// Share of what the cost models expect that collectives between nodes reach: 1, but where one card a node or
// Omni-Path is known to give less.
double node_collectives(const MeasuredRun&, const ClusterSpec&, std::vector<std::string>& assumptions);

}  // namespace orrery
