// Laws of the fitted models on random operators, all GPUs of the catalog and all types: no answer beats its
// physical bound, more work takes no less time.
#include <array>
#include <cmath>
#include <random>

#include "costmodels/models/attention_table.hpp"
#include "costmodels/models/features.hpp"
#include "costmodels/models/physical_bound.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/built_in_costs.hpp"

using namespace orrery;

namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::int64_t extent(double least, double most) {
    return static_cast<std::int64_t>(std::exp2(std::uniform_real_distribution(least, most)(random_)));
  }
  template <class Value, std::size_t count>
  Value one_of(const std::array<Value, count>& values) {
    return values[random_() % count];
  }
  int gpu() { return static_cast<int>(random_() % gpu_catalog().size()); }
  DataType type() {
    return one_of(std::array{DataType::fp32, DataType::tf32, DataType::fp16, DataType::bf16, DataType::fp8});
  }
  LinkSpec link() { return {Bytes(std::exp2(extent(0, 3)) * 1e9) / Seconds(1), microseconds(1)}; }

 private:
  std::mt19937_64 random_;
};

Attention drawn_attention(Draw& draw) {
  const std::int64_t group = draw.one_of(std::array<std::int64_t, 3>{1, 4, 8});
  const std::int64_t kv_heads = draw.extent(0, 4);
  return {.batch = draw.extent(0, 5),
          .heads = group * kv_heads,
          .kv_heads = kv_heads,
          .query_tokens = draw.extent(4, 17),
          .kv_tokens = draw.extent(4, 17),
          .head_dim = draw.one_of(std::array<std::int64_t, 5>{32, 64, 96, 128, 256}),
          .causal = draw.one_of(std::array{true, false}),
          .kernel = draw.one_of(std::array{AttentionKernel::flash, AttentionKernel::flash_2026,
                                           AttentionKernel::flash2, AttentionKernel::sdpa_2025,
                                           AttentionKernel::unfused}),
          .direction = draw.one_of(std::array{Direction::forward, Direction::backward}),
          .type = draw.one_of(std::array{DataType::fp16, DataType::bf16})};
}

OperatorQuery all_reduce_over(double gigabytes, Bytes bytes, int ranks) {
  return {0, Collective{.kind = CollectiveKind::all_reduce,
                        .bytes = bytes,
                        .ranks = ranks,
                        .ranks_per_node = 8,
                        .gpu_link = {gigabytes_per_second(gigabytes), microseconds(1)}}};
}

}  // namespace

TEST_CASE("the bound of a GEMM is its arithmetic at the highest clock, or its bytes through the L2 cache") {
  // 2 x 4096^3 FLOPs at 312 TFLOP/s and 1.1 x the clock; a card with a display may run at 1.4 x.
  const Gemm square{.m = 4096, .n = 4096, .k = 4096};
  CHECK(least_time(square, find_gpu("A100", "test")).value() ==
        Approx(2.0 * 4096 * 4096 * 4096 / 312e12 / 1.1));
  CHECK(least_time(square, find_gpu("RTX 4090", "test")).value() ==
        Approx(2.0 * 4096 * 4096 * 4096 / 165.2e12 / 1.4));
  // One row reads 32 MiB: 64 bytes a clock of 108 multiprocessors at 1.41 GHz.
  const Gemm thin{.m = 1, .n = 4096, .k = 4096};
  CHECK(least_time(thin, find_gpu("A100", "test")).value() ==
        Approx(2.0 * (4096.0 * 4096 + 2 * 4096) / (64 * 108 * 1.41e9)).epsilon(0.01));
}

TEST_CASE("no GEMM or attention of any shape, type, pass or GPU beats its physical bound") {
  Draw draw(11);
  std::vector<OperatorQuery> queries;
  for (int i = 0; i < 400; ++i) {
    const auto pass =
        draw.one_of(std::array{GemmPass::forward, GemmPass::input_gradient, GemmPass::weight_gradient});
    queries.push_back({draw.gpu(), Gemm{.m = draw.extent(0, 17),
                                        .n = draw.extent(0, 17),
                                        .k = draw.extent(0, 17),
                                        .batch = draw.extent(0, 4),
                                        .type = draw.type(),
                                        .pass = pass}});
    queries.push_back({draw.gpu(), drawn_attention(draw)});
  }
  const auto answers = test::cost_models().predict(gpu_catalog(), queries);
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const GpuSpec& gpu = gpu_catalog()[static_cast<std::size_t>(queries[i].gpu)];
    INFO(gpu.name << " query " << i);
    CHECK(std::isfinite(answers[i].time.value()));
    if (const auto* gemm = std::get_if<Gemm>(&queries[i].op)) {
      INFO(gemm->m << " x " << gemm->n << " x " << gemm->k << ", " << to_text(gemm->type));
      CHECK(answers[i].time >= least_time(*gemm, gpu));
    } else {
      CHECK(answers[i].time >= least_time(std::get<Attention>(queries[i].op), gpu));
    }
  }
}

TEST_CASE(
    "no collective or transfer is faster than its bytes over its links, and more bytes take no less time") {
  Draw draw(12);
  std::vector<OperatorQuery> queries;
  for (int i = 0; i < 200; ++i) {
    const int per_node = static_cast<int>(draw.extent(0, 4));
    const int ranks = draw.one_of(std::array{1, 2, 8}) * per_node;
    const LinkSpec inside = draw.link(), network = draw.link();
    const Bytes bytes(static_cast<double>(draw.extent(8, 33)));
    const auto kind = draw.one_of(std::array{CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                             CollectiveKind::all_gather, CollectiveKind::all_to_all});
    for (const double more : {1.0, 1.3}) {
      queries.push_back({0, Collective{kind, bytes * more, ranks, per_node, inside, network}});
      queries.push_back({0, PointToPoint{bytes * more, network, false}});
    }
  }
  const auto answers = test::cost_models().predict(gpu_catalog(), queries);
  for (std::size_t i = 0; i < queries.size(); ++i) {
    INFO("query " << i);
    if (const auto* op = std::get_if<Collective>(&queries[i].op)) {
      if (op->ranks > 1) CHECK(answers[i].time >= wire_time(*op));
    } else {
      const auto& transfer = std::get<PointToPoint>(queries[i].op);
      CHECK(answers[i].time >= transfer.bytes / transfer.path.bandwidth);
    }
    if (i % 4 < 2) CHECK(answers[i + 2].time >= answers[i].time);
  }
}

// A library picks a kernel for each shape, so one tile more may well pay; doubling the work must not. Below
// 50 us the steps of the trees are as large as what is asked: 1 in 100 of such doublings is answered as
// faster; above, of 12,000 shapes' 31, by up to 14 %, all of K or N = 256, most on Ada cards, whose L2 caches
// hold the operands.
TEST_CASE("a GEMM of whole tiles and 50 us or more hardly ever takes less time when M, N or K doubles") {
  constexpr Seconds kLeast = Seconds(50e-6);
  Draw draw(13);
  std::vector<OperatorQuery> queries;
  for (int i = 0; i < 200; ++i) {
    const Gemm once{.m = 256 * draw.extent(0, 6),
                    .n = 256 * draw.extent(0, 6),
                    .k = 256 * draw.extent(0, 6),
                    .type = draw.type()};
    const int gpu = draw.gpu();
    Gemm m = once, n = once, k = once;
    m.m *= 2;
    n.n *= 2;
    k.k *= 2;
    for (const Gemm& gemm : {once, m, n, k}) queries.push_back({gpu, gemm});
  }
  const auto answers = test::cost_models().predict(gpu_catalog(), queries);
  int long_enough = 0, faster = 0;
  for (std::size_t i = 0; i < queries.size(); i += 4) {
    const auto& gemm = std::get<Gemm>(queries[i].op);
    const GpuSpec& gpu = gpu_catalog()[static_cast<std::size_t>(queries[i].gpu)];
    if (roofline(gemm, gpu, matrix_peak(gpu, gemm.type)->speed) < kLeast) continue;
    ++long_enough;
    INFO(gpu.name << ' ' << gemm.m << " x " << gemm.n << " x " << gemm.k << ' ' << to_text(gemm.type));
    for (std::size_t twice = 1; twice < 4; ++twice) {
      CHECK(answers[i + twice].time > 0.85 * answers[i].time);
      faster += answers[i + twice].time < answers[i].time ? 1 : 0;
    }
  }
  CHECK(long_enough > 50);
  CHECK(faster * 100 <= 3 * long_enough);
}

TEST_CASE(
    "attention takes no less time for a longer sequence, another head or another sequence in the batch") {
  Draw draw(14);
  std::vector<OperatorQuery> queries;
  for (int i = 0; i < 200; ++i) {
    const Attention once = drawn_attention(draw);
    const int gpu = draw.gpu();
    Attention longer = once, heads = once, batch = once;
    longer.query_tokens = 2 * once.query_tokens;
    longer.kv_tokens = 2 * once.kv_tokens;
    heads.heads += once.heads;
    heads.kv_heads += once.kv_heads;
    ++batch.batch;
    for (const Attention& op : {once, longer, heads, batch}) queries.push_back({gpu, op});
  }
  const auto answers = test::cost_models().predict(gpu_catalog(), queries);
  for (std::size_t i = 0; i < queries.size(); i += 4) {
    INFO("query " << i << ' ' << gpu_catalog()[static_cast<std::size_t>(queries[i].gpu)].name);
    for (std::size_t more = 1; more < 4; ++more)
      CHECK(answers[i + more].time.value() >= answers[i].time.value() * (1 - 1e-12));
  }
}

TEST_CASE("the bars of attention weigh exponentials less where the matrix units are narrow") {
  // Bars on A100 (2048 FLOPs a clock of a multiprocessor), 2048 tokens, head dimension 128: 222.1 of 312. RTX
  // 4090 has 165.2e12 / (128 x 2.52e9) = 512, so what is not matrices weighs a quarter.
  const Attention op{.batch = 8,
                     .heads = 16,
                     .kv_heads = 16,
                     .query_tokens = 2048,
                     .kv_tokens = 2048,
                     .head_dim = 128,
                     .causal = false};
  const double bar = 222.1 / 312;
  const auto table = AttentionTable::published();
  CHECK(table.at(op, find_gpu("A100", "test")).share == Approx(bar));
  CHECK(table.at(op, find_gpu("RTX 4090", "test")).share == Approx(1 / (1 + (1 / bar - 1) / 4)));
  // Measured (apache/tvm, tl_doc/flash_perf.md): 169.28 TFLOP/s, which the clock above the data sheet
  // explains.
  CHECK(table.at(op, find_gpu("RTX 4090", "test")).share * 165.2 == Approx(169.28).epsilon(0.12));
}

// benchmark_flash_attention.py of FlashAttention-2, 32 heads of 64, 16k tokens, on an RTX A5000 (gpu-mode/
// ring-attention issue 10, February 2024), which set nothing here: forward within 9 %, backward within 15,
// from 4096 tokens on within 5 and 6.
TEST_CASE("the bars of attention hold on a card with half of A100's matrix units") {
  struct Measured {
    std::int64_t tokens;
    double forward, backward;  // TFLOP/s
  };
  const GpuSpec& card = find_gpu("RTX A5000", "test");
  const auto table = AttentionTable::published();
  for (const Measured& row :
       {Measured{512, 84.08, 52.88}, Measured{1024, 81.02, 62.54}, Measured{2048, 81.31, 70.07},
        Measured{4096, 81.69, 74.80}, Measured{8192, 81.86, 77.42}}) {
    CAPTURE(row.tokens);
    Attention op{.batch = 16384 / row.tokens,
                 .heads = 32,
                 .kv_heads = 32,
                 .query_tokens = row.tokens,
                 .kv_tokens = row.tokens,
                 .head_dim = 64,
                 .causal = false};
    const auto reached = [&](Direction direction) {
      op.direction = direction;
      return table.at(op, card).share * card.bf16->value() / 1e12;
    };
    const bool is_long = row.tokens >= 4096;
    CHECK(reached(Direction::forward) == Approx(row.forward).epsilon(is_long ? 0.055 : 0.095));
    CHECK(reached(Direction::backward) == Approx(row.backward).epsilon(is_long ? 0.06 : 0.155));
  }
}

TEST_CASE("the attention of 2026 is that of before where it was not measured apart") {
  Attention op{.batch = 1,
               .heads = 64,
               .kv_heads = 8,
               .query_tokens = 8192,
               .kv_tokens = 8192,
               .head_dim = 128,
               .kernel = AttentionKernel::flash_2026};
  const auto table = AttentionTable::published();
  const auto share = [&](const char* gpu, AttentionKernel kernel) {
    op.kernel = kernel;
    return table.at(op, find_gpu(gpu, "test")).share;
  };
  // cuDNN 9.19 on H200, as NVIDIA and as Orrery measured it.
  CHECK(share("H100", AttentionKernel::flash_2026) == Approx(std::sqrt(644.0 * 605) / 989).epsilon(1e-3));
  CHECK(share("H100", AttentionKernel::flash) == Approx(529.0 / 989));
  // TFLOP/s of cuDNN 9.19 on GB200 and GB300, of June and October 2025 on B200 and GB300.
  CHECK(share("GB200", AttentionKernel::flash_2026) == Approx(1598.0 / 2500));
  CHECK(share("B200", AttentionKernel::flash) == Approx(1248.0 / 2250));
  CHECK(share("GB300", AttentionKernel::flash_2026) == Approx(1887.0 / 2500));
  CHECK(share("GB300", AttentionKernel::flash) == Approx(1716.0 / 2500));
  for (const char* gpu : {"A100", "V100", "RTX 4090", "MI300X"})
    CHECK(share(gpu, AttentionKernel::flash_2026) == share(gpu, AttentionKernel::flash));
  // PyTorch's choice is cuDNN on Blackwell's servers and FlashAttention-2 on Hopper.
  CHECK(share("B200", AttentionKernel::sdpa_2025) == share("B200", AttentionKernel::flash));
  CHECK(share("H100", AttentionKernel::sdpa_2025) == share("H100", AttentionKernel::flash2));
  CHECK(share("A100", AttentionKernel::sdpa_2025) == share("A100", AttentionKernel::flash));
  // FlashAttention-2 is as fast on B200 as on H100, within 15 % (326 and 333 TFLOP/s).
  CHECK(share("B200", AttentionKernel::flash2) * 2250 ==
        Approx(share("H100", AttentionKernel::flash2) * 989).epsilon(0.15));
  // FlashAttention-2 is known on Hopper and Blackwell; where it is not, the card's own fused kernel is that.
  CHECK(share("GB200", AttentionKernel::flash2) < share("GB200", AttentionKernel::flash));
  CHECK(share("A100", AttentionKernel::flash2) == share("A100", AttentionKernel::flash));
}

TEST_CASE("over a link between those of two GPUs a collective takes a time between theirs") {
  Draw draw(17);
  for (int i = 0; i < 20; ++i) {
    const Bytes bytes(std::exp2(static_cast<double>(draw.extent(3, 5))) * 1024);
    const int ranks = draw.one_of(std::array{2, 4, 8});
    // H100's and Blackwell's links, and every 50 GB/s between them.
    std::vector<OperatorQuery> queries;
    for (int link = 450; link <= 900; link += 50) queries.push_back(all_reduce_over(link, bytes, ranks));
    const auto times = test::cost_models().predict(gpu_catalog(), queries);
    const auto [least, most] = std::minmax(times.front().time, times.back().time);
    for (std::size_t one = 1; one < times.size(); ++one) {
      INFO(ranks << " ranks, " << bytes.value() << " B, link " << one);
      CHECK(times[one].time >= least * (1 - 1e-12));
      CHECK(times[one].time <= most * (1 + 1e-12));
    }
  }
}

TEST_CASE(
    "parts of V100's mesh have the efficiency of the whole, within a quarter of what was measured of them") {
  // Bus bandwidth of 64 MiB in GB/s, vTrain's tables (VIA-Research/vTrain f8dda847, trace/v100).
  struct Row {
    int ranks;
    double link, measured;
  };
  const auto [ranks, link, measured] =
      GENERATE(values<Row>({{2, 25, 22.4}, {4, 100, 83.7}, {8, 150, 128.9}}));
  const Bytes bytes(64 * kMebi);
  const GpuSpec v100 = find_gpu("V100-SXM2-32GB", "test");
  const OperatorQuery query = all_reduce_over(link, bytes, ranks);
  const Seconds time = test::cost_models().predict(std::array{v100}, std::array{query}).front().time;
  const double bus = 2.0 * (ranks - 1) / ranks * bytes.value() / time.value() / kGiga;
  CHECK(bus < link);
  CHECK(bus == Approx(measured).epsilon(0.25));
}
