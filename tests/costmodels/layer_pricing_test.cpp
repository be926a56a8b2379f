#include "costmodels/plans/layer_pricing.hpp"

#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"

namespace orrery {
namespace {

LayerTimes times(double forward) {
  return {Seconds(forward), Seconds(3 * forward), std::nullopt};
}

// Four layers of 1, 2, 3, 4 s forward, an embedding of 10 s and a head of 100 s; a backward takes three times
// as long.
LayerProfile profile(int tensor = 2) {
  LayerTable table;
  table.tensor = tensor;
  table.embedding = times(10);
  table.head = times(100);
  for (int layer = 1; layer <= 4; ++layer) table.layers.push_back(times(layer));
  return {"p.json", {table}};
}

// Two stages of two tensor ways: H100 with the first layer, A100 with the other three.
struct Case {
  ModelSpec model = read_model("gpt2-345m");
  ClusterSpec cluster = test::two_priced_kinds();
  ParallelStrategy strategy;

  Case() {
    model.layers.resize(4);
    strategy.pipeline = 2;
    strategy.global_batch = 4;
    strategy.sequence = 1024;
    strategy.stages = {{0, 2}, {1, 2}};
    strategy.parts = {{0, 1}, {1, 3}};
    strategy.nodes = {1, 1};
  }
  std::vector<PartTimes> priced(const GroupProfiles& profiles) const {
    PriceBook book(model, cluster, {strategy.type, true, strategy.sequence});
    for (const auto& [group, each] : profiles) book.use_layers(group, each);
    book.need(strategy);
    book.predict(test::cost_models());
    return book.price(strategy, Topology(cluster, strategy.nodes)).parts;
  }
};

void check(const PartTimes& part, double forward, double backward) {
  CHECK(part.forward.value() == Approx(forward));
  CHECK(part.backward.value() == Approx(backward));
}

}  // namespace

TEST_CASE("stages on profiled groups take the sum of their layers, embedding first and head last") {
  const Case one;
  const auto parts = one.priced({{0, profile()}, {1, profile()}});
  check(parts[0], 10 + 1, 3 * (10 + 1));
  check(parts[1], 2 + 3 + 4 + 100, 3 * (2 + 3 + 4 + 100));
}

TEST_CASE("groups without a profile stay as they were predicted") {
  const Case one;
  const auto before = one.priced({}), after = one.priced({{1, profile()}});
  check(after[0], before[0].forward.value(), before[0].backward.value());
  check(after[1], 109, 327);
}

TEST_CASE("measured layers keep the predicted share of communication") {
  const Case one;
  const auto before = one.priced({}), after = one.priced({{0, profile()}});
  CHECK(after[0].forward_tensor.value() > 0);
  CHECK(after[0].forward_tensor < after[0].forward);
  const PassCost pass{Seconds(3), Seconds(1), Flops(5)};
  const BlockCost block{pass, pass, {}, {}};
  const BlockCost measured = as_measured({block, block, block}, {Seconds(8), Seconds(2), std::nullopt});
  CHECK(measured.forward == PassCost{Seconds(6), Seconds(2), Flops(5)});
  CHECK(measured.backward == PassCost{Seconds(1.5), Seconds(0.5), Flops(5)});
}

TEST_CASE("what was predicted as nothing takes what was measured") {
  const BlockCost nothing;
  const BlockCost measured = as_measured({nothing, nothing, nothing, 4.0}, times(2));
  CHECK(measured.forward.compute.value() == 4 * 2);
  CHECK(measured.backward.compute.value() == 4 * 6);
  const LayerTimes forward{Seconds(2), std::nullopt, std::nullopt};
  CHECK(as_measured({nothing, nothing, nothing, 4.0}, forward).backward.compute.value() == 2 * 4 * 2);
}

// Of a forward and a backward of so many seconds of compute, with two collectives of `each` second in either.
BlockCost block(double forward, double backward, double each = 0) {
  const auto pass = [&](double compute) {
    return PassCost{Seconds(compute), Seconds(2 * each), Flops(1), each > 0 ? 2.0 : 0.0, {}, {}};
  };
  return {pass(forward), pass(backward), {}, {}};
}

// The same where the host needs so long for either.
BlockCost launched(BlockCost block, double forward, double backward) {
  block.forward.host = Seconds(forward);
  block.backward.host = Seconds(backward);
  return block;
}

double forward_of(const BlockCost& cost) {
  return (cost.forward.compute + cost.forward.communication).value();
}
double backward_of(const BlockCost& cost) {
  return (cost.backward.compute + cost.backward.communication).value();
}

TEST_CASE("another microbatch takes as much more as is predicted, and no less than the host needs") {
  const auto with_host = [](const BlockCost& block) { return launched(block, 3, 5); };
  const BlockCost one = with_host(block(2, 4)), three = with_host(block(6, 8));
  // 4 s and 10 s were measured where 2 and 4 are predicted: the GPU, twice and 2.5 times as slow.
  const LayerTimes bound_by_gpu{Seconds(4), Seconds(10), std::nullopt};
  const BlockCost more = as_measured({three, one, one}, bound_by_gpu);
  CHECK(forward_of(more) == Approx(6 * 2));
  CHECK(backward_of(more) == Approx(8 * 2.5));
  CHECK(forward_of(as_measured({with_host(block(1, 4)), one, one}, bound_by_gpu)) == Approx(3));  // 1 x 2 < 3
  // 2.5 s is below the host's 3: of the GPU it says no more than that it took no longer.
  const LayerTimes bound_by_host{Seconds(2.5), Seconds(4.5), std::nullopt};
  CHECK(forward_of(as_measured({one, one, one}, bound_by_host)) == Approx(2.5));
  CHECK(forward_of(as_measured({with_host(block(2.2, 4)), one, one}, bound_by_host)) == Approx(2.5));
  CHECK(forward_of(as_measured({three, one, one}, bound_by_host)) == Approx(6));
}

TEST_CASE(
    "a backward that was not measured takes what is predicted beside the forward, and its collectives") {
  const auto with_host = [](const BlockCost& block) { return launched(block, 0.1, 0.2); };
  // Without tensor ways 8 s were measured for 4 predicted: the GPU is half as fast. Of two ways its 2 s are
  // 4, and the other 5 s of 9 are collectives, which the backward of 3 x 2 s has as many of.
  const LayerTimes times{Seconds(9), std::nullopt, std::nullopt, Seconds(8)};
  const BlockCost halves = with_host(block(2, 3, 0.5)), whole = with_host(block(4, 6));
  const BlockCost same = as_measured({halves, halves, whole}, times);
  CHECK(forward_of(same) == Approx(9));
  CHECK(backward_of(same) == Approx(3 * 2 + 5));
  // Of twice the sequences: collectives of 1 s each more in all, for 4 s of compute more.
  const BlockCost twice = as_measured({with_host(block(4, 6, 1)), halves, whole}, times);
  CHECK(forward_of(twice) == Approx(4 * 2 + 5 + 1));
  CHECK(backward_of(twice) == Approx(6 * 2 + 5 + 1));
  // What is faster than its share of the whole has no collectives.
  const LayerTimes fast{Seconds(3), std::nullopt, std::nullopt, Seconds(8)};
  const BlockCost quick = as_measured({halves, halves, whole}, fast);
  CHECK(forward_of(quick) == Approx(3));
  CHECK(backward_of(quick) == Approx(3 * 2 * 3.0 / 4.0));
}

TEST_CASE("a part of a microbatch that was not measured grows as it is predicted to") {
  Case one;
  const auto parts = [&](std::int64_t micro_batch) {
    one.strategy.micro_batch = micro_batch;
    return one.priced({{1, profile()}});
  };
  const auto small = parts(1), large = parts(4);
  CHECK(large[1].forward > small[1].forward);
  CHECK(large[1].forward < small[1].forward * 4.0);  // kernels of four sequences are the more efficient ones
  CHECK(large[1].backward / small[1].backward > 1);
}

TEST_CASE("full recomputation repeats measured forwards") {
  Case one;
  one.strategy.recompute = {RecomputeGranularity::full, RecomputeMethod::uniform, 1};
  check(one.priced({{1, profile()}})[1], 109, 327 + 2 + 3 + 4);
}

TEST_CASE("memory of a stage is the sum of its layers', where it was measured") {
  const Case one;
  LayerProfile with = profile();
  for (LayerTimes& layer : with.tables[0].layers) layer.memory = gibibytes(1);
  with.tables[0].head.memory = gibibytes(5);
  const PriceBook book(one.model, one.cluster, {one.strategy.type, true, one.strategy.sequence});
  const auto memory = profiled_memory(book, one.strategy, {{1, with}});
  CHECK_FALSE(memory[0]);
  CHECK(memory[1]->value() == Approx(gibibytes(8).value()));
}

TEST_CASE("shards that were not measured are refused") {
  Case one;
  CHECK_THROWS_WITH(one.priced({{0, profile(1)}}), contains_text("tensor 1"));
  one.strategy.context = 2;
  CHECK_THROWS_WITH(one.priced({{0, profile()}}), contains_text("context"));
}

}  // namespace orrery
