// How long attention takes: fused kernels as published, unfused ones as the kernels they are made of.
#include <cmath>

#include "costmodels/models/attention_table.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/built_in_costs.hpp"

using namespace orrery;
using test::microseconds_of;
using test::predict;

namespace {

// Bytes of an A100's memory bandwidth that unfused attention takes for each score.
double bytes_of_score(Attention op, SoftmaxKernel softmax) {
  op.softmax = softmax;
  const GpuSpec& gpu = find_gpu("A100", "test");
  const auto scores = static_cast<double>(op.batch * op.heads * op.query_tokens * op.kv_tokens);
  return unfused_attention_time(op, gpu).time.value() * gpu.memory_bandwidth.value() / scores;
}

// Sixteen heads over 1,024 tokens.
Attention unfused(bool dropout, Direction direction) {
  return {.heads = 16,
          .kv_heads = 16,
          .query_tokens = 1024,
          .kv_tokens = 1024,
          .head_dim = 64,
          .kernel = AttentionKernel::unfused,
          .dropout = dropout,
          .direction = direction};
}

}  // namespace

TEST_CASE("attention whose values are narrower than its keys takes the time of its FLOPs, and is flagged") {
  const Attention equal{
      .batch = 4, .heads = 32, .kv_heads = 32, .query_tokens = 4096, .kv_tokens = 4096, .head_dim = 192};
  Attention narrow = equal;
  narrow.value_dim = 128;
  const double work = flops_of(narrow).value() / flops_of(equal).value();
  CHECK(microseconds_of("H100", narrow) == Approx(microseconds_of("H100", equal) * work).epsilon(0.02));
  CHECK(predict("H100", narrow).extrapolated);
  CHECK_FALSE(predict("H100", equal).extrapolated);
}

TEST_CASE("attention runs at the published speed") {
  // H100, 16k tokens, 16 heads of 128, causal, 4096 a sequence: cuDNN forward 518 TFLOP/s (FlashAttention-3
  // paper); PyTorch's FlashAttention-2 309 and 253 here, 308 and 258 on H200 (costmodels/measured/own). 5 us
  // of launch are added here.
  Attention op{
      .batch = 4, .heads = 16, .kv_heads = 16, .query_tokens = 4096, .kv_tokens = 4096, .head_dim = 128};
  const auto tflops = [&] { return flops_of(op).value() / predict("H100", op).time.value() / 1e12; };
  CHECK(tflops() == Approx(518).epsilon(0.02));
  op.kernel = AttentionKernel::flash2;
  CHECK(tflops() == Approx(std::sqrt(309.0 * 308)).epsilon(0.02));
  op.direction = Direction::backward;
  CHECK(tflops() == Approx(std::sqrt(253.0 * 258)).epsilon(0.02));
}

TEST_CASE("dropout inside fused attention takes the time of its random numbers") {
  // NeMo's GPT-3 5B, four sequences of 2048 tokens, 32 heads of 128; half of the scores are masked. 67
  // TFLOP/s in 32 bits are 2 x 128 x the clocks of H100's multiprocessors, which start 64 integer
  // instructions each.
  Attention op{
      .batch = 4, .heads = 32, .kv_heads = 32, .query_tokens = 2048, .kv_tokens = 2048, .head_dim = 128};
  op.direction = GENERATE(Direction::forward, Direction::backward);
  const double instruction = 4.0 * 32 * 2048 * 2048 / 2 / (64 * 67e12 / 256);
  const auto dropout = [&](AttentionKernel kernel) {
    op.kernel = kernel;
    op.dropout = false;
    const double plain = predict("H100", op).time.value();
    op.dropout = true;
    return predict("H100", op).time.value() - plain;
  };
  // Philox of seven rounds of six instructions and twelve for its keys: a word a score, or four.
  CHECK(dropout(AttentionKernel::flash) == Approx((54.0 / 4 + 3) * instruction));
  CHECK(dropout(AttentionKernel::flash2) == Approx((54.0 / 16 + 2) * instruction).epsilon(0.01));
  op.causal = false;
  CHECK(dropout(AttentionKernel::flash) == Approx(2 * (54.0 / 4 + 3) * instruction));
}

TEST_CASE("attention on Blackwell runs at the speed cuDNN was measured at") {
  // cuDNN 9.19, one sequence of 8192 tokens, 64 heads of 128, causal; 5 us of launch are added here.
  Attention op{.batch = 1,
               .heads = 64,
               .kv_heads = 8,
               .query_tokens = 8192,
               .kv_tokens = 8192,
               .head_dim = 128,
               .kernel = AttentionKernel::flash_2026};
  const auto tflops = [&](const char* gpu) {
    return flops_of(op).value() / predict(gpu, op).time.value() / 1e12;
  };
  CHECK(tflops("GB200") == Approx(1598).epsilon(0.02));
  CHECK(tflops("GB300") == Approx(1887).epsilon(0.02));
  op.direction = Direction::backward;
  CHECK(tflops("GB200") == Approx(1311).epsilon(0.02));
  CHECK(tflops("GB300") == Approx(1385).epsilon(0.02));
}

TEST_CASE("unfused attention takes what Megatron's kernels took") {
  // sailor @ cf2c8e3, GPT-Neo-2.7B (20 heads, head dimension 128, 2048 tokens) on A100-40 with 8 sequences
  // would need 64 GiB; with 4: score 1152.5, softmax 1380.5, dropout 2343.3, context 1084.3 us forward.
  const Attention op{.batch = 4,
                     .heads = 20,
                     .kv_heads = 20,
                     .query_tokens = 2048,
                     .kv_tokens = 2048,
                     .head_dim = 128,
                     .kernel = AttentionKernel::unfused,
                     .dropout = true,
                     .type = DataType::fp16};
  const double measured = 1152.5 + 1380.5 + 2343.3 + 1084.3;
  // The heads of that row are 32 of 80: the scores of 276 MiB at one sequence are 32 x 2048^2 x 2 B with the
  // inputs.
  Attention real = op;
  real.heads = 32, real.kv_heads = 32, real.head_dim = 80;
  CHECK(microseconds_of("A100-SXM4-40GB", real) == Approx(measured).epsilon(0.15));
}

TEST_CASE("kernels on the scores of unfused attention cost the bytes they move") {
  // Ideal reads and writes of a 16-bit score: the fused kernel 2 + 2, masked_fill_ and softmax 2 + 2 each;
  // backward fused 2 + 2 + 2, or copy, fill (2 + 2 each) and softmax's 2 + 2 + 2. Dropout 2 + 2 and a byte.
  const auto [direction, fused, eager] =
      GENERATE(table<Direction, double, double>({{Direction::forward, 4, 8}, {Direction::backward, 6, 14}}));
  Attention op{.heads = 32,
               .kv_heads = 32,
               .query_tokens = 2048,
               .kv_tokens = 2048,
               .head_dim = 128,
               .kernel = AttentionKernel::unfused,
               .dropout = false,
               .direction = direction,
               .type = DataType::fp16};
  const GpuSpec& gpu = find_gpu("A100", "test");
  const double second_per_byte = 32.0 * 2048 * 2048 / gpu.memory_bandwidth.value();
  const auto seconds = [&] { return unfused_attention_time(op, gpu).time.value(); };
  const double plain = seconds();
  op.dropout = true;
  CHECK(seconds() - plain == Approx(5 * second_per_byte).epsilon(0.4));
  op.dropout = false, op.softmax = SoftmaxKernel::eager;
  // A causal kernel that is fused leaves out what is masked, so more than the difference.
  CHECK(seconds() - plain > (eager - fused) * second_per_byte);
  CHECK(seconds() - plain < eager / 0.8 * second_per_byte);
}

TEST_CASE(
    "a bias of positions is added to scores by a kernel that broadcasts, and its gradient is their sum") {
  // Of 34 B a score that three fp32 kernels take, a multiplication and a softmax are 8 B each at 0.85 of the
  // bandwidth, as PyTorch's additions; the filling of a mask that broadcasts is 8 B too and takes the rest.
  const double broadcasts = 8 / (34 - 2 * 8 / 0.85);
  const auto [direction, bytes] = GENERATE_COPY(
      table<Direction, double>({{Direction::forward, 4 / broadcasts}, {Direction::backward, 2 / 0.85}}));
  Attention op{.batch = 256,
               .heads = 4,
               .kv_heads = 4,
               .query_tokens = 324,
               .kv_tokens = 324,
               .head_dim = 4,
               .kernel = AttentionKernel::unfused,
               .direction = direction,
               .type = DataType::fp16};
  const GpuSpec& gpu = find_gpu("V100-SXM2-16GB", "test");
  const double plain = unfused_attention_time(op, gpu).time.value();
  op.biased = true;
  CHECK(unfused_attention_time(op, gpu).time.value() - plain ==
        Approx(bytes * 256 * 4 * 324 * 324 / gpu.memory_bandwidth.value()));
}

TEST_CASE("without Megatron's fused softmax scores in 16 bits go through 32 bits") {
  const auto direction = GENERATE(Direction::forward, Direction::backward);
  Attention op{.heads = 10,
               .kv_heads = 10,
               .query_tokens = 4096,
               .kv_tokens = 4096,
               .head_dim = 128,
               .kernel = AttentionKernel::unfused,
               .direction = direction};
  // The fp32 kernels and two casts of 6 B for 4 and 5.4 B; what drops out stays in 16 bits.
  const double more = direction == Direction::forward ? 34 - 4.0 : 56.8 - 5.4;
  for (const bool dropout : {false, true}) {
    op.dropout = dropout;
    CHECK(bytes_of_score(op, SoftmaxKernel::wide) - bytes_of_score(op, SoftmaxKernel::fused) ==
          Approx(more + 12 / 0.85));
  }
}

TEST_CASE(
    "scaling, choosing, adding and softmax in kernels of their own read and write the scores each time") {
  Attention op = unfused(GENERATE(false, true), GENERATE(Direction::forward, Direction::backward));
  const double eager = bytes_of_score(op, SoftmaxKernel::eager);
  // Two kernels more forward; backward as many, but what was filled in place is read and written too.
  const bool forward = op.direction == Direction::forward;
  CHECK(bytes_of_score(op, SoftmaxKernel::stepwise) - eager ==
        Approx((forward ? 2 * (2 + 2) : (2 + 2) + (2 + 2) - 8) / 0.85).margin(1e-9));
  // In 32 bits softmax writes, or reads two of, 4 B for 2, and a kernel casts.
  const double wider = forward ? 2 + (4 + 2) : 2 * 2 + (2 + 4);
  CHECK(bytes_of_score(op, SoftmaxKernel::stepwise_wide) - bytes_of_score(op, SoftmaxKernel::stepwise) ==
        Approx(wider / 0.85));
}

// Reads and writes, in elements of a score, as PyTorch's autograd makes its kernels.
TEST_CASE("softmax by its formula reads and writes the scores for each operation") {
  Attention op = unfused(GENERATE(false, true), GENERATE(Direction::forward, Direction::backward));
  const bool forward = op.direction == Direction::forward;
  GpuSpec gpu = find_gpu("A100", "test");
  const auto bytes = [&](SoftmaxKernel softmax) {
    op.softmax = softmax;
    const double scores = 16.0 * 1024 * 1024;
    return unfused_attention_time(op, gpu).time.value() * gpu.memory_bandwidth.value() / scores;
  };
  gpu.l2_cache = Bytes(1);
  const double eager = bytes(SoftmaxKernel::eager), by_eager = forward ? 4 + 4 : 4 + 4 + 6;
  const double scale = 2, choose = 2, greatest = 1, take = 2, raise = 2, sum = 1, divide = 2;
  const double divided = 2 + (2 + 2 + 2 + 3 + 1), added = 2, raised = 3, taken = 3, found = 1 + 3;
  const double head = scale + choose + greatest + take, tail = raise + sum + divide;
  const double back_tail = divided + added + raised, back_head = taken + found + choose + scale;
  CHECK(bytes(SoftmaxKernel::formula) - eager ==
        Approx((2 * (forward ? head + tail : back_tail + back_head) - by_eager) / 0.85));
  // The exponential and what follows it in 32 bits, between two casts.
  const double wide = (forward ? 2 * head + 4 * tail : 4 * back_tail + 2 * back_head) + (2 + 4) + (4 + 2);
  CHECK(bytes(SoftmaxKernel::formula_wide) - eager == Approx((wide - by_eager) / 0.85));
  // All of it in the cache: what one kernel moves.
  gpu.l2_cache = Bytes(1e12);
  CHECK(bytes(SoftmaxKernel::formula) - eager == Approx((2 * (forward ? 2 : 3) - by_eager) / 0.85));
}

TEST_CASE("a softmax that skips what the mask hides moves half, and writes a whole gradient") {
  Attention op{.heads = 25,
               .kv_heads = 25,
               .query_tokens = 1024,
               .kv_tokens = 1024,
               .head_dim = 64,
               .kernel = AttentionKernel::unfused,
               .direction = GENERATE(Direction::forward, Direction::backward)};
  // Beside PyTorch's two kernels, forward 4 + 4 B of a score; backward 4 + 4 + 6.
  const double fewer = op.direction == Direction::forward ? 8 - (2 + 2) / 2.0 : 14 - ((2 + 2) / 2.0 + 2);
  CHECK(bytes_of_score(op, SoftmaxKernel::eager) - bytes_of_score(op, SoftmaxKernel::triangular) ==
        Approx(fewer / 0.85));
}

TEST_CASE("scores in 32 bits take what Megatron's kernels took, whose fused one takes 16 bits only") {
  // sailor @ cf2c8e3, fp32, OPT-350M (16 heads of 64) on one A100-40, eight sequences of 2048 tokens: softmax
  // 11,690 us forward and 19,000 backward, dropout 4,050 and 3,500 (medians in bytes of a score at 1,555
  // GB/s: 34.1, 55.4, 11.8 and 10.2).
  const auto [direction, softmax, dropout] = GENERATE(table<Direction, double, double>(
      {{Direction::forward, 34.1, 11.8}, {Direction::backward, 55.4, 10.2}}));
  Attention op{.batch = 8,
               .heads = 16,
               .kv_heads = 16,
               .query_tokens = 2048,
               .kv_tokens = 2048,
               .head_dim = 64,
               .kernel = AttentionKernel::unfused,
               .dropout = false,
               .direction = direction,
               .type = DataType::tf32};
  const GpuSpec& gpu = find_gpu("A100-SXM4-40GB", "test");
  const double second_per_byte = 8.0 * 16 * 2048 * 2048 / gpu.memory_bandwidth.value();
  const auto seconds = [&] { return unfused_attention_time(op, gpu).time.value(); };
  const double plain = seconds();
  op.type = DataType::fp16;
  // In 16 bits the matrices move half the bytes at twice the pace, and the fused kernel 4 and 5.4 B.
  const double of_matrices = seconds() - (direction == Direction::forward ? 4.0 : 5.4) * second_per_byte;
  CHECK(plain - 2 * of_matrices == Approx(softmax * second_per_byte).epsilon(0.05));
  op.type = DataType::tf32, op.dropout = true;
  CHECK(seconds() - plain == Approx(dropout * second_per_byte).epsilon(0.05));
  // Kernels of one's own do not multiply the scores by the number of the layer: 4 B in and out.
  op.dropout = false, op.softmax = SoftmaxKernel::eager;
  CHECK(plain - seconds() > 8 * second_per_byte);
  CHECK(plain - seconds() < 8 / 0.8 * second_per_byte);
}

TEST_CASE("a kernel that one's own profile measured answers for every name that it has on that GPU") {
  const AttentionTable table = AttentionTable::published();
  const auto on = [&](const char* gpu, AttentionKernel kernel) {
    return table.kernel_on({.kernel = kernel}, find_gpu(gpu, "test"));
  };
  using enum AttentionKernel;
  CHECK(on("A100", flash2) == flash);
  CHECK(on("A100", sdpa_2025) == flash);
  CHECK(on("H100", flash2) == flash2);
  CHECK(on("H100", sdpa_2025) != flash);
  CHECK(on("B200", sdpa_2025) == flash);
  CHECK(on("H100", flash_2026) == flash_2026);
  CHECK(on("H100", unfused) == unfused);
}
