// Export as Chakra execution traces (github.com/mlcommons/chakra), what ASTRA-sim and its relatives replay.
#pragma once

#include <string>
#include <vector>

#include "traces/trace.hpp"

namespace orrery {

// One JSON file a rank, with the rank before the extension of `path` ("run.json": run.0.json, run.1.json,
// ...), in the form that Chakra's feeder reads (src/feeder/json_node.cpp): {"workload_graph": [{"Id", "Name",
// "NodeType", "runtime", "data_deps", ...}]}, with the remaining fields of schema/protobuf/et_def.proto
// beside them. Times are whole microseconds, as the schema has them; attr start_s and end_s hold the exact
// seconds. A node is a compute step (type 4), a pipeline message on its sender (5) and its receiver (6), or a
// collective (7); idle time has no node, it follows from the dependencies: program order, the message a step
// waits for, the collectives before an optimizer step. Returns the paths. Throws InputError naming the one
// that cannot be written, or `path` where it is a folder.
std::vector<std::string> export_chakra(const std::string& path, const Trace&);

}  // namespace orrery
