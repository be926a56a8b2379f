// The least time a plan can take, known before its layers are split and its groups are ordered.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "costmodels/price_book.hpp"
#include "strategies/enumerate.hpp"

namespace orrery {

// Seconds of one microbatch, forward and backward.
struct WorkRates {
  std::vector<double> whole;  // [group] all layers, embedding and head; infinite where it may hold no stage
  std::vector<double> layer;  // [group] one layer, where all are alike; else empty
  double share = 1.0;         // sum over blocks of the least share of `whole` that the block is on any group
  double largest = 0.0;       // of the blocks, on the group that is fastest with it
  std::vector<int> fastest_first;  // groups by `whole`
};

// The bound for one setting on some ways, as a function of the stages of each group. However the layers are
// split, a stage works on every microbatch, and starts after the first has passed the stages above it; of
// schedules whose gradients return through them before the end, also that way counts:
//
//   T >= fill x (work of the stages above) + microbatches x (its own work)     for every stage.
//
// The loads that make all of these equal are w_s = T / M (1 - fill / M)^s; they cannot hold more layers than
// the model has, with the fastest GPUs in front. Where all layers are alike, whole layers bound it too:
// M x the least slowest stage.
class TimeBound {
 public:
  TimeBound(const WorkRates&, const std::vector<double>& loads, const Setting&, std::int64_t microbatches,
            int layers);
  // Seconds of an iteration; 0 for a hair's breadth less than nothing.
  [[nodiscard]] double operator()(const StageCounts&) const;

 private:
  [[nodiscard]] double whole_layers(const StageCounts&) const;

  const WorkRates* rates_;
  const std::vector<double>* loads_;
  double microbatches_;
  int chunks_ = 1;
  int layers_ = 0;  // to spread over the stages once a chunk
};

// Makes bounds from a price book; keeps what several share. The bounds point into it.
class TimeBounds {
 public:
  TimeBounds(const PriceBook& book, int most_stages) : book_(book), most_stages_(most_stages) {}
  TimeBound bound(const Ways&, const std::vector<char>& group_fits, const Setting&,
                  std::int64_t microbatches);

 private:
  using RateKey = std::tuple<int, int, int, std::vector<char>, std::int64_t, bool, RecomputeGranularity>;
  const WorkRates& rates(const Ways&, const std::vector<char>& group_fits, const Setting&);
  const std::vector<double>& loads(std::int64_t microbatches, double fill);

  const PriceBook& book_;
  int most_stages_;
  std::map<RateKey, WorkRates> rates_;
  std::map<std::pair<std::int64_t, double>, std::vector<double>> loads_;
};

}  // namespace orrery
