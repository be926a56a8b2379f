// Laws of the fitted models: physical bounds, the pace of kernels, gradients.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "costmodels/fit/pass_factors.hpp"
#include "costmodels/models/features.hpp"
#include "costmodels/models/kernel_pace.hpp"
#include "costmodels/models/physical_bound.hpp"
#include "costmodels/plans/price_batch.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/built_in_costs.hpp"

using namespace orrery;

namespace {

constexpr int kCases = 400;

}  // namespace

TEST_CASE(
    "no GEMM of any shape, type, pass or GPU is faster than twice its roofline, nor than 64 bytes a clock "
    "allow") {
  // GeForce cards run above their data sheet and L2-resident data above the memory; twice is what the readers
  // believe at most.
  std::mt19937_64 random(7);
  const auto extent = [&](double most) {
    return static_cast<std::int64_t>(std::exp2(std::uniform_real_distribution(0.0, most)(random)));
  };
  std::vector<OperatorQuery> queries;
  const auto& gpus = gpu_catalog();
  for (int i = 0; i < kCases; ++i) {
    const auto gpu = static_cast<int>(random() % gpus.size());
    const auto type = std::array{DataType::fp32, DataType::tf32, DataType::fp16, DataType::bf16,
                                 DataType::fp8}[random() % 5];
    const auto pass =
        std::array{GemmPass::forward, GemmPass::input_gradient, GemmPass::weight_gradient}[random() % 3];
    queries.push_back(
        {gpu, Gemm{.m = extent(17), .n = extent(17), .k = extent(17), .type = type, .pass = pass}});
    queries.push_back({gpu, MemoryBound{static_cast<MemoryKernel>(random() % kMemoryKernels),
                                        Bytes(std::exp2(double(random() % 36))),
                                        random() % 2 == 0 ? Fusion::separate : Fusion::fused}});
  }
  const auto answers = test::cost_models().predict(gpus, queries);
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const GpuSpec& gpu = gpus[static_cast<std::size_t>(queries[i].gpu)];
    INFO(gpu.name << " query " << i);
    CHECK(std::isfinite(answers[i].time.value()));
    if (const auto* gemm = std::get_if<Gemm>(&queries[i].op)) {
      INFO(gemm->m << " x " << gemm->n << " x " << gemm->k << ", " << to_text(gemm->type));
      CHECK(answers[i].time * 2 >= roofline(*gemm, gpu, matrix_peak(gpu, gemm->type)->speed));
    } else {
      const auto& kernel = std::get<MemoryBound>(queries[i].op);
      CHECK(answers[i].time >= least_kernel_time(kernel.bytes, gpu));
    }
  }
}

TEST_CASE(
    "a card that multiplies faster than the models think is no faster than its memory and clock allow") {
  // Squares, TFLOP/s: zzc0721/torch-performance-test-data, issues 77, 78, 107, 114, 124, 131, 145 and 54.
  // Those in TF32 set nothing in the catalog.
  const auto bf16 = DataType::bf16, tf32 = DataType::tf32, fp32 = DataType::fp32;
  const auto [name, type, extent, measured] =
      GENERATE_COPY(table<const char*, DataType, std::int64_t, double>({{"H20", bf16, 4096, 133},
                                                                        {"H20", bf16, 8192, 139},
                                                                        {"H20", tf32, 8192, 71.8},
                                                                        {"H20", fp32, 8192, 32},
                                                                        {"L20", bf16, 8192, 114},
                                                                        {"L20", tf32, 10240, 58.2},
                                                                        {"RTX 3080", bf16, 8192, 64},
                                                                        {"RTX 3080", tf32, 8192, 31.9},
                                                                        {"RTX 3060", bf16, 4096, 24},
                                                                        {"RTX 3060", tf32, 8192, 12.4},
                                                                        {"RTX 4060 Ti", bf16, 8192, 47},
                                                                        {"RTX 4060 Ti", tf32, 8192, 23.7},
                                                                        {"RTX 4070 SUPER", tf32, 8192, 37.2},
                                                                        {"RTX 4090", tf32, 8192, 85.7},
                                                                        {"RTX 4090", fp32, 8192, 53.4},
                                                                        {"RTX 5090", tf32, 8192, 114}}));
  ClusterSpec cluster;
  cluster.groups = {NodeGroup{.name = "g", .gpu = find_gpu(name, "test")}};
  const auto priced = [&](const Gemm& gemm) {
    Seconds time;
    PriceBatch batch;
    batch.add(0, gemm, &time);
    batch.predict(test::cost_models(), cluster);
    return time;
  };
  const Gemm square{.m = extent, .n = extent, .k = extent, .type = type};
  CHECK(flops_of(square) / priced(square) / FlopsPerSecond(1e12) == Approx(measured).epsilon(0.09));
  for (const std::int64_t rows : {1, 16, 128, 1024, 16384}) {
    const Gemm thin{.m = rows, .n = 8192, .k = 8192, .type = type};
    const Seconds alone = test::predict(name, thin).time;
    CHECK(priced(thin) >= std::min(alone, least_time(thin, cluster.groups.front().gpu)));
  }
}

TEST_CASE("multiprocessors times clock are those of the data sheets") {
  // Boost clocks: A100 1.41 GHz, H100 SXM 1.98 GHz, V100 SXM 1.53 GHz, A40 1.74 GHz.
  CHECK(multiprocessor_clocks(find_gpu("A100", "test")) == Approx(108 * 1.41e9).epsilon(0.01));
  CHECK(multiprocessor_clocks(find_gpu("H100", "test")) == Approx(132 * 1.98e9).epsilon(0.01));
  CHECK(multiprocessor_clocks(find_gpu("V100", "test")) == Approx(80 * 1.53e9).epsilon(0.01));
  CHECK(multiprocessor_clocks(find_gpu("A40", "test")) == Approx(84 * 1.74e9).epsilon(0.01));
}

TEST_CASE("a pace fitted on a GPU of either limit predicts a third GPU") {
  // Times by the law itself: 5 bytes a clock bind A100 and H100 (13 bytes a clock of bandwidth), 0.8 of the
  // bandwidth binds A40 (4.8 bytes a clock).
  const KernelPace truth{.bandwidth_share = 0.8, .bytes_per_clock = 5};
  const std::array names{"A100", "H100", "A40"};
  // Not A40: the two others have the same ratio of both limits and cannot tell them apart.
  const auto held_out = GENERATE(values<std::size_t>({0, 1}));
  std::vector<KernelTime> rows;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const GpuSpec& gpu = find_gpu(names[i], "test");
    for (int exponent = 23; exponent < 31; ++exponent) {
      const Bytes bytes(std::exp2(exponent));
      if (i != held_out) rows.push_back({MemoryKernel::norm, bytes, &gpu, paced_time(truth, bytes, gpu)});
    }
  }
  const KernelPaces paces = fit_paces(rows);
  const GpuSpec& unseen = find_gpu(names[held_out], "test");
  const double ratio = paced_time(paces[static_cast<std::size_t>(MemoryKernel::norm)], Bytes(1e9), unseen) /
                       paced_time(truth, Bytes(1e9), unseen);
  CHECK(ratio == Approx(1).epsilon(0.05));
  CHECK(paces[static_cast<std::size_t>(MemoryKernel::rope)] == KernelPace{});
}

TEST_CASE("the factors of gradients are found, and held-out errors compare with none") {
  // Input gradients 0.9 of the prediction on two GPUs; both together 0.9 + 0.7 where each is predicted as the
  // forward.
  std::vector<GradientPair> pairs;
  for (const char* gpu : {"A", "B"}) {
    for (const char* model : {"x", "y"}) {
      pairs.push_back({.gpu = gpu, .model = model, .input = 1.1, .weight = 1.0, .input_measured = 0.99});
    }
  }
  for (const char* model : {"x", "y"}) {
    pairs.push_back({.gpu = "C", .model = model, .input = 1.0, .weight = 1.0, .both_measured = 1.6});
  }
  const auto factors = fit_pass_factors(pairs);
  REQUIRE(factors);
  CHECK(factors->input_gradient == Approx(0.9));
  CHECK(factors->weight_gradient == Approx(0.7));
  const auto errors = pass_errors(pairs);
  const auto find = [&](const std::string& held_out, const std::string& rows) {
    const auto at = std::find_if(errors.begin(), errors.end(), [&](const FitError& error) {
      return error.held_out == held_out && error.rows == rows;
    });
    REQUIRE(at != errors.end());
    return at->mape;
  };
  CHECK(find("gpu", "input gradient") == Approx(0).margin(1e-9));
  CHECK(find("gpu", "input gradient, no factor") == Approx(1 / 0.9 - 1));
  CHECK(find("model", "both gradients") == Approx(0).margin(1e-9));
  CHECK(find("model", "both gradients, no factor") == Approx(2 / 1.6 - 1));
  CHECK_FALSE(fit_pass_factors({}));
}

TEST_CASE("a weight gradient is priced by its factor where only forward GEMMs were measured") {
  const std::vector<GpuSpec> gpus{find_gpu("A100", "test")};
  Gemm gemm{.m = 4096, .n = 8192, .k = 8192};
  const auto forward = test::cost_models().predict(gpus, std::vector<OperatorQuery>{{0, gemm}}).front().time;
  gemm.pass = GemmPass::weight_gradient;
  const auto gradient = test::cost_models().predict(gpus, std::vector<OperatorQuery>{{0, gemm}}).front().time;
  CHECK(gradient < forward);
  CHECK(gradient >= roofline(gemm, gpus[0], *gpus[0].bf16));
}
