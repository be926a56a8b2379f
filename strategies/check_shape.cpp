// What a strategy must satisfy before its times and memory matter. Each check is one rule with its reason.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <vector>

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
  const std::int64_t together = s.micro_batch * s.data;
  if (s.replicas.empty() && s.global_batch % together != 0)
    return reason("the global batch of", s.global_batch, "sequences is not a multiple of", s.data,
                  "replicas x micro batch", s.micro_batch);
  if (s.shares_open() && (s.global_batch % s.micro_batch != 0 || s.global_batch < together))
    return reason("the global batch of", s.global_batch, "sequences cannot be dealt to", s.data,
                  "replicas in microbatches of", s.micro_batch);
  if (c.model.learned_positions > 0 && s.sequence > c.model.learned_positions)
    return reason("the sequence of", s.sequence, "tokens is longer than the model's table of",
                  c.model.learned_positions, "positions");
  return std::nullopt;
}

Answer check_schedule(const ParallelStrategy& s) {
  const std::int64_t microbatches = s.microbatches();
  if (microbatches > kMostPlanMicrobatches)
    return reason("the global batch makes", microbatches, "microbatches; at most", kMostPlanMicrobatches,
                  "are scheduled");
  const ScheduleShape shape{.kind = s.schedule,
                            .transfers = s.transfers,
                            .ranks = s.pipeline,
                            .chunks = s.chunks,
                            .microbatches = static_cast<int>(microbatches)};
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
  std::vector<std::int64_t> used(c.cluster.groups.size(), 0);
  for (int kind = 0; kind < c.strategy.kinds(); ++kind) {
    for (const StageDevices& stage : c.strategy.of_kind(kind).stages) {
      if (Answer answer = check_stage_devices(c, stage)) return answer;
      used[static_cast<std::size_t>(stage.group)] +=
          std::int64_t{stage.tensor} * c.strategy.context * c.strategy.replicas_of_kind(kind);
    }
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    const NodeGroup& group = c.cluster.groups[i];
    const int nodes = c.strategy.nodes[i];
    if (nodes < group.count.minimum || nodes > group.count.maximum)
      return reason(nodes, "nodes of group", group.name, "are not between", group.count.minimum, "and",
                    group.count.maximum);
    const std::int64_t available = std::int64_t{nodes} * group.gpus_per_node;
    if (used[i] > available)
      return reason("the stages on group", group.name, "need", used[i], "GPUs;", nodes, "nodes have",
                    available);
  }
  if (const auto obstacle = hosts_obstacle(c.strategy)) return reason(*obstacle);
  return std::nullopt;
}

Answer check_split(const LayerShape& shape, int tensor) {
  struct Width {
    const char* name;
    std::int64_t size;
  };
  for (const Width& width : {Width{"attention heads", shape.heads}, Width{"columns of the MLP", shape.ffn},
                             Width{"columns of the shared expert", shape.shared_ffn},
                             Width{"heads of the state space", shape.state_space.heads},
                             Width{"groups of the state space", shape.state_space.groups}})
    if (width.size % tensor != 0)
      return reason(width.size, width.name, "are not a multiple of", tensor, "tensor-parallel ways");
  // With fewer key-value heads than ways, each is held by several ranks.
  if (shape.kv_heads % tensor != 0 && (shape.kv_heads == 0 || tensor % shape.kv_heads != 0))
    return reason(shape.kv_heads, "key-value heads are neither a multiple nor a divisor of", tensor,
                  "tensor-parallel ways");
  return std::nullopt;
}

Answer check_sequence(const Case& c, const LayerShape& shape, int tensor) {
  const ParallelStrategy& s = c.strategy;
  const std::int64_t sequence = shape.sequence > 0 ? shape.sequence : s.sequence;
  // Each context rank takes one block from the front and one from the back, so that causal work is equal.
  if (s.context > 1 && sequence % (2 * std::int64_t{s.context}) != 0)
    return reason("the sequence of", sequence, "tokens is not a multiple of twice the", s.context,
                  "context-parallel ways");
  const std::int64_t groups = shape.state_space.groups / tensor;
  if (shape.has_state_space() && groups % s.context != 0)
    return reason("the state space has", groups, "groups on each tensor rank, which are not a multiple of",
                  s.context, "context-parallel ways");
  if (s.sequence_parallel && sequence / s.context % tensor != 0)
    return reason("sequence parallelism splits", sequence / s.context, "tokens, which are not a multiple of",
                  tensor, "tensor-parallel ways");
  return std::nullopt;
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
      if (Answer answer = check_split(c.model.layer(layer), tensor)) return answer;
      if (Answer answer = check_sequence(c, c.model.layer(layer), tensor)) return answer;
    }
  }
  return std::nullopt;
}

// Tensor ranks with experts of their own: Megatron-LM has other splits too, and asserts sequence parallelism.
Answer check_expert_tensor(const ParallelStrategy& s) {
  if (!s.expert_tensor) return std::nullopt;
  const int tensor = s.tensor(0), ways = *s.expert_tensor;
  for (const StageDevices& stage : s.stages) {
    if (stage.tensor != tensor)
      return reason("expert_tensor is given for stages of", tensor, "and", stage.tensor, "tensor ways");
  }
  if (ways == tensor) return std::nullopt;
  if (ways != 1)
    return reason("expert_tensor is", ways, "and must be 1 or the", tensor, "tensor-parallel ways");
  if (!s.sequence_parallel)
    return reason("experts of each tensor rank's own need sequence parallelism over the", tensor,
                  "tensor-parallel ways");
  if (s.expert % tensor != 0)
    return reason(s.expert, "expert-parallel ways are not a multiple of the", tensor,
                  "tensor ranks that have experts of their own");
  return std::nullopt;
}

Answer check_experts(const Case& c) {
  const ParallelStrategy& s = c.strategy;
  if (Answer answer = check_expert_tensor(s)) return answer;
  if (s.expert == 1) return std::nullopt;
  if (!experts_spread_evenly(s.copies_sharing_experts(), s.context, s.data))
    return reason(s.copies_sharing_experts(), "expert-parallel ways do not divide the", s.data * s.context,
                  "context ranks and replicas they are spread over");
  bool any = false;
  for (const LayerShape& shape : c.model.shapes) {
    if (shape.experts == 1) continue;
    any = true;
    if (shape.experts % s.expert != 0)
      return reason(shape.experts, "experts are not a multiple of", s.expert, "expert-parallel ways");
  }
  if (!any) return reason("the model has no experts to spread over", s.expert, "expert-parallel ways");
  return std::nullopt;
}

// What Megatron-LM asserts of the modules it recomputes (core/transformer/transformer_config.py).
Answer check_recompute(const Case& c) {
  const Recompute& recompute = c.strategy.recompute;
  if (recompute.granularity != RecomputeGranularity::selective) return std::nullopt;
  if (recompute.modules.empty()) return reason("selective recomputation of no module");
  if (recompute.modules.has(RecomputeModule::mla_up_proj) && !c.model.has_latent_attention())
    return reason("mla_up_proj is recomputed in a model without latent attention");
  if (recompute.modules.has(RecomputeModule::moe_act) && !c.model.has_experts())
    return reason("moe_act is recomputed in a model without experts");
  return std::nullopt;
}

// Megatron-LM core/parallel_state.py asserts that instances divide the copies of weights and of experts.
Answer check_instances(const ParallelStrategy& s) {
  const int copies = s.data * s.context, instances = s.optimizer_instances;
  if (instances == 1) return std::nullopt;
  if (!s.distributed_optimizer)
    return reason("optimizer_instances is", instances, "without the distributed optimizer");
  if (copies % instances != 0 || copies == instances)
    return reason("optimizer_instances is", instances, "and must split the", copies,
                  "copies of the weights into equal sets of two or more");
  const int of_experts = copies / s.copies_sharing_experts();
  if (of_experts % instances != 0)
    return reason("optimizer_instances is", instances, "and must divide the", of_experts,
                  "copies of the experts");
  return std::nullopt;
}

// What Megatron-LM asserts of its switches (megatron/training/arguments.py): the offloaded optimizer is built
// on the precision-aware one, and that on the distributed one.
Answer check_switches(const Case& c) {
  const ParallelStrategy& s = c.strategy;
  const bool split =
      std::any_of(s.stages.begin(), s.stages.end(), [](const StageDevices& d) { return d.tensor > 1; });
  if (s.tensor_overlap == true && !user_buffers_take(s.type))
    return reason("tensor_overlap is on in fp4, which user buffers do not hold");
  if (s.tensor_overlap == true && !(s.sequence_parallel && split))
    return reason("tensor_overlap is on without sequence parallelism over tensor-parallel ways");
  if (s.optimizer_offload < 0 || s.optimizer_offload > 1)
    return reason("optimizer_offload is", s.optimizer_offload, "and must be from 0 to 1");
  if (s.optimizer_offload > 0 && !s.distributed_optimizer)
    return reason("optimizer_offload is above 0 without the distributed optimizer");
  if (s.fully_sharded && !s.distributed_optimizer)
    return reason("fully_sharded is true without the distributed optimizer");
  return check_instances(s);
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
