#include "costmodels/layer_pricing.hpp"

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
  const BlockCost measured = as_measured({pass, pass, {}}, {Seconds(8), Seconds(2), std::nullopt});
  CHECK(measured.forward == PassCost{Seconds(6), Seconds(2), Flops(5)});
  CHECK(measured.backward == PassCost{Seconds(1.5), Seconds(0.5), Flops(5)});
}

TEST_CASE("what was predicted as nothing takes what was measured") {
  const BlockCost measured = as_measured({}, times(2));
  CHECK(measured.forward.compute.value() == 2);
  CHECK(measured.backward.compute.value() == 6);
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
  CHECK_THROWS_WITH(one.priced({{0, profile(1)}}), Catch::Matchers::Contains("tensor 1"));
  one.strategy.context = 2;
  CHECK_THROWS_WITH(one.priced({{0, profile()}}), Catch::Matchers::Contains("context"));
}

}  // namespace orrery
