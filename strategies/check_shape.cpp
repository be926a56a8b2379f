// What a strategy must satisfy before its times and memory matter: what only a plan file can say wrong, and
// the rules of misfits.hpp.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include "strategies/misfits.hpp"
#include "strategies/placement.hpp"
#include "strategies/plan.hpp"
#include "strategies/schedule.hpp"

namespace orrery {
namespace {

using Answer = std::optional<Infeasible>;

// "a 3 b": parts joined by blanks.
template <class... Parts>
Infeasible reason(const Parts&... parts) {
  const auto text = [](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>)
      return std::to_string(part);
    else
      return std::string(part);
  };
  std::string sentence;
  ((sentence += (sentence.empty() ? "" : " ") + text(parts)), ...);
  return {InfeasibleKind::shape, sentence};
}

Answer in_words(const std::optional<Misfit>& misfit) {
  return misfit ? Answer(reason(to_text(*misfit))) : std::nullopt;
}

struct Case {
  const ModelSpec& model;
  const ParallelStrategy& strategy;
  const ClusterSpec& cluster;

  [[nodiscard]] const NodeGroup& group(const StageDevices& stage) const {
    return cluster.groups[static_cast<std::size_t>(stage.group)];
  }
};

Answer check_sizes(const Case& c) {
  const ParallelStrategy& s = c.strategy;
  if (s.sequence < 1) return reason("the sequence has", s.sequence, "tokens; at least 1 is needed");
  if (std::min({s.pipeline, s.data, s.context, s.expert, s.chunks}) < 1)
    return reason("every number of ways is at least 1; pipeline", s.pipeline, "data", s.data, "context",
                  s.context, "expert", s.expert, "chunks", s.chunks);
  if (s.micro_batch < 1 || s.global_batch < 1)
    return reason("the micro batch of", s.micro_batch, "and the global batch of", s.global_batch,
                  "sequences must be at least 1");
  if (s.stages.size() != static_cast<std::size_t>(s.pipeline))
    return reason("the pipeline has", s.pipeline, "ranks and GPUs are named for", s.stages.size());
  if (s.nodes.size() != c.cluster.groups.size())
    return reason("nodes are named for", s.nodes.size(), "groups; the cluster has", c.cluster.groups.size());
  return std::nullopt;
}

Answer check_replica_kind(const Case& c, const ReplicaKind& kind) {
  const ParallelStrategy& s = c.strategy;
  if (kind.groups.size() != s.stages.size())
    return reason("a kind of replica names node groups for", kind.groups.size(), "of the", s.stages.size(),
                  "stages");
  if (kind.count < 1) return reason("a kind of replica has", kind.count, "replicas; at least 1 is needed");
  if ((kind.microbatches == 0) != s.shares_open())
    return reason("microbatches are said for some kinds of replica only; say them for all or for none");
  if (kind.microbatches < 0 || kind.microbatches > s.global_batch / s.micro_batch)
    return reason("a replica runs", kind.microbatches, "microbatches of the", s.global_batch / s.micro_batch,
                  "of the global batch");
  return std::nullopt;
}

// Kinds that add up, and `stages` in agreement with the first.
Answer check_replicas(const Case& c) {
  const ParallelStrategy& s = c.strategy;
  if (s.replicas.empty()) return std::nullopt;
  std::int64_t count = 0, microbatches = 0;
  for (const ReplicaKind& kind : s.replicas) {
    if (Answer answer = check_replica_kind(c, kind)) return answer;
    count += kind.count;
    microbatches += kind.count * kind.microbatches;
  }
  if (count != s.data) return reason("the kinds of replica have", count, "replicas; the plan has", s.data);
  if (s.of_kind(0).stages != s.stages)
    return reason("the stages and the first kind of replica name different node groups");
  if (!s.shares_open() && microbatches * s.micro_batch != s.global_batch)
    return reason("the replicas run", microbatches, "microbatches of", s.micro_batch,
                  "sequences in all; the global batch has", s.global_batch);
  return std::nullopt;
}

Answer check_layers(const Case& c) {
  const ParallelStrategy& s = c.strategy;
  const int layers = c.model.layer_count();
  const std::int64_t parts = std::int64_t{s.pipeline} * s.chunks;
  // The embedding and the loss can stand alone (--account-for-embedding-in-pipeline-split and its twin).
  const int most = layers + (s.pipeline > 1 ? 2 : 0);
  if (parts > most)
    return reason(s.pipeline, "pipeline ranks with", s.chunks, "parts each need", parts,
                  "layers; the model has", layers);
  if (static_cast<std::int64_t>(s.parts.size()) != parts)
    return reason(s.pipeline, "pipeline ranks with", s.chunks, "parts each need", parts, "parts; there are",
                  s.parts.size());
  std::int64_t next = 0;
  for (const LayerRange& part : s.parts) {
    if (part.first != next)
      return reason("a part begins at layer", part.first, "where layer", next, "is next");
    const bool stands_alone = s.pipeline > 1 && (&part == &s.parts.front() || &part == &s.parts.back());
    if (part.count < (stands_alone ? 0 : 1))
      return reason("the part at layer", part.first, "has", part.count, "layers; at least 1 is needed");
    next += part.count;
  }
  if (next != layers) return reason("the parts hold", next, "layers; the model has", layers);
  return std::nullopt;
}

Answer check_batch(const Case& c) {
  const ParallelStrategy& s = c.strategy;
  if (s.replicas.empty()) {
    if (Answer answer = in_words(batch_misfit(s.global_batch, s.micro_batch, s.data))) return answer;
  }
  if (s.shares_open() && (s.global_batch % s.micro_batch != 0 || s.global_batch < s.micro_batch * s.data))
    return reason("the global batch of", s.global_batch, "sequences cannot be dealt to", s.data,
                  "replicas in microbatches of", s.micro_batch);
  return in_words(positions_misfit(c.model, s.sequence));
}

Answer check_schedule(const ParallelStrategy& s) {
  if (Answer answer = in_words(microbatches_misfit(s.microbatches()))) return answer;
  const ScheduleShape shape{.kind = s.schedule,
                            .transfers = s.transfers,
                            .ranks = s.pipeline,
                            .chunks = s.chunks,
                            .microbatches = static_cast<int>(s.microbatches())};
  if (const auto obstacle = schedule_obstacle(shape)) return reason("schedule:", *obstacle);
  return std::nullopt;
}

Answer check_schedules(const Case& c) {
  for (int kind = 0; kind < c.strategy.kinds() && !c.strategy.shares_open(); ++kind)
    if (Answer answer = check_schedule(c.strategy.of_kind(kind))) return answer;
  return std::nullopt;
}

Answer check_stage_devices(const Case& c, const StageDevices& stage) {
  if (stage.group < 0 || static_cast<std::size_t>(stage.group) >= c.cluster.groups.size())
    return reason("node group", stage.group, "is not among the cluster's", c.cluster.groups.size());
  if (stage.tensor < 1)
    return reason("a stage has", stage.tensor, "tensor-parallel ways; at least 1 is needed");
  const NodeGroup& group = c.group(stage);
  if (group.gpus_per_node % stage.tensor != 0 && stage.tensor % group.gpus_per_node != 0)
    return reason(stage.tensor, "tensor-parallel ways do not fit the", group.gpus_per_node,
                  "GPUs of a node of group", group.name);
  if (!peak(group.gpu, c.strategy.type))
    return reason("GPU", group.gpu.name, "of group", group.name, "has no", to_text(c.strategy.type),
                  "matrix units");
  return std::nullopt;
}

Answer check_devices(const Case& c) {
  for (int kind = 0; kind < c.strategy.kinds(); ++kind) {
    for (const StageDevices& stage : c.strategy.of_kind(kind).stages) {
      if (Answer answer = check_stage_devices(c, stage)) return answer;
    }
  }
  const std::vector<std::int64_t> used = gpus_in_use(c.strategy, c.cluster);
  for (std::size_t i = 0; i < used.size(); ++i) {
    const NodeGroup& group = c.cluster.groups[i];
    const int nodes = c.strategy.nodes[i];
    if (nodes < group.count.minimum || nodes > group.count.maximum)
      return reason(nodes, "nodes of group", group.name, "are not between", group.count.minimum, "and",
                    group.count.maximum, "of the cluster's count (0..n lets a plan leave nodes out)");
    const std::int64_t available = std::int64_t{nodes} * group.gpus_per_node;
    if (used[i] > available)
      return reason("the stages on group", group.name, "need", used[i], "GPUs;", nodes, "nodes have",
                    available);
  }
  if (const auto obstacle = hosts_obstacle(c.strategy)) return reason(*obstacle);
  return std::nullopt;
}

Answer check_layer(const ParallelStrategy& s, const LayerShape& shape, int tensor) {
  const std::int64_t sequence = shape.sequence > 0 ? shape.sequence : s.sequence;
  if (Answer answer = in_words(tensor_misfit(shape, tensor))) return answer;
  if (Answer answer = in_words(context_misfit(sequence, s.context))) return answer;
  if (Answer answer = in_words(state_space_misfit(shape, tensor, s.context))) return answer;
  if (!s.sequence_parallel) return std::nullopt;
  return in_words(sequence_parallel_misfit(sequence, s.context, tensor));
}

Answer check_tensor(const Case& c) {
  const ParallelStrategy& s = c.strategy;
  for (int part = 0; part < s.part_count(); ++part) {
    const LayerRange& range = s.parts[static_cast<std::size_t>(part)];
    const int tensor = s.tensor(s.rank_of_part(part));
    int checked = -1;
    for (int layer = range.first; layer < range.first + range.count; ++layer) {
      const int shape = c.model.layers[static_cast<std::size_t>(layer)];
      if (shape == checked) continue;
      checked = shape;
      if (Answer answer = check_layer(s, c.model.layer(layer), tensor)) return answer;
    }
  }
  return std::nullopt;
}

int other_tensor(const ParallelStrategy& s) {
  const auto other = std::find_if(s.stages.begin(), s.stages.end(),
                                  [&](const StageDevices& stage) { return stage.tensor != s.tensor(0); });
  return other == s.stages.end() ? s.tensor(0) : other->tensor;
}

Answer check_experts(const Case& c) {
  const ParallelStrategy& s = c.strategy;
  if (Answer answer = in_words(expert_tensor_misfit(switches_of(s), s.tensor(0), other_tensor(s), s.expert)))
    return answer;
  if (s.expert == 1) return std::nullopt;
  if (Answer answer = in_words(expert_spread_misfit(s.copies_sharing_experts(), s.context, s.data)))
    return answer;
  return in_words(experts_misfit(c.model, s.expert));
}

Answer check_recompute(const Case& c) {
  const Recompute& recompute = c.strategy.recompute;
  if (recompute.granularity == RecomputeGranularity::selective && recompute.modules.empty())
    return reason("selective recomputation of no module");
  int most = 0;  // layers of a part
  for (const LayerRange& part : c.strategy.parts) most = std::max(most, part.count);
  if (recompute.granularity == RecomputeGranularity::full && recompute.layers > most)
    return reason("recompute has", recompute.layers, "layers; the largest part has", most);
  return in_words(module_misfit(c.model, recompute));
}

Answer check_switches(const Case& c) {
  const ParallelStrategy& s = c.strategy;
  const Switches switches = switches_of(s);
  const auto most = std::max_element(
      s.stages.begin(), s.stages.end(),
      [](const StageDevices& one, const StageDevices& other) { return one.tensor < other.tensor; });
  if (s.tensor_overlap == true && !user_buffers_take(s.type))
    return reason("tensor_overlap is on in fp4, which user buffers do not hold");
  if (Answer answer = in_words(tensor_overlap_misfit(switches, most->tensor))) return answer;
  const bool gathers = s.overlap_param_gather && !s.fully_sharded;  // whose overlaps are always on
  if (Answer answer =
          in_words(gather_overlap_misfit(gathers, s.overlap_grad_reduce, s.distributed_optimizer)))
    return answer;
  if (s.reduce_each_microbatch && s.pipeline > 1)
    return reason("reduce_each_microbatch is true of", s.pipeline, "pipeline ranks; it needs one alone");
  if (s.reduce_each_microbatch && s.distributed_optimizer)
    return reason("reduce_each_microbatch is true with a distributed optimizer; it needs a whole one");
  if (s.optimizer_offload < 0 || s.optimizer_offload > 1)
    return reason("optimizer_offload is", s.optimizer_offload, "and must be from 0 to 1");
  if (Answer answer = in_words(offload_misfit(switches))) return answer;
  if (Answer answer = in_words(sharding_misfit(switches))) return answer;
  return in_words(instances_misfit(switches, s.data * s.context, s.copies_sharing_experts()));
}

// In this order: later checks rely on what earlier ones established.
Answer first_trouble(const Case& c, std::initializer_list<Answer (*)(const Case&)> checks) {
  for (const auto check : checks)
    if (Answer answer = check(c)) return answer;
  return std::nullopt;
}

}  // namespace

std::optional<Infeasible> check_places(const ModelSpec& model, const ParallelStrategy& strategy,
                                       const ClusterSpec& cluster) {
  return first_trouble({model, strategy, cluster},
                       {check_sizes, check_replicas, check_devices, check_layers});
}

std::optional<Infeasible> check_shape(const ModelSpec& model, const ParallelStrategy& strategy,
                                      const ClusterSpec& cluster) {
  if (Answer answer = check_places(model, strategy, cluster)) return answer;
  return first_trouble({model, strategy, cluster}, {check_batch, check_schedules, check_tensor, check_experts,
                                                    check_recompute, check_switches});
}

}  // namespace orrery
