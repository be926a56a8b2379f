// Which layers, and what of them, published runs recompute.
#include "sim/measured/measured_recompute.hpp"

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {

TEST_CASE("full recomputation of some layers is of the first of each part") {
  using Row = std::tuple<const char*, RecomputedLayers>;
  const auto [cell, layers] = GENERATE(values<Row>(
      {{"full, 8 layers", {8, std::nullopt}},
       {"full: block 4", {4, std::nullopt}},
       {"full (block, 4 layers)", {4, std::nullopt}},
       {"recompute_method=block recompute_num_layers=3 full", {3, std::nullopt}},
       {"--recompute-granularity full --recompute-method block --recompute-num-layers 4", {4, std::nullopt}},
       {"full (8 of 32 layers)", {8, 32}},
       {"full, first 8 of 32 layers", {8, 32}},
       {"full recomputation of 8 layers", {8, std::nullopt}},
       {"full, 8 layers, flash attention", {8, std::nullopt}}}));
  INFO(cell);
  REQUIRE(said_recompute(cell));
  CHECK(said_recompute(cell)->layers == layers);
  CHECK(said_recompute("activation checkpointing of every block")->recompute ==
        Recompute{.granularity = RecomputeGranularity::full});
  CHECK_FALSE(said_recompute("activation checkpointing of every second block"));
  CHECK_FALSE(said_recompute("activation checkpointing of every 2 layers"));
  CHECK(said_recompute("full, uniform 4")->recompute ==
        Recompute{RecomputeGranularity::full, RecomputeMethod::uniform, 4});
  CHECK(said_recompute("full, uniform, one layer at a time")->recompute ==
        Recompute{RecomputeGranularity::full, RecomputeMethod::uniform, 1});

  const Recompute full{.granularity = RecomputeGranularity::full};
  const auto block = [](int count) {
    return Recompute{RecomputeGranularity::full, RecomputeMethod::block, count};
  };
  const std::vector<LayerRange> two{{0, 16}, {16, 16}}, uneven{{0, 15}, {15, 17}};
  CHECK(recompute_of_parts(full, {8, std::nullopt}, two) == block(8));
  CHECK(recompute_of_parts(full, {16, std::nullopt}, two) == full);  // there are no more
  CHECK(recompute_of_parts(full, {8, 32}, two) == block(4));         // half of them in each
  CHECK(recompute_of_parts(full, {8, 16}, two) == block(8));         // of each part
  CHECK_FALSE(recompute_of_parts(full, {7, 32}, two));
  CHECK_FALSE(recompute_of_parts(full, {8, 17}, uneven));
  CHECK_FALSE(recompute_of_parts(full, {33, 32}, two));
  // The last part has the head alone.
  CHECK(recompute_of_parts(full, {8, 32}, {{0, 16}, {16, 16}, {32, 0}}) == block(4));
}

TEST_CASE("modules of selective recomputation are read with and without a colon") {
  const RecomputeModules mlp{RecomputeModule::mlp};
  for (const char* cell : {"selective: mlp", "selective mlp", "selective (mlp)", "selective, modules mlp"}) {
    INFO(cell);
    CHECK(said_recompute(cell)->recompute.modules == mlp);
  }
  const auto reason = [](const std::string& recompute) {
    return test::unmapped(test::runs_of(test::gpt("a", "2,4,2,1,2", recompute + ",1.5,,ok")).front());
  };
  CHECK(contains(reason("selective mla_up_proj"), "without latent attention"));
  CHECK(reason("selective mla_up_proj") == reason("selective: mla_up_proj"));
}

}  // namespace orrery
