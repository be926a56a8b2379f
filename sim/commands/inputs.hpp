// Options that several commands share.
#pragma once

#include <string>
#include <vector>

#include "costmodels/models/cost_models.hpp"
#include "costmodels/stacks/software_stack.hpp"
#include "platforms/cluster.hpp"
#include "sim/commands/command_line.hpp"
#include "sim/measured/measured_run.hpp"
#include "sim/replay/plan_run.hpp"
#include "strategies/model.hpp"

namespace orrery {

// --costs FOLDER, or the models in the binary.
CostModels read_costs(const CommandLine&);
// Says on standard error when the folder of --costs answered nothing of what was asked for these clusters.
void warn_of_silent_costs(const CommandLine&, const CostModels&, const OwnAnswers&,
                          const std::vector<const ClusterSpec*>&);
// --stack, else the default.
SoftwareStack read_stack_option(const CommandLine&);
// The table of --measured, which is required; says its remarks on standard error.
MeasuredTable read_measured_option(const CommandLine&);
// A built-in cluster, a cluster file, or a SimGrid platform (.xml).
// `pricing` stands in for that of every group at list price; a platform has no list prices.
ClusterSpec read_any_cluster(const std::string& name, std::optional<Pricing> pricing = std::nullopt);
// --no-contention makes the links ideal; --pricing says how list-priced nodes are bought.
ClusterSpec read_cluster_option(const CommandLine&, const std::string& name);

// The command as a shell reads it, for the trace. Without what cannot change a result (--jobs, --quiet), so
// that the same search leaves the same bytes.
std::string command_line_text(const std::string& command, const std::vector<std::string>& arguments);
RunOrigin origin_of(const CommandLine&, const std::string& command,
                    const std::vector<std::string>& arguments);
// As given; no stack is the default.
struct PlanNames {
  std::string model, cluster, stack;
};
// With the digests of these and of the cost models beside those of the files that options name.
RunOrigin origin_of(const CommandLine&, const std::string& command, const std::vector<std::string>& arguments,
                    const PlanNames&, const CostModels&);

// Throws InputError when a file cannot be written there: before the work, not after it.
void require_writable(const std::string& path);
// Columns for a picture of a run: those of the terminal, within reason.
int picture_columns();

// Creates a folder (and those above it). Throws InputError{path, ...} when it cannot be written to.
void make_output_folder(const std::string& path);

}  // namespace orrery
