#include "costmodels/layer_pricing.hpp"

#include "platforms/errors.hpp"
#include "tests/catch.hpp"

namespace orrery {
namespace {

LayerTimes times(double forward, double backward, double optimizer = 0) {
  return {Seconds(forward), Seconds(backward), Seconds(optimizer), std::nullopt};
}

// Four layers of 1, 2, 3, 4 s forward and twice that backward, an embedding of 10 s and a head of 100 s.
LayerProfile profile() {
  LayerTable table;
  table.embedding = times(10, 20, 0.5);
  table.head = times(100, 200, 0.5);
  for (int layer = 1; layer <= 4; ++layer) table.layers.push_back(times(layer, 2 * layer, 0.25));
  return {"p.json", {table}};
}

struct Case {
  ModelSpec model;
  ClusterSpec cluster;
  ParallelStrategy strategy;
  PricedPlan plan;

  Case() {
    model.shapes.resize(1);
    model.layers.assign(4, 0);
    cluster.groups.resize(2);
    strategy.pipeline = 2;
    strategy.data = 2;
    strategy.stages = {{0, 1}, {1, 1}};
    strategy.parts = {{0, 1}, {1, 3}};
    strategy.nodes = {1, 1};
    plan.parts.assign(2, {Seconds(7), Seconds(8), Seconds(0), Seconds(1), Seconds(1)});
    plan.optimizer.assign(2, Seconds(9));
  }
  void price(const GroupProfiles& profiles) { price_by_profiles(plan, model, cluster, strategy, profiles); }
  void check(std::size_t part, double forward, double backward) const {
    CHECK(plan.parts[part].forward.value() == Approx(forward));
    CHECK(plan.parts[part].backward.value() == Approx(backward));
  }
};

}  // namespace

TEST_CASE("parts on profiled groups take the sum of their layers, embedding first and head last") {
  Case one;
  one.price({{0, profile()}, {1, profile()}});
  one.check(0, 10 + 1, 20 + 2);
  one.check(1, 2 + 3 + 4 + 100, 2 * (2 + 3 + 4 + 100));
  CHECK(one.plan.parts[0].forward_tensor.value() == 0);
  CHECK(one.plan.optimizer[0].value() == Approx(0.75));
  CHECK(one.plan.optimizer[1].value() == Approx(3 * 0.25 + 0.5));
}

TEST_CASE("groups without a profile stay as they were predicted") {
  Case one;
  one.price({{1, profile()}});
  one.check(0, 7, 8);
  CHECK(one.plan.optimizer[0].value() == 9);
  one.check(1, 109, 218);
}

TEST_CASE("full recomputation repeats forwards of layers, of the first few with block") {
  Case all;
  all.strategy.recompute = {RecomputeGranularity::full, RecomputeMethod::uniform, 1};
  all.price({{1, profile()}});
  all.check(1, 109, 218 + 2 + 3 + 4);
  Case some;
  some.strategy.recompute = {RecomputeGranularity::full, RecomputeMethod::block, 2};
  some.price({{1, profile()}});
  some.check(1, 109, 218 + 2 + 3);
}

TEST_CASE("a split backward stays split in its proportion, and replicas share a distributed step") {
  Case one;
  one.plan.parts[1].weight_gradient = Seconds(24);  // of 8 + 24
  one.strategy.distributed_optimizer = true;
  one.price({{1, profile()}});
  one.check(1, 109, 218 * 0.25);
  CHECK(one.plan.parts[1].weight_gradient.value() == Approx(218 * 0.75));
  CHECK(one.plan.optimizer[1].value() == Approx(1.25 / 2));
}

TEST_CASE("chunks of one rank are priced each by its own layers") {
  Case one;
  one.strategy.pipeline = 1;
  one.strategy.chunks = 2;
  one.strategy.stages = {{0, 1}};
  one.price({{0, profile()}});
  one.check(0, 11, 22);
  one.check(1, 109, 218);
  CHECK(one.plan.optimizer[0].value() == Approx(2));
}

TEST_CASE("memory of a stage is the sum of its layers', where it was measured") {
  Case one;
  LayerProfile with = profile();
  for (LayerTimes& layer : with.tables[0].layers) layer.memory = gibibytes(1);
  with.tables[0].head.memory = gibibytes(5);
  const auto memory = profiled_memory(one.model, one.cluster, one.strategy, {{1, with}});
  CHECK_FALSE(memory[0]);
  CHECK(memory[1]->value() == Approx(gibibytes(8).value()));
}

TEST_CASE("plans that a profile of layers knows nothing of are refused") {
  const auto refused = [](auto change, const char* part) {
    Case one;
    change(one.strategy);
    CHECK_THROWS_WITH(one.price({{0, profile()}}), Catch::Matchers::Contains(part));
  };
  refused([](ParallelStrategy& s) { s.context = 2; }, "context");
  refused([](ParallelStrategy& s) { s.recompute.granularity = RecomputeGranularity::selective; },
          "attention");
  refused([](ParallelStrategy& s) { s.stages[0].tensor = 4; }, "tensor 1");
}

}  // namespace orrery
