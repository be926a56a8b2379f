// Plans whose replicas run on unlike GPUs: each kind at its own speed, shares of the batch to match.
#include <algorithm>

#include "costmodels/estimate/estimate.hpp"
#include "costmodels/memory/memory.hpp"
#include "strategies/plan.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"
#include "tests/strategies/plan_fixture.hpp"

namespace orrery {
namespace {

const ModelSpec& llama() {
  static const ModelSpec model = read_model("llama2-7b");
  return model;
}

// Two stages of 4 tensor ways; `fast` replicas on H100, `slow` on A100; 96 microbatches in all.
ParallelStrategy replicas_on(int fast, int slow) {
  ParallelStrategy strategy;
  strategy.pipeline = 2;
  strategy.data = fast + slow;
  strategy.global_batch = 96;
  strategy.sequence = 4096;
  strategy.sequence_parallel = true;
  strategy.parts = test::equal_parts(2, llama().layer_count());
  strategy.nodes = {fast, slow};
  strategy.stages = {{fast > 0 ? 0 : 1, 4}, {fast > 0 ? 0 : 1, 4}};
  if (fast > 0 && slow > 0) strategy.replicas = {{fast, {0, 0}, 0}, {slow, {1, 1}, 0}};
  return strategy;
}

ParallelStrategy with_microbatches(ParallelStrategy strategy, std::int64_t fast, std::int64_t slow) {
  strategy.replicas[0].microbatches = fast;
  strategy.replicas[1].microbatches = slow;
  REQUIRE(!check_shape(llama(), strategy, test::two_priced_kinds()));
  return strategy;
}

double iteration(const PriceBook& book, const ParallelStrategy& strategy) {
  const Topology topology(book.cluster(), strategy.nodes);
  const PricedPlan plan = book.price(strategy, topology);
  return estimate_iteration(plan, make_programs(plan), topology).value();
}

}  // namespace

TEST_CASE("every replica is priced on its own GPUs") {
  const ClusterSpec cluster = test::two_priced_kinds();
  const auto priced = [&](const ParallelStrategy& strategy) {
    return test::book_for(llama(), cluster, strategy).price(strategy, Topology(cluster, strategy.nodes));
  };
  const PricedPlan mixed = priced(with_microbatches(replicas_on(1, 2), 56, 20));
  const PricedPlan fast = priced(replicas_on(3, 0));
  const PricedPlan slow = priced(replicas_on(0, 3));
  CHECK(mixed.kind_of_replica == std::vector<int>{0, 1, 1});
  CHECK(mixed.replica_microbatches == std::vector<int>{56, 20, 20});
  for (int replica = 0; replica < 3; ++replica) {
    const PricedPlan& alike = replica == 0 ? fast : slow;
    for (int part = 0; part < 2; ++part) {
      const auto at = static_cast<std::size_t>(part);
      CHECK(mixed.part_times(replica, part).forward == alike.parts[at].forward);
      CHECK(mixed.part_times(replica, part).backward == alike.parts[at].backward);
      CHECK(mixed.optimizer_step(replica, part) == alike.optimizer[at]);
      // Their gradients are of one size; the ring is no more efficient than on either kind.
      const double efficiency = mixed.reductions[at].efficiency.between;
      CHECK(mixed.reductions[at].gradients == alike.reductions[at].gradients);
      CHECK(efficiency ==
            std::min(fast.reductions[at].efficiency.between, slow.reductions[at].efficiency.between));
    }
    CHECK(mixed.boundary(replica, 0).efficiency.inside == alike.boundaries[0].efficiency.inside);
  }
  CHECK(fast.parts[0].forward < slow.parts[0].forward);
}

TEST_CASE("a plan of unlike replicas that are on the same GPUs is the plan of alike ones") {
  const ClusterSpec cluster = test::two_priced_kinds();
  const ParallelStrategy alike = replicas_on(3, 0);
  ParallelStrategy said = alike;
  said.replicas = {{1, {0, 0}, 32}, {2, {0, 0}, 32}};
  const PriceBook book = test::book_for(llama(), cluster, alike);
  CHECK(book.price(said, Topology(cluster, said.nodes)).other_kinds.empty());
  CHECK(iteration(book, said) == iteration(book, alike));
}

TEST_CASE("chosen shares make an iteration as fast as any others, where pipelines decide its time") {
  ClusterSpec cluster = test::two_priced_kinds();
  const ParallelStrategy open = replicas_on(1, 1);
  const PriceBook book = test::book_for(llama(), cluster, open);
  const ParallelStrategy chosen = book.with_chosen_shares(open);
  REQUIRE(chosen.replicas.size() == 2);
  CHECK(chosen.replicas[0].microbatches + chosen.replicas[1].microbatches == 96);
  CHECK(chosen.replicas[0].microbatches > chosen.replicas[1].microbatches);
  const auto fast = chosen.replicas[0].microbatches;
  // Of all splits, within what one microbatch of the slower replica takes: transfers are not in the choice.
  double best = 1e9;
  for (std::int64_t share = 1; share < 96; ++share)
    best = std::min(best, iteration(book, with_microbatches(open, share, 96 - share)));
  const auto paces = book.replica_paces(open);
  CHECK(iteration(book, chosen) <= best + std::max(paces[0].each, paces[1].each));
  CHECK(iteration(book, chosen) < 0.8 * iteration(book, with_microbatches(open, 48, 48)));
  CHECK(fast > 60);
}

TEST_CASE("a stage that fits on one kind of card may be too large for the other") {
  ParallelStrategy strategy = replicas_on(1, 1);
  strategy.schedule = ScheduleKind::gpipe;  // all microbatches of a replica are alive
  strategy = with_microbatches(strategy, 90, 6);
  const auto memory = [&](int kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    return stage_memory(llama(), alike, 0, {static_cast<int>(alike.microbatches())});
  };
  CHECK(memory(0).weights == memory(1).weights);
  CHECK(memory(0).activations.value() == Approx(15 * memory(1).activations.value()));
}

}  // namespace orrery
