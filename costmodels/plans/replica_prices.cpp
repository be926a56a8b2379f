// Prices of plans whose replicas are unlike: each kind on its own GPUs.
#include <algorithm>

#include "costmodels/memory/memory.hpp"
#include "costmodels/plans/price_book.hpp"
#include "platforms/errors.hpp"

namespace orrery {
namespace {

TransferEfficiency least(const TransferEfficiency& a, const TransferEfficiency& b) {
  return {std::min(a.inside, b.inside), std::min(a.between, b.between)};
}

}  // namespace

KindPrices PriceBook::kind_prices(const ParallelStrategy& strategy, double delay) const {
  KindPrices prices;
  for (int part = 0; part < strategy.part_count(); ++part) {
    prices.parts.push_back(part_times(shard(shard_key(strategy, strategy.rank_of_part(part))),
                                      strategy.parts[static_cast<std::size_t>(part)], strategy.recompute,
                                      strategy.gpus(), backward_of(strategy.schedule), delay));
  }
  for (int b = 0; b + 1 < strategy.part_count(); ++b) prices.boundaries.push_back(boundary(strategy, b));
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    const int group = strategy.stages[static_cast<std::size_t>(stage)].group;
    const Bytes buckets = gradient_buckets(strategy, stage_parameters(model_, strategy, stage), stack());
    prices.optimizer.push_back(
        optimizer(group, optimizer_shard_parameters(model_, strategy, stage), strategy.optimizer_offload) +
        casting_weights(group, cast_weights(model_, strategy, stage, stack())) +
        copying_buckets(group, buckets));
  }
  return prices;
}

// Kinds of replica on the same GPUs have the same prices.
void PriceBook::price_kinds(const ParallelStrategy& strategy, PricedPlan& plan, double delay) const {
  KindPrices first = kind_prices(strategy, delay);
  plan.parts = std::move(first.parts);
  plan.boundaries = std::move(first.boundaries);
  plan.optimizer = std::move(first.optimizer);
  std::vector<std::vector<int>> known;  // groups of each priced kind
  for (int kind = 0; kind < static_cast<int>(strategy.replicas.size()); ++kind) {
    const ReplicaKind& replica = strategy.replicas[static_cast<std::size_t>(kind)];
    const auto found = std::find(known.begin(), known.end(), replica.groups);
    const auto count = static_cast<std::size_t>(replica.count);
    plan.kind_of_replica.insert(plan.kind_of_replica.end(), count, static_cast<int>(found - known.begin()));
    plan.replica_microbatches.insert(plan.replica_microbatches.end(), count,
                                     static_cast<int>(replica.microbatches));
    if (found != known.end()) continue;
    known.push_back(replica.groups);
    if (kind > 0) plan.other_kinds.push_back(kind_prices(strategy.of_kind(kind), delay));
  }
}

// A ring over unlike replicas is as efficient as on the least efficient kind of GPU in it.
PartReduction PriceBook::slowest_reduction(const ParallelStrategy& strategy, int part, double parameters,
                                           int apart) const {
  PartReduction slowest = part_reduction(strategy, part, parameters, apart);
  for (int kind = 1; kind < strategy.kinds(); ++kind) {
    const PartReduction other = part_reduction(strategy.of_kind(kind), part, parameters, apart);
    slowest.efficiency = least(slowest.efficiency, other.efficiency);
    slowest.gather_efficiency = least(slowest.gather_efficiency, other.gather_efficiency);
    slowest.across_efficiency = least(slowest.across_efficiency, other.across_efficiency);
  }
  return slowest;
}

ParallelStrategy PriceBook::with_chosen_shares(const ParallelStrategy& strategy) const {
  const auto shares = fastest_shares(replica_paces(strategy), strategy.global_batch / strategy.micro_batch);
  if (shares.empty()) {
    throw InputError("replicas",
                     std::to_string(strategy.global_batch / strategy.micro_batch) + " microbatches",
                     "as many as " + std::to_string(strategy.data) + " replicas need for their schedule");
  }
  return with_shares(strategy, shares);
}

std::vector<ReplicaPace> PriceBook::replica_paces(const ParallelStrategy& strategy) const {
  std::vector<ReplicaPace> paces;
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    ReplicaPace pace;
    pace.count = strategy.replicas_of_kind(kind);
    for (int stage = 0; stage < strategy.pipeline; ++stage) {
      double seconds = 0;
      for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
        const PartTimes times = part_times(shard(shard_key(alike, stage)), alike.part(stage, chunk),
                                           alike.recompute, alike.gpus());
        seconds += (times.forward + times.backward + times.weight_gradient).value();
      }
      pace.fill += seconds;
      pace.each = std::max(pace.each, seconds);
    }
    pace.fill -= pace.each;
    // An interleaved schedule deals its microbatches in groups of one a rank.
    if (strategy.chunks > 1) pace.least = strategy.pipeline;
    paces.push_back(pace);
  }
  return paces;
}

}  // namespace orrery
