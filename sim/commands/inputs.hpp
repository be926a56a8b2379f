// Options that several commands share.
#pragma once

#include <string>

#include "costmodels/cost_models.hpp"
#include "platforms/cluster.hpp"
#include "sim/command_line.hpp"
#include "sim/plan_run.hpp"
#include "strategies/model.hpp"

namespace orrery {

// --costs FOLDER, or the models in the binary.
CostModels read_costs(const CommandLine&);
// --no-contention makes the links ideal.
ClusterSpec read_cluster_option(const CommandLine&, const std::string& name);

RunOrigin origin_of(const CommandLine&, const std::string& command, const std::vector<std::string>& arguments,
                    const std::string& model, const std::string& cluster, const CostModels&);

// Creates a folder (and those above it). Throws InputError{path, ...} when it cannot be written to.
void make_output_folder(const std::string& path);

}  // namespace orrery
