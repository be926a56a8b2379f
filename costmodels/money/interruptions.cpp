#include "costmodels/money/interruptions.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

// Beyond this the run does not get on at all; e^x would overflow long after it.
constexpr double kHopeless = 1e9;

double best_interval(double every, double write) {
  if (write >= 2 * every) return every;
  const double half = write / (2 * every);
  return std::sqrt(2 * write * every) * (1 + std::sqrt(half) / 3 + half / 9) - write;
}

}  // namespace

Interruptions interruptions(const ClusterSpec& cluster, const std::vector<int>& nodes) {
  double rate = 0;  // 1/s, of all nodes
  for (std::size_t g = 0; g < nodes.size(); ++g) {
    const auto& every = cluster.groups[g].interrupted_every;
    if (every) rate += nodes[g] / every->value();
  }
  Interruptions result;
  if (rate == 0) return result;
  const double every = 1 / rate, write = cluster.checkpoint.write.value();
  const double interval = cluster.checkpoint.interval.value_or(Seconds(best_interval(every, write))).value();
  const double expected = every * std::exp(cluster.checkpoint.restart.value() / every) *
                          std::expm1((interval + write) / every) / interval;
  result.every = Seconds(every);
  result.interval = Seconds(interval);
  result.stretch = std::isfinite(expected) ? std::min(expected, kHopeless) : kHopeless;
  return result;
}

}  // namespace orrery
