// What a search that finds nothing names as nearest to fitting: no candidate lacks less.
#include <limits>

#include "costmodels/memory/card_memory.hpp"
#include "sim/bounds/feasibility.hpp"
#include "tests/catch.hpp"
#include "tests/sim/random_search.hpp"

namespace orrery {
namespace {

constexpr double kUsable = 20e6;  // bytes of a card

// Cards of which next to nothing is usable.
SearchJob job_without_room(std::mt19937& random) {
  SearchJob job = test::random_job(random);
  job.budget.reset();
  job.deadline.reset();
  for (NodeGroup& group : job.cluster.groups) group.usable_memory = Bytes(kUsable);
  return job;
}

// Of all stages of a plan, and of its nodes where the optimizer is offloaded, what is needed over what is
// usable (0.8 of their memory).
double lacking(const SearchJob& job, const ParallelStrategy& plan, const std::vector<StageMemory>& memory) {
  double most = 0;
  for (const StageMemory& stage : memory) most = std::max(most, stage.needed().value() / kUsable);
  const std::vector<Bytes> hosts = fullest_hosts(plan, job.cluster, memory);
  for (std::size_t group = 0; group < hosts.size(); ++group)
    most = std::max(most, hosts[group].value() / (0.8 * job.cluster.groups[group].host.memory.value()));
  return most;
}

TEST_CASE("what is named as nearest to fitting lacks the least of all candidates") {
  std::mt19937 random(12);
  for (int i = 0; i < 12; ++i) {
    const SearchJob job = job_without_room(random);
    INFO(test::describe(job));
    PriceBook book = test::book_of(job);
    const SearchResult result = test::run(job, book);
    CHECK(result.plans.empty());
    REQUIRE(result.nearest);
    double least = std::numeric_limits<double>::infinity();
    std::size_t candidates = 0;
    StageFitter fitter(book);
    test::for_each_candidate(
        job, [&](const StageCounts&, const Allocation& allocation, const Setting& setting) {
          ParallelStrategy plan = strategy_of(allocation, setting, job.global_batch, job.sequence, job.type);
          const auto fitted = fitter.fit(plan);
          if (std::get<Infeasible>(fitted).kind != InfeasibleKind::memory) return;
          ++candidates;
          least = std::min(least, lacking(job, plan, fitter.memory_of(plan)));
        });
    REQUIRE(candidates <= 10'000);
    CHECK(result.nearest->excess == Approx(least));
  }
}

}  // namespace
}  // namespace orrery
