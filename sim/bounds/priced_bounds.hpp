// Bounds on time from a price book: what layers and parts take at least.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "costmodels/plans/price_book.hpp"
#include "sim/bounds/time_bound.hpp"
#include "strategies/enumerate.hpp"

namespace orrery {

// Seconds of one microbatch through each layer; the first has the embedding with it and the last the head.
struct BlockTimes {
  std::vector<double> forward, backward;
};

// Times of a part that no plan with such ways beats on a group. Prices assume that all GPUs of a node use its
// NICs, and that links are as groups say; collectives that are played have the NICs to themselves that other
// stages leave alone, or links that were changed, and are not counted then.
PartTimes least_times(PartTimes, const ClusterSpec&, int group, const Ways&);

// Of the stages that such candidates have on a group.
ShardKey shard_key(int group, const Ways&, const Setting&);

// Makes bounds from a price book; keeps what several share.
class TimeBounds {
 public:
  TimeBounds(const PriceBook& book, int most_stages, std::int64_t global_batch);
  // `settings`: those that the bound is for; they differ from `common` in switches alone.
  TimeBound bound(const Ways&, const std::vector<char>& group_fits, const Setting& common,
                  const std::vector<Setting>& settings);

 private:
  // The shards of its groups, those that fit, what is recomputed, and replicas of a context rank, whose GPUs
  // a plan has at least (a power of two: fewer blocks to price).
  using RateKey = std::tuple<std::vector<ShardKey>, std::vector<char>, Recompute::OfLayer, int>;
  using BlockKey = std::tuple<ShardKey, Recompute::OfLayer, int>;
  const BlockTimes& blocks(const ShardKey&, const Ways& of_group, Recompute);
  const WorkRates& rates(const Ways&, const std::vector<char>& group_fits, const Setting&);

  const PriceBook& book_;
  int most_stages_;
  bool layers_alike_;
  std::int64_t global_batch_;
  std::map<RateKey, WorkRates> rates_;
  std::map<BlockKey, BlockTimes> blocks_;
};

}  // namespace orrery
