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

// The calls of a plan, each once.
class CallList {
 public:
  explicit CallList(std::vector<GroupCall>& calls) : calls_(calls) {}

  int index_of(const PricedCall& priced, int times) {
    const Collective& op = priced.collective;
    const Achieved speed = speed_of(priced);
    const GroupCall call{priced.group, op.kind, op.bytes, speed.efficiency, speed.more, times};
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
  PieceWriter(CallList& calls, const PlayedGroups& played) : calls_(calls), played_(played) {}

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
    current_.call = calls_.index_of(*piece.call, times);
    current_.beside = piece.beside.time * times;
    current_.flops += piece.beside.flops * times;
    pieces_.push_back(current_);
    current_ = {};
  }

  CallList& calls_;
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

// The layers of a part, and whether embedding and head go with them.
struct PartLayers {
  const ShardCost& cost;
  std::vector<LayerRun> runs;
  bool has_embedding, has_head;

  [[nodiscard]] const BlockPieces& layer(const LayerRun& run) const {
    return cost.shape_pieces[static_cast<std::size_t>(run.shape)];
  }
};

void write_forward(PieceWriter& pieces, const PartLayers& part) {
  if (part.has_embedding) pieces.add(part.cost.embedding_pieces.forward, 1);
  for (const LayerRun& run : part.runs) {
    for_each_block(run.layers, [&](int layers) { pieces.add(part.layer(run).forward, layers); });
  }
  if (part.has_head) pieces.add(part.cost.head_pieces.forward, 1);
}

void write_backward(PieceWriter& pieces, const PartLayers& part, const Recompute& recompute) {
  const bool selective = recompute.granularity == RecomputeGranularity::selective;
  if (part.has_head) pieces.add(part.cost.head_pieces.backward, 1);
  for (auto run = part.runs.rbegin(); run != part.runs.rend(); ++run) {
    const BlockPieces& layer = part.layer(*run);
    for_each_block(run->layers, [&](int layers) {
      if (run->is_repeated) pieces.add(layer.forward, layers);
      pieces.add(layer.backward, layers, selective ? layer.attention_core : Work{});
    });
  }
  if (part.has_embedding) pieces.add(part.cost.embedding_pieces.backward, 1);
}

// Pieces that compute for `work` in all, communication left out.
void scale_work(std::vector<PlayedPiece>& pieces, Seconds work) {
  Seconds before;
  for (const PlayedPiece& piece : pieces) before += piece.compute + piece.beside - piece.tensor;
  if (before.value() <= 0) return;
  for (PlayedPiece& piece : pieces) {
    piece.compute = piece.tensor + (piece.compute - piece.tensor) * (work / before);
    piece.beside *= work / before;
  }
}

struct PassTime {
  Seconds whole, exposed;
};

// Times of passes of a stage in the first replica when nothing contends.
class PassTimer {
 public:
  PassTimer(const PricedPlan& plan, const Topology& topology, int stage)
      : plan_(plan), topology_(topology), stage_(stage), calls_(plan.calls.size()) {}

  PassTime of(const std::vector<PlayedPiece>& pieces) {
    PassTime time;
    for (const PlayedPiece& piece : pieces) {
      const Seconds played = piece.call ? of_call(static_cast<std::size_t>(*piece.call)) : Seconds(0);
      time.whole += piece.compute + std::max(played, piece.beside);
      time.exposed += piece.tensor + std::max(Seconds(0), played - piece.beside);
    }
    return time;
  }

 private:
  Seconds of_call(std::size_t index) {
    std::optional<Seconds>& known = calls_[index];
    if (!known) {
      known = time_alone(
          topology_, call_flows(plan_, topology_, plan_.calls[index], 0, stage_, all_lanes(plan_, stage_)));
    }
    return *known;
  }

  const PricedPlan& plan_;
  const Topology& topology_;
  int stage_;
  std::vector<std::optional<Seconds>> calls_;
};

}  // namespace

void PriceBook::play_groups(PricedPlan& plan, const ParallelStrategy& strategy,
                            const Topology& topology) const {
  CallList calls(plan.calls);
  for (int part = 0; part < strategy.part_count(); ++part) {
    const int stage = strategy.rank_of_part(part);
    const PlayedGroups played = groups_to_play(plan, topology, stage);
    if (std::none_of(played.begin(), played.end(), [](bool group) { return group; })) continue;
    const LayerRange& range = strategy.parts[static_cast<std::size_t>(part)];
    const PartLayers layers{shard(shard_key(strategy, stage)), runs_of(model_, range, strategy.recompute),
                            range.first == 0, range.first + range.count == model_.layer_count()};
    PieceWriter forward(calls, played), backward(calls, played);
    write_forward(forward, layers);
    write_backward(backward, layers, strategy.recompute);
    PartTimes& times = plan.parts[static_cast<std::size_t>(part)];
    times.forward_pieces = forward.finish();
    times.backward_pieces = backward.finish();
    // Where layers were measured, the pieces compute what those take.
    if (measured_.count(strategy.stages[static_cast<std::size_t>(stage)].group) > 0) {
      scale_work(times.forward_pieces, times.forward - times.forward_tensor);
      scale_work(times.backward_pieces, times.backward - times.backward_tensor);
    }
    PassTimer timer(plan, topology, stage);
    const PassTime forward_time = timer.of(times.forward_pieces);
    const PassTime backward_time = timer.of(times.backward_pieces);
    times.forward = forward_time.whole;
    times.forward_tensor = forward_time.exposed;
    times.backward = backward_time.whole;
    times.backward_tensor = backward_time.exposed;
  }
}

}  // namespace orrery
