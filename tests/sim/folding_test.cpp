// Playing some replicas and lanes for all of them gives the times of playing all.
#include "costmodels/plans/folding.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>

#include "strategies/task_order.hpp"
#include "tests/costmodels/flat_cluster.hpp"
#include "tests/costmodels/random_cluster.hpp"
#include "tests/sim/played.hpp"

using namespace orrery;

namespace {

std::vector<double> columns(const Accounting& time) {
  std::vector<double> values;
  for (const Seconds part : {time.compute, time.exposed_tp, time.exposed_p2p, time.exposed_dp, time.optimizer,
                             time.bubble_warmup, time.bubble_steady, time.bubble_drain}) {
    values.push_back(part.value());
  }
  return values;
}

// Makespan, steady iteration, and the accounting of every stage.
std::string summary(const RandomPlan& drawn, Folding folding) {
  const PlanPrograms programs = make_programs(drawn.plan);
  const TrafficFlows flows(drawn.plan, programs, drawn.topology, folding);
  const Replay run = replay(drawn.plan, programs, drawn.topology, flows, {});
  std::ostringstream text;
  text.precision(17);
  text << run.timeline.makespan << " " << steady_iteration(run.iteration_ends).value();
  for (const StageAccounting& stage : account(run.timeline).stages) {
    for (const double value : columns(stage.mean)) text << " " << value;
    for (const double value : columns(stage.maximum)) text << " " << value;
  }
  return text.str();
}

std::vector<double> numbers(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<double>(stream), std::istream_iterator<double>()};
}

// The largest difference of the two replays, as a share of the makespan.
double difference(const RandomPlan& drawn) {
  const std::vector<std::string> texts = run_in_children(
      {[&] { return summary(drawn, Folding::on); }, [&] { return summary(drawn, Folding::off); }}, 1);
  const std::vector<double> folded = numbers(texts[0]), whole = numbers(texts[1]);
  REQUIRE(folded.size() == whole.size());
  double largest = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) largest = std::max(largest, std::abs(folded[i] - whole[i]));
  return largest / whole[0];
}

}  // namespace

TEST_CASE("folded replicas and lanes take the time of all of them, stage by stage", "[slow]") {
  int several = 0, folded = 0, fewer_lanes = 0, fewer_contexts = 0;
  for (std::uint32_t seed = 1; seed <= 600; ++seed) {
    const Contention contention = seed % 4 == 0 ? Contention::ideal : Contention::shared;
    RandomPlan drawn = with_overlaps(random_symmetric_plan(seed, contention), seed);
    if (seed > 300) drawn = shuffled(drawn, seed);
    if (seed % 2 == 0) drawn = with_group_calls(std::move(drawn), seed);
    if (seed > 500) drawn = with_optimizer_sets(std::move(drawn), seed);
    INFO(drawn.text);
    const std::vector<int> played = lanes_to_play(drawn.plan, drawn.topology);
    const bool lanes = played.size() < drawn.plan.gpus.front().size();
    const int period = folding_period(drawn.plan, drawn.topology);
    const bool contexts = context_period(drawn.plan, drawn.topology, period, played) < drawn.plan.context;
    const bool folds = period < drawn.plan.replicas;
    fewer_contexts += contexts ? 1 : 0;
    if (seed <= 300) {
      several += drawn.plan.replicas > 1 ? 1 : 0;
      folded += folds ? 1 : 0;
      fewer_lanes += lanes ? 1 : 0;
    }
    if (!folds && !lanes && !contexts) continue;
    CHECK(difference(drawn) < 1e-9);
    const test::PlayedTimes on = test::estimated(drawn.plan, drawn.topology, Folding::on);
    const test::PlayedTimes off = test::estimated(drawn.plan, drawn.topology, Folding::off);
    CHECK(on.makespan == Approx(off.makespan).epsilon(1e-9));
    CHECK(on.iteration == Approx(off.iteration).epsilon(1e-9));
  }
  // The claim is not empty: many aligned plans of several replicas fold (the others share NICs or experts, or
  // reduce in trees), and many have tensor ranks that stand for all (the others share NICs, or play tensor
  // groups).
  INFO(several << " plans of several replicas, " << folded << " fold, " << fewer_lanes
               << " play fewer lanes, " << fewer_contexts << " fewer context ranks");
  CHECK(fewer_contexts > 5);
  CHECK(several > 180);
  CHECK(folded > 55);
  CHECK(fewer_lanes > 45);
}

TEST_CASE("replicas fold where stages have unequal tensor ways too") {
  int folded = 0;
  for (std::uint32_t seed = 1; seed <= 150; ++seed) {
    RandomPlan drawn = random_symmetric_plan(seed, Contention::shared);
    const auto lanes = drawn.plan.gpus.front().size();
    drawn = with_unequal_tensor(std::move(drawn), seed);
    const bool unequal = std::any_of(drawn.plan.gpus.begin(), drawn.plan.gpus.end(),
                                     [&](const auto& gpus) { return gpus.size() != lanes; });
    if (!unequal || folding_period(drawn.plan, drawn.topology) == drawn.plan.replicas) continue;
    ++folded;
    INFO(drawn.text);
    CHECK(difference(drawn) < 1e-9);
  }
  CHECK(folded > 5);
}

// GPUs with NICs of their own; stages of four context ranks in 1, 2 or 4 nodes.
RandomPlan with_context_rings(std::uint32_t seed) {
  RandomPlan drawn = with_overlaps(random_symmetric_plan(seed, Contention::shared), seed);
  PricedPlan& plan = drawn.plan;
  test::Draw draw(seed);
  plan.replicas = 1 << draw.whole(0, 1);
  plan.context = 4;
  const int lanes = plan.context << draw.whole(0, 2);
  plan.gpus.assign(static_cast<std::size_t>(plan.replicas * plan.stages()), {});
  int next = 0;
  for (std::vector<int>& gpus : plan.gpus) {
    for (int lane = 0; lane < lanes; ++lane) gpus.push_back(next++);
  }
  plan.calls = {
      {RankGroup::context, CollectiveKind::all_gather, Bytes(draw.real(1e3, 2e7)), {0.7, 0.9}, {}, 2}};
  for (PartTimes& part : plan.parts) {
    part.forward_pieces = {{.compute = part.forward, .beside = part.forward, .call = 0}};
    part.backward_pieces = {{.compute = part.backward / 2, .call = 0}, {.compute = part.backward, .call = 0}};
  }
  const int in_node = 1 << draw.whole(2, 3);
  const int nodes = (next + in_node - 1) / in_node;
  drawn.topology = test::flat_topology({.nodes = nodes, .gpus_per_node = in_node, .nics_per_node = in_node});
  drawn.text += ", context 4 in " + std::to_string(lanes) + " lanes, nodes of " + std::to_string(in_node);
  return drawn;
}

TEST_CASE("one of four context ranks takes the time of all") {
  std::map<int, int> periods;
  for (std::uint32_t seed = 1; seed <= 100; ++seed) {
    const RandomPlan drawn = with_context_rings(seed);
    INFO(drawn.text);
    const int period = context_period(drawn.plan, drawn.topology, folding_period(drawn.plan, drawn.topology),
                                      lanes_to_play(drawn.plan, drawn.topology));
    ++periods[period];
    if (period == drawn.plan.context) continue;
    CHECK(difference(drawn) < 1e-9);
    const test::PlayedTimes on = test::estimated(drawn.plan, drawn.topology, Folding::on);
    CHECK(on.makespan ==
          Approx(test::estimated(drawn.plan, drawn.topology, Folding::off).makespan).epsilon(1e-9));
  }
  INFO(periods[1] << " play one context rank, " << periods[4] << " all");
  CHECK(periods[1] > 20);
}

// GPUs with links of their own in nodes of 4 or 8, 3 to 40 replicas of one lane to eight. Gradients in trees,
// or in rings that do not fold where a node holds a part of a replica more or less than the next.
RandomPlan with_own_links(std::uint32_t seed) {
  RandomPlan drawn = with_overlaps(random_symmetric_plan(seed, Contention::shared), seed);
  PricedPlan& plan = drawn.plan;
  test::Draw draw(seed);
  plan.replicas = draw.whole(3, 40);
  plan.context = 1 << draw.whole(0, 1);
  if (draw.coin()) {
    plan.calls = {
        {RankGroup::context, CollectiveKind::all_gather, Bytes(draw.real(1e3, 2e7)), {0.7, 0.9}, {}, 2}};
    for (PartTimes& part : plan.parts) part.forward_pieces = {{.compute = part.forward, .call = 0}};
  }
  const int lanes = plan.context << draw.whole(0, 2);
  plan.gpus.assign(static_cast<std::size_t>(plan.replicas * plan.stages()), {});
  int next = 0;
  for (int stage = 0; stage < plan.stages(); ++stage) {
    for (int replica = 0; replica < plan.replicas; ++replica) {
      for (int lane = 0; lane < lanes; ++lane)
        plan.gpus[static_cast<std::size_t>(replica * plan.stages() + stage)].push_back(next++);
    }
  }
  plan.algorithm = draw.coin() ? std::optional(CollectiveAlgorithm::double_binary_tree) : std::nullopt;
  const int in_node = 1 << draw.whole(2, 3);
  const int nodes = (next + in_node - 1) / in_node;
  drawn.topology = test::flat_topology({.nodes = nodes, .gpus_per_node = in_node, .nics_per_node = in_node});
  drawn.text += ", " + std::to_string(plan.replicas) + " replicas, context " + std::to_string(plan.context) +
                " in " + std::to_string(lanes) + " lanes, nodes of " + std::to_string(in_node);
  return drawn;
}

TEST_CASE("an estimate of a few replicas beside whole collectives is that of all") {
  int of_paths = 0, of_sorts = 0;
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    const RandomPlan drawn = with_own_links(seed);
    INFO(drawn.text);
    const bool meet = may_meet(drawn.plan, drawn.topology);
    const Folding folding = meet ? Folding::of_estimates : Folding::of_paths;
    const PlanPrograms programs = make_programs(drawn.plan);
    const TrafficFlows flows(drawn.plan, programs, drawn.topology, folding);
    if (!flows.has_whole_rings()) continue;
    (meet ? of_sorts : of_paths) += flows.replicas() < drawn.plan.replicas ? 1 : 0;
    const test::PlayedTimes few = test::estimated(drawn.plan, drawn.topology, folding);
    const test::PlayedTimes all = test::estimated(drawn.plan, drawn.topology, Folding::off);
    CHECK(few.makespan == Approx(all.makespan).epsilon(1e-12));
    CHECK(few.iteration == Approx(all.iteration).epsilon(1e-12));
    const Seconds limit(all.iteration);
    CHECK(estimate_within(limit * (1 + 1e-6), drawn.plan, programs, drawn.topology).has_value());
    CHECK(!estimate_within(limit * (1 - 1e-6), drawn.plan, programs, drawn.topology).has_value());
  }
  INFO(of_paths << " estimates of alike replicas, " << of_sorts << " of one of each sort");
  CHECK(of_paths > 40);
  CHECK(of_sorts > 20);
}

TEST_CASE("replicas that differ are all played") {
  RandomPlan drawn = random_symmetric_plan(1, Contention::shared);
  for (std::uint32_t seed = 2; folding_period(drawn.plan, drawn.topology) == drawn.plan.replicas; ++seed) {
    drawn = random_symmetric_plan(seed, Contention::shared);
  }
  const auto plays_all = [&](const auto& change) {
    PricedPlan plan = drawn.plan;
    change(plan);
    return folding_period(plan, drawn.topology) == plan.replicas;
  };
  const auto ranks = drawn.plan.gpus.size();
  CHECK(plays_all([](PricedPlan& plan) { plan.jitter = 0.1; }));
  CHECK(plays_all([&](PricedPlan& plan) { plan.slowness.assign(ranks, 1.5); }));
  const auto replicas = static_cast<std::size_t>(drawn.plan.replicas);
  CHECK(plays_all([&](PricedPlan& plan) {
    plan.replica_microbatches.assign(replicas, plan.schedule.microbatches);
    ++plan.replica_microbatches.back();
  }));
  CHECK(plays_all([&](PricedPlan& plan) {
    plan.kind_of_replica.assign(replicas, 0);
    plan.kind_of_replica.back() = 1;
  }));
  CHECK_FALSE(plays_all([&](PricedPlan& plan) {  // said, and equal
    plan.replica_microbatches.assign(replicas, plan.schedule.microbatches);
    plan.kind_of_replica.assign(replicas, 0);
  }));
}

// Replicas 0, 2, 4, ... of one kind and 1, 3, 5, ... of another, each with its own microbatches.
TEST_CASE("replicas of two kinds in turn fold by two") {
  int folded = 0;
  for (std::uint32_t seed = 1; seed <= 120; ++seed) {
    RandomPlan drawn = random_symmetric_plan(seed, Contention::shared);
    PricedPlan& plan = drawn.plan;
    if (plan.replicas < 4 || schedule_row(plan.schedule.kind).chunks != 1) continue;
    KindPrices other{plan.parts, plan.boundaries, plan.optimizer};
    for (PartTimes& part : other.parts) part.forward *= 1.7, part.backward *= 2.3;
    for (Seconds& step : other.optimizer) step *= 1.5;
    plan.other_kinds = {other};
    for (int replica = 0; replica < plan.replicas; ++replica) {
      plan.kind_of_replica.push_back(replica % 2);
      plan.replica_microbatches.push_back(plan.schedule.microbatches + 2 * (replica % 2));
    }
    const int period = folding_period(plan, drawn.topology);
    CHECK(period % 2 == 0);
    if (period == plan.replicas) continue;
    ++folded;
    INFO(drawn.text);
    CHECK(difference(drawn) < 1e-9);
  }
  CHECK(folded > 5);
}

// A bucket of what all replicas have would be a 25th of one of experts if both filled buckets together, and
// NCCL sends so little over trees, which do not fold. One replica in eight has the hop to the next node.
TEST_CASE("replicas fold where their experts are many times what all of them have") {
  PricedPlan plan;
  plan.replicas = 32;
  plan.expert = 2;
  plan.parts = {{milliseconds(100), milliseconds(200)}};
  for (int replica = 0; replica < plan.replicas; ++replica) plan.gpus.push_back({replica});
  plan.reductions = {{Bytes(200e6), Bytes(0), {}}};
  plan.expert_reductions = {{Bytes(5e9), Bytes(0), {}}};
  plan.overlap_grad_reduce = true;
  plan.bucket = Bytes(160e6);
  const RandomPlan given{plan, test::flat_topology({.nodes = 4, .gpus_per_node = 8, .nics_per_node = 8}), ""};
  CHECK(folding_period(given.plan, given.topology) == 8);
  CHECK(difference(given) < 1e-9);
}

TEST_CASE("replicas whose buckets go over trees are all played") {
  PricedPlan plan;
  plan.replicas = 32;
  plan.parts = {{milliseconds(1), milliseconds(2)}};
  for (int replica = 0; replica < plan.replicas; ++replica) plan.gpus.push_back({replica});
  plan.overlap_grad_reduce = true;
  plan.bucket = Bytes(4e6);
  const auto period = [&](double bytes) {
    plan.reductions = {{Bytes(bytes), Bytes(0), {}}};
    return folding_period(plan, test::flat_topology({.nodes = 4, .gpus_per_node = 8, .nics_per_node = 8}));
  };
  CHECK(period(400e6) == 32);  // a hundred buckets
  plan.bucket = Bytes(400e6);
  CHECK(period(400e6) == 8);
}
