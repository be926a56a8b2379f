// The least time a plan can take, known before its layers are split and its groups are ordered.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "costmodels/price_book.hpp"
#include "strategies/enumerate.hpp"

namespace orrery {

// What a layer costs a stage: forward and backward of one microbatch, and once an iteration the least that
// the reduction of its gradients and the gathering of its parameters can take. Where layers differ, `layer`
// is empty and the second is not counted. Infinite where a group may hold no stage.
struct WorkRates {
  std::vector<std::vector<double>> blocks;  // [group][layer] s; the first with the embedding, the last with
                                            // the head
  std::vector<double> layer;                // [group] s of the quickest
  bool alike = true;                        // all layers take the same (measured ones may not)
};

// The bound for one setting on some ways, as a function of the stages of each group. However the layers are
// split, a stage works on every microbatch and then reduces its gradients, and it starts after the first
// microbatch has passed the stages above it; of schedules whose gradients return through them before the end,
// that way counts too:
//
//   T >= fill x (work of the stages above) + M x (its own work) + (its reduction)     for every stage.
//
// Loads u_s (work and reduction) that make all of these equal are u_s = T (1 - fill / M)^s; they cannot hold
// more than the model has, with the fastest GPUs in front. Where all layers are alike, whole layers bound it
// too: the least slowest stage.
class TimeBound {
 public:
  struct Pipeline {
    double microbatches = 1;
    double fill = 0;  // how much of their work the stages above do before and after
    int layers = 0;   // to spread over the stages once a chunk; 0: layers are not alike
    int chunks = 1;   // in equal parts
    int most_stages = 1;
  };
  // `reduction`: [group] s of one layer, once an iteration.
  TimeBound(const WorkRates&, const std::vector<double>& reduction, const Pipeline&);
  // Seconds of an iteration at least: by spreading the model perfectly, and, dearer to ask, by whole layers.
  [[nodiscard]] double spread(const StageCounts&) const;
  [[nodiscard]] double whole_layers(const StageCounts&) const;

 private:
  Pipeline pipeline_;
  std::vector<double> whole_;       // [group] s of the model on one stage
  std::vector<double> layer_;       // [group] s
  std::vector<double> loads_;       // [p]: of the first p stages together, the first one's being 1
  std::vector<int> fastest_first_;  // groups by `whole_`
  double share_ = 0;                // sum over blocks of the least share of `whole_` it is on any group
  double largest_ = 0;              // block, s of an iteration on the group that is fastest with it
};

// Times of a part that no plan with such ways beats on a group. Prices assume that all GPUs of a node use its
// NICs; collectives that are played have those to themselves that other stages leave alone, and are not
// counted then.
PartTimes least_times(PartTimes, const NodeGroup&, const Ways&);

// Seconds that reducing the gradients of one layer and gathering its parameters take at least, on a stage of
// a group: what any algorithm must send out of a node (N - 1 of N parts, twice for an all-reduce) over its
// NICs, at full bandwidth. 0 where overlaps can hide it or experts are spread.
double least_reduction(const PriceBook&, int group, const Ways&, const Setting&);

// Makes bounds from a price book; keeps what several share.
class TimeBounds {
 public:
  TimeBounds(const PriceBook& book, int most_stages, std::int64_t global_batch);
  // `settings`: those that the bound is for; they differ from `common` in switches alone.
  TimeBound bound(const Ways&, const std::vector<char>& group_fits, const Setting& common,
                  const std::vector<Setting>& settings);
  [[nodiscard]] bool layers_alike() const { return layers_alike_; }

 private:
  using RateKey = std::tuple<int, int, int, std::vector<char>, std::int64_t, bool, RecomputeGranularity>;
  const WorkRates& rates(const Ways&, const std::vector<char>& group_fits, const Setting&);

  const PriceBook& book_;
  int most_stages_;
  bool layers_alike_;
  std::int64_t global_batch_;
  std::map<RateKey, WorkRates> rates_;
};

}  // namespace orrery
