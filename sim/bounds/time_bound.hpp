// The least time a plan can take, known before its layers are split and its groups are ordered.
#pragma once

#include <vector>

#include "sim/bounds/traffic_bound.hpp"
#include "strategies/enumerate.hpp"

namespace orrery {

// What layers cost a stage for one microbatch, at least, whichever stretch of them it holds. Infinite where a
// group may hold no stage. Where layers differ, `layer` is empty.
struct WorkRates {
  std::vector<std::vector<double>> blocks;  // [group][layer] s; the first with the embedding, the last with
                                            // the head
  std::vector<double> layer;                // [group] s of the quickest
  double forward_least = 0;                 // share of the forward in any of them
  double lesser_most = 0.5;                 // share of the shorter of forward and backward
  bool alike = true;                        // all layers take the same (measured ones may not)
};

// The bound for one setting on some ways, as a function of the stages of each group. However the layers are
// split, a stage works on every microbatch, after the first microbatch has passed the stages above it; then
// its gradients are reduced, while those of schedules that pass gradients up return through the stages above.
// Its step and the gathering of its parameters may lie beside the next iteration. For every stage
//
//   T >= fill x (work above) + M x (its own work),
//   T >= fill x (forwards above) + M x (its own work) + (its reduction).
//
// Loads that make all of these equal are u_s = T (1 - fill / M)^s; they cannot hold more than the model has,
// with the fastest GPUs in front. Of 1f1b and gpipe more is known, from pipeline_time.hpp: with k stages
// behind,
//
//   T >= (work of all) + (M - 1 - k x (its forwards' share)) x (its own work),
//
// which bounds every load for a given T less the work of all; and that is least with as much as possible on
// the fastest GPUs. Where all layers are alike, whole layers bound both too.
class TimeBound {
 public:
  struct Pipeline {
    ScheduleKind schedule = ScheduleKind::one_f_one_b;
    double microbatches = 1;
    double fill = 0;  // how much of their work the stages above do before and after
    int layers = 0;   // to spread over the stages once a chunk; 0: layers are not alike
    int chunks = 1;   // in equal parts
    int most_stages = 1;
  };
  TimeBound(const WorkRates&, const std::vector<LeastTraffic>& of_groups, const Pipeline&);
  // Seconds of an iteration at least: by spreading the model perfectly, and, dearer to ask, by whole layers.
  [[nodiscard]] double spread(const StageCounts&) const;
  [[nodiscard]] double whole_layers(const StageCounts&) const;
  // Not above `spread` of any counts up to these.
  [[nodiscard]] double spread_within(const StageCounts& most) const;
  // Money of an iteration at least, with counts between these, where a stage of a group costs so much a
  // second.
  [[nodiscard]] double least_money(const StageCounts& least, const StageCounts& most,
                                   const std::vector<double>& dollars_per_second) const;

  // Of the model that a stage of a group holds at most for a second of the iteration.
  [[nodiscard]] double most_held(std::size_t group) const;

 private:
  // By loads that fall from stage to stage.
  struct Falling {
    std::vector<double> whole;        // [group] s of the model on one stage, a microbatch
    std::vector<double> loads = {0};  // [p]: of the first p stages together, the first one's being 1
    double share = 0;                 // sum over blocks of the least share of `whole` it is on any group
    double largest = 0;               // block, s a microbatch on the group that is fastest with it
  };
  [[nodiscard]] Falling falling(const WorkRates&, const std::vector<double>& once, double fill) const;
  [[nodiscard]] double time(const Falling&, const StageCounts&) const;
  // The least time above the work of all, and the time, by the bound that has it.
  struct Excess {
    double excess, time;
  };
  [[nodiscard]] Excess least_excess(const StageCounts&) const;
  [[nodiscard]] double time_with(double excess, const StageCounts&) const;
  [[nodiscard]] double whole_layer_excess(double from, const StageCounts&) const;
  [[nodiscard]] double slowest_of_whole_layers(const StageCounts&) const;

  Pipeline pipeline_;
  std::vector<int> fastest_first_;  // groups
  Falling passed_up_, reduced_;
  std::vector<double> layer_;  // [group] s, with reduction
  // Of 1f1b and gpipe.
  bool closed_ = false;
  std::vector<double> work_;           // [group] s of the model
  std::vector<double> work_of_layer_;  // [group] s
  double share_ = 0;                   // as Falling::share
  std::vector<double> weight_;         // [k stages behind] s a second of own work
  std::vector<double> behind_ = {0};   // [k]: sum of 1 / weight_ of fewer than k behind
};

// Of several bounds at once, at the price of one.
class LeastBound {
 public:
  LeastBound(const std::vector<TimeBound>&, std::size_t groups);
  // Seconds; not above spread_within of any of them.
  [[nodiscard]] double spread_within(const StageCounts& most) const;

 private:
  std::vector<double> held_;  // [group] as most_held, the most of them
};

}  // namespace orrery
