// Searches made up for tests: small clusters, short models, a few choices of everything.
#pragma once

#include <map>
#include <random>
#include <string>

#include "sim/search/search.hpp"
#include "strategies/obstacles.hpp"
#include "strategies/replica_mixes.hpp"

namespace orrery::test {

SearchJob random_job(std::mt19937&);
std::string describe(const SearchJob&);

// Of a stack that knows overlaps, and slows what is computed beside them.
PriceBook book_of(const SearchJob&);
SearchResult run(const SearchJob&, PriceBook&);

// Estimates of plans from a book with prices, which outlives it; each selection of nodes is laid out once.
class PlanTimes {
 public:
  explicit PlanTimes(const PriceBook& book) : book_(book) {}
  PricedPlan priced(const ParallelStrategy&);
  Seconds played(const ParallelStrategy&);

 private:
  const Topology& topology_of(const ParallelStrategy&);

  const PriceBook& book_;
  std::map<std::vector<int>, Topology> topologies_;
};

// Every candidate that has a shape, fitted or not.
template <class Visit>
void for_each_candidate(const SearchJob& job, Visit visit) {
  const std::vector<int> alike = groups_alike(job.cluster);
  for (const Ways& ways : all_ways(job.cluster, job.space, job.mode, job.global_batch)) {
    for_each_stage_counts(job.cluster, job.space, job.mode, ways, [&](const StageCounts& stages) {
      for (const Allocation& allocation : orders(job.cluster, alike, ways, stages)) {
        for (const Setting& setting : settings(job.space)) {
          if (shape_obstacle(job.model, job.cluster, allocation, setting, job.global_batch, job.sequence))
            continue;
          visit(stages, allocation, setting);
        }
      }
    });
  }
}

template <class Visit>
void for_each_mix(const SearchJob& job, Visit visit) {
  for (const ReplicaMix& mix : replica_mixes(job.cluster, job.space, job.mode, job.global_batch)) {
    for (const Setting& setting : settings(job.space)) {
      if (!mix_obstacle(job.model, job.cluster, mix, setting, job.global_batch, job.sequence))
        visit(mix, setting);
    }
  }
}

}  // namespace orrery::test
