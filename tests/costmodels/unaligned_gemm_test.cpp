// GEMMs that read rows which do not start at multiples of 16 bytes.
#include "costmodels/models/unaligned_gemm.hpp"

#include "costmodels/stacks/stack_file.hpp"
#include "platforms/gpu.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"

namespace orrery {
namespace {

const GpuSpec& gpu(const char* name) {
  return find_gpu(name, "test");
}

// Forward and backward of GPT-2 124M on 12 sequences of 1024 tokens, of nanoGPT with attention by its fused
// kernel.
Seconds step(std::int64_t vocabulary, const char* stack) {
  ModelSpec model = read_model("gpt2-345m");
  LayerShape& layer = model.shapes.at(0);
  layer.hidden = 768, layer.heads = 12, layer.kv_heads = 12, layer.head_dim = 64, layer.ffn = 3072;
  model.layers.resize(12);
  model.hidden = 768;
  model.vocabulary = vocabulary;
  ClusterSpec cluster;
  cluster.groups = {test::node_group_of("A100", 8)};
  PriceBook book(model, cluster, {DataType::bf16, true, 1024, parse_stack(stack, "test")});
  const ShardKey key{.group = 0, .micro_batch = 12};
  book.need(key);
  book.predict(test::cost_models());
  const PartTimes times = book.part_times(book.shard(key), {0, 12}, {}, 1);
  return times.forward + times.backward;
}

}  // namespace

TEST_CASE("rows are aligned by what a GEMM reads and by what it writes") {
  struct Row {
    std::int64_t m, n, k;
    GemmPass pass;
    std::int64_t alignment;
  };
  // Logits of 50257 words from a hidden size of 768, and the gradients that read theirs.
  const auto [m, n, k, pass, alignment] = GENERATE(values<Row>({
      {1024, 50257, 768, GemmPass::forward, 1},
      {1024, 768, 50257, GemmPass::input_gradient, 1},
      {768, 50257, 1024, GemmPass::weight_gradient, 1},
      {1024, 1152, 588, GemmPass::forward, 2},  // of 4, for which there is no kernel
      {1024, 4096, 3422, GemmPass::forward, 2},
      {1023, 4096, 4096, GemmPass::forward, 8},
      {4096, 4096, 1023, GemmPass::weight_gradient, 8},
  }));
  CHECK(row_alignment({.m = m, .n = n, .k = k, .pass = pass}) == alignment);
}

TEST_CASE("unaligned GEMMs reach what was measured of them") {
  // The shape moved by 2 bytes on H200: as one whose rows are odd.
  const Gemm odd{.m = 72'000, .n = 14'336, .k = 3'071};
  CHECK((flops_of(odd) / unaligned_time(odd, gpu("H200"))).value() / 1e12 == Approx(97.5).margin(1.5));
  const Gemm square{.m = 2'073, .n = 2'073, .k = 2'073};
  CHECK((flops_of(square) / unaligned_time(square, gpu("RTX 4090"))).value() / 1e12 == Approx(112).margin(9));
  // GPT-2's logits of 8,192 tokens, steps measured here.
  for (const auto& [pass, milliseconds] : {std::pair{GemmPass::forward, 8.74},
                                           {GemmPass::input_gradient, 6.01},
                                           {GemmPass::weight_gradient, 5.70}}) {
    const bool forward = pass == GemmPass::forward, weight = pass == GemmPass::weight_gradient;
    const Gemm logits{.m = weight ? 1024 : 8192,
                      .n = forward || weight ? 50257 : 1024,
                      .k = forward  ? 1024
                           : weight ? 8192
                                    : 50257,
                      .pass = pass};
    CHECK(unaligned_time(logits, gpu("H100")).value() * 1e3 == Approx(milliseconds).epsilon(0.04));
  }
  // 9,477 x 1,152 x 588 in 130.6 us at 1.2 of 1.98 GHz, 342 tiles of 256 x 128 in three waves of 132.
  const Gemm patch{.m = 9'477, .n = 1'152, .k = 588};
  const double full_waves = 342.0 / (3 * 132);
  CHECK(unaligned_time(patch, gpu("H100")).value() ==
        Approx(130.6e-6 * 1.2 / 1.98 * full_waves).epsilon(0.05));
}

TEST_CASE("aligned rows, other types and other makers' GPUs have no such limit") {
  const Gemm odd{.m = 4096, .n = 4096, .k = 4095};
  CHECK(unaligned_time(odd, gpu("H100")) > Seconds(0));
  CHECK(unaligned_time({.m = 4096, .n = 4096, .k = 4096}, gpu("H100")) == Seconds(0));
  CHECK(unaligned_time({.m = 4096, .n = 4096, .k = 4095, .type = DataType::fp32}, gpu("H100")) == Seconds(0));
  CHECK(unaligned_time(odd, gpu("MI300X")) == Seconds(0));
}

TEST_CASE("GPT-2's vocabulary unpadded takes nanoGPT a quarter to a third longer, as its author measured") {
  // "about 25% faster", karpathy/nanoGPT 77e7e04c: 50257 to 50304 words, 4 February 2023; by steps a second
  // or by time.
  const char* unpadded = "{like: torchtitan, pads_vocabulary: false}";
  const double longer = step(50257, unpadded) / step(50304, unpadded);
  CHECK(longer > 1.25);
  CHECK(longer < 1.0 / 0.75 + 0.03);
  CHECK(step(50257, "like: torchtitan") / step(50304, "like: torchtitan") == 1.0);
}

}  // namespace orrery
