#include "costmodels/layers/layer_operators.hpp"

#include <random>

#include "costmodels/operators/local_layer.hpp"
#include "costmodels/stacks/stack_file.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/layer_fixture.hpp"

namespace orrery {
namespace {

using test::all_of, test::bytes_of, test::gemm_flops, test::plain, test::ring_bytes;
using test::gpt3_layer, test::llama70b_layer;

// Pairs of a query and a key, both passes of the score matrix: 4 d FLOPs each.
double attention_flops(const PassOperators& pass) {
  double sum = 0.0;
  for (const Attention& core : all_of<Attention>(pass.compute)) {
    sum += 4.0 * static_cast<double>(core.batch * core.heads * core.head_dim) *
           static_cast<double>(core.query_tokens) * static_cast<double>(core.kv_tokens);
  }
  return sum;
}

struct RandomLayer {
  LayerShape shape;
  Sharding sharding;
};

// Shapes that every split divides.
RandomLayer random_layer(std::mt19937& random) {
  const auto pick = [&](std::vector<std::int64_t> values) { return values[random() % values.size()]; };
  RandomLayer drawn;
  LayerShape& shape = drawn.shape;
  shape.heads = pick({8, 16, 40, 64});
  shape.kv_heads = pick({8, shape.heads});
  shape.head_dim = pick({64, 128});
  shape.hidden = pick({1, 2}) * shape.heads * shape.head_dim;
  shape.ffn = pick({1024, 13824, 49152});
  shape.mlp = random() % 2 == 0 ? MlpKind::gated : MlpKind::gelu;
  shape.linear_bias = random() % 2 == 0;
  shape.experts = pick({1, 8, 64});
  shape.experts_per_token = shape.experts > 1 ? pick({1, 2}) : 1;
  shape.shared_ffn = shape.experts > 1 ? pick({0, 2048}) : 0;
  Sharding& sharding = drawn.sharding;
  sharding.tensor = static_cast<int>(pick({1, 2, 4, 8}));
  sharding.context = static_cast<int>(pick({1, 2, 4}));
  sharding.expert = shape.experts > 1 ? static_cast<int>(pick({1, 2, 8})) : 1;
  sharding.micro_batch = pick({1, 2, 4});
  sharding.sequence = pick({2048, 4096, 8192});
  sharding.sequence_parallel = shape.experts > 1 || random() % 2 == 0;
  return drawn;
}

std::string describe(const RandomLayer& drawn) {
  const LayerShape& l = drawn.shape;
  const Sharding& s = drawn.sharding;
  std::string text = "hidden, heads, kv, dim, ffn, experts, top, shared; T, CP, EP, microbatch, sequence:";
  for (const std::int64_t value :
       {l.hidden, l.heads, l.kv_heads, l.head_dim, l.ffn, l.experts, l.experts_per_token, l.shared_ffn,
        static_cast<std::int64_t>(s.tensor), static_cast<std::int64_t>(s.context),
        static_cast<std::int64_t>(s.expert), s.micro_batch, s.sequence}) {
    text += " " + std::to_string(value);
  }
  return text;
}

ModelSpec gpt2_tables(std::int64_t vocabulary) {
  ModelSpec model;
  model.vocabulary = vocabulary;
  model.hidden = 1024;
  model.learned_positions = 1024;
  return model;
}

}  // namespace

TEST_CASE("tensor and context ranks together do two FLOPs for each weight and token, and all of attention") {
  std::mt19937 random(7);
  for (int draw = 0; draw < 200; ++draw) {
    const RandomLayer drawn = random_layer(random);
    const LayerShape& shape = drawn.shape;
    const Sharding& sharding = drawn.sharding;
    INFO(describe(drawn));
    const BlockOperators layer = layer_operators(shape, true, sharding);

    const double hidden = static_cast<double>(shape.hidden);
    const double query = static_cast<double>(shape.heads * shape.head_dim);
    const double key_value = static_cast<double>(shape.kv_heads * shape.head_dim);
    const double matrices = shape.mlp == MlpKind::gated ? 3 : 2;
    double weights = hidden * (2 * query + 2 * key_value);
    weights +=
        matrices * hidden * static_cast<double>(shape.ffn * shape.experts_per_token + shape.shared_ffn);
    if (shape.experts > 1) weights += hidden * static_cast<double>(shape.experts);
    const double tokens = static_cast<double>(sharding.micro_batch * sharding.sequence);
    const double ranks = sharding.tensor * sharding.context;

    CHECK(gemm_flops(layer.forward) * ranks == Approx(2 * tokens * weights).epsilon(1e-12));
    CHECK(attention_flops(layer.forward) * ranks ==
          Approx(4 * tokens * static_cast<double>(sharding.sequence) * query).epsilon(1e-12));
    CHECK(gemm_flops(layer.backward) == Approx(2 * gemm_flops(layer.forward)).epsilon(1e-12));
    CHECK(attention_flops(layer.backward) == attention_flops(layer.forward));
  }
}

TEST_CASE(
    "sequence parallelism moves the bytes of plain tensor parallelism and shrinks norms and residuals") {
  std::mt19937 random(11);
  for (int draw = 0; draw < 100; ++draw) {
    RandomLayer drawn = random_layer(random);
    drawn.shape.experts = drawn.shape.experts_per_token = 1;
    drawn.shape.shared_ffn = 0;
    INFO(describe(drawn));
    drawn.sharding.sequence_parallel = false;
    const BlockOperators replicated = layer_operators(drawn.shape, true, drawn.sharding);
    drawn.sharding.sequence_parallel = true;
    const BlockOperators split = layer_operators(drawn.shape, true, drawn.sharding);
    CHECK(ring_bytes(split.forward.communication) ==
          Approx(ring_bytes(replicated.forward.communication)).epsilon(1e-12));
    CHECK(ring_bytes(split.backward.communication) ==
          Approx(ring_bytes(replicated.backward.communication)).epsilon(1e-12));
    for (const MemoryKernel kernel : {MemoryKernel::norm, MemoryKernel::activation}) {
      const double share = kernel == MemoryKernel::norm ? drawn.sharding.tensor : 1;
      CHECK(bytes_of(split.forward, kernel) * share == Approx(bytes_of(replicated.forward, kernel)));
    }
  }
}

TEST_CASE("GPT-3 on eight tensor ranks is the GEMMs that Megatron-LM runs") {
  Sharding sharding = plain(1, 2048);
  sharding.tensor = 8;
  const BlockOperators layer = layer_operators(gpt3_layer(), true, sharding);
  CHECK(all_of<Gemm>(layer.forward.compute) ==
        std::vector<Gemm>{{.m = 2048, .n = 3 * 12288 / 8, .k = 12288},
                          {.m = 2048, .n = 12288, .k = 12288 / 8},
                          {.m = 2048, .n = 4 * 12288 / 8, .k = 12288},
                          {.m = 2048, .n = 12288, .k = 4 * 12288 / 8}});
  // The gradient of the input [M, K, N], then of the weights [K, N, M].
  const std::vector<Gemm> backward = all_of<Gemm>(layer.backward.compute);
  REQUIRE(backward.size() == 8);
  CHECK(backward[0] == Gemm{.m = 2048, .n = 12288, .k = 4608, .pass = GemmPass::input_gradient});
  CHECK(backward[1] == Gemm{.m = 12288, .n = 4608, .k = 2048, .pass = GemmPass::weight_gradient});
  const std::vector<Attention> core = all_of<Attention>(layer.forward.compute);
  REQUIRE(core.size() == 1);
  CHECK(core[0] == Attention{.heads = 12,
                             .kv_heads = 12,
                             .query_tokens = 2048,
                             .kv_tokens = 2048,
                             .head_dim = 128,
                             .dropout = true});  // GPT-3's
}

TEST_CASE("heads and sequences that do not come in fours go without Megatron's fused softmax") {
  const auto kernel = [](int tensor, std::int64_t micro_batch, AttentionKernel attention) {
    Sharding sharding = plain(micro_batch, 2048);
    sharding.tensor = tensor;
    sharding.attention = attention;
    return all_of<Attention>(layer_operators(gpt3_layer(), true, sharding).forward.compute).front().softmax;
  };
  CHECK(kernel(8, 1, AttentionKernel::unfused) == SoftmaxKernel::fused);   // 12 heads
  CHECK(kernel(16, 1, AttentionKernel::unfused) == SoftmaxKernel::wide);   // 6
  CHECK(kernel(16, 2, AttentionKernel::unfused) == SoftmaxKernel::fused);  // 6 of two sequences
  CHECK(kernel(16, 1, AttentionKernel::flash2) == SoftmaxKernel::fused);
}

TEST_CASE("attention drops out where the model and the program train with dropout") {
  LayerShape gpt_oss = gpt3_layer();  // its biases, RMSNorm
  gpt_oss.norm = NormKind::rms_norm;
  const auto [shape, dropout, expected] =
      GENERATE_COPY(table<LayerShape, Dropout, bool>({{gpt3_layer(), Dropout::of_model, true},
                                                      {gpt3_layer(), Dropout::off, false},
                                                      {gpt_oss, Dropout::of_model, false},
                                                      {llama70b_layer(), Dropout::of_model, false}}));
  Sharding sharding = plain(1, 2048);
  sharding.stack.dropout = dropout;
  const BlockOperators layer = layer_operators(shape, true, sharding);
  for (const PassOperators* pass : {&layer.forward, &layer.backward})
    CHECK(all_of<Attention>(pass->compute).front().dropout == expected);
}

TEST_CASE("grouped queries narrow the QKV projection, and ranks beyond the key heads hold copies") {
  // Llama-2 70B: 64 query and 8 key-value heads of 128.
  const auto [tensor, width] =
      GENERATE(table<int, std::int64_t>({{1, 8192 + 2 * 1024}, {8, 1024 + 2 * 128}, {16, 512 + 2 * 128}}));
  Sharding sharding = plain(1, 4096);
  sharding.tensor = tensor;
  const BlockOperators layer = layer_operators(llama70b_layer(), true, sharding);
  CHECK(all_of<Gemm>(layer.forward.compute).front() == Gemm{.m = 4096, .n = width, .k = 8192});
}

TEST_CASE("memory-bound operators move the published bytes for each element") {
  Sharding sharding = plain(1, 4096);
  const BlockOperators layer = layer_operators(llama70b_layer(), true, sharding);
  const double hidden = 4096.0 * 8192, ffn = 4096.0 * 28672, qkv = 4096.0 * (8192 + 2 * 1024);
  CHECK(bytes_of(layer.forward, MemoryKernel::norm) == 2 * 4 * hidden);
  CHECK(bytes_of(layer.backward, MemoryKernel::norm) == 2 * 8 * hidden);
  CHECK(bytes_of(layer.forward, MemoryKernel::activation) == 6 * ffn);
  CHECK(bytes_of(layer.backward, MemoryKernel::activation) == 10 * ffn);
  CHECK(bytes_of(layer.forward, MemoryKernel::rope) == 4 * qkv);
  CHECK(bytes_of(layer.backward, MemoryKernel::rope) == 4 * qkv);
  CHECK(bytes_of(layer.forward, MemoryKernel::residual) == 2 * 6 * hidden);
  // silu reads and writes (4), the product reads two (6); backward each factor's gradient (6 + 6), silu's
  // (6), both halves joined (8).
  sharding.stack.kernels.eager_activation = true;
  const BlockOperators eager = layer_operators(llama70b_layer(), true, sharding);
  CHECK(bytes_of(eager.forward, MemoryKernel::activation) == 10 * ffn);
  CHECK(bytes_of(eager.backward, MemoryKernel::activation) == 26 * ffn);
  CHECK(bytes_of(layer_operators(gpt3_layer(), true, sharding).forward, MemoryKernel::activation) ==
        4.0 * 4096 * gpt3_layer().ffn);
}

TEST_CASE("each microbatch reads and writes the gradient sum: 8 B a weight in fp32, 6 B in fp16") {
  Sharding sharding = plain(1, 2048);
  const double parameters = static_cast<double>(layer_parameters(llama70b_layer()));
  const auto accumulated = [&](DataType type) {
    sharding.type = type;
    return bytes_of(layer_operators(llama70b_layer(), true, sharding).backward, MemoryKernel::copy);
  };
  CHECK(accumulated(DataType::bf16) == 8 * parameters);
  CHECK(accumulated(DataType::fp16) == 6 * parameters);
}

TEST_CASE("a layer in fp8 runs its GEMMs in fp8, attention and head in bf16, and pays for casts") {
  Sharding sharding = plain(1, 4096);
  sharding.type = DataType::fp8;
  const BlockOperators layer = layer_operators(llama70b_layer(), true, sharding);
  for (const Gemm& gemm : all_of<Gemm>(layer.forward.compute)) CHECK(gemm.type == DataType::fp8);
  CHECK(all_of<Attention>(layer.forward.compute)[0].type == DataType::bf16);
  // Only the inputs of projection and down GEMM are not written in fp8 by the kernel before.
  CHECK(bytes_of(layer.forward, MemoryKernel::copy) == 4.0 * 4096 * (8192 + 28672));
}

TEST_CASE("a layer's own sequence length goes before the strategy's") {
  LayerShape shape = gpt3_layer();
  shape.sequence = 64;
  const BlockOperators layer = layer_operators(shape, false, plain(2, 4096));
  CHECK(all_of<Gemm>(layer.forward.compute)[0].m == 2 * 64);
  CHECK(all_of<Attention>(layer.forward.compute)[0].kv_tokens == 64);
}

TEST_CASE("windows cut attention into independent blocks") {
  LayerShape shape = gpt3_layer();
  shape.attention_window = 256;
  const BlockOperators layer = layer_operators(shape, false, plain(1, 2048));
  const Attention core = all_of<Attention>(layer.forward.compute)[0];
  CHECK(core.batch == 8);
  CHECK(core.query_tokens == 256);
  CHECK(core.kv_tokens == 256);
}

TEST_CASE("the vocabulary is padded to 128 columns for each tensor rank, as Megatron-LM does") {
  const auto [tensor, padded] = GENERATE(table<int, std::int64_t>({{1, 50304}, {2, 50432}, {8, 51200}}));
  CHECK(padded_vocabulary(50257, tensor) == padded);
  const ModelSpec gpt2 = gpt2_tables(50257);
  Sharding sharding = plain(4, 1024);
  sharding.tensor = tensor;
  const BlockOperators head = head_operators(gpt2, sharding);
  CHECK(all_of<Gemm>(head.forward.compute) ==
        std::vector<Gemm>{{.m = 4096, .n = padded / tensor, .k = 1024}});
  const double logits = 4096.0 * static_cast<double>(padded) / tensor;
  CHECK(bytes_of(head.forward, MemoryKernel::cross_entropy) == 14 * logits);
  CHECK(bytes_of(head.backward, MemoryKernel::cross_entropy) == 10 * logits);
  // What reading logits once, and reading them and writing their gradient, must move at least.
  sharding.stack.cross_entropy = CrossEntropyKernel::online;
  const BlockOperators online = head_operators(gpt2, sharding);
  CHECK(bytes_of(online.forward, MemoryKernel::cross_entropy) >= 2 * logits);
  CHECK(bytes_of(online.backward, MemoryKernel::cross_entropy) == 4 * logits);
}

TEST_CASE("a program that pads no vocabulary has as many rows on a tensor rank as there are words") {
  const auto [tensor, rows] = GENERATE(table<int, std::int64_t>({{1, 50257}, {2, 25129}, {8, 6283}}));
  Sharding sharding = plain(4, 1024);
  sharding.tensor = tensor;
  sharding.stack.pads_vocabulary = false;
  CHECK(all_of<Gemm>(head_operators(gpt2_tables(50257), sharding).forward.compute) ==
        std::vector<Gemm>{{.m = 4096, .n = rows, .k = 1024}});
}

TEST_CASE("a head of few outputs multiplies by as many rows, and words are looked up as before") {
  ModelSpec gpt2 = gpt2_tables(50304);
  const Sharding sharding = plain(4, 1024);
  const BlockOperators words = embedding_operators(gpt2, sharding);
  gpt2.outputs = 256;
  CHECK(all_of<Gemm>(head_operators(gpt2, sharding).forward.compute) ==
        std::vector<Gemm>{{.m = 4096, .n = 256, .k = 1024}});
  CHECK(bytes_of(head_operators(gpt2, sharding).backward, MemoryKernel::cross_entropy) == 10 * 4096.0 * 256);
  CHECK(embedding_operators(gpt2, sharding).forward.compute == words.forward.compute);
}

TEST_CASE("a head that sees BERT's masked tokens alone multiplies their rows") {
  ModelSpec bert = gpt2_tables(30528);
  bert.predicted_tokens = 20;
  const Sharding sharding = plain(4, 128);
  CHECK(all_of<Gemm>(head_operators(bert, sharding).forward.compute) ==
        std::vector<Gemm>{{.m = 4 * 20, .n = 30592, .k = 1024}});
  bert.predicted_tokens = 500;  // of 128 all
  CHECK(all_of<Gemm>(head_operators(bert, sharding).forward.compute).at(0).m == 4 * 128);
}

TEST_CASE("the embedding's dense gradient is added to the sum each microbatch") {
  const ModelSpec gpt2 = gpt2_tables(50304);
  const BlockOperators embedding = embedding_operators(gpt2, plain(1, 1024));
  CHECK(bytes_of(embedding.backward, MemoryKernel::copy) == 10.0 * (50304 + 1024) * 1024);
  CHECK(embedding_operators(ModelSpec{}, plain(1, 1024)).forward.compute.empty());
}

TEST_CASE("a boundary carries the tokens of the layer before it, divided with sequence parallelism") {
  ModelSpec model;
  model.shapes = {{.hidden = 1024, .sequence = 256}, {.hidden = 512, .sequence = 1024}};
  model.layers = {0, 0, 1, 1};
  model.hidden = 768;
  ParallelStrategy strategy;
  strategy.pipeline = 2;
  strategy.micro_batch = 4;
  strategy.sequence = 2048;
  strategy.stages = {{.tensor = 4}, {.tensor = 2}};
  strategy.parts = {{0, 2}, {2, 2}};
  CHECK(boundary_message(model, strategy, 1) == Bytes(4.0 * 256 * 1024 * 2));
  CHECK(boundary_message(model, strategy, 2) == Bytes(4.0 * 1024 * 512 * 2));
  CHECK(boundary_message(model, strategy, -1) == Bytes(4.0 * 2048 * 768 * 2));
  strategy.sequence_parallel = true;
  CHECK(boundary_message(model, strategy, 1) == Bytes(4.0 * 256 * 1024 * 2 / 4));
  CHECK(boundary_message(model, strategy, 2) == Bytes(4.0 * 1024 * 512 * 2 / 2));
}

TEST_CASE("Adam moves 28 bytes a parameter, and the copies to 16 bits and fp16 scaling come on top") {
  const auto [type, expected] = GENERATE(
      table<DataType, double>({{DataType::fp32, 28.0}, {DataType::bf16, 34.0}, {DataType::fp16, 60.0}}));
  double bytes = 0.0;
  for (const MemoryBound& op : all_of<MemoryBound>(optimizer_operators(1e6, type))) bytes += op.bytes.value();
  CHECK(bytes == Approx(expected * 1e6));
  CHECK(optimizer_operators(0, type).empty());
}

TEST_CASE(
    "rotary positions whose sines are scaled turn in eager kernels where the fused one takes no factor") {
  CHECK(scales_rotation(read_model("gpt-oss-120b").rotary_positions));  // YaRN by 32: 0.1 ln 32 + 1
  for (const char* name : {"deepseek-v3", "llama3.1-70b", "qwen3-32b"})
    CHECK_FALSE(scales_rotation(read_model(name).rotary_positions));
  CHECK_FALSE(read_stack("megatron-bridge").rotation_scales);
  CHECK(read_stack("torchtitan").rotation_scales);
  Sharding sharding = plain(2, 4096);
  sharding.scaled_rotation = true;
  sharding.stack.rotation_scales = GENERATE(false, true);
  const BlockOperators layer = layer_operators(llama70b_layer(), true, sharding);
  sharding.scaled_rotation = false;
  const BlockOperators unscaled = layer_operators(llama70b_layer(), true, sharding);
  const auto more = [&](PassOperators BlockOperators::*pass) {
    return test::copied_bytes(layer.*pass) - test::copied_bytes(unscaled.*pass);
  };
  // 64 query and 8 key heads of 128.
  const double elements = sharding.stack.rotation_scales ? 0.0 : 2.0 * 4096 * (64 + 8) * 128;
  CHECK(more(&BlockOperators::forward) == Approx(elements * (2 + 4 + 4 + 4 + 6 + 4 - 4)));
  CHECK(more(&BlockOperators::backward) == Approx(elements * (4 + 4 + 2 + 4 + 6 + 6 + 2 + 6 - 4)));
}

}  // namespace orrery
