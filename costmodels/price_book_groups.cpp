// Parts cut into pieces around the collectives that are played.
#include <algorithm>
#include <array>

#include "costmodels/achieved.hpp"
#include "costmodels/collective_choice.hpp"
#include "costmodels/group_calls.hpp"
#include "costmodels/price_book.hpp"

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

PlayedGroups groups_to_play(const PricedPlan& plan, const Topology& topology, int stage) {
  PlayedGroups groups{};
  for (const RankGroup group : {RankGroup::tensor, RankGroup::context, RankGroup::expert}) {
    groups[static_cast<std::size_t>(group)] = can_contend(plan, topology, stage, group);
  }
  return groups;
}

// Writes one pass of a part, merging what follows each other without a collective that is played.
class PieceWriter {
 public:
  PieceWriter(std::vector<GroupCall>& calls, const PlayedGroups& played) : calls_(calls), played_(played) {}

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
    current_.compute += exposed;
    current_.tensor += exposed;
  }

  void play(const PassPiece& piece, int times) {
    const Collective& op = piece.call->collective;
    const Achieved speed = achieved(op, nccl_choice(op), piece.call->time);
    const GroupCall call{piece.call->group, op.kind, op.bytes, speed.efficiency, speed.more, times};
    const auto known = std::find(calls_.begin(), calls_.end(), call);
    current_.call = static_cast<int>(known - calls_.begin());
    if (known == calls_.end()) calls_.push_back(call);
    current_.beside = piece.beside.time * times;
    current_.flops += piece.beside.flops * times;
    pieces_.push_back(current_);
    current_ = {};
  }

  std::vector<GroupCall>& calls_;
  const PlayedGroups& played_;
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

struct PassTime {
  Seconds whole, exposed;
};

// Of pieces in the first replica when nothing contends.
PassTime time_alone(const PricedPlan& plan, const Topology& topology, int stage,
                    const std::vector<PlayedPiece>& pieces) {
  PassTime time;
  for (const PlayedPiece& piece : pieces) {
    Seconds played;
    if (piece.call) {
      const GroupCall& call = plan.calls[static_cast<std::size_t>(*piece.call)];
      played = time_alone(topology, call_flows(plan, topology, call, 0, stage, all_lanes(plan, stage)));
    }
    time.whole += piece.compute + std::max(played, piece.beside);
    time.exposed += piece.tensor + std::max(Seconds(0), played - piece.beside);
  }
  return time;
}

}  // namespace

void PriceBook::play_groups(PricedPlan& plan, const ParallelStrategy& strategy,
                            const Topology& topology) const {
  for (int part = 0; part < strategy.part_count(); ++part) {
    const int stage = strategy.rank_of_part(part);
    const PlayedGroups played = groups_to_play(plan, topology, stage);
    if (std::none_of(played.begin(), played.end(), [](bool group) { return group; })) continue;
    const ShardCost& shard_cost = shard(shard_key(strategy, stage));
    const LayerRange& range = strategy.parts[static_cast<std::size_t>(part)];
    const bool selective = strategy.recompute.granularity == RecomputeGranularity::selective;
    PieceWriter forward(plan.calls, played), backward(plan.calls, played);
    if (range.first == 0) forward.add(shard_cost.embedding_pieces.forward, 1);
    std::vector<LayerRun> runs = runs_of(model_, range, strategy.recompute);
    for (const LayerRun& run : runs) {
      const BlockPieces& layer = shard_cost.shape_pieces[static_cast<std::size_t>(run.shape)];
      for_each_block(run.layers, [&](int layers) { forward.add(layer.forward, layers); });
    }
    const bool has_head = range.first + range.count == model_.layer_count();
    if (has_head) forward.add(shard_cost.head_pieces.forward, 1);
    if (has_head) backward.add(shard_cost.head_pieces.backward, 1);
    std::reverse(runs.begin(), runs.end());
    for (const LayerRun& run : runs) {
      const BlockPieces& layer = shard_cost.shape_pieces[static_cast<std::size_t>(run.shape)];
      for_each_block(run.layers, [&](int layers) {
        if (run.is_repeated) backward.add(layer.forward, layers);
        backward.add(layer.backward, layers, selective ? layer.attention_core : Work{});
      });
    }
    if (range.first == 0) backward.add(shard_cost.embedding_pieces.backward, 1);
    PartTimes& times = plan.parts[static_cast<std::size_t>(part)];
    times.forward_pieces = forward.finish();
    times.backward_pieces = backward.finish();
    const PassTime forward_time = time_alone(plan, topology, stage, times.forward_pieces);
    const PassTime backward_time = time_alone(plan, topology, stage, times.backward_pieces);
    times.forward = forward_time.whole;
    times.forward_tensor = forward_time.exposed;
    times.backward = backward_time.whole;
    times.backward_tensor = backward_time.exposed;
  }
}

}  // namespace orrery
