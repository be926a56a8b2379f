// Parts cut into pieces around the collectives that are played.
#include <algorithm>
#include <array>
#include <tuple>

#include "costmodels/collectives/collective_choice.hpp"
#include "costmodels/layers/achieved.hpp"
#include "costmodels/plans/group_calls.hpp"
#include "costmodels/plans/price_book.hpp"

namespace orrery {
namespace {

// A run of equal layers is played as so many blocks at most, each with its layers' operators and collectives
// merged: contention depends on the share of time that links are busy, which stays, while a part of thirty
// layers would play thirty times the flows of one for every microbatch.
constexpr int kMostBlocksOfRun = 4;

// Kinds of groups whose collectives are played, in the order of RankGroup.
using PlayedGroups = std::array<bool, 3>;

bool is_in(const PlayedGroups& groups, RankGroup group) {
  return groups[static_cast<std::size_t>(group)];
}

// Of a stage in replicas of one kind.
PlayedGroups groups_to_play(const PricedPlan& plan, const Topology& topology, int kind, int stage) {
  PlayedGroups groups{};
  for (const RankGroup group : {RankGroup::tensor, RankGroup::context, RankGroup::expert}) {
    if (group_size(plan, stage, group) < 2) continue;
    for (int replica = 0; replica < plan.replicas; ++replica) {
      if (plan.kind_of(replica) != kind) continue;
      for (const std::vector<int>& members : group_members(plan, replica, stage, group)) {
        groups[static_cast<std::size_t>(group)] |= must_play(topology, members);
      }
      if (is_in(groups, group)) break;
    }
  }
  return groups;
}

// Of the first replica of a kind that prices of the plan tell apart: the kind of the strategy it has.
struct FirstOfKind {
  int replica = 0;
  int strategy_kind = 0;
};

FirstOfKind first_of_kind(const PricedPlan& plan, const ParallelStrategy& strategy, int kind) {
  FirstOfKind first;
  while (plan.kind_of(first.replica) != kind) {
    first.replica += strategy.replicas_of_kind(first.strategy_kind++);
  }
  return first;
}

// The calls of a plan, each once. `link`: of the GPUs that send; where neighbours have less of it than all
// (node_links.hpp), the price is of what they have, and the flows are on the whole.
class CallList {
 public:
  explicit CallList(std::vector<GroupCall>& calls) : calls_(calls) {}

  int index_of(const PricedCall& priced, int times, BytesPerSecond link) {
    const Collective& op = priced.collective;
    Achieved speed = speed_of(priced);
    speed.efficiency.inside *= op.gpu_link.bandwidth / link;
    const GroupCall call{priced.group, op.kind, op.bytes,      speed.efficiency,
                         speed.more,   times,   op.one_channel};
    const auto known = std::find(calls_.begin(), calls_.end(), call);
    const auto index = static_cast<int>(known - calls_.begin());
    if (known == calls_.end()) calls_.push_back(call);
    return index;
  }

 private:
  Achieved speed_of(const PricedCall& priced) {
    for (const auto& [call, speed] : speeds_) {
      if (call == priced) return speed;
    }
    const Collective& op = priced.collective;
    speeds_.emplace_back(priced, achieved(op, nccl_choice(op), priced.time));
    return speeds_.back().second;
  }

  std::vector<GroupCall>& calls_;
  std::vector<std::pair<PricedCall, Achieved>> speeds_;
};

// Writes one pass of a part, merging what follows each other without a collective that is played.
class PieceWriter {
 public:
  PieceWriter(CallList& calls, const PlayedGroups& played, BytesPerSecond link)
      : calls_(calls), played_(played), link_(link) {}

  // `before_attention` is repeated by selective recomputation.
  void add(const std::vector<PassPiece>& pieces, int times, const Work& before_attention = {}) {
    bool repeats = true;
    for (const PassPiece& piece : pieces) {
      if (piece.has_attention && repeats) {
        compute(before_attention * times);
        repeats = false;
      }
      compute(piece.compute * times);
      if (!piece.call) {
        compute(piece.beside * times);
      } else if (is_in(played_, piece.call->group)) {
        play(piece, times);
      } else {
        price(piece, times);
      }
    }
  }

  std::vector<PlayedPiece> finish() {
    if (current_ != PlayedPiece{}) pieces_.push_back(current_);
    return std::move(pieces_);
  }

 private:
  void compute(const Work& work) {
    current_.compute += work.time;
    current_.flops += work.flops;
  }

  void price(const PassPiece& piece, int times) {
    const Seconds exposed = std::max(Seconds(0), piece.call->time - piece.beside.time) * times;
    compute(piece.beside * times);
    expose(exposed + piece.slowdown * times);
  }

  // Communication in the time of what is computed.
  void expose(Seconds time) {
    current_.compute += time;
    current_.tensor += time;
  }

  void play(const PassPiece& piece, int times) {
    expose(piece.slowdown * times);
    current_.call = calls_.index_of(*piece.call, times, link_);
    current_.beside = piece.beside.time * times;
    current_.flops += piece.beside.flops * times;
    pieces_.push_back(current_);
    current_ = {};
  }

  CallList& calls_;
  const PlayedGroups& played_;
  BytesPerSecond link_;
  PlayedPiece current_;
  std::vector<PlayedPiece> pieces_;
};

// Layers in a row that run alike.
struct LayerRun {
  int shape = 0;
  bool is_repeated = false;  // by full recomputation
  int layers = 0;
};

std::vector<LayerRun> runs_of(const ModelSpec& model, const LayerRange& range, const Recompute& recompute) {
  const bool full = recompute.granularity == RecomputeGranularity::full;
  const int repeated = recompute.method == RecomputeMethod::block ? recompute.layers : range.count;
  std::vector<LayerRun> runs;
  for (int i = 0; i < range.count; ++i) {
    const int shape = model.layers[static_cast<std::size_t>(range.first + i)];
    const bool is_repeated = full && i < repeated;
    if (runs.empty() || runs.back().shape != shape || runs.back().is_repeated != is_repeated) {
      runs.push_back({shape, is_repeated, 0});
    }
    ++runs.back().layers;
  }
  return runs;
}

// Calls write(layers) for each block of a run.
template <class Write>
void for_each_block(int layers, Write write) {
  const int blocks = std::min(layers, kMostBlocksOfRun);
  for (int block = 0; block < blocks; ++block) write(layers / blocks + (block < layers % blocks ? 1 : 0));
}

// The layers of a part, and whether embedding and head go with them.
struct PartLayers {
  const ShardCost& cost;
  std::vector<LayerRun> runs;
  bool has_embedding, has_head;
  Recompute recompute;
  Backward pass;
  BytesPerSecond link;  // of its GPUs

  [[nodiscard]] const BlockPieces& layer(const LayerRun& run) const {
    return cost.shape_pieces[static_cast<std::size_t>(run.shape)];
  }
  [[nodiscard]] const std::vector<PassPiece>& backward(const BlockPieces& block) const {
    return pass == Backward::split ? block.input_gradient : block.backward;
  }
};

void write_forward(PieceWriter& pieces, const PartLayers& part) {
  if (part.has_embedding) pieces.add(part.cost.embedding_pieces.forward, 1);
  for (const LayerRun& run : part.runs) {
    for_each_block(run.layers, [&](int layers) { pieces.add(part.layer(run).forward, layers); });
  }
  if (part.has_head) pieces.add(part.cost.head_pieces.forward, 1);
}

void write_backward(PieceWriter& pieces, const PartLayers& part) {
  if (part.has_head) pieces.add(part.backward(part.cost.head_pieces), 1);
  for (auto run = part.runs.rbegin(); run != part.runs.rend(); ++run) {
    const BlockPieces& layer = part.layer(*run);
    for_each_block(run->layers, [&](int layers) {
      if (run->is_repeated) pieces.add(layer.repeated, layers);
      const bool selective = part.recompute.granularity == RecomputeGranularity::selective;
      for (const RecomputeModule module : kRecomputeModules) {
        if (selective && part.recompute.modules.repeats(module))
          pieces.add(layer.modules[index_of(module)], layers);
      }
      const bool core = selective && part.recompute.modules.repeats(RecomputeModule::core_attn);
      pieces.add(part.backward(layer), layers, core ? layer.attention_core : Work{});
    });
  }
  if (part.has_embedding) pieces.add(part.backward(part.cost.embedding_pieces), 1);
}

// Pieces that compute for `work` in all, communication left out. More than they do: the host launches kernels
// more slowly than the GPU runs them, or waits for sharded weights, or layers were measured. The GPU then
// waits between the kernels of every piece; what runs beside collectives stays, or it would hide more of
// them. Less (layers were measured): all of it is shorter.
void fit_work(std::vector<PlayedPiece>& pieces, Seconds work) {
  Seconds alone, beside;
  for (const PlayedPiece& piece : pieces) {
    alone += piece.compute - piece.tensor;
    beside += piece.beside;
  }
  if (alone.value() <= 0) return;
  const bool is_more = work > alone + beside;
  const double factor = is_more ? (work - beside) / alone : work / (alone + beside);
  for (PlayedPiece& piece : pieces) {
    piece.compute = piece.tensor + (piece.compute - piece.tensor) * factor;
    if (!is_more) piece.beside *= factor;
  }
}

void set_pieces(PartTimes& times, const PartLayers& part, CallList& calls, const PlayedGroups& played) {
  PieceWriter forward(calls, played, part.link), backward(calls, played, part.link);
  write_forward(forward, part);
  write_backward(backward, part);
  times.forward_pieces = forward.finish();
  times.backward_pieces = backward.finish();
  fit_work(times.forward_pieces, times.forward - times.forward_tensor);
  fit_work(times.backward_pieces, times.backward - times.backward_tensor);
}

// Sets the times of parts of a stage in one replica to those of their pieces when nothing contends.
class PassTimer {
 public:
  PassTimer(const PricedPlan& plan, const Topology& topology, int replica, int stage)
      : plan_(plan), topology_(topology), replica_(replica), stage_(stage), calls_(plan.calls.size()) {}

  void set_times(PartTimes& times) {
    std::tie(times.forward, times.forward_tensor) = of(times.forward_pieces);
    std::tie(times.backward, times.backward_tensor) = of(times.backward_pieces);
  }

 private:
  // In all, and what of it is exposed communication.
  std::pair<Seconds, Seconds> of(const std::vector<PlayedPiece>& pieces) {
    Seconds whole, exposed;
    for (const PlayedPiece& piece : pieces) {
      const Seconds played = piece.call ? of_call(static_cast<std::size_t>(*piece.call)) : Seconds(0);
      whole += piece.compute + std::max(played, piece.beside);
      exposed += piece.tensor + std::max(Seconds(0), played - piece.beside);
    }
    return {whole, exposed};
  }

  Seconds of_call(std::size_t index) {
    std::optional<Seconds>& known = calls_[index];
    if (!known) {
      known = time_alone(topology_, call_flows(plan_, topology_, plan_.calls[index], replica_, stage_,
                                               all_lanes(plan_, stage_)));
    }
    return *known;
  }

  const PricedPlan& plan_;
  const Topology& topology_;
  int replica_, stage_;
  std::vector<std::optional<Seconds>> calls_;
};

}  // namespace

void PriceBook::play_groups(PricedPlan& plan, const ParallelStrategy& strategy,
                            const Topology& topology) const {
  CallList calls(plan.calls);
  for (int kind = 0; kind <= static_cast<int>(plan.other_kinds.size()); ++kind) {
    const FirstOfKind first = first_of_kind(plan, strategy, kind);
    const ParallelStrategy alike = strategy.of_kind(first.strategy_kind);
    std::vector<PartTimes>& parts =
        kind == 0 ? plan.parts : plan.other_kinds[static_cast<std::size_t>(kind - 1)].parts;
    for (int part = 0; part < strategy.part_count(); ++part) {
      const int stage = strategy.rank_of_part(part);
      const PlayedGroups played = groups_to_play(plan, topology, kind, stage);
      if (std::none_of(played.begin(), played.end(), [](bool group) { return group; })) continue;
      const LayerRange& range = strategy.parts[static_cast<std::size_t>(part)];
      const PartLayers layers{shard(shard_key(alike, stage)),
                              runs_of(model_, range, strategy.recompute),
                              range.has_embedding(),
                              range.has_head(model_.layer_count()),
                              strategy.recompute,
                              backward_of(strategy.schedule),
                              topology.group_of(plan.lanes(first.replica, stage).front()).gpu_link.bandwidth};
      PartTimes& times = parts[static_cast<std::size_t>(part)];
      set_pieces(times, layers, calls, played);
      PassTimer(plan, topology, first.replica, stage).set_times(times);
    }
  }
}

}  // namespace orrery
