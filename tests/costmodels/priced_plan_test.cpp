// Whole plans priced: sizes, equality, collectives as predicted, networks and mixed GPUs that matter.
#include <numeric>

#include "costmodels/estimate/estimate.hpp"
#include "costmodels/estimate/traffic.hpp"
#include "strategies/plan.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"
#include "tests/costmodels/ring.hpp"
#include "tests/strategies/plan_fixture.hpp"
#include "tests/strategies/random_schedule.hpp"

namespace orrery {
namespace {

using test::between;

const ModelSpec& llama() {
  static const ModelSpec model = read_model("llama2-7b");
  return model;
}

// Stages over `groups` in order, equal parts, as many nodes as needed.
ParallelStrategy strategy_of(const std::vector<int>& groups, int tensor, int data, int chunks) {
  ParallelStrategy strategy;
  strategy.pipeline = static_cast<int>(groups.size());
  strategy.data = data;
  strategy.chunks = chunks;
  strategy.global_batch = 8 * data * strategy.pipeline;
  strategy.sequence = 4096;
  strategy.sequence_parallel = tensor > 1;
  if (chunks > 1) {
    strategy.schedule = ScheduleKind::interleaved;
    strategy.transfers = TransferMode::overlapped;
  }
  strategy.nodes = {0, 0};
  std::vector<int> gpus(2, 0);
  for (const int group : groups) {
    strategy.stages.push_back({group, tensor});
    gpus[static_cast<std::size_t>(group)] += tensor * data;
  }
  for (std::size_t group = 0; group < 2; ++group) strategy.nodes[group] = (gpus[group] + 7) / 8;
  strategy.parts = test::equal_parts(strategy.pipeline * chunks, llama().layer_count());
  return strategy;
}

PricedPlan priced_under(const SoftwareStack& stack, const ParallelStrategy& strategy,
                        const ClusterSpec& cluster) {
  PriceBook book(llama(), cluster, {strategy.type, true, strategy.sequence, stack});
  book.need(strategy);
  book.predict(test::cost_models());
  return book.price(strategy, Topology(cluster, strategy.nodes));
}

double iteration(const PricedPlan& plan, const ParallelStrategy& strategy, const ClusterSpec& cluster) {
  return estimate_iteration(plan, make_programs(plan), Topology(cluster, strategy.nodes)).value();
}

double iteration(const ParallelStrategy& strategy, const ClusterSpec& cluster) {
  const PriceBook book = test::book_for(llama(), cluster, strategy);
  return iteration(book.price(strategy, Topology(cluster, strategy.nodes)), strategy, cluster);
}

ClusterSpec with_network(double gigabits) {
  ClusterSpec cluster = test::two_priced_kinds();
  for (NodeGroup& group : cluster.groups) group.nic.bandwidth = gigabits_per_second(gigabits);
  return cluster;
}

void check_sizes_and_signs(const PricedPlan& plan, const ParallelStrategy& strategy) {
  const auto parts = static_cast<std::size_t>(strategy.part_count());
  const auto stages = static_cast<std::size_t>(strategy.pipeline);
  REQUIRE(plan.parts.size() == parts);
  REQUIRE(plan.boundaries.size() == parts - 1);
  REQUIRE(plan.gpus.size() == stages * static_cast<std::size_t>(strategy.data));
  REQUIRE((plan.reductions.size() == parts && plan.optimizer.size() == stages));
  const auto plausible = [](double efficiency) { return efficiency > 0 && efficiency <= 1; };
  for (const PartTimes& part : plan.parts) {
    REQUIRE((part.forward > Seconds(0) && part.backward > Seconds(0)));
    REQUIRE((part.forward_flops > Flops(0) && part.backward_flops > part.forward_flops));
  }
  for (const BoundaryMessage& boundary : plan.boundaries) {
    REQUIRE(boundary.bytes > Bytes(0));
    REQUIRE((plausible(boundary.efficiency.inside) && plausible(boundary.efficiency.between)));
  }
  for (const PartReduction& reduction : plan.reductions) {
    REQUIRE(reduction.gradients > Bytes(0));
    REQUIRE((reduction.gathered > Bytes(0)) == strategy.distributed_optimizer);
    REQUIRE((plausible(reduction.efficiency.inside) && plausible(reduction.efficiency.between)));
  }
  for (const Seconds step : plan.optimizer) REQUIRE(step > Seconds(0));
}

}  // namespace

TEST_CASE("every valid plan is priced: a positive time for every part, twice the same") {
  std::mt19937 random(1);
  const ClusterSpec cluster = test::two_priced_kinds();
  for (int i = 0; i < 12; ++i) {
    std::vector<int> groups;
    for (int stage = 1 << between(random, 1, 2); stage > 0; --stage) groups.push_back(between(random, 0, 1));
    ParallelStrategy strategy = strategy_of(groups, 1 << between(random, 0, 3), 1 << between(random, 0, 2),
                                            1 << between(random, 0, 1));
    strategy.distributed_optimizer = between(random, 0, 1) == 1;
    strategy.recompute.granularity = static_cast<RecomputeGranularity>(between(random, 0, 2));
    INFO(to_yaml(Plan{"llama2-7b", "two kinds", strategy}));
    REQUIRE(!check_shape(llama(), strategy, cluster));
    const PriceBook book = test::book_for(llama(), cluster, strategy);
    const Topology topology(cluster, strategy.nodes);
    const PricedPlan plan = book.price(strategy, topology);
    check_sizes_and_signs(plan, strategy);
    const PlanPrograms programs = make_programs(plan);
    const Seconds time = estimate_iteration(plan, programs, topology);
    CHECK(time > Seconds(0));
    CHECK(estimate_iteration(book.price(strategy, topology), programs, topology) == time);
    const PriceBook again = test::book_for(llama(), cluster, strategy);
    CHECK(estimate_iteration(again.price(strategy, topology), programs, topology) == time);
  }
}

// `lanes` rings of `data` members side by side, of all the GPUs of their nodes: each has its share of the
// NICs, which is what the cost model was asked about. Sizes are nodes of the table, so nothing is
// interpolated.
TEST_CASE("a ring that nobody disturbs takes what the cost model predicts") {
  struct Row {
    int nics, lanes, data;
  };
  const auto row = GENERATE(values<Row>({{8, 1, 8},
                                         {8, 2, 4},
                                         {8, 8, 4},
                                         {8, 1, 32},
                                         {8, 2, 16},
                                         {8, 4, 8},
                                         {1, 8, 4},
                                         {1, 2, 16},
                                         {2, 4, 8},
                                         {4, 1, 32}}));
  const auto kind =
      GENERATE(CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather);
  const ClusterSpec cluster = test::two_priced_kinds(row.nics);
  const NodeGroup& group = cluster.groups[0];
  PriceBook book(llama(), cluster, {DataType::bf16, true, 4096});
  book.need_rings(0, row.lanes, row.data);
  book.predict(test::cost_models());
  const Topology topology(cluster, {row.lanes * row.data / 8, 0});
  for (const int exponent : {22, 26, 30, 34}) {
    const Bytes size(std::exp2(exponent));
    INFO(row.nics << " NICs, " << row.lanes << " lanes, " << row.data << " members, " << to_text(kind)
                  << " of " << to_text(size));
    const TransferEfficiency efficiency = book.ring_efficiency(0, row.lanes, row.data, kind, size);
    std::vector<Flow> flows;
    Seconds tail;
    for (int lane = 0; lane < row.lanes; ++lane) {
      std::vector<int> members;
      for (int i = 0; i < row.data; ++i) members.push_back(i * row.lanes + lane);
      const FlowPhase ring = ring_of(topology, kind, size, efficiency, members);
      flows.insert(flows.end(), ring.flows.begin(), ring.flows.end());
      tail = ring.tail;
    }
    const double played = (together(topology, flows) + tail).value();

    Collective ring{kind, size, row.data, std::min(row.data, 8 / row.lanes), group.gpu_link, group.nic};
    ring.network.bandwidth = group.nic.bandwidth * (row.nics / 8.0);
    const OperatorQuery query{0, ring};
    const double predicted = test::cost_models().predict({&group.gpu, 1}, {&query, 1})[0].time.value();
    if (efficiency.between < 1) {
      CHECK(played == Approx(predicted).epsilon(1e-3));
    } else {
      CHECK(played >= predicted);  // faster than its links can be: the links are played
    }
  }
}

TEST_CASE("two replicas or stages in a mesh of eight GPUs have one of seven links, eight replicas all") {
  ClusterSpec cluster;
  cluster.groups = {test::node_group_of("MI300X", 8), test::node_group_of("H100", 8)};
  const Bytes size(std::exp2(30));
  const auto of_link = [&](int group, int lanes, int data) {
    PriceBook book(llama(), cluster, {DataType::bf16, true, 4096});
    book.need_rings(group, lanes, data);
    book.predict(test::cost_models());
    return book.ring_efficiency(group, lanes, data, CollectiveKind::all_reduce, size).inside;
  };
  // rccl-tests on eight MI355X reach 0.72 of what links the GPUs have between them: 165 GB/s on four, 386 on
  // eight. A third of the way either side, for a model of NVIDIA's links.
  constexpr double kReached = 386.0 / 537.6;
  for (const auto& [lanes, data] : {std::pair{4, 2}, {2, 4}, {1, 8}}) {
    const double reached = of_link(0, lanes, data) / ((data - 1) / 7.0);
    CHECK((reached > kReached * 2 / 3 && reached < kReached * 4 / 3));
  }
  CHECK(of_link(1, 4, 2) > 0.5);  // behind a switch
  const ParallelStrategy strategy = strategy_of({0, 0}, 2, 2, 1);
  const PriceBook book = test::book_for(llama(), cluster, strategy);
  const double message = book.boundary(strategy, 0).efficiency.inside;
  CHECK((message > 0.5 / 7 && message <= 1.0 / 7));
}

// Parameters in 16 bits are half the bytes of fp32 gradients, so they fill the links less well.
TEST_CASE("parameters are gathered with the efficiency of their own size") {
  ParallelStrategy strategy = strategy_of({0, 0}, 2, 8, 1);
  strategy.distributed_optimizer = true;
  const ClusterSpec cluster = test::two_priced_kinds();
  const PriceBook book = test::book_for(llama(), cluster, strategy);
  const PricedPlan plan = book.price(strategy, Topology(cluster, strategy.nodes));
  for (const PartReduction& reduction : plan.reductions) {
    CHECK(reduction.gathered.value() == reduction.gradients.value() / 2);
    const auto efficiency = [&](CollectiveKind kind, Bytes bytes) {
      return book.ring_efficiency(0, 2, 8, kind, bytes).between;
    };
    CHECK(reduction.efficiency.between == efficiency(CollectiveKind::reduce_scatter, reduction.gradients));
    CHECK(reduction.gather_efficiency.between == efficiency(CollectiveKind::all_gather, reduction.gathered));
  }
}

// 16 replicas on two nodes, all else alike.
TEST_CASE("ZeRO-2 reduces what ZeRO-1 does, but once for every microbatch; both gather weights once") {
  const ClusterSpec cluster = with_network(100);
  const auto plan_of = [&](bool sharded, int microbatches, PricedPlan& priced) {
    SoftwareStack stack;
    stack.whole_weights = sharded;
    ParallelStrategy strategy = strategy_of({0}, 1, 16, 1);
    strategy.distributed_optimizer = true;
    strategy.fully_sharded = sharded;
    strategy.global_batch = 16 * microbatches;
    priced = priced_under(stack, strategy, cluster);
    return iteration(priced, strategy, cluster);
  };
  PricedPlan once, often;
  const double one = plan_of(false, 1, once), whole = plan_of(true, 1, often);
  REQUIRE((once.reductions.size() == 1 && often.reductions.size() == 1));
  CHECK(often.reductions[0].gathered == once.reductions[0].gathered);
  CHECK(often.reductions[0].gradients == Bytes(0));
  // Layer by layer or all at once.
  CHECK(whole == Approx(one).epsilon(0.03));
  // 15 of 16 shares of the gradients leave each node, over its eight NICs.
  const double reduced =
      once.reductions[0].gradients.value() * 15 / 16 / (8 * cluster.groups[0].nic.bandwidth.value());
  const double more = plan_of(true, 8, often) - plan_of(false, 8, once);
  CHECK(more > 7 * reduced);
  CHECK(more < 7 * reduced * 1.5);
}

// As DistributedDataParallel does without no_sync. 16 replicas on two nodes.
TEST_CASE(
    "replicas that reduce every microbatch do once what others do, and for each microbatch more again") {
  const ClusterSpec cluster = with_network(10);  // slow enough to hide little
  const auto plan_of = [&](bool each, int microbatches) {
    ParallelStrategy strategy = strategy_of({0}, 1, 16, 1);
    strategy.reduce_each_microbatch = each;
    strategy.global_batch = 16 * microbatches;
    const PricedPlan priced = priced_under({}, strategy, cluster);
    CHECK(priced.reductions.size() == (each ? 0 : 1));
    return iteration(priced, strategy, cluster);
  };
  const double once = plan_of(false, 1), pass = plan_of(false, 2) - once;
  // All of a backward may hide: two thirds of a pass; kernels beside collectives may be slower.
  CHECK(plan_of(true, 1) < once * 1.05);
  CHECK(plan_of(true, 1) > once - pass * 2 / 3);
  const double again = plan_of(true, 8) - plan_of(true, 7);
  // Gradients in fp32 of 15 of 16 replicas leave each node twice, over its eight NICs.
  const double reduced = 2 * 4 * static_cast<double>(total_parameters(llama())) * 15 / 16 /
                         (8 * cluster.groups[0].nic.bandwidth.value());
  CHECK(again > reduced);
  CHECK(again < reduced * 1.5 + pass);
  CHECK(plan_of(false, 8) - plan_of(false, 7) == Approx(pass).epsilon(0.01));
}

TEST_CASE(
    "FSDP that keeps what it gathered gathers in every forward, and nothing after the step or backward") {
  const ClusterSpec cluster = with_network(2);  // slow enough to hide little
  const auto priced = [&](bool keeps, bool in_forward) {
    SoftwareStack stack;
    stack.whole_weights = keeps;
    stack.gathers_in_forward = in_forward;
    stack.overlap_grad_reduce = true;
    ParallelStrategy strategy = strategy_of({0}, 1, 16, 1);
    strategy.distributed_optimizer = strategy.fully_sharded = true;
    return priced_under(stack, strategy, cluster);
  };
  const auto passes = [](const PricedPlan& plan) {
    const PartTimes& part = plan.parts.front();
    return std::pair(part.forward.value(), part.backward.value());
  };
  const PricedPlan sharded = priced(false, false), kept = priced(true, true), after = priced(true, false);
  CHECK(passes(kept).first == Approx(passes(sharded).first));
  CHECK(passes(kept).second == Approx(passes(after).second));
  CHECK(passes(kept).second < passes(sharded).second);
  CHECK(passes(kept).first > passes(after).first);
  REQUIRE((kept.reductions.size() == 1 && after.reductions.size() == 1));
  CHECK(kept.reductions[0].gathered == Bytes(0));
  CHECK(after.reductions[0].gathered > Bytes(0));
}

TEST_CASE(
    "sharded gradients that are added up whole are reduced once a step, and no weights are gathered after "
    "it") {
  const ClusterSpec cluster = with_network(10);  // slow enough to hide nothing
  PricedPlan priced;
  const auto time = [&](bool whole, int microbatches) {
    SoftwareStack stack;
    stack.adds_up_whole = whole;
    ParallelStrategy strategy = strategy_of({0}, 1, 16, 1);
    strategy.distributed_optimizer = strategy.fully_sharded = true;
    strategy.global_batch = 16 * microbatches;
    priced = priced_under(stack, strategy, cluster);
    return iteration(priced, strategy, cluster);
  };
  const double each = time(false, 8) - time(false, 1);
  CHECK(priced.reductions.empty());
  const double once = time(true, 8) - time(true, 1);
  REQUIRE(priced.reductions.size() == 1);
  CHECK(priced.reductions[0].gathered == Bytes(0));
  // 15 of 16 shares leave each node, over its eight NICs, in seven backwards more.
  const double reduced =
      priced.reductions[0].gradients.value() * 15 / 16 / (8 * cluster.groups[0].nic.bandwidth.value());
  CHECK(each - once > 7 * reduced);
  CHECK(each - once < 7 * reduced * 1.5);
}

TEST_CASE("a slower network makes a plan over several nodes slower") {
  const ParallelStrategy pipeline = strategy_of({0, 0}, 8, 1, 1);  // messages cross it
  const ParallelStrategy replicas = strategy_of({0}, 8, 2, 1);     // gradients cross it
  const ParallelStrategy one_node = strategy_of({0}, 8, 1, 1);
  for (const ParallelStrategy& strategy : {pipeline, replicas}) {
    const double fast = iteration(strategy, with_network(400));
    const double slow = iteration(strategy, with_network(100));
    const double slowest = iteration(strategy, with_network(10));
    CHECK(fast < slow);
    CHECK(slow < slowest);
  }
  CHECK(iteration(one_node, with_network(10)) == iteration(one_node, with_network(400)));
}

TEST_CASE("stages of mixed plans are priced at the speed of their own GPU") {
  const ClusterSpec cluster = test::two_priced_kinds();
  const auto priced = [&](const std::vector<int>& groups) {
    const ParallelStrategy strategy = strategy_of(groups, 8, 1, 1);
    return test::book_for(llama(), cluster, strategy).price(strategy, Topology(cluster, strategy.nodes));
  };
  const PricedPlan mixed = priced({0, 1});
  const PricedPlan fast = priced({0, 0});
  const PricedPlan slow = priced({1, 1});
  CHECK(mixed.parts[0].forward == fast.parts[0].forward);
  CHECK(mixed.parts[0].backward == fast.parts[0].backward);
  CHECK(mixed.parts[1].forward == slow.parts[1].forward);
  CHECK(mixed.parts[1].backward == slow.parts[1].backward);
  CHECK(fast.parts[0].forward < slow.parts[0].forward);
  CHECK(mixed.optimizer[0] == fast.optimizer[0]);
  CHECK(mixed.optimizer[1] == slow.optimizer[1]);
}

// Llama does not tie its tables; GPT-2 does. 50257 words are padded to 50304 = 2 x 25152, of 1024 columns and
// fp32 gradients.
TEST_CASE("only a model with tied embeddings reduces their gradient, a tensor rank its rows") {
  ParallelStrategy strategy = strategy_of({0, 0}, 2, 1, 1);
  const ClusterSpec cluster = test::two_priced_kinds();
  const Topology topology(cluster, strategy.nodes);
  CHECK(!test::book_for(llama(), cluster, strategy).price(strategy, topology).embedding_gradient);
  const ModelSpec gpt2 = read_model("gpt2-345m");
  strategy.sequence = 1024;
  strategy.parts = test::equal_parts(2, gpt2.layer_count());
  const PricedPlan plan = test::book_for(gpt2, cluster, strategy).price(strategy, topology);
  REQUIRE(plan.embedding_gradient);
  CHECK(plan.embedding_gradient->value() == 50'432 / 2 * 1024 * 4.0);
}

}  // namespace orrery
