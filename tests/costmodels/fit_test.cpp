#include "costmodels/fit.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "costmodels/attention_table.hpp"
#include "costmodels/block_builder.hpp"
#include "costmodels/cost_models.hpp"
#include "costmodels/cross_validation.hpp"
#include "costmodels/price_batch.hpp"
#include "costmodels/sustained_power.hpp"
#include "costmodels/training_set.hpp"
#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"

using namespace orrery;

namespace {

namespace fs = std::filesystem;

// A folder of tables written from formulas, so that what the fit should find is known: GEMMs at 0.6 of the
// peak on A100 and 0.5 in fp32, kernels at half the bandwidth and 3 us, all-reduces at 0.7 of the link and 20
// us.
class InventedProfiles {
 public:
  explicit InventedProfiles(const std::string& name)
      : folder(fs::temp_directory_path() / ("orrery_fit_" + name)) {
    fs::remove_all(folder);
    fs::create_directories(folder / "in");
    write_gemms();
    write_kernels();
    write_collectives();
    std::ofstream(folder / "in/nic_ratio.csv") << simai();
    std::ofstream(folder / "in/ata_ratio.csv") << simai();
    write_training_kernels();
  }
  ~InventedProfiles() { fs::remove_all(folder); }

  [[nodiscard]] FitOptions options(const std::string& output) const {
    return {.profiles = {(folder / "in").string()}, .output = (folder / output).string()};
  }

  fs::path folder;

 private:
  void write_gemms() const {
    std::ofstream table(folder / "in/gemm_long.csv");
    table << "source,gpu,dtype,op,model,tp,batch,M,N,K,time_us,direction,tflops\n";
    for (int m = 256; m <= 4096; m += 64) {
      for (const int n : {2048, 4096, 8192}) {
        for (const int k : {2048, 4096}) {
          const double flops = 2.0 * m * n * k;
          const std::string shape =
              std::to_string(m) + "," + std::to_string(n) + "," + std::to_string(k) + ",";
          table << "own,A100,bf16,up,model" << n << ",1,1," << shape << flops / 312e6 / 0.6 << ",fwd,\n";
          table << "own,A100,fp32,up,model" << n << ",1,1," << shape << flops / 19.5e6 / 0.5 << ",fwd,\n";
        }
      }
    }
  }
  void write_kernels() const {
    std::ofstream table(folder / "in/kernels_long.csv");
    table << "source,gpu,model,op,bytes,time_us\n";
    for (int i = 0; i < 100; ++i) {
      const double bytes = 1e5 * std::pow(1.1, i);
      for (const char* op : {"norm", "residual"}) {
        table << "own,A100,m" << i % 3 << "," << op << "," << bytes << "," << 3 + bytes / 2039e3 / 0.5
              << "\n";
      }
    }
  }
  void write_collectives() const {
    std::ofstream table(folder / "in/collectives_long.csv");
    table << "source,system,collective,n_ranks,ranks_per_node,bytes,time_us,status,link_GBps\n";
    for (int i = 0; i < 80; ++i) {
      const double bytes = 1e5 * std::pow(1.12, i);
      table << "own,mine,all_reduce,8,8," << bytes << "," << 20 + 1.75 * bytes / 300e3 / 0.7 << ",ok,300\n";
      table << "own,mine,send_recv,2,2," << bytes << "," << 10 + bytes / 300e3 / 0.9 << ",ok,300\n";
      table << "own,mine,all_reduce,8,8," << bytes << ",10000000,sentinel,300\n";
    }
  }
  static std::string simai() {
    std::ostringstream table;
    table << "Size,1 Node(NVLinkx),2Node-16GPU(NIC ),4Node-32GPU(NIC),8Node-64GPU(NIC),16,32,64,128\n";
    for (int i = 24; i < 34; ++i) table << (1LL << i) << ",0.5,0.9,0.9,0.9,0.9,0.9,0.9,0.9\n";
    return table.str();
  }
  void write_training_kernels() const {
    std::ofstream table(folder / "in/transformer_ops_fwd_bwd_long.csv");
    table << "source,gpu,dtype,model,mbs,tp,algo,op,fwd_us,bwd_us,input_MB,output_MB,weights_MB,activations_"
             "MB,fwd_reserved_MB,"
             "bwd_reserved_MB,status\n";
    for (int i = 0; i < 80; ++i) {
      const double mebibytes = 60 + 10 * i;
      table << "own,A100,fp16,gpt,1,1,0,enc-1st-layernorm," << 2 * mebibytes * 1048576 / 2039e3 / 0.6 << ",0,"
            << mebibytes << ",0,0,0,0,0,ok\n";
    }
  }
};

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
  CHECK_THAT(to_table(report), contains_text("what other models have of its matrices"));
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

namespace {

constexpr const char* kOwnHeader =
    "gpu,dtype,family,op,pass,model,batch,M,N,K,heads,kv_heads,head_dim,query,keys,causal,bytes,ranks,"
    "ranks_per_node,time_us,p10_us,p90_us,repetitions,clock,status,script\n";

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

namespace {

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
  CHECK_FALSE(is_own(ring(4, 300, 25)));
  CHECK(is_own(ring(16, 450, 50)));
  CHECK_FALSE(is_own(ring(16, 300, 50)));
  CHECK_FALSE(is_own(ring(16, 450, 12.5)));
  CHECK(is_own(PointToPoint{Bytes(1e8), link(300), true}));
  CHECK_FALSE(is_own(PointToPoint{Bytes(1e8), link(450), true}));
  CHECK_FALSE(is_own(PointToPoint{Bytes(1e8), link(300), false}));
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
    const NodeGroup& group = cluster.groups[1];
    CHECK(times[i] / under_power(asked[i], group.gpu, Seconds(kernel), slowest_of(largest_gpus(group))) ==
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

TEST_CASE("a transformer is held out with what others have of its matrices") {
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
  const auto model = std::find_if(errors.begin(), errors.end(),
                                  [](const FitError& error) { return error.held_out == "model"; });
  REQUIRE(model != errors.end());
  CHECK(model->count == 300);
  // a without b knows c alone, as does b without a: predicted e times too long. c is predicted 1 / e times as
  // long.
  CHECK(model->mape == Approx((2 * (std::exp(1.0) - 1) + 1 - std::exp(-1.0)) / 3).epsilon(0.01));
}
