// Latent attention, Mamba-2 layers, experts at a narrower width, further predictions and NVFP4: operators and
// memory.
#include "costmodels/layers/layer_operators.hpp"
#include "costmodels/memory/memory.hpp"
#include "costmodels/operators/local_layer.hpp"
#include "strategies/model.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/layer_fixture.hpp"

namespace orrery {
namespace {

using test::all_of, test::copied_bytes, test::gemm_flops;

double collective_bytes(const PassOperators& pass, CollectiveKind kind) {
  double sum = 0.0;
  for (const Collective& call : all_of<Collective>(pass.communication))
    if (call.kind == kind) sum += call.bytes.value();
  return sum;
}

Sharding sharding_of(int tensor, std::int64_t sequence) {
  Sharding sharding;
  sharding.tensor = tensor;
  sharding.sequence = sequence;
  sharding.sequence_parallel = tensor > 1;
  return sharding;
}

// All of a model on one GPU.
ParallelStrategy one_stage(const ModelSpec& model, std::int64_t sequence) {
  ParallelStrategy strategy;
  strategy.sequence = sequence;
  strategy.stages.resize(1);
  strategy.parts = {{0, model.layer_count()}};
  return strategy;
}

constexpr const char* kFamilies[] = {"deepseek-v3-mtp", "deepseek-v2-lite", "kimi-k2",
                                     "nemotron-h-8b",   "nemotron-3-nano",  "nemotron-3-super-mtp"};

}  // namespace

TEST_CASE("one GPU alone holds every parameter of each kind of layer") {
  for (const char* name : kFamilies) {
    const ModelSpec model = read_model(name);
    for (const LayerShape& shape : model.shapes) {
      INFO(name);
      const LocalParameters local = local_parameters(shape, local_layer(shape, {.sequence = 4096}));
      CHECK(local.dense + local.expert == static_cast<double>(layer_parameters(shape)));
    }
  }
}

TEST_CASE(
    "tensor ranks that split the width of heads hold the scores of all, and as many parameters as others") {
  LayerShape shape = read_model("transgan").layer(0);
  REQUIRE(shape.splits_head_width);
  const LayerSplit halves{.tensor = 2, .sequence = 81};
  const LocalLayer wide = local_layer(shape, halves);
  shape.splits_head_width = false;
  const LocalLayer usual = local_layer(shape, halves);
  CHECK(wide.heads == 2 * usual.heads);
  CHECK(usual.head_dim == 2 * wide.head_dim);
  CHECK(wide.qkv_width() == usual.qkv_width());
  CHECK(local_parameters(shape, wide) == local_parameters(shape, usual));
}

TEST_CASE("latent attention: tensor ranks project their own tokens down once and share the heads") {
  const ModelSpec model = read_model("deepseek-v3");
  const double tokens = 4096, h = 7168, heads = 128;
  // Down to 1536 and 576, up to 192 and to 256 a head, back from 128 a head; the MLP of 18432.
  const double weights =
      h * (1536 + 576) + 1536 * heads * 192 + 512 * heads * 256 + heads * 128 * h + 3 * h * 18432;
  for (const int tensor : {1, 2, 8}) {
    const BlockOperators layer = layer_operators(model.layer(0), true, sharding_of(tensor, 4096));
    CHECK(gemm_flops(layer.forward) * tensor == Approx(2 * tokens * weights).epsilon(1e-12));
    CHECK(gemm_flops(layer.backward) == Approx(2 * gemm_flops(layer.forward)).epsilon(1e-12));
    const auto cores = all_of<Attention>(layer.forward.compute);
    REQUIRE(cores.size() == 1);
    // Scores over 192, the output over 128, causal.
    CHECK(flops_of(cores[0]).value() * tensor == Approx(tokens * tokens * heads * (192 + 128)));
    // What the tensor group gathers is narrow: 1536 + 512 + 64 of a token in 16 bits, beside the MLP's input.
    const double gathered = tensor > 1 ? 2 * tokens * (1536 + 576 + h) : 0;
    CHECK(collective_bytes(layer.forward, CollectiveKind::all_gather) == gathered);
  }
}

TEST_CASE(
    "backward attention makes scores and two gradients as wide as keys, two products as wide as values") {
  const Attention backward{.query_tokens = 10,
                           .kv_tokens = 10,
                           .head_dim = 192,
                           .value_dim = 128,
                           .causal = false,
                           .direction = Direction::backward};
  CHECK(flops_of(backward).value() == 2.0 * 10 * 10 * (3 * 192 + 2 * 128));
}

TEST_CASE("a scan works in proportion to its tokens, and attention to their square") {
  const ModelSpec model = read_model("nemotron-h-8b");
  const LayerShape& mamba = model.layer(0);
  const auto forward = [&](std::int64_t sequence) {
    return gemm_flops(layer_operators(mamba, true, sharding_of(1, sequence)).forward);
  };
  // 4096 to 2 x 8192 + 2 x 8 x 128 + 128 and back from 8192. In chunks of 128: C B' for 8 groups over the
  // state of 128, then for 128 heads of 64 the states (128 x 64 a token), the product within the chunk and
  // what went before.
  const double matrices = 2.0 * 4096 * (2 * 8192 + 2048 + 128 + 8192);
  const double scan = 2.0 * (128 * 128 * 8 + 128 * (128 * 64 + 128 * 64 + 64 * 128));
  CHECK(forward(4096) == Approx(4096 * (matrices + scan)));
  CHECK(forward(8192) == Approx(2 * forward(4096)));
  // Backward: two products for each, and C B' and the states once more.
  const double again = 2.0 * (128 * 128 * 8 + 128 * 128 * 64);
  const BlockOperators layer = layer_operators(mamba, true, sharding_of(1, 4096));
  CHECK(gemm_flops(layer.backward) == Approx(4096 * (2 * (matrices + scan) + again)));
  // Kernels of their own are the gradients of the scan, not what is made again.
  PassOperators gradients;
  for (const Gemm& gemm : all_of<Gemm>(layer.backward.compute))
    if (gemm.scan_gradient) gradients.compute.emplace_back(gemm);
  CHECK(gemm_flops(gradients) == Approx(4096 * 2 * scan));
  for (const Gemm& gemm : all_of<Gemm>(layer.forward.compute)) CHECK_FALSE(gemm.scan_gradient);
  // Only the two projections have weight gradients, and their addition.
  CHECK(layer.weight_gradient.size() == 3);
  CHECK(all_of<Attention>(layer.forward.compute).empty());
}

TEST_CASE("tensor ranks share the heads of a scan; context ranks exchange tokens for heads") {
  const ModelSpec model = read_model("nemotron-h-8b");
  const auto whole = layer_operators(model.layer(0), true, sharding_of(1, 4096));
  const auto split = layer_operators(model.layer(0), true, sharding_of(8, 4096));
  CHECK(gemm_flops(split.forward) * 8 == Approx(gemm_flops(whole.forward)));
  Sharding context = sharding_of(1, 4096);
  context.context = 2;
  const auto exchanged = layer_operators(model.layer(0), true, context);
  // Before the scan 18,560 and after it 8192 wide, of 2048 tokens in 16 bits.
  CHECK(collective_bytes(exchanged.forward, CollectiveKind::all_to_all) == 2.0 * 2048 * (18560 + 8192));
  CHECK(gemm_flops(exchanged.forward) * 2 == Approx(gemm_flops(whole.forward)));
}

TEST_CASE("experts at a narrower width exchange that width") {
  const ModelSpec model = read_model("nemotron-3-super");
  Sharding sharding = sharding_of(1, 8192);
  sharding.expert = 8;
  const auto layer = layer_operators(model.layer(1), true, sharding);
  // 22 copies of a token, 1024 wide in 16 bits, there and back.
  CHECK(collective_bytes(layer.forward, CollectiveKind::all_to_all) == 2 * 2.0 * 8192 * 22 * 1024);
}

TEST_CASE("a further prediction adds a projection from two hidden states and a head") {
  const ModelSpec model = read_model("deepseek-v3-mtp");
  const double tokens = 4096, h = 7168;
  const auto plain = layer_operators(model.layer(60), true, sharding_of(1, 4096));
  const auto predicting = layer_operators(model.layer(61), true, sharding_of(1, 4096));
  CHECK(gemm_flops(predicting.forward) - gemm_flops(plain.forward) ==
        Approx(2 * tokens * h * (2 * h + 129280)));
}

TEST_CASE("a Mamba-2 layer keeps what its backward starts from") {
  ModelSpec model = read_model("nemotron-h-8b");
  model.layers = {0};
  model.vocabulary = 0;
  const ParallelStrategy strategy = one_stage(model, 4096);
  // Layer input and norm output of 4096; the first projection's 18,560; the scan's output before and after
  // its norm.
  CHECK(activation_bytes(model, strategy, 0, 0).value() == 2.0 * 4096 * (2 * 4096 + 18560 + 2 * 8192));
}

TEST_CASE("latent attention keeps narrow vectors and unequal heads") {
  ModelSpec model = read_model("deepseek-v3");
  model.layers = {0};
  model.vocabulary = 0;
  const double h = 7168, heads = 128;
  // Input, two norms' outputs and the second one's input; narrow vectors before and after their norms; Q and
  // K of 192, V and output of 128 a head; gate and up, and their product.
  const double elements = 4 * h + 2 * (1536 + 512) + heads * (2 * 192 + 2 * 128) + 3 * 18432;
  CHECK(activation_bytes(model, one_stage(model, 4096), 0, 0).value() == 2.0 * 4096 * elements);
}

TEST_CASE(
    "NVFP4 casts read each element twice and write two copies of 4 bits with their scales, at 0.61 of the "
    "bandwidth") {
  CHECK(size_of(DataType::fp4).value() == 0.5625);  // 4 bits, and 8 for each 16 elements
  const ModelSpec model = read_model("llama3-8b");
  Sharding sharding = sharding_of(1, 4096);
  const double plain = copied_bytes(layer_operators(model.layer(0), true, sharding).forward);
  sharding.type = DataType::fp4;
  const auto layer = layer_operators(model.layer(0), true, sharding);
  // The inputs of QKV, projection, up and down: 4096, 4096, 4096 and 14,336 wide.
  CHECK(copied_bytes(layer.forward) - plain ==
        Approx(4096 * (3 * 4096 + 14336) * (4 + 2 * 0.5625) * 0.75 / 0.61));
  for (const Gemm& gemm : all_of<Gemm>(layer.backward.compute)) CHECK(gemm.type == DataType::fp4);
  for (const Attention& core : all_of<Attention>(layer.forward.compute)) CHECK(core.type == DataType::bf16);
}

TEST_CASE("how 8 bits are scaled decides what casting moves") {
  const ModelSpec model = read_model("llama3-8b");
  Sharding sharding = sharding_of(1, 4096);
  const double plain = copied_bytes(layer_operators(model.layer(0), true, sharding).forward);
  sharding.type = DataType::fp8;
  const auto cast = [&](Fp8Recipe recipe) {
    sharding.stack.fp8_recipe = recipe;
    return copied_bytes(layer_operators(model.layer(0), true, sharding).forward) - plain;
  };
  // Behind norms 2 x 4096 elements a token, elsewhere 4096 and 14,336.
  const double normed = 4096.0 * 2 * 4096, others = 4096.0 * (4096 + 14336);
  CHECK(cast(Fp8Recipe::delayed) == Approx(4 * others));
  CHECK(cast(Fp8Recipe::tensorwise) == Approx(4 * normed + 6 * others));
  CHECK(cast(Fp8Recipe::mxfp8) == Approx((4 + 2.0 / 32) * (normed + others) * 0.75 / 0.61));
}

TEST_CASE("tensor ranks cast their own tokens before they gather them") {
  const ModelSpec model = read_model("llama3-8b");
  const auto cast = [&](int tensor) {
    Sharding sharding = sharding_of(tensor, 4096);
    const double plain = copied_bytes(layer_operators(model.layer(0), true, sharding).forward);
    sharding.type = DataType::fp4;
    return copied_bytes(layer_operators(model.layer(0), true, sharding).forward) - plain;
  };
  CHECK(cast(4) == Approx(cast(1) / 4));
}

TEST_CASE("a layer kept in 16 bits is that of a model in 16 bits") {
  LayerShape shape = read_model("llama3-8b").layer(0);
  Sharding sharding = sharding_of(2, 4096);
  const BlockOperators bf16 = layer_operators(shape, true, sharding);
  sharding.type = DataType::fp4;
  CHECK(layer_operators(shape, true, sharding).forward.compute != bf16.forward.compute);
  shape.sixteen_bit = true;
  CHECK(layer_operators(shape, true, sharding).forward.compute == bf16.forward.compute);
  CHECK(layer_operators(shape, true, sharding).backward.compute == bf16.backward.compute);
}

}  // namespace orrery
