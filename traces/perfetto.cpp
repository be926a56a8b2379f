#include "traces/perfetto.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "platforms/errors.hpp"
#include "traces/json_text.hpp"
#include "traces/network_lanes.hpp"
#include "traces/output_file.hpp"
#include "traces/span_family.hpp"

namespace orrery {
namespace {

// Colour names that Catapult's trace viewer and Perfetto know; idle time stands out as grey or red.
const char* colour(SpanKind kind) {
  switch (family_of(kind)) {
    case SpanFamily::forward:
      return "rail_response";
    case SpanFamily::backward:
      return "rail_animation";
    case SpanFamily::weight_gradient:
      return "rail_idle";
    case SpanFamily::optimizer:
      return "rail_load";
    case SpanFamily::exposed:
      return "bad";
    case SpanFamily::bubble:
      return "grey";
    case SpanFamily::message:
    case SpanFamily::collective:
      return "generic_work";
  }
  throw Defect("a span kind outside the enumeration");
}

// The unit of the format is the microsecond. Whole nanoseconds make the end of a span exactly the start of
// the next.
void append_microseconds(std::string& out, std::int64_t ns) {
  const std::string digits = std::to_string(1000 + ns % 1000);
  out += std::to_string(ns / 1000) + "." + digits.substr(1);
}

void append_member(std::string& out, const char* name, std::int64_t value) {
  out += std::string(",\"") + name + "\":" + std::to_string(value);
}

std::string event(const SpanRow& span, int thread) {
  std::string name(to_text(span.kind));
  if (span.microbatch >= 0) name += " " + std::to_string(span.microbatch);
  std::string out = ",\n{\"ph\":\"X\",\"name\":\"" + name + "\",\"cat\":\"" +
                    std::string(to_text(span.stream)) + "\",\"cname\":\"" + colour(span.kind) + "\"";
  append_member(out, "pid", span.rank);
  append_member(out, "tid", thread);
  out += ",\"ts\":";
  append_microseconds(out, nanoseconds(span.start));
  out += ",\"dur\":";
  append_microseconds(out, nanoseconds(span.end) - nanoseconds(span.start));
  out += ",\"args\":{\"kind\":\"" + std::string(to_text(span.kind)) + "\"";
  if (span.microbatch >= 0) append_member(out, "microbatch", span.microbatch);
  if (span.chunk >= 0) append_member(out, "chunk", span.chunk);
  const auto number = [&out](const char* label, double value) {
    if (value == 0) return;
    out += std::string(",\"") + label + "\":";
    append_json(out, value);
  };
  number("bytes", span.bytes);
  number("flops", span.flops);
  number("tensor_communication_s", span.tensor_communication);
  return out + "}}";
}

std::string metadata(const char* what, std::size_t process, int thread, const std::string& name) {
  std::string out = std::string(",\n{\"ph\":\"M\",\"name\":\"") + what + "\"";
  append_member(out, "pid", static_cast<std::int64_t>(process));
  append_member(out, "tid", thread);
  out += ",\"args\":{\"name\":";
  append_json(out, name);
  return out + "}}";
}

std::string process_name(const RankInfo& rank) {
  return "stage " + std::to_string(rank.stage) + ", replica " + std::to_string(rank.replica) + ": " +
         std::to_string(rank.gpus) + " x " + rank.gpu + ", node " + std::to_string(rank.node);
}

void write_names(OutputFile& file, const Timeline& timeline, const std::vector<NetworkLanes>& lanes) {
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    file.write(metadata("process_name", rank, 0, process_name(timeline.ranks[rank])));
    file.write(metadata("thread_name", rank, 0, "compute"));
    for (int lane = 0; lane < lanes[rank].count(); ++lane) {
      const std::string name = lane == 0 ? "network" : "network " + std::to_string(lane + 1);
      file.write(metadata("thread_name", rank, lane + 1, name));
    }
  }
}

std::size_t first_rank_of(const Timeline& timeline, int stage) {
  std::size_t rank = 0;
  while (rank < timeline.ranks.size() && timeline.ranks[rank].stage != stage) ++rank;
  return rank;
}

void write_memory(OutputFile& file, const Trace& trace) {
  const MemoryCurve& curve = trace.activations;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    std::string out = ",\n{\"ph\":\"C\",\"name\":\"live activations\"";
    append_member(out, "pid", static_cast<std::int64_t>(first_rank_of(trace.timeline, curve.stage[i])));
    out += ",\"ts\":";
    append_microseconds(out, nanoseconds(curve.time[i]));
    out += ",\"args\":{\"GiB\":";
    append_json(out, to_gibibytes(Bytes(curve.bytes[i])));
    file.write(out + "}}");
  }
}

}  // namespace

void export_perfetto(const std::string& path, const Trace& trace) {
  OutputFile file(path);
  std::string head = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"tool_version\":";
  append_json(head, run_attribute(trace, "tool_version"));
  // The first event has no comma before it; every other one brings its own.
  file.write(
      head +
      "},\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":0,\"tid\":0,\"args\":{}}");
  std::vector<NetworkLanes> lanes(trace.timeline.ranks.size());
  for (std::size_t i = 0; i < trace.timeline.spans.size(); ++i) {
    const SpanRow span = row(trace.timeline.spans, i);
    const bool network = span.stream == Stream::network;
    file.write(event(span, network ? 1 + lanes[static_cast<std::size_t>(span.rank)].lane_for(span) : 0));
  }
  write_names(file, trace.timeline, lanes);
  write_memory(file, trace);
  file.write("\n]}\n");
  file.commit();
}

}  // namespace orrery
