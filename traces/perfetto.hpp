// Export for people who look at timelines: https://ui.perfetto.dev and chrome://tracing open the file.
#pragma once

#include <string>

#include "traces/trace.hpp"

namespace orrery {

// Chrome trace events in JSON. One process a rank (a stage of a replica) with a thread for its compute stream
// and as many for its network stream as transfers run at once; live activations are a counter of the first
// rank of a stage. Throws InputError naming the path when it cannot be written.
void export_perfetto(const std::string& path, const Trace&);

// One row a span: rank, stage, replica, stream, kind, chunk, microbatch, start_s, end_s,
// tensor_communication_s, bytes, flops. Chunk and microbatch are empty where a span belongs to none.
void export_csv(const std::string& path, const Trace&);

}  // namespace orrery
