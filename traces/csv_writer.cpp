#include "traces/json_text.hpp"
#include "traces/output_file.hpp"
#include "traces/perfetto.hpp"

namespace orrery {

void export_csv(const std::string& path, const Trace& trace) {
  OutputFile file(path);
  file.write(
      "rank,stage,replica,stream,kind,chunk,microbatch,start_s,end_s,tensor_communication_s,bytes,flops\n");
  for (std::size_t i = 0; i < trace.timeline.spans.size(); ++i) {
    const SpanRow span = row(trace.timeline.spans, i);
    const RankInfo& rank = trace.timeline.ranks[static_cast<std::size_t>(span.rank)];
    std::string line = std::to_string(span.rank) + "," + std::to_string(span.stage) + "," +
                       std::to_string(rank.replica) + "," + std::string(to_text(span.stream)) + "," +
                       std::string(to_text(span.kind)) + ",";
    if (span.chunk >= 0) line += std::to_string(span.chunk);
    line += ',';
    if (span.microbatch >= 0) line += std::to_string(span.microbatch);
    for (const double number : {span.start, span.end, span.tensor_communication, span.bytes, span.flops}) {
      line += ',';
      append_json(line, number);
    }
    file.write(line + "\n");
  }
  file.commit();
}

}  // namespace orrery
