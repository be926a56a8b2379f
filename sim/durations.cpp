#include "sim/durations.hpp"

#include <array>

#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostStages = 4096, kMostMicrobatches = 1'000'000, kMostReplicas = 65'536;
constexpr std::int64_t kMostSteps = 200'000'000;  // of all ranks together: what fits in memory

template <class Enum, std::size_t N>
Enum one_of(const YamlValue& value, const std::array<Enum, N>& choices) {
  std::vector<std::string> names;
  std::string listed;
  for (const Enum choice : choices) {
    names.emplace_back(to_text(choice));
    listed += (listed.empty() ? "" : ", ") + names.back();
    if (value.text() == names.back()) return choice;
  }
  value.fail("one of " + listed + did_you_mean(value.text(), names));
}

PartTimes part_times(const YamlValue& row) {
  row.allow_keys({"forward", "backward"});
  PartTimes times;
  times.forward = row.at("forward").positive_quantity<Seconds>();
  times.backward = row.at("backward").positive_quantity<Seconds>();
  return times;
}

// [stage][chunk]; every stage has as many chunks as the first.
std::vector<std::vector<PartTimes>> stage_times(const YamlValue& stages) {
  std::vector<std::vector<PartTimes>> times;
  for (const YamlValue& row : stages.items()) {
    times.emplace_back();
    if (const auto chunks = row.find("chunks")) {
      row.allow_keys({"chunks"});
      for (const YamlValue& chunk : chunks->items()) times.back().push_back(part_times(chunk));
    } else {
      times.back().push_back(part_times(row));
    }
    if (times.back().empty()) row.fail("at least one chunk");
    if (times.back().size() != times.front().size()) row.fail("as many chunks as the first stage has");
  }
  if (times.empty() || times.size() > kMostStages) stages.fail("1 to 4096 stages");
  return times;
}

ClusterSpec one_switch(LinkSpec nic, int nodes) {
  NodeGroup group;
  group.name = "rank";
  group.gpu.name = "explicit durations";
  group.gpus_per_node = 1;
  group.count = {nodes, nodes};
  group.gpu_link = nic;  // never used: one GPU a node
  group.nic = nic;
  ClusterSpec cluster;
  cluster.name = "one switch";
  cluster.groups.push_back(group);
  return cluster;
}

ScheduleShape schedule_shape(const YamlValue& root, int stages, int chunks) {
  ScheduleShape shape;
  shape.kind = one_of(root.at("schedule"),
                      std::array{ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved});
  shape.transfers = shape.kind == ScheduleKind::interleaved ? TransferMode::overlapped : TransferMode::blocking;
  if (const auto p2p = root.find("p2p")) {
    shape.transfers = one_of(*p2p, std::array{TransferMode::eager, TransferMode::blocking, TransferMode::overlapped});
  }
  shape.ranks = stages;
  shape.chunks = chunks;
  shape.microbatches = static_cast<int>(root.at("microbatches").integer(1, kMostMicrobatches));
  if (const auto obstacle = schedule_obstacle(shape)) root.at("schedule").fail("a schedule that fits: " + *obstacle);
  return shape;
}

}  // namespace

DurationsPlan parse_durations(std::string_view yaml, const std::string& file) {
  const YamlValue root = YamlValue::parse(yaml, file);
  root.allow_keys({"schedule", "microbatches", "p2p", "replicas", "stages", "message", "gradient", "link"});
  const auto times = stage_times(root.at("stages"));
  const int stages = static_cast<int>(times.size());
  const int chunks = static_cast<int>(times.front().size());
  PricedPlan plan;
  plan.schedule = schedule_shape(root, stages, chunks);
  if (const auto replicas = root.find("replicas")) plan.replicas = static_cast<int>(replicas->integer(1, kMostReplicas));
  const std::int64_t steps = 2LL * stages * chunks * plan.schedule.microbatches * plan.replicas;
  if (steps > kMostSteps) root.at("microbatches").fail("stages x chunks x microbatches x replicas of at most 100 million");

  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (const auto& of_stage : times) plan.parts.push_back(of_stage[static_cast<std::size_t>(chunk)]);
  }
  const Bytes message = root.at("message").positive_quantity<Bytes>();
  plan.boundaries.assign(plan.parts.size() - 1, {message, {}});
  const YamlValue link = root.at("link");
  link.allow_keys({"bandwidth", "latency"});
  const LinkSpec nic{link.at("bandwidth").positive_quantity<BytesPerSecond>(), link.at("latency").quantity<Seconds>()};
  if (const auto gradient = root.find("gradient")) {
    plan.reductions.assign(times.size(), {gradient->positive_quantity<Bytes>(), Bytes(0), {}});
  }
  const int ranks = stages * plan.replicas;
  for (int rank = 0; rank < ranks; ++rank) plan.gpus.push_back({rank});
  return {std::move(plan), Topology(one_switch(nic, ranks), {ranks})};
}

DurationsPlan read_durations(const std::string& path) { return parse_durations(read_text_file(path), path); }

}  // namespace orrery
