#include "costmodels/layers/block_cost.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {

PassCost& PassCost::operator+=(const PassCost& other) {
  compute += other.compute;
  communication += other.communication;
  flops += other.flops;
  calls += other.calls;
  host += other.host;
  weights += other.weights;
  lone_weights += other.lone_weights;
  copies += other.copies;
  matrices += other.matrices;
  at_limit += other.at_limit;
  return *this;
}

PassCost operator-(PassCost a, const PassCost& b) {
  a.compute -= b.compute;
  a.communication -= b.communication;
  a.flops -= b.flops;
  a.calls -= b.calls;
  a.host -= b.host;
  a.weights -= b.weights;
  a.lone_weights -= b.lone_weights;
  a.copies -= b.copies;
  a.matrices -= b.matrices;
  a.at_limit -= b.at_limit;
  return a;
}

BlockCost& BlockCost::operator+=(const BlockCost& other) {
  forward += other.forward;
  backward += other.backward;
  weight_gradient += other.weight_gradient;
  for (std::size_t i = 0; i < modules.size(); ++i) modules[i] += other.modules[i];
  unrepeated += other.unrepeated;
  return *this;
}

PassCost on_slowest(PassCost pass, double slowest) {
  pass.compute += pass.at_limit * (slowest - 1);
  pass.at_limit = pass.at_limit * slowest;
  return pass;
}

PassCost repeated_between(const BlockCost& before, const BlockCost& after, const RecomputeModules& modules) {
  PassCost sum;
  for (const RecomputeModule module : kRecomputeModules) {
    if (!modules.repeats(module)) continue;
    sum += after.modules[index_of(module)] - before.modules[index_of(module)];
  }
  return sum;
}

PassCost all_repeated_between(const BlockCost& before, const BlockCost& after) {
  return (after.forward - after.unrepeated) - (before.forward - before.unrepeated);
}

BlockCost scaled(BlockCost block, double forward, double backward) {
  const auto scale = [](PassCost& pass, double factor) {
    pass.compute *= factor;
    pass.matrices *= factor;
    pass.communication *= factor;
  };
  scale(block.forward, forward);
  for (PassCost& module : block.modules) scale(module, forward);
  scale(block.unrepeated, forward);
  scale(block.backward, backward);
  scale(block.weight_gradient, backward);
  return block;
}

SizeTable::SizeTable(int first_exponent, std::vector<double> values) : first_exponent_(first_exponent) {
  for (const double value : values) log_values_.push_back(std::log2(value));
}

double SizeTable::at(double size) const {
  const double position = (std::log2(std::max(size, 1.0)) - first_exponent_) / kStride;
  const double last = static_cast<double>(log_values_.size()) - 1;
  const double clamped = std::clamp(position, 0.0, last);
  const auto below = static_cast<std::size_t>(std::min(std::floor(clamped), last - 1));
  const double share = clamped - static_cast<double>(below);
  return std::exp2(log_values_[below] * (1 - share) + log_values_[below + 1] * share);
}

}  // namespace orrery
