// What measured attention and kernels teach.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "costmodels/fit/fit.hpp"
#include "costmodels/models/attention_table.hpp"
#include "costmodels/models/cost_models.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/invented_profiles.hpp"

using namespace orrery;
using test::InventedProfiles;
using test::kOwnHeader;

namespace {

namespace fs = std::filesystem;

// Attention of one's own profile that takes `factor` times what the bars say, all passes and head sizes.
// `like` says which kernel; the table's name of it is `name`.
void write_attention(const fs::path& file, const std::string& gpu, double factor, const Attention& like = {},
                     const std::string& name = "flash") {
  std::ofstream table(file);
  table << kOwnHeader;
  const auto bars = AttentionTable::published();
  for (const char* pass : {"forward", "backward"}) {
    for (const int dim : {64, 128}) {
      for (int sequence = 512; sequence <= 16384; sequence *= 2) {
        for (const int causal : {0, 1}) {
          for (const int batch : {16, 32}) {
            Attention op = like;
            op.batch = batch;
            op.heads = op.kv_heads = 16;
            op.query_tokens = op.kv_tokens = sequence;
            op.head_dim = dim;
            op.causal = causal == 1;
            op.direction = pass == std::string("forward") ? Direction::forward : Direction::backward;
            const double time = attention_time(bars, op, find_gpu(gpu, "test")).time.value() * factor;
            table << gpu << ",bf16,attention," << name << "," << pass << ",," << batch << ",,,,16,16," << dim
                  << ',' << sequence << ',' << sequence << ',' << causal << ",,,," << time * 1e6
                  << ",1,1,20,events,ok,2\n";
          }
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("measured attention corrects the bars on its GPU, and says its errors by GPU and head dimension") {
  const InventedProfiles profiles("attention");
  fs::create_directories(profiles.folder / "in/b");
  write_attention(profiles.folder / "in/orrery_profile.csv", "A100-SXM4-80GB", 1.25);
  write_attention(profiles.folder / "in/b/orrery_profile.csv", "A40", 1.25);
  const FitReport report = fit(profiles.options("out"));
  const auto error = [&](const std::string& held_out, const std::string& rows) {
    const auto at = std::find_if(report.errors.begin(), report.errors.end(), [&](const FitError& one) {
      return one.model == "attention" && one.held_out == held_out && one.rows == rows;
    });
    REQUIRE(at != report.errors.end());
    return at->mape;
  };
  CHECK(error("gpu", "A40") < 0.05);                         // the other GPU is off by the same factor
  CHECK(error("head dim", "all") < 0.05);                    // so is the other head dimension
  CHECK(error("bars", "all") == Approx(0.2).epsilon(0.01));  // 1 / 1.25 - 1
  const auto models = CostModels::from_folder((profiles.folder / "out").string());
  const std::vector<GpuSpec> gpus{find_gpu("A100", "test"), find_gpu("H100", "test")};
  const Attention op{.batch = 4,
                     .heads = 16,
                     .kv_heads = 16,
                     .query_tokens = 3000,
                     .kv_tokens = 3000,
                     .head_dim = 128,
                     .direction = Direction::backward};
  const auto answers = models.predict(gpus, std::vector<OperatorQuery>{{0, op}, {1, op}});
  const auto bars = AttentionTable::published();
  CHECK(answers[0].time / attention_time(bars, op, gpus[0]).time == Approx(1.25).epsilon(0.03));
  CHECK_FALSE(answers[0].extrapolated);
  CHECK(answers[1].time == attention_time(bars, op, gpus[1]).time);  // H100 was not measured here
  // What was measured is the card's best kernel, of whichever year a stack's is.
  Attention newest = op;
  newest.kernel = AttentionKernel::flash_2026;
  const auto later = models.predict(gpus, std::vector<OperatorQuery>{{0, newest}, {1, newest}});
  CHECK(later[0].time == answers[0].time);
  CHECK(later[1].time < answers[1].time);
}

TEST_CASE("few rows of attention teach no model, and only the error of the bars is said") {
  const InventedProfiles profiles("bars");
  std::ofstream(profiles.folder / "in/flash_attention_fwd_bwd.csv")
      << "source,gpu,dtype,kernel,direction,batch,heads,kv_heads,seq_q,seq_kv,head_dim,causal,tflops\n"
         "a,A100,fp16,FlashAttention-2,fwd,16,32,8,1024,1024,128,no,180.91\n";
  const FitReport report = fit(profiles.options("out"));
  CHECK(std::none_of(report.models.begin(), report.models.end(),
                     [](const FittedModel& model) { return model.kind == "attention"; }));
  CHECK(std::any_of(report.errors.begin(), report.errors.end(), [](const FitError& error) {
    return error.model == "attention" && error.held_out == "bars" && error.count == 1;
  }));
}

TEST_CASE("one's own unfused attention is held against PyTorch's kernels, and corrects those") {
  const InventedProfiles profiles("eager");
  const Attention eager{.kernel = AttentionKernel::unfused, .softmax = SoftmaxKernel::eager, .dropout = true};
  write_attention(profiles.folder / "in/orrery_profile.csv", "A100-SXM4-80GB", 1.25, eager, "unfused");
  const FitReport report = fit(profiles.options("out"));
  const auto bars = std::find_if(report.errors.begin(), report.errors.end(),
                                 [](const FitError& error) { return error.held_out == "bars"; });
  REQUIRE(bars != report.errors.end());
  CHECK(bars->mape == Approx(0.2).epsilon(0.01));  // 1 / 1.25 - 1
  const auto models = CostModels::from_folder((profiles.folder / "out").string());
  const std::vector<GpuSpec> gpus{find_gpu("A100", "test")};
  Attention op = eager;
  op.batch = 20, op.heads = op.kv_heads = 16, op.query_tokens = op.kv_tokens = 2048, op.head_dim = 128;
  const auto answer = models.predict(gpus, std::vector<OperatorQuery>{{0, op}}).front();
  CHECK(answer.time / attention_time(AttentionTable::published(), op, gpus[0]).time ==
        Approx(1.25).epsilon(0.03));
}

TEST_CASE("the gradient of a kernel is taught and asked apart from its forward") {
  const InventedProfiles profiles("gradient");
  std::ofstream table(profiles.folder / "in/orrery_profile.csv");
  table << kOwnHeader;
  for (int i = 0; i < 100; ++i) {
    const double bytes = 1e6 * std::pow(1.08, i);
    // Forward at half of the bandwidth, backward at a quarter.
    for (const double share : {0.5, 0.25}) {
      table << "A100-SXM4-80GB,bf16,kernel,norm," << (share < 0.5 ? "backward" : "forward") << ",m" << i % 3
            << ",,64,2048,,,,,,,," << bytes << ",,," << 3 + bytes / 2039e3 / share << ",1,1,20,events,ok,2\n";
    }
  }
  table.close();
  fs::remove(profiles.folder / "in/transformer_ops_fwd_bwd_long.csv");
  fit(profiles.options("out"));
  const auto models = CostModels::from_folder((profiles.folder / "out").string());
  const std::vector<GpuSpec> gpus{find_gpu("A100", "test")};
  MemoryBound norm{MemoryKernel::norm, Bytes(5e8)};
  const auto seconds = [&] {
    return models.predict(gpus, std::vector<OperatorQuery>{{0, norm}}).front().time.value();
  };
  CHECK(seconds() == Approx(3e-6 + 5e8 / 2039e9 / 0.5).epsilon(0.05));
  norm.direction = Direction::backward;
  CHECK(seconds() == Approx(3e-6 + 5e8 / 2039e9 / 0.25).epsilon(0.05));
  // In the built-in models, which know forward kernels alone, both take the same.
  const auto built_in = CostModels::built_in();
  MemoryBound forward = norm;
  forward.direction = Direction::forward;
  const auto both = built_in.predict(gpus, std::vector<OperatorQuery>{{0, norm}, {0, forward}});
  CHECK(both[0].time == both[1].time);
}

TEST_CASE("short norms of one's own profile teach training's kernels, on GPUs where all are short") {
  const InventedProfiles profiles("short");
  fs::remove(profiles.folder / "in/transformer_ops_fwd_bwd_long.csv");
  std::ofstream table(profiles.folder / "in/orrery_profile.csv");
  table << kOwnHeader;
  for (int i = 0; i < 100; ++i) {
    const double bytes = 1e5 * std::pow(1.08, i);  // up to 200 MB, which B200 streams in 25 us
    table << "B200-SXM,bf16,kernel,norm,forward,m" << i % 3 << ",,64,2048,,,,,,,," << bytes << ",,,"
          << 3 + bytes / 8000e3 / 0.5 << ",1,1,20,events,ok,2\n";
  }
  table.close();
  const FitReport report = fit(profiles.options("out"));
  const auto model = std::find_if(report.models.begin(), report.models.end(),
                                  [](const FittedModel& one) { return one.file == "training-kernels.ubj"; });
  REQUIRE(model != report.models.end());
  CHECK(model->rows == 100);
  for (const FitInput& input : report.inputs)
    CHECK(input.skipped.count("short operator timed through a framework") == 0);
}
