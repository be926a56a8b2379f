#include "sim/replay/durations.hpp"

#include <array>
#include <numeric>

#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"
#include "strategies/task_order.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostStages = 4096, kMostMicrobatches = 1'000'000, kMostReplicas = 65'536;
constexpr std::int64_t kMostTensorRanks = 1024, kMostTensorCalls = 1000, kMostGpus = 100'000'000;
constexpr std::int64_t kMostSteps = 200'000'000;  // of all ranks together: what fits in memory

// `backward` is the whole backward where there is no weight_gradient, and that for the input where there is.
PartTimes part_times(const YamlValue& row) {
  row.allow_keys({"forward", "backward", "weight_gradient"});
  PartTimes times;
  if (const auto weights = row.find("weight_gradient"))
    times.weight_gradient = weights->positive_quantity<Seconds>();
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
  std::vector<ScheduleKind> kinds;
  for (const ScheduleRow& row : schedule_table()) kinds.push_back(row.kind);
  shape.kind = root.at("schedule").one_of_values(kinds);
  shape.transfers = default_transfers(shape.kind);
  if (const auto p2p = root.find("p2p")) {
    shape.transfers =
        p2p->one_of_values(std::array{TransferMode::eager, TransferMode::blocking, TransferMode::overlapped});
  }
  shape.ranks = stages;
  shape.chunks = chunks;
  shape.microbatches = static_cast<int>(root.at("microbatches").integer(1, kMostMicrobatches));
  if (const auto group = root.find("microbatch_group")) {
    shape.microbatch_group = static_cast<int>(group->integer(1, kMostMicrobatches));
  }
  if (const auto obstacle = schedule_obstacle(shape))
    root.at("schedule").fail("a schedule that fits: " + *obstacle);
  return shape;
}

// A schedule that splits the backward needs the time for the weights apart; the others take both together.
std::vector<PartTimes> parts_in_model_order(const YamlValue& stages, ScheduleKind kind,
                                            const std::vector<std::vector<PartTimes>>& times,
                                            WeightGradients weights) {
  const int ranks = static_cast<int>(times.size());
  const bool split = schedule_row(kind).split_backward;
  std::vector<PartTimes> parts(times.size() * times.front().size());
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t chunk = 0; chunk < times.front().size(); ++chunk) {
      PartTimes part = times[static_cast<std::size_t>(rank)][chunk];
      if (split && part.weight_gradient.value() == 0) {
        stages.fail("a weight_gradient in every row: " + std::string(to_text(kind)) + " splits the backward");
      }
      if (!split && weights == WeightGradients::as_schedule) {
        part.backward += part.weight_gradient;
        part.weight_gradient = Seconds(0);
      }
      parts[static_cast<std::size_t>(part_of(kind, ranks, rank, static_cast<int>(chunk)))] = part;
    }
  }
  return parts;
}

// Microbatches of each replica, where they are unequal.
void read_replica_microbatches(const YamlValue& list, PricedPlan& plan) {
  const std::vector<YamlValue> counts = list.items();
  if (counts.size() != static_cast<std::size_t>(plan.replicas)) list.fail("one count a replica");
  for (const YamlValue& count : counts) {
    ScheduleShape shape = plan.schedule;
    shape.microbatches = static_cast<int>(count.integer(1, kMostMicrobatches));
    if (const auto obstacle = schedule_obstacle(shape)) count.fail("a schedule that fits: " + *obstacle);
    plan.replica_microbatches.push_back(shape.microbatches);
  }
}

std::vector<PlayedPiece> equal_pieces(Seconds whole, std::int64_t calls) {
  std::vector<PlayedPiece> pieces(static_cast<std::size_t>(calls));
  for (PlayedPiece& piece : pieces) {
    piece.compute = whole / static_cast<double>(calls);
    piece.call = 0;
  }
  return pieces;
}

// Every rank becomes a group of GPUs, which all-reduce a message after each of so many equal pieces of a
// forward and a backward. Returns the GPUs of a group.
int read_tensor_group(const YamlValue& tensor, PricedPlan& plan) {
  tensor.allow_keys({"ranks", "message", "per_forward", "per_backward"});
  GroupCall call;
  call.bytes = tensor.at("message").positive_quantity<Bytes>();
  plan.calls = {call};
  const std::int64_t per_forward = tensor.at("per_forward").integer(0, kMostTensorCalls);
  const std::int64_t per_backward = tensor.at("per_backward").integer(0, kMostTensorCalls);
  for (PartTimes& part : plan.parts) {
    part.forward_pieces = equal_pieces(part.forward, per_forward);
    part.backward_pieces = equal_pieces(part.backward, per_backward);
  }
  return static_cast<int>(tensor.at("ranks").integer(2, kMostTensorRanks));
}

// Everything that follows the pipeline; each key by itself.
void read_traffic(const YamlValue& root, PricedPlan& plan) {
  const auto is_on = [&](const char* key) {
    const auto value = root.find(key);
    return value && value->boolean();
  };
  const int chunks = plan.schedule.chunks;
  if (const auto gradient = root.find("gradient")) {
    plan.reductions.assign(plan.parts.size(), {gradient->positive_quantity<Bytes>() / chunks, Bytes(0), {}});
  }
  if (const auto parameters = root.find("parameters")) {
    if (plan.reductions.empty()) parameters->fail("a gradient beside it: the distributed optimizer has both");
    plan.distributed_optimizer = true;
    for (PartReduction& part : plan.reductions)
      part.gathered = parameters->positive_quantity<Bytes>() / chunks;
  }
  if (const auto embedding = root.find("embedding"))
    plan.embedding_gradient = embedding->positive_quantity<Bytes>();
  if (const auto optimizer = root.find("optimizer")) {
    plan.optimizer.assign(static_cast<std::size_t>(plan.stages()), optimizer->positive_quantity<Seconds>());
  }
  if (const auto bucket = root.find("bucket")) plan.bucket = bucket->positive_quantity<Bytes>();
  if (const auto slowdown = root.find("overlap_slowdown"))
    plan.overlap_slowdown = slowdown->number(1.0, 100.0);
  if (const auto counts = root.find("replica_microbatches")) read_replica_microbatches(*counts, plan);
  plan.gradient_norm = is_on("gradient_norm");
  // Ranks that go on by themselves show in the second iteration.
  if (validates_later(plan.schedule.kind) && !plan.gradient_norm) plan.iterations = 2;
  if (const auto iterations = root.find("iterations"))
    plan.iterations = static_cast<int>(iterations->integer(1, 1000));
  plan.overlap_grad_reduce = is_on("overlap_grad_reduce");
  plan.overlap_param_gather = is_on("overlap_param_gather");
}

}  // namespace

DurationsPlan parse_durations(std::string_view yaml, const std::string& file, WeightGradients weights) {
  const YamlValue root = YamlValue::parse(yaml, file);
  root.allow_keys({"schedule",
                   "microbatches",
                   "microbatch_group",
                   "p2p",
                   "replicas",
                   "replica_microbatches",
                   "stages",
                   "message",
                   "gradient",
                   "parameters",
                   "embedding",
                   "optimizer",
                   "gradient_norm",
                   "bucket",
                   "overlap_grad_reduce",
                   "overlap_param_gather",
                   "overlap_slowdown",
                   "iterations",
                   "tensor",
                   "link"});
  const auto times = stage_times(root.at("stages"));
  const int stages = static_cast<int>(times.size());
  const int chunks = static_cast<int>(times.front().size());
  PricedPlan plan;
  plan.schedule = schedule_shape(root, stages, chunks);
  if (const auto replicas = root.find("replicas"))
    plan.replicas = static_cast<int>(replicas->integer(1, kMostReplicas));
  const std::int64_t steps = 2LL * stages * chunks * plan.schedule.microbatches * plan.replicas;
  if (steps > kMostSteps)
    root.at("microbatches").fail("stages x chunks x microbatches x replicas of at most 100 million");

  plan.parts = parts_in_model_order(root.at("stages"), plan.schedule.kind, times, weights);
  const Bytes message = root.at("message").positive_quantity<Bytes>();
  plan.boundaries.assign(plan.parts.size() - 1, {message, {}});
  const YamlValue link = root.at("link");
  link.allow_keys({"bandwidth", "latency"});
  const LinkSpec nic{link.at("bandwidth").positive_quantity<BytesPerSecond>(),
                     link.at("latency").quantity<Seconds>()};
  read_traffic(root, plan);
  int tensor = 1;
  if (const auto group = root.find("tensor")) tensor = read_tensor_group(*group, plan);
  const std::int64_t gpus = std::int64_t{stages} * plan.replicas * tensor;
  if (gpus > kMostGpus) root.at("stages").fail("stages x replicas x tensor ranks of at most 100 million");
  const int nodes = static_cast<int>(gpus);
  for (int first = 0; first < nodes; first += tensor) {
    std::vector<int>& lanes = plan.gpus.emplace_back(static_cast<std::size_t>(tensor));
    std::iota(lanes.begin(), lanes.end(), first);
  }
  Topology topology(one_switch(nic, nodes), {nodes});
  plan.transfers = transfer_times(plan, topology);
  return {std::move(plan), std::move(topology)};
}

DurationsPlan read_durations(const std::string& path, WeightGradients weights) {
  return parse_durations(read_text_file(path), path, weights);
}

}  // namespace orrery
