// Times of blocks of a model, and functions of size: what a price book is made of.
#pragma once

#include <vector>

#include "platforms/units.hpp"
#include "strategies/recompute.hpp"

namespace orrery {

// One pass of one microbatch on one GPU.
struct PassCost {
  Seconds compute = {};
  Seconds communication = {};  // exposed, over the tensor, context and expert groups
  Flops flops = {};
  double calls = 0;           // collectives
  Seconds host = {};          // what launches all of it takes, beside the GPU
  Seconds weights = {};       // sharded weights on their way, beside the rest
  Seconds lone_weights = {};  // likewise, nothing beside them
  Seconds copies = {};        // of what is gathered and scattered then, which the rest waits for
  Seconds matrices = {};      // of `compute`
  // Of `compute`, kernels that keep the GPU at its power limit, where the slowest of many takes longer.
  Seconds at_limit = {};
  PassCost& operator+=(const PassCost& other);
  friend PassCost operator-(PassCost a, const PassCost& b);
  bool operator==(const PassCost&) const = default;
};
struct BlockCost {
  PassCost forward;
  PassCost backward;
  // Of `backward`, what a schedule that splits it runs apart; its communication is what is hidden under it,
  // which such a schedule exposes.
  PassCost weight_gradient;
  OfModules<PassCost> modules = {};  // of the forward, what selective recomputation of each repeats
  PassCost unrepeated = {};          // of the forward, what full recomputation leaves out
  BlockCost& operator+=(const BlockCost& other);
  bool operator==(const BlockCost&) const = default;
};
PassCost on_slowest(PassCost, double slowest);  // as many times longer at the power limit (slowest_of)
// What recomputing these modules, or all of it, adds to the backward of what lies between two sums of layers.
PassCost repeated_between(const BlockCost& before, const BlockCost& after, const RecomputeModules&);
PassCost all_repeated_between(const BlockCost& before, const BlockCost& after);
// The same work in other times.
BlockCost scaled(BlockCost, double forward, double backward);

// Size tables hold every second power of two from 2^10 to 2^40, in bytes or parameters.
inline constexpr int kFirstExponent = 10, kLastExponent = 40, kStride = 2;

// A positive function of size, tabled at every second power of two and interpolated between in log-log;
// constant outside the table.
class SizeTable {
 public:
  SizeTable() = default;
  SizeTable(int first_exponent, std::vector<double> values);
  [[nodiscard]] double at(double size) const;

 private:
  int first_exponent_ = 0;
  std::vector<double> log_values_;
};

}  // namespace orrery
