// Plans that the search does not play can indeed not be among the best, whatever is said of single links.
#include "sim/search/search.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"

namespace orrery {
namespace {

SearchResult best_plans(const ClusterSpec& cluster, int top) {
  SearchJob job;
  job.model = read_model("llama2-7b");
  job.cluster = cluster;
  job.space.tensor = {2, 4, 8};
  job.space.context = {1};
  job.space.chunks = {1, 2};
  job.space.micro_batch = {1, 4};
  job.global_batch = 64;
  job.sequence = 4096;
  job.total_tokens = 1e9;
  job.top = top;
  std::vector<Rule> rules;
  PriceBook book(job.model, job.cluster, {job.type, true, job.sequence});
  return search(job, rules, test::cost_models(), book, [](const std::string&, std::size_t, std::size_t) {});
}

ClusterSpec small_cluster(double nic_gigabits) {
  ClusterSpec cluster = test::two_priced_kinds();
  for (NodeGroup& group : cluster.groups) {
    group.count = {0, 2};
    group.nic.bandwidth = gigabits_per_second(nic_gigabits);
  }
  return cluster;
}

}  // namespace

// The bound counts what is priced, compute and collectives inside a layer; an override changes what is played
// on top of it, messages and gradients, and that is never negative.
TEST_CASE("links faster or slower than their group says do not make the search miss a better plan",
          "[slow]") {
  const double factor = GENERATE(0.05, 1.0, 64.0);
  ClusterSpec cluster = small_cluster(100);
  if (factor != 1.0) cluster.links = {{"*", {}, factor, {}, {}}};
  const SearchResult few = best_plans(cluster, 4);
  const SearchResult all = best_plans(cluster, 1'000'000);
  REQUIRE(few.plans.size() >= 4);
  REQUIRE(few.counts.evaluated == all.counts.evaluated);
  CHECK(few.counts.estimated < all.counts.estimated);  // the bound did its work
  for (std::size_t i = 0; i < 4; ++i) CHECK(few.plans[i].iteration == all.plans[i].iteration);
}

TEST_CASE("an override of NICs does to the gradients of a plan what NICs of that speed do") {
  ClusterSpec changed = small_cluster(100);
  changed.links = {{"*.nic*", {}, 4.0, {}, {}}};
  const double slow = best_plans(small_cluster(100), 1).plans.front().iteration.value();
  const double fast = best_plans(small_cluster(400), 1).plans.front().iteration.value();
  const double with_override = best_plans(changed, 1).plans.front().iteration.value();
  CHECK(fast <= slow);
  CHECK(with_override <= slow);
  CHECK(with_override == Approx(fast).epsilon(0.05));
}

}  // namespace orrery
