#include "costmodels/fit/fit.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "costmodels/fit/cross_validation.hpp"
#include "costmodels/models/cost_models.hpp"
#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/invented_profiles.hpp"

using namespace orrery;
using test::InventedProfiles;

namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

TEST_CASE("errors are summarised as shares of the measured time") {
  // Predicted / measured of 1.1, 0.9 and 1: errors 10, 10 and 0 percent.
  const FitError error = summarise({std::log(1.1), std::log(0.9), 0.0});
  CHECK(error.count == 3);
  CHECK(error.mape == Approx(0.2 / 3));
  CHECK(error.median == Approx(0.1));
  CHECK(error.worst == Approx(0.1));
  CHECK(error.bias == Approx(std::cbrt(1.1 * 0.9) - 1));
}

TEST_CASE("a fit finds the laws its profiles were written by, and writes the same bytes twice") {
  const InventedProfiles profiles("laws");
  const FitReport report = fit(profiles.options("first"));
  const FitReport again = fit(profiles.options("second"));
  CHECK(to_json(report) == to_json(again));
  for (const auto& model : report.models) {
    INFO(model.file);
    CHECK(content(profiles.folder / "first" / model.file) ==
          content(profiles.folder / "second" / model.file));
  }
  CHECK(content(profiles.folder / "first/provenance.json") == to_json(report));

  const auto models = CostModels::from_folder((profiles.folder / "first").string());
  const std::vector<GpuSpec> gpus{find_gpu("A100", "test")};
  const LinkSpec link{gigabytes_per_second(300), microseconds(1)};
  const std::vector<OperatorQuery> queries{
      {0, Gemm{.m = 2048, .n = 4096, .k = 4096}},
      {0, MemoryBound{MemoryKernel::residual, Bytes(1e8)}},
      {0,
       Collective{.bytes = Bytes(1e8), .ranks = 8, .ranks_per_node = 8, .gpu_link = link, .network = link}},
      {0, PointToPoint{Bytes(1e8), link, true}},
      {0, MemoryBound{MemoryKernel::norm, Bytes(400 * kMebi)}}};
  const auto answers = models.predict(gpus, queries);
  CHECK(answers[0].time.value() == Approx(2.0 * 2048 * 4096 * 4096 / 312e12 / 0.6).epsilon(0.03));
  CHECK(answers[1].time.value() == Approx(3e-6 + 1e8 / 2039e9 / 0.5).epsilon(0.05));
  CHECK(answers[2].time.value() == Approx(20e-6 + 1.75e8 / 300e9 / 0.7).epsilon(0.05));
  CHECK(answers[3].time.value() == Approx(10e-6 + 1e8 / 300e9 / 0.9).epsilon(0.05));
  CHECK(answers[4].time.value() == Approx(400 * kMebi / 2039e9 / 0.6).epsilon(0.05));
}

TEST_CASE("the report counts rows, names digests and tells the splits apart") {
  const InventedProfiles profiles("report");
  const FitReport report = fit(profiles.options("out"));
  REQUIRE(report.inputs.size() == 6);
  const auto& collectives = report.inputs[1];
  CHECK(collectives.file == "collectives_long.csv");
  CHECK(collectives.sha256.size() == 64);
  CHECK(collectives.rows == 240);
  CHECK(collectives.used == 160);
  CHECK(collectives.skipped.at("status sentinel") == 80);
  const auto has = [&](const std::string& model, const std::string& held_out) {
    return std::any_of(report.errors.begin(), report.errors.end(), [&](const FitError& error) {
      return error.model == model && error.held_out == held_out;
    });
  };
  // 61 x 3 x 2 = 366 GEMMs are enough for a model of the A100's own.
  CHECK(report.models.front().file == "gemm-ampere-108.ubj");
  CHECK(report.models.front().rows == 366);
  CHECK(has("gemm-ampere-108", "shape"));
  CHECK(has("gemm-any", "random"));
  CHECK(has("kernels", "model"));
  CHECK_FALSE(has("kernels", "gpu"));
  CHECK(to_table(report).find("gemm-any") != std::string::npos);
  CHECK_THAT(to_table(report), contains_text("what others have of its matrices"));
  CHECK(to_json(report).find(profiles.folder.string()) == std::string::npos);
}

TEST_CASE("a fit to GEMMs alone leaves the other kinds to the built-in models") {
  const InventedProfiles profiles("gemms");
  for (const char* file : {"kernels_long.csv", "collectives_long.csv", "nic_ratio.csv", "ata_ratio.csv",
                           "transformer_ops_fwd_bwd_long.csv"}) {
    fs::remove(profiles.folder / "in" / file);
  }
  CHECK(fit(profiles.options("out")).models.size() == 3);
  const auto mixed = CostModels::from_folder((profiles.folder / "out").string());
  const std::vector<GpuSpec> gpus{find_gpu("A100", "test"), find_gpu("H100", "test")};
  const std::vector<OperatorQuery> queries{{1, MemoryBound{MemoryKernel::rope, Bytes(1e8)}},
                                           {1, Gemm{.m = 2048, .n = 4096, .k = 4096}}};
  const auto expected = CostModels::built_in().predict(gpus, queries);
  const auto answers = mixed.predict(gpus, queries);
  CHECK(answers[0].time == expected[0].time);
  CHECK(answers[1].time == expected[1].time);  // H100 keeps its own model
  CHECK(mixed.digest() != CostModels::built_in().digest());
}

TEST_CASE("a kind with too few rows stays built in and is named; too few rows of every kind are refused") {
  const InventedProfiles profiles("few");
  std::ofstream(profiles.folder / "in/kernels_long.csv")
      << "source,gpu,model,op,bytes,time_us\nown,A100,m,norm,1000000,5\n";
  const FitReport report = fit(profiles.options("out"));
  CHECK(report.left_out.at("too few for kernels, which stay built in") == 1);
  CHECK_THAT(to_table(report), contains_text("left out, 1 rows: too few for kernels"));
  CHECK(std::none_of(report.models.begin(), report.models.end(),
                     [](const FittedModel& model) { return model.file == "kernels.ubj"; }));
  const InventedProfiles bare("bare");
  fs::remove_all(bare.folder / "in");
  fs::create_directories(bare.folder / "in");
  std::ofstream(bare.folder / "in/kernels_long.csv")
      << "source,gpu,model,op,bytes,time_us\nown,A100,m,norm,1000000,5\n";
  CHECK_THROWS_WITH(fit(bare.options("out")), contains_text("1 usable rows for kernels"));
}

TEST_CASE(
    "one's own collectives and transfers are asked about links like theirs, the built-in ones about others") {
  const InventedProfiles profiles("links");
  fit(profiles.options("out"));
  const auto own = CostModels::from_folder((profiles.folder / "out").string());
  const auto built_in = CostModels::built_in();
  const std::vector<GpuSpec> gpus{find_gpu("A100", "test")};
  const auto times = [&](const CostModels& models, const Operator& op) {
    return models.predict(gpus, std::vector<OperatorQuery>{{0, op}}).front();
  };
  const auto is_own = [&](const Operator& op) {
    const Prediction answer = times(own, op), other = times(built_in, op);
    if (answer.time == other.time) CHECK(answer.extrapolated == other.extrapolated);
    return answer.time != other.time;
  };
  const auto link = [](double gigabytes) {
    return LinkSpec{gigabytes_per_second(gigabytes), microseconds(1)};
  };
  const auto ring = [&](int ranks, double inside, double between) {
    return Collective{.bytes = Bytes(1e8),
                      .ranks = ranks,
                      .ranks_per_node = 8,
                      .gpu_link = link(inside),
                      .network = link(between)};
  };
  // Measured: eight GPUs of 300 GB/s, SimAI's two nodes of 450 and 50 GB/s
  // (traces/profile_tables_network.cpp).
  CHECK(is_own(ring(8, 300, 25)));
  CHECK(is_own(ring(8, 280, 25)));
  CHECK_FALSE(is_own(ring(8, 450, 25)));
  CHECK_FALSE(is_own(ring(8, 32, 25)));
  CHECK_FALSE(is_own(ring(8, 100, 25)));  // as slow as a pair's on a board of four, but not a pair's
  CHECK_FALSE(is_own(ring(4, 300, 25)));
  CHECK(is_own(ring(16, 450, 50)));
  CHECK_FALSE(is_own(ring(16, 300, 50)));
  CHECK_FALSE(is_own(ring(16, 450, 12.5)));
  CHECK(is_own(PointToPoint{Bytes(1e8), link(300), true}));
  CHECK(is_own(PointToPoint{Bytes(1e8), link(100), true}));  // a pair on a board of four, as it was measured
  CHECK_FALSE(is_own(PointToPoint{Bytes(1e8), link(450), true}));
  CHECK_FALSE(is_own(PointToPoint{Bytes(1e8), link(300), false}));
}
