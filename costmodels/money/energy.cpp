#include "costmodels/money/energy.hpp"

#include <algorithm>

#include "strategies/placement.hpp"

namespace orrery {
namespace {

constexpr double kJoulesOfKwh = 3.6e6;

// Seconds a GPU of the stage computes in an iteration.
double computing_s(const PriceBook& book, const ParallelStrategy& strategy, int stage) {
  const ShardCost& cost = book.shard(shard_key(strategy, stage));
  double seconds = 0;
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
    const PartTimes times =
        book.part_times(cost, strategy.part(stage, chunk), strategy.recompute, strategy.gpus());
    seconds += (times.forward - times.forward_tensor + times.backward - times.backward_tensor).value();
  }
  return seconds * static_cast<double>(strategy.microbatches());
}

}  // namespace

Watts busy_power(const GpuSpec& gpu) {
  return gpu.power_limit.value_or(gpu.power);
}

Watts idle_power(const GpuSpec& gpu) {
  return gpu.idle_power.value_or(gpu.power * kIdleShareOfPower);
}

double energy_kwh(const PriceBook& book, const ParallelStrategy& strategy, Seconds iteration) {
  double joules = 0;
  for (std::size_t g = 0; g < strategy.nodes.size(); ++g) {
    const NodeGroup& group = book.cluster().groups[g];
    joules += idle_power(group.gpu).value() * iteration.value() * strategy.nodes[g] * group.gpus_per_node;
  }
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    for (int stage = 0; stage < strategy.pipeline; ++stage) {
      const GpuSpec& gpu = group_of_stage(book.cluster(), alike, stage).gpu;
      const double more = std::max(0.0, (busy_power(gpu) - idle_power(gpu)).value());
      const double busy = std::min(computing_s(book, alike, stage), iteration.value());
      joules += more * busy * strategy.gpus_of_stage(stage) * strategy.replicas_of_kind(kind);
    }
  }
  return joules * book.cluster().pue / kJoulesOfKwh;
}

}  // namespace orrery
