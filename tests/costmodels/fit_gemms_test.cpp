// What measured GEMMs teach.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

#include "costmodels/fit/cross_validation.hpp"
#include "costmodels/fit/fit.hpp"
#include "costmodels/fit/training_set.hpp"
#include "costmodels/layers/block_builder.hpp"
#include "costmodels/models/cost_models.hpp"
#include "costmodels/models/features.hpp"
#include "costmodels/plans/price_batch.hpp"
#include "costmodels/stacks/sustained_power.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/invented_profiles.hpp"
#include "tests/costmodels/priced_clusters.hpp"

using namespace orrery;
using test::InventedProfiles;
using test::kOwnHeader;

namespace {

namespace fs = std::filesystem;

// `layers` linear layers of one A100 at 0.6 of its peak; with their gradients, as a script goes from pass to
// pass.
Profiles sweep(int layers, const std::vector<GemmPass>& passes) {
  Profiles profiles;
  for (int i = 1; i <= layers; ++i) {
    for (const GemmPass pass : passes) {
      MeasuredGemm gemm{.source = "own",
                        .model = "m" + std::to_string(i % 4),
                        .gpu = "A100-SXM4-80GB",
                        .m = std::int64_t{64} * i,
                        .n = 4096,
                        .k = 2048,
                        .time = Seconds(2.0 * 64 * i * 4096 * 2048 / 312e12 / 0.6 + 3e-6),
                        .pass = pass};
      if (pass == GemmPass::input_gradient) std::swap(gemm.n, gemm.k);
      if (pass == GemmPass::weight_gradient) std::swap(gemm.m, gemm.k);
      profiles.gemms.push_back(gemm);
    }
  }
  return profiles;
}

TrainingSet any_gpu_set(const Profiles& profiles) {
  TaughtFiles files(profiles.files);
  const auto sets = gemm_sets(profiles, files);
  const auto set =
      std::find_if(sets.begin(), sets.end(), [](const TrainingSet& one) { return one.name == "gemm-any"; });
  REQUIRE(set != sets.end());
  return *set;
}

}  // namespace

TEST_CASE("the model of any GPU learns all passes of a third of a large sweep, and all of a small one") {
  constexpr GemmPass kForward = GemmPass::forward;
  CHECK(any_gpu_set(sweep(60, {kForward})).targets.size() == 60);
  // Tables without gradients: every third row.
  CHECK(any_gpu_set(sweep(12'000, {kForward})).targets.size() == 4'000);
  const TrainingSet set =
      any_gpu_set(sweep(4'000, {kForward, GemmPass::input_gradient, GemmPass::weight_gradient}));
  CHECK(set.card.has_configuration(kGradients));
  const auto forward = std::count(set.shapes.begin(), set.shapes.end(), "4096x2048");
  const auto input = std::count(set.shapes.begin(), set.shapes.end(), "2048x4096");
  CHECK(forward == Approx(4'000 / 3.0).epsilon(0.1));
  CHECK(input == forward);
  CHECK(static_cast<std::int64_t>(set.shapes.size()) == 3 * forward);
}

TEST_CASE(
    "gradients of GEMMs that were measured price those of layers on their GPU, forward GEMMs all others") {
  const InventedProfiles profiles("passes");
  fs::remove(profiles.folder / "in/gemm_long.csv");
  std::ofstream table(profiles.folder / "in/orrery_profile.csv");
  table << kOwnHeader;
  // Of the peak: 0.6 forward, 0.5 and 0.3 for gradients. A row has the extents of its layer.
  const std::vector<std::pair<std::string, double>> passes{{"forward", 0.6}, {"dgrad", 0.5}, {"wgrad", 0.3}};
  for (int m = 256; m <= 8192; m += 128) {
    for (const int n : {2048, 4096, 8192}) {
      for (const int k : {2048, 4096}) {
        for (const auto& [pass, share] : passes)
          table << "A100-SXM4-80GB,bf16,gemm,up," << pass << ",m" << n << ",1," << m << ',' << n << ',' << k
                << ",,,,,,,,,," << 2.0 * m * n * k / 312e6 / share << ",1,1,20,events,ok,2\n";
      }
    }
  }
  table.close();
  fit(profiles.options("out"));
  const auto own = CostModels::from_folder((profiles.folder / "out").string());
  const Gemm layer{.m = 4096, .n = 4096, .k = 2048};
  BlockBuilder builder(Sharding{});
  builder.linear(layer, InputCast::none, InputCast::none);
  const BlockOperators operators = builder.take();
  const std::vector<Operator> asked{operators.forward.compute.at(0), operators.backward.compute.at(0),
                                    operators.backward.compute.at(1)};
  const ClusterSpec cluster = test::two_priced_kinds();  // H100, A100
  const auto priced = [&](int group) {
    std::vector<Seconds> times(asked.size());
    PriceBatch batch;
    for (std::size_t i = 0; i < asked.size(); ++i) batch.add(group, asked[i], &times[i]);
    batch.predict(own, cluster);
    return times;
  };
  const auto times = priced(1);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const double kernel = flops_of(asked[i]).value() / 312e12 / passes[i].second;
    CHECK(times[i] / under_power(asked[i], cluster.groups[1].gpu, Seconds(kernel)) ==
          Approx(1).epsilon(0.08));
  }
  // [4096, 2048, 4096] and [2048, 4096, 4096] on a GPU whose gradients nobody measured.
  std::vector<Seconds> forwards(2);
  PriceBatch batch;
  batch.add(0, Gemm{.m = 4096, .n = 2048, .k = 4096}, &forwards[0]);
  batch.add(0, Gemm{.m = 2048, .n = 4096, .k = 4096}, &forwards[1]);
  batch.predict(CostModels::built_in(), cluster);
  CHECK(priced(0)[1] == forwards[0]);
  CHECK(priced(0)[2] == forwards[1]);
}

TEST_CASE("no GEMM model says that better alignment takes longer") {
  // All rows are of one GEMM; the better N is aligned the longer they took, in e-folds.
  const auto& names = gemm_feature_names(GemmModelKind::one_gpu);
  const auto aligned =
      static_cast<std::size_t>(std::find(names.begin(), names.end(), "log2_align_n") - names.begin());
  REQUIRE(aligned < names.size());
  TaughtFiles files({});
  TrainingSet set = gemm_sets(sweep(300, {GemmPass::forward}), files).front();
  REQUIRE(set.card.kind == ModelKind::gemm);
  FeatureMatrix features(names.size());
  set.targets.clear();
  std::vector<float> row(set.features.row(0).begin(), set.features.row(0).end());
  for (int i = 0; i < 400; ++i) {
    row[aligned] = static_cast<float>(i % 9);
    features.add(row);
    set.targets.push_back(-row[aligned]);
  }
  set.features = features;
  const auto answers = train(set).predict(features);
  for (std::size_t i = 1; i < 9; ++i) CHECK(answers[i] >= answers[i - 1]);
}

TEST_CASE("a transformer is held out without and with what others have of its matrices") {
  // Transformers a and b have one matrix, c another; all GEMMs of a matrix have one ratio, e or 1.
  TrainingSet set{.name = "gemm-x", .card = {.kind = ModelKind::gemm, .gpus = {"A100-SXM4-80GB"}}};
  set.options = {.trees = 200, .leaves = 4, .learning_rate = 0.2, .min_child_weight = 1};
  for (int row = 0; row < 300; ++row) {
    const bool third = row % 3 == 2;
    set.features.add(std::vector<float>{third ? 0.0F : 1.0F});
    set.targets.push_back(third ? 0.0F : 1.0F);
    set.models.emplace_back(third ? "c" : row % 3 == 0 ? "a" : "b");
    set.shapes.emplace_back(third ? "1024x1024" : "4096x4096");
    set.gpus.emplace_back("A100-SXM4-80GB");
    set.large.push_back(true);
  }
  const auto errors = cross_validate(set);
  const auto error_of = [&](const std::string& held_out) {
    const auto found = std::find_if(errors.begin(), errors.end(),
                                    [&](const FitError& error) { return error.held_out == held_out; });
    REQUIRE(found != errors.end());
    CHECK(found->count == 300);
    return found->mape;
  };
  // c is predicted 1 / e times as long whatever is held out. a knows its matrix from b, and b from a,
  const double error_of_c = 1 - std::exp(-1.0);
  CHECK(error_of("model") == Approx(error_of_c / 3).epsilon(0.01));
  // unless what the other has of it is held out too: each then knows c alone, predicted e times too long.
  CHECK(error_of("model+shape") == Approx((2 * (std::exp(1.0) - 1) + error_of_c) / 3).epsilon(0.01));
}
