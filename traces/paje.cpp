// The Paje format as SimGrid, ViTE and pj_dump read it: "Paje trace file", L. M. Schnorr, version 1.2.
#include "traces/paje.hpp"

#include <algorithm>
#include <tuple>
#include <vector>

#include "platforms/errors.hpp"
#include "traces/json_text.hpp"
#include "traces/network_lanes.hpp"
#include "traces/output_file.hpp"
#include "traces/span_family.hpp"

namespace orrery {
namespace {

// Each kind of event has a number, which starts its lines.
constexpr const char* kDefinitions =
    "%EventDef PajeDefineContainerType 0\n% Alias string\n% Type string\n% Name string\n%EndEventDef\n"
    "%EventDef PajeDefineStateType 1\n% Alias string\n% Type string\n% Name string\n%EndEventDef\n"
    "%EventDef PajeDefineEntityValue 2\n% Alias string\n% Type string\n% Name string\n% Color "
    "color\n%EndEventDef\n"
    "%EventDef PajeCreateContainer 3\n% Time date\n% Alias string\n% Type string\n% Container string\n"
    "% Name string\n%EndEventDef\n"
    "%EventDef PajeDestroyContainer 4\n% Time date\n% Type string\n% Name string\n%EndEventDef\n"
    "%EventDef PajePushState 5\n% Time date\n% Type string\n% Container string\n% Value "
    "string\n%EndEventDef\n"
    "%EventDef PajePopState 6\n% Time date\n% Type string\n% Container string\n%EndEventDef\n";

// Okabe and Ito's colours, idle time grey or red.
const char* colour(SpanKind kind) {
  switch (family_of(kind)) {
    case SpanFamily::forward:
      return "0.00 0.45 0.70";
    case SpanFamily::backward:
      return "0.00 0.62 0.45";
    case SpanFamily::weight_gradient:
      return "0.34 0.71 0.91";
    case SpanFamily::optimizer:
      return "0.94 0.89 0.26";
    case SpanFamily::exposed:
      return "0.84 0.37 0.00";
    case SpanFamily::bubble:
      return "0.80 0.80 0.80";
    case SpanFamily::message:
    case SpanFamily::collective:
      return "0.80 0.47 0.65";
  }
  throw Defect("a span kind outside the enumeration");
}

bool is_network(SpanKind kind) {
  return kind >= SpanKind::send;
}
const char* state_type(bool network) {
  return network ? "transfer" : "work";
}

std::string number(double value) {
  std::string text;
  append_json(text, value);
  return text;
}

std::string quoted(std::string text) {
  std::replace(text.begin(), text.end(), '"', '\'');
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return "\"" + text + "\"";
}

std::string rank_alias(int rank) {
  return "r" + std::to_string(rank);
}
// Lane 0 is the compute stream of the rank itself, lane 1 the first of its network.
std::string container_alias(int rank, int lane) {
  return rank_alias(rank) + (lane == 0 ? "" : "n" + std::to_string(lane));
}

void write_types(OutputFile& file) {
  file.write(kDefinitions);
  file.write(
      "0 run 0 run\n0 rank run rank\n0 network rank network\n1 work rank work\n1 transfer network "
      "transfer\n");
  for (int i = 0; i < kSpanKinds; ++i) {
    const auto kind = static_cast<SpanKind>(i);
    const std::string name(to_text(kind));
    file.write("2 " + name + " " + state_type(is_network(kind)) + " " + name + " \"" + colour(kind) + "\"\n");
  }
}

void write_containers(OutputFile& file, const Timeline& timeline, const std::vector<NetworkLanes>& lanes) {
  file.write("3 0 run run 0 run\n");
  for (std::size_t i = 0; i < timeline.ranks.size(); ++i) {
    const RankInfo& rank = timeline.ranks[i];
    const std::string name =
        "stage " + std::to_string(rank.stage) + " replica " + std::to_string(rank.replica);
    const std::string alias = rank_alias(static_cast<int>(i));
    file.write("3 0 " + alias + " rank run " + quoted(name + " " + rank.gpu) + "\n");
    for (int lane = 1; lane <= lanes[i].count(); ++lane) {
      file.write("3 0 " + container_alias(static_cast<int>(i), lane) + " network " + alias + " " +
                 quoted(name + " network " + std::to_string(lane)) + "\n");
    }
  }
}

void destroy_containers(OutputFile& file, const Timeline& timeline, const std::vector<NetworkLanes>& lanes) {
  double end = timeline.makespan;
  for (const double span_end : timeline.spans.end) end = std::max(end, span_end);
  const std::string at = number(end);
  for (std::size_t i = 0; i < timeline.ranks.size(); ++i) {
    const int rank = static_cast<int>(i);
    for (int lane = 1; lane <= lanes[i].count(); ++lane) {
      file.write("4 " + at + " network " + container_alias(rank, lane) + "\n");
    }
    file.write("4 " + at + " rank " + rank_alias(rank) + "\n");
  }
  file.write("4 " + at + " run run\n");
}

}  // namespace

void export_paje(const std::string& path, const Trace& trace) {
  const Timeline& timeline = trace.timeline;
  OutputFile file(path);
  write_types(file);
  std::vector<NetworkLanes> lanes(timeline.ranks.size());
  std::vector<std::tuple<double, bool, std::string>> events;  // in the order of time, ends before starts
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const SpanRow span = row(timeline.spans, i);
    if (!(span.end > span.start)) continue;  // nothing that could be seen
    const bool network = span.stream == Stream::network;
    const int lane = network ? 1 + lanes[static_cast<std::size_t>(span.rank)].lane_for(span) : 0;
    const std::string where = std::string(" ") + state_type(network) + " " + container_alias(span.rank, lane);
    events.emplace_back(span.start, true,
                        "5 " + number(span.start) + where + " " + std::string(to_text(span.kind)) + "\n");
    events.emplace_back(span.end, false, "6 " + number(span.end) + where + "\n");
  }
  write_containers(file, timeline, lanes);
  std::sort(events.begin(), events.end());
  for (const auto& [time, starts, line] : events) file.write(line);
  destroy_containers(file, timeline, lanes);
  file.commit();
}

}  // namespace orrery
