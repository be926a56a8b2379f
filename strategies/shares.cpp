#include "strategies/shares.hpp"

#include <algorithm>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

double time_of(const ReplicaPace& pace, std::int64_t microbatches) {
  return pace.fill + static_cast<double>(microbatches) * pace.each;
}

// The most microbatches a replica ends by `time`; never below what it needs.
std::int64_t done_by(const ReplicaPace& pace, double time, std::int64_t total) {
  std::int64_t low = pace.least, high = total + 1;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (time_of(pace, middle) <= time ? low : high) = middle;
  }
  return low;
}

}  // namespace

// The next microbatch goes where it ends first. That is optimal for times that grow with the share: were a
// better solution to exist, some replica would have less than here, and the microbatch that went to it last
// would have ended later elsewhere. All microbatches that surely end before the last one does are dealt at
// once, so that the loop is one of a few rounds over the replicas.
std::vector<std::int64_t> fastest_shares(const std::vector<ReplicaPace>& paces, std::int64_t total) {
  std::vector<const ReplicaPace*> of_replica;
  for (const ReplicaPace& pace : paces) {
    ORRERY_ENSURE(pace.each > 0 && pace.least >= 1);
    of_replica.insert(of_replica.end(), static_cast<std::size_t>(pace.count), &pace);
  }
  const auto sum_by = [&](double time) {
    std::int64_t sum = 0;
    for (const ReplicaPace& pace : paces) sum += pace.count * done_by(pace, time, total);
    return sum;
  };
  if (of_replica.empty() || sum_by(0) > total) return {};
  double low = 0, high = 0;  // s: all dealt by `low` are at most the total
  for (const ReplicaPace& pace : paces) high = std::max(high, time_of(pace, total));
  for (int halving = 0; halving < 60; ++halving) {
    const double middle = (low + high) / 2;
    (sum_by(middle) <= total ? low : high) = middle;
  }
  std::vector<std::int64_t> shares;
  std::int64_t left = total;
  for (const ReplicaPace* pace : of_replica) {
    shares.push_back(done_by(*pace, low, total));
    left -= shares.back();
  }
  for (; left > 0; --left) {
    std::size_t first = 0;
    for (std::size_t i = 1; i < shares.size(); ++i) {
      if (time_of(*of_replica[i], shares[i] + 1) < time_of(*of_replica[first], shares[first] + 1)) first = i;
    }
    ++shares[first];
  }
  return shares;
}

ParallelStrategy with_shares(ParallelStrategy strategy, const std::vector<std::int64_t>& shares) {
  ORRERY_ENSURE(shares.size() == static_cast<std::size_t>(strategy.data));
  std::vector<ReplicaKind> kinds;
  std::size_t next = 0;
  for (const ReplicaKind& kind : strategy.replicas) {
    for (int replica = 0; replica < kind.count; ++replica, ++next) {
      if (replica > 0 && shares[next] == kinds.back().microbatches) {
        ++kinds.back().count;
      } else {
        kinds.push_back({1, kind.groups, shares[next]});
      }
    }
  }
  strategy.replicas = std::move(kinds);
  return strategy;
}

}  // namespace orrery
