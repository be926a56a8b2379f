#include "costmodels/operators/expert_load.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <vector>

#include "costmodels/layers/layer_operators.hpp"
#include "costmodels/memory/memory.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/gpt_plans.hpp"
#include "tests/costmodels/layer_fixture.hpp"

namespace orrery {

TEST_CASE("the largest of a few normal numbers has its closed form") {
  // Two: 1 / sqrt(pi). Three: 3 / (2 sqrt(pi)). Five: 5 / (2 sqrt(pi)) x (1/2 + 3/pi asin(1/3)) (Jones 1948).
  const double root = std::sqrt(std::numbers::pi);
  CHECK(expected_largest(1) == 0.0);
  CHECK(expected_largest(2) == Approx(1 / root).epsilon(1e-9));
  CHECK(expected_largest(3) == Approx(3 / (2 * root)).epsilon(1e-9));
  const double of_five = 5 / (2 * root) * (0.5 + 3 / std::numbers::pi * std::asin(1.0 / 3));
  CHECK(expected_largest(5) == Approx(of_five).epsilon(1e-9));
}

TEST_CASE("the busiest GPU's share is that of drawn loads") {
  // An oracle without the formula: loads of 128 experts from a gamma distribution of that variation, dealt to
  // GPUs in order; the mean of the fullest over 4,000 draws.
  for (const int ways : {2, 8, 16}) {
    const double cv = 0.3;
    std::mt19937 random(7);
    std::gamma_distribution<double> load(1 / (cv * cv), cv * cv);
    constexpr int kExperts = 128, kDraws = 4000;
    double sum = 0.0;
    for (int draw = 0; draw < kDraws; ++draw) {
      std::vector<double> loads(kExperts);
      for (double& one : loads) one = load(random);
      double fullest = 0.0;
      const int held = kExperts / ways;
      for (auto first = loads.begin(); first != loads.end(); first += held)
        fullest = std::max(fullest, std::accumulate(first, first + held, 0.0));
      sum += fullest * ways / std::accumulate(loads.begin(), loads.end(), 0.0);
    }
    CAPTURE(ways);
    const double excess = busiest_load({.experts = kExperts, .per_token = 8, .ways = ways}, {.cv = cv}) - 1;
    CHECK(excess == Approx(sum / kDraws - 1).epsilon(0.06));
  }
}

TEST_CASE("no GPU gets more than all that can reach it") {
  // Eight experts on eight GPUs, two a token: each token brings one copy at most, four times the mean.
  CHECK(busiest_load({.experts = 8, .per_token = 2, .ways = 8}, {.cv = 10}) == 4.0);
  // 16 experts a GPU and two a token: all tokens with both copies, eight times the mean.
  CHECK(busiest_load({.experts = 128, .per_token = 2, .ways = 8}, {.cv = 100}) == 8.0);
  CHECK(busiest_load({.experts = 8, .per_token = 8, .ways = 8}, {.cv = 10}) == 1.0);
  CHECK(busiest_load({.experts = 128, .per_token = 8, .ways = 1}, {.cv = 2}) == 1.0);
  CHECK(busiest_load({.experts = 128, .per_token = 8, .ways = 8}, {.cv = 0}) == 1.0);
}

TEST_CASE("experts of a capacity are filled to it, whatever the routing") {
  const ExpertSpread spread{.experts = 8, .per_token = 2, .ways = GENERATE(1, 8)};
  CHECK(busiest_load(spread, {.cv = 3, .capacity = 1.25}) == 1.25);
  CHECK(one_hot_matrices(spread, {.capacity = 1.25}, 4096, 4).count == 0);
  CHECK(one_hot_matrices(spread, {.one_hot = OneHotGroup::sequence}, 4096, 4).count == 0);
  // 1023 tokens of each sequence choose two of eight: 255.75, so 256, and a quarter more, of each.
  const auto of = [&](OneHotGroup group) {
    return one_hot_matrices(spread, {.capacity = 1.25, .one_hot = group}, 4 * 1023, 4);
  };
  const OneHotMatrices each = of(OneHotGroup::sequence), all = of(OneHotGroup::microbatch);
  CHECK((each.count == 4 && each.tokens == 1023 && each.places == 8 * 320));
  CHECK((all.count == 1 && all.tokens == 4092 && all.places == 8 * 1279));  // 1023 x 1.25 is 1278.75
  CHECK(all.elements() == 4092.0 * 8 * 1279);
}

TEST_CASE("experts of one length multiply as many rows as the busiest of all has, on one GPU too") {
  const ExpertSpread alone{.experts = 8, .per_token = 2, .ways = 1}, spread{8, 2, 4}, each{8, 2, 8};
  CHECK(multiplied_load(alone, {.cv = 0.5}) == 1.0);
  const double busiest = busiest_load(each, {.cv = 0.5});
  REQUIRE(busiest > busiest_load(spread, {.cv = 0.5}));
  for (const ExpertSpread& one : {alone, spread, each})
    CHECK(multiplied_load(one, {.cv = 0.5, .one_length = true}) == busiest);
  CHECK(multiplied_load(alone, {.cv = 0.5, .capacity = 1.25, .one_length = true}) == 1.25);
}

TEST_CASE("experts in turn are on as few places as they fill") {
  const auto reached = [](std::int64_t experts, std::int64_t per_token, std::int64_t places) {
    return places_reached_in_turn({.experts = experts, .per_token = per_token}, places);
  };
  CHECK(reached(128, 8, 8) == 1);   // half of a GPU's sixteen
  CHECK(reached(128, 8, 32) == 2);  // of four each
  // Six of sixteen: 0-5, 6-11, 12-1, 2-7, 8-13, 14-3, 4-9, 10-15 on four places of four: 2, 2, 2, 2, 2, 2,
  // 2, 2.
  CHECK(reached(16, 6, 4) == 2);
  // Three of eight on two: 0-2, 3-5, 6-0, 1-3, 4-6, 7-1, 2-4, 5-7: 1, 2, 2, 1, 1, 2, 2, 1.
  CHECK(reached(8, 3, 2) == 1.5);
}

TEST_CASE("the busiest GPU multiplies, receives and keeps more, the others wait for it") {
  Sharding sharding = test::plain(1, 4096);
  sharding.expert = 4;
  const BlockOperators even = layer_operators(test::mixtral_layer(), true, sharding);
  sharding.stack.experts.load.cv = 0.5;
  const BlockOperators uneven = layer_operators(test::mixtral_layer(), true, sharding);
  const double load = busiest_load({.experts = 8, .per_token = 2, .ways = 4}, {.cv = 0.5});
  REQUIRE(load > 1.3);
  const auto received = [](const BlockOperators& layer) {
    return test::all_of<Collective>(layer.forward.communication)[0].bytes.value();
  };
  CHECK(received(uneven) == Approx(load * received(even)));
  const std::vector<Gemm> few = test::all_of<Gemm>(even.forward.compute);
  const std::vector<Gemm> many = test::all_of<Gemm>(uneven.forward.compute);
  REQUIRE(few.size() == many.size());
  for (std::size_t i = 0; i < few.size(); ++i) {
    const bool of_experts = few[i].batch > 1;
    CHECK(many[i].m == (of_experts ? std::ceil(load * static_cast<double>(few[i].m)) : few[i].m));
  }
}

TEST_CASE("what the busiest GPU's experts get it keeps") {
  ModelSpec model = gpt_layers(1);
  ParallelStrategy strategy = spread(model, {.data = 4});
  const double dense = activation_bytes(model, strategy, 0, 0).value();
  model.shapes[0].experts = 8;
  model.shapes[0].experts_per_token = 2;
  strategy.expert = 4;
  SoftwareStack stack;
  stack.experts.load.cv = 0.5;
  const double load = busiest_load({.experts = 8, .per_token = 2, .ways = 4}, {.cv = 0.5});
  // The 16 h bytes of the dense MLP give way to those of the copies and, of each, two tensors of 2 h bytes on
  // the way there and back.
  const double hidden = 2.0 * 2048 * 6144, copies = std::ceil(load * 2 * 2048 * 2) * 6144;
  CHECK(activation_bytes(model, strategy, 0, 0, stack).value() ==
        Approx(dense - 16 * hidden + (16 + 2 * 2) * copies).epsilon(1e-4));
}

TEST_CASE("one-hot matrices stay for the backward, beside the rows of a capacity") {
  ModelSpec model = gpt_layers(1);
  model.shapes[0].experts = 8;
  model.shapes[0].experts_per_token = 2;
  ParallelStrategy strategy = spread(model, {.data = 4});
  strategy.expert = 4;
  SoftwareStack stack;
  stack.experts.load.capacity = 2;
  const double copied = activation_bytes(model, strategy, 0, 0, stack).value();
  stack.experts.load.one_hot = OneHotGroup::microbatch;
  stack.experts.one_hot_bytes.kept = 5;
  const double tokens = 2.0 * 2048;  // each for two experts, of which there are twice the rows
  CHECK(activation_bytes(model, strategy, 0, 0, stack).value() - copied ==
        Approx(5 * tokens * tokens * 2 * 2));
}

TEST_CASE("the places a token reaches are those of all ways to choose groups and experts") {
  struct Case {
    int experts, per_token, groups, chosen, places;
  };
  const Case c =
      GENERATE(Case{8, 2, 1, 1, 4}, Case{8, 8, 1, 1, 8}, Case{8, 3, 1, 1, 1}, Case{8, 2, 4, 2, 4},
               Case{8, 2, 4, 2, 2}, Case{12, 3, 3, 2, 6}, Case{12, 4, 6, 3, 2}, Case{8, 2, 2, 1, 8});
  // Every set of groups as bits, and of experts in them.
  double reached = 0, ways = 0;
  for (unsigned groups = 0; groups < 1u << c.groups; ++groups) {
    if (std::popcount(groups) != c.chosen) continue;
    for (unsigned chosen = 0; chosen < 1u << c.experts; ++chosen) {
      if (std::popcount(chosen) != c.per_token) continue;
      bool allowed = true;
      unsigned places = 0;
      for (int expert = 0; expert < c.experts; ++expert) {
        if ((chosen >> expert & 1u) == 0) continue;
        allowed &= (groups >> (expert * c.groups / c.experts) & 1u) != 0;
        places |= 1u << (expert * c.places / c.experts);
      }
      if (!allowed) continue;
      reached += std::popcount(places);
      ++ways;
    }
  }
  const ExpertChoice choice{c.experts, c.per_token, c.groups, c.chosen};
  CHECK(places_reached(choice, c.places) == Approx(reached / ways).epsilon(1e-12));
}

}  // namespace orrery
