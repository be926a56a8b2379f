// Overlaps that a space leaves open are on where that makes a plan faster, and as rules, space and stack say.
#include "costmodels/stacks/stack_file.hpp"
#include "sim/search/search.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"

namespace orrery {
namespace {

// Replicas that reduce over slow NICs.
SearchJob slow_network() {
  SearchJob job;
  job.model = read_model("llama2-7b");
  job.cluster = test::two_priced_kinds();
  job.cluster.groups.pop_back();
  job.cluster.groups.front().count = {2, 2};
  job.cluster.groups.front().nic.bandwidth = gigabits_per_second(50);
  job.space.tensor = {2, 4};
  job.space.context = {1};
  job.space.chunks = {1};
  job.space.micro_batch = {1};
  job.space.sequence_parallel = {true};
  job.space.recompute = {{}};
  job.global_batch = 64;
  job.sequence = 4096;
  job.total_tokens = 1e9;
  job.top = 4;
  return job;
}

SearchResult found(const SearchJob& job, const std::string& rule = "", const char* stack = "megatron-core") {
  std::vector<Rule> rules;
  if (!rule.empty()) rules.emplace_back(rule, "rule");
  PriceBook book(job.model, job.cluster, {job.type, true, job.sequence, read_stack(stack)});
  return search(job, rules, test::cost_models(), book, [](const std::string&, std::size_t, std::size_t) {});
}

bool any(const SearchResult& result, bool ParallelStrategy::*overlap) {
  return std::any_of(result.plans.begin(), result.plans.end(),
                     [&](const RatedPlan& plan) { return plan.strategy.*overlap; });
}

}  // namespace

TEST_CASE("a search finds the fastest plan of all that overlaps make, as if each were a candidate") {
  SearchJob job = slow_network();
  const SearchResult open = found(job);
  job.space.overlap_grad_reduce = job.space.overlap_param_gather = {false, true};
  const SearchResult each = found(job);
  CHECK(open.plans.front().strategy == each.plans.front().strategy);
  CHECK(open.plans.front().iteration == each.plans.front().iteration);
  CHECK(open.plans.front().strategy.overlap_param_gather);
  CHECK(4 * open.counts.enumerated == each.counts.enumerated);
  job.space.overlap_grad_reduce = {false};
  job.space.overlap_param_gather = {std::nullopt};
  const SearchResult off = found(job);
  CHECK_FALSE(any(off, &ParallelStrategy::overlap_grad_reduce));
  CHECK_FALSE(any(off, &ParallelStrategy::overlap_param_gather));
  CHECK(open.plans.front().iteration < off.plans.front().iteration);
}

TEST_CASE(
    "a rule against an overlap, or against being without it, drops no candidate that can do otherwise") {
  const SearchJob job = slow_network();
  const SearchResult open = found(job);
  const SearchResult without = found(job, "$overlap_grad_reduce");
  CHECK_FALSE(any(without, &ParallelStrategy::overlap_grad_reduce));
  const SearchResult with = found(job, "!$overlap_grad_reduce && $data_parallel_size > 1");
  for (const RatedPlan& plan : with.plans)
    CHECK((plan.strategy.data == 1 || plan.strategy.overlap_grad_reduce));
  CHECK(with.counts.evaluated == open.counts.evaluated);
  CHECK(without.counts.evaluated == open.counts.evaluated);
  const SearchResult none = found(job, "$overlap_grad_reduce || !$overlap_grad_reduce");
  CHECK(none.plans.empty());
  CHECK(none.counts.rejected.at(InfeasibleKind::rule) == open.counts.evaluated);
}

TEST_CASE("a program that knows no overlaps has none") {
  SearchJob job = slow_network();
  job.type = DataType::fp16;
  const SearchResult result = found(job, "", "megatron-lm-2021");
  REQUIRE(!result.plans.empty());
  CHECK_FALSE(any(result, &ParallelStrategy::overlap_grad_reduce));
}

}  // namespace orrery
