#include "costmodels/memory/memory.hpp"

#include <random>

#include "tests/catch.hpp"
#include "tests/costmodels/gpt_plans.hpp"
#include "tests/costmodels/layer_fixture.hpp"

namespace orrery {
namespace {

constexpr double kMicroBatch = 2, kSequence = 2048, kHidden = 6144, kHeads = 48;

}  // namespace

TEST_CASE("a GPT layer keeps the bytes that Korthikanti et al. 2022 derive") {
  const double sbh = kSequence * kMicroBatch * kHidden;
  const double scores = 5 * kHeads * kSequence / kHidden;
  const ModelSpec model = gpt_layers(1);
  const int tensor = GENERATE(1, 2, 8);
  ParallelStrategy strategy = spread(model, {.tensor = tensor});
  strategy.flash_attention = false;
  const auto kept = [&] { return activation_bytes(model, strategy, 0, 0).value(); };
  // Equation 2: tensor parallelism alone leaves norms, inputs and dropout masks on every rank.
  CHECK(kept() == Approx(sbh * (10 + 24.0 / tensor + scores / tensor)));
  strategy.recompute.granularity = RecomputeGranularity::selective;
  CHECK(kept() == Approx(sbh * (10 + 24.0 / tensor)));
  strategy.recompute.granularity = RecomputeGranularity::full;
  CHECK(kept() == Approx(sbh * 2));
  // Equation 4: sequence parallelism divides everything.
  strategy.sequence_parallel = true;
  CHECK(kept() == Approx(sbh * 2 / tensor));
  strategy.recompute.granularity = RecomputeGranularity::selective;
  CHECK(kept() == Approx(sbh * 34 / tensor));
  strategy.recompute.granularity = RecomputeGranularity::none;
  CHECK(kept() == Approx(sbh * (34 + scores) / tensor));
  strategy.flash_attention = true;
  CHECK(kept() == Approx(sbh * 34 / tensor));
}

// arXiv 2401.10241, table 1: 32 sbh for W beside 34 sbh for B. Inputs of the four matrices 2 + 2 + 2 + 8,
// their output gradients 6 + 2 + 8 + 2.
TEST_CASE("a GPT layer keeps 32 sbh until its weight gradients, whatever is recomputed") {
  const double sbh = kSequence * kMicroBatch * kHidden;
  const ModelSpec model = gpt_layers(3);
  ParallelStrategy strategy = spread(model, {});
  CHECK(weight_gradient_bytes(model, strategy, 0, 0).value() == Approx(3 * 32 * sbh));
  strategy.recompute.granularity = RecomputeGranularity::full;
  CHECK(weight_gradient_bytes(model, strategy, 0, 0).value() == Approx(3 * 32 * sbh));
  // A microbatch before its backward keeps the inputs of layers and brings one layer back.
  const AliveState state{{2}, {5}};
  CHECK(stage_memory(model, strategy, 0, state).activations.value() ==
        Approx((5 * 3 * 32 + 2 * 3 * 2 + 34 - 2) * sbh));
  // With recomputation a microbatch that waits for its weight gradient is the larger one.
  CHECK(peak_memory(model, strategy, 0, {{{3}, {0}}, {{1}, {2}}}).total() ==
        stage_memory(model, strategy, 0, AliveState{{1}, {2}}).total());
}

TEST_CASE("a Llama layer without dropout, with grouped queries and a gated MLP keeps only its own tensors") {
  ModelSpec model = gpt_layers(1);
  model.shapes = {test::llama70b_layer()};
  const ParallelStrategy strategy = spread(model, {});
  // Two bytes of: four tensors of width h around the norms; Q, K, V and the attention output; gate, up and
  // product.
  const double width = 4 * 8192 + (8192 + 2 * 1024) + 8192 + 3 * 28672;
  CHECK(activation_bytes(model, strategy, 0, 0).value() == Approx(2 * width * kSequence * kMicroBatch));
}

TEST_CASE("ReLU keeps its output alone, which is the next matrix's input") {
  ModelSpec model = gpt_layers(1);
  const ParallelStrategy strategy = spread(model, {});
  const auto kept = [&] { return activation_bytes(model, strategy, 0, 0).value(); };
  const double gelu = kept();
  model.shapes[0].activation = Activation::relu;
  CHECK(gelu - kept() == Approx(2 * kSequence * kMicroBatch * 4 * kHidden));
}

// Of s b tokens, h at a time: up and down keep two tensors of 4 h, in a backward a gradient as wide beside.
TEST_CASE("an MLP in tiles keeps of one tile what it has of all") {
  ModelSpec model = gpt_layers(1);
  ParallelStrategy strategy = spread(model, {});
  strategy.sequence = 2 * kHidden;
  const double saved = 2.0 * (strategy.sequence * kMicroBatch - kHidden) * 4 * kHidden;
  const auto bytes = [&](bool tiled) {
    SoftwareStack stack;
    stack.tiled_mlp = tiled;
    return std::pair(activation_bytes(model, strategy, 0, 0, stack).value(),
                     stage_memory(model, strategy, 0, {1}, stack).workspace.value());
  };
  CHECK(bytes(false).first - bytes(true).first == Approx(2 * saved));
  CHECK(bytes(false).second > bytes(true).second);
  strategy.sequence = kHidden / kMicroBatch;  // all are one tile
  CHECK(bytes(false) == bytes(true));
}

// Of two norms' outputs of 2 sbh bytes, three quarters are other ranks'.
TEST_CASE("a program that does not gather again keeps what sequence-parallel ranks gathered") {
  const ModelSpec model = gpt_layers(1);
  ParallelStrategy strategy = spread(model, {.tensor = 4});
  strategy.sequence_parallel = true;
  SoftwareStack stack;
  const double own = activation_bytes(model, strategy, 0, 0, stack).value();
  stack.keeps_gathered = true;
  CHECK(activation_bytes(model, strategy, 0, 0, stack).value() - own ==
        Approx(2 * 2 * kSequence * kMicroBatch * kHidden * 3 / 4));
}

TEST_CASE("context parallelism divides what a microbatch keeps") {
  const ModelSpec model = gpt_layers(4);
  ParallelStrategy strategy = spread(model, {.tensor = 2});
  const double whole = activation_bytes(model, strategy, 0, 0).value();
  strategy.context = 4;
  CHECK(activation_bytes(model, strategy, 0, 0).value() == Approx(whole / 4));
}

TEST_CASE("full recomputation keeps one input a group (uniform) or of the first layers only (block)") {
  const double sbh = kSequence * kMicroBatch * kHidden;
  const ModelSpec model = gpt_layers(10);
  ParallelStrategy strategy = spread(model, {});
  strategy.recompute = {
      .granularity = RecomputeGranularity::full, .method = RecomputeMethod::uniform, .layers = 4};
  CHECK(activation_bytes(model, strategy, 0, 0).value() == Approx(3 * 2 * sbh));  // groups of 4, 4 and 2
  // In backward a whole group is there again; the input of its first layer was kept.
  CHECK(stage_memory(model, strategy, 0, {1}).activations.value() == Approx((3 * 2 + 4 * 34 - 2) * sbh));
  strategy.recompute.method = RecomputeMethod::block;
  CHECK(activation_bytes(model, strategy, 0, 0).value() == Approx((4 * 2 + 6 * 34) * sbh));
  CHECK(stage_memory(model, strategy, 0, {1}).activations.value() == Approx((4 * 2 + 6 * 34 + 34 - 2) * sbh));
}

TEST_CASE("a program's own policy of recomputation drops nothing where modules are named") {
  const ModelSpec model = gpt_layers(3);
  ParallelStrategy strategy = spread(model, {});
  strategy.recompute = {.granularity = RecomputeGranularity::selective, .modules = {RecomputeModule::mlp}};
  SoftwareStack stack;
  const auto kept = [&] { return stage_memory(model, strategy, 0, {1}, stack).activations; };
  const Bytes of_mlp = kept();
  stack.selective = SelectiveRecompute::every_second_gemm;
  CHECK(kept() == of_mlp);
  strategy.recompute.modules = {};
  CHECK(kept() < of_mlp);
}

TEST_CASE("a policy that repeats elementwise kernels alone keeps what every matrix gives") {
  const ModelSpec model = gpt_layers(3);
  ParallelStrategy strategy = spread(model, {});
  strategy.flash_attention = true;
  strategy.recompute.granularity = RecomputeGranularity::selective;
  SoftwareStack stack;
  stack.selective = SelectiveRecompute::elementwise;
  // Of each layer its input, queries, keys and values, the attention's output, its projection, and four times
  // that width: 16 bits. The second matrix of the MLP gives the next layer's input.
  CHECK(activation_bytes(model, strategy, 0, 0, stack).value() ==
        Approx(3 * 2.0 * kSequence * kMicroBatch * kHidden * (1 + 3 + 1 + 1 + 4)));
}

// Four gathered tensors without, ten with (Transformer Engine's initialize_ub); in 8 bits six of these are
// half as big.
TEST_CASE("user buffers of overlapped tensor collectives take the place of gathered tensors") {
  const ModelSpec model = gpt_layers(2);
  ParallelStrategy strategy = spread(model, {.tensor = 4});
  strategy.sequence_parallel = true;
  const double gathered = kSequence * kMicroBatch * kHidden;
  const auto buffers = [&](std::optional<bool> overlap, const SoftwareStack& stack = {}) {
    strategy.tensor_overlap = overlap;
    return stage_memory(model, strategy, 0, {1}, stack).communication.value() / gathered;
  };
  SoftwareStack overlapping;
  overlapping.tensor_overlap = 1;
  CHECK(buffers(std::nullopt) == 4 * 2);
  CHECK(buffers(true) == 10 * 2);
  CHECK(buffers(std::nullopt, overlapping) == 10 * 2);
  CHECK(buffers(false, overlapping) == 4 * 2);
  strategy.type = DataType::fp8;
  CHECK(buffers(true) == 6 * 1 + 4 * 2);
}

TEST_CASE("only the last stage holds logits, and those of one microbatch are at their peak") {
  ModelSpec model = gpt_layers(4);
  model.vocabulary = 51200;
  model.hidden = 6144;
  const ParallelStrategy strategy = spread(model, {.tensor = 2, .pipeline = 2});
  const double logits = kSequence * kMicroBatch * 51200 / 2;
  SoftwareStack stack;
  stack.cross_entropy = CrossEntropyKernel::separate;
  CHECK(stage_memory(model, strategy, 0, {2}, stack).logits == Bytes());
  CHECK(stage_memory(model, strategy, 1, {1}, stack).logits.value() == Approx(14 * logits));
  CHECK(stage_memory(model, strategy, 1, {3}, stack).logits.value() == Approx((14 + 2 * 4) * logits));
  // A fused loss holds the logits in 16 bits beside their softmax in 32, which alone stays.
  stack.cross_entropy = CrossEntropyKernel::fused;
  CHECK(stage_memory(model, strategy, 1, {3}, stack).logits.value() == Approx((6 + 2 * 4) * logits));
}

TEST_CASE("keys and values that a context group gathers are all there, for every query head if repeated") {
  ModelSpec model = gpt_layers(4);
  model.shapes[0].kv_heads = model.shapes[0].heads / 4;
  ParallelStrategy strategy = spread(model, {});
  strategy.context = 4;
  // One rank's keys and values in 16 bits.
  const double width = static_cast<double>(model.shapes[0].kv_heads * model.shapes[0].head_dim);
  const double block = 2 * 2 * width * kSequence / 4 * kMicroBatch;
  SoftwareStack stack;
  CHECK(stage_memory(model, strategy, 0, {1}, stack).communication.value() == Approx(2 * block));
  stack.context_exchange = ContextExchange::gathered;
  CHECK(stage_memory(model, strategy, 0, {1}, stack).communication.value() == Approx(4 * block));
  stack.repeated_keys = true;
  CHECK(stage_memory(model, strategy, 0, {1}, stack).communication.value() == Approx(4 * 4 * block));
}

TEST_CASE("saved inputs of recomputed layers may be spread over the tensor ranks, or leave the GPU") {
  const ModelSpec model = gpt_layers(4);
  ParallelStrategy strategy = spread(model, {.tensor = 4});
  strategy.recompute.granularity = RecomputeGranularity::full;
  const auto kept_with = [&](SavedInputs saved) {
    SoftwareStack stack;
    stack.saved_inputs = saved;
    // The second microbatch adds nothing but what it keeps.
    return (stage_memory(model, strategy, 0, {2}, stack).activations -
            stage_memory(model, strategy, 0, {1}, stack).activations)
        .value();
  };
  const double inputs = 4 * 2 * kSequence * kMicroBatch * kHidden;  // of four layers, 16 bits
  CHECK(kept_with(SavedInputs::gpu) == Approx(inputs));
  CHECK(kept_with(SavedInputs::tensor_ranks) == Approx(inputs / 4));
  CHECK(kept_with(SavedInputs::host) == Approx(0).margin(1));
  strategy.sequence_parallel = true;  // has them spread already
  CHECK(kept_with(SavedInputs::gpu) == Approx(inputs / 4));
  CHECK(kept_with(SavedInputs::tensor_ranks) == Approx(inputs / 4));
}

TEST_CASE("a stage needs memory for its loss or for a recomputed layer, never for both") {
  ModelSpec model = gpt_layers(1);
  model.hidden = 6144;
  ParallelStrategy strategy = spread(model, {});
  strategy.recompute.granularity = RecomputeGranularity::full;
  const double tokens = kSequence * kMicroBatch;
  SoftwareStack stack;
  stack.logit_peak = 10;
  // What the layer brings back, 32 of its 34 sbh, and the loss; inputs are kept beside: 2 of the layer and 4
  // of the head.
  const double layer = 32 * tokens * kHidden, kept = 6 * tokens * kHidden;
  model.vocabulary = GENERATE(12800, 51200);  // 0.5 GB of logits, less than the layer; 2.1 GB, more
  const StageMemory memory = stage_memory(model, strategy, 0, {1}, stack);
  const double loss = 10 * tokens * static_cast<double>(model.vocabulary);
  CHECK(memory.logits.value() == Approx(loss));
  CHECK((memory.activations + memory.logits).value() == Approx(kept + std::max(layer, loss)));
}

TEST_CASE("a layer in its backward has gradients beside what it keeps, unless a loss needed as much") {
  const double sbh = kSequence * kMicroBatch * kHidden;
  ModelSpec model = gpt_layers(4);
  const int tensor = GENERATE(1, 8);
  ParallelStrategy strategy = spread(model, {.tensor = tensor, .pipeline = 2});
  const auto workspace = [&](int stage, const SoftwareStack& stack = {}) {
    return stage_memory(model, strategy, stage, {2}, stack).workspace.value();
  };
  // Of the layer's output, and of one of the MLP's two inner tensors of 4 h: the other's comes when it is
  // gone.
  const double gradients = (2 + 8.0 / tensor) * sbh;
  CHECK(workspace(0) == Approx(gradients));
  strategy.recompute.granularity = RecomputeGranularity::full;  // brings a layer back, no gradients
  CHECK(workspace(0) == Approx(gradients));
  strategy.flash_attention = false;
  // Scores of two bytes: 2 a s / h of sbh, when the MLP's 16 are gone.
  model.shapes[0].heads = model.shapes[0].kv_heads = 192;
  const double scores = 2 * 192 * kSequence / kHidden;
  REQUIRE(scores - 16 > 8);
  CHECK(workspace(0) == Approx((2 + (scores - 16) / tensor) * sbh));
  model.shapes[0].activation = Activation::relu;  // whose MLP kept 8
  CHECK(workspace(0) == Approx((2 + (scores - 8) / tensor) * sbh));
  model.shapes[0].activation = Activation::gelu;
  // The last stage takes what its loss took, less what is recomputed; a loss of more leaves none.
  model.shapes[0].heads = model.shapes[0].kv_heads = 48;
  strategy.flash_attention = true;
  model.hidden = kHidden;
  model.vocabulary = 51200;
  const double logits = kSequence * kMicroBatch * 51200 / tensor, layer = (8 + 24.0 / tensor) * sbh;
  for (const double peak : {6.0, 14.0, 40.0}) {
    SoftwareStack stack;
    stack.logit_peak = peak;
    const double beyond = std::max(0.0, peak * logits - layer);
    CHECK(workspace(1, stack) == Approx(std::max(0.0, gradients - beyond)).margin(1));
  }
}

TEST_CASE("a program without dropout keeps no masks and no second copy of the scores") {
  const double sbh = kSequence * kMicroBatch * kHidden;
  ModelSpec model = gpt_layers(1);
  ParallelStrategy strategy = spread(model, {});
  strategy.flash_attention = false;
  SoftwareStack stack;
  const auto kept = [&](Dropout dropout) {
    stack.dropout = dropout;
    return stage_memory(model, strategy, 0, {1}, stack).activations.value();
  };
  // Two masks of a byte; of each score the dropped-out copy and a mask (arXiv 2205.05198, section 4.1).
  const double masks = 2 * sbh, scores = 3 * kMicroBatch * kHeads * kSequence * kSequence;
  CHECK(kept(Dropout::of_model) - kept(Dropout::off) == Approx(masks + scores));
  model.vocabulary = 51'200;
  model.learned_positions = 2048;
  model.hidden = 6144;
  CHECK(kept(Dropout::of_model) - kept(Dropout::off) == Approx(masks + scores + sbh));
}

// 2 + 4 + 4 + 4 B of a 16-bit logit; in fp32 there is no copy in fp32.
TEST_CASE("logits in fp32 need no copy of themselves") {
  ModelSpec model = gpt_layers(1);
  model.vocabulary = 51'200;
  model.hidden = 6144;
  ParallelStrategy strategy = spread(model, {});
  const double logits = kSequence * kMicroBatch * 51'200;
  const auto bytes = [&](DataType type, CrossEntropyKernel loss) {
    strategy.type = type;
    SoftwareStack stack;
    stack.cross_entropy = loss;
    return stage_memory(model, strategy, 0, {1}, stack).logits.value() / logits;
  };
  CHECK(bytes(DataType::bf16, CrossEntropyKernel::separate) == 14);
  CHECK(bytes(DataType::bf16, CrossEntropyKernel::fused) == 6);
  CHECK(bytes(DataType::fp32, CrossEntropyKernel::separate) == 12);
  CHECK(bytes(DataType::fp32, CrossEntropyKernel::fused) == 8);
}

TEST_CASE("what must fit is the most of any state") {
  ModelSpec model = gpt_layers(32);
  model.vocabulary = 512'000;
  model.hidden = 6144;
  const ParallelStrategy strategy = spread(model, {});
  SoftwareStack stack;
  stack.cross_entropy = CrossEntropyKernel::separate;
  const AliveState loss{{1}, {0}}, waiting{{0}, {2}};
  const auto of = [&](const std::vector<AliveState>& states) {
    return peak_memory(model, strategy, 0, states, stack);
  };
  const StageMemory both = of({loss, waiting});
  REQUIRE(of({loss}).total() < of({waiting}).total());
  REQUIRE(of({loss}).must_fit() > of({waiting}).must_fit());
  CHECK(both.total() == of({waiting}).total());
  CHECK(both.must_fit().value() == Approx(of({loss}).must_fit().value()));
}

// Four gathered tensors, and two messages of its share.
TEST_CASE("a last stage without layers has the buffers of what it gathers and receives") {
  ModelSpec model = gpt_layers(2);
  model.vocabulary = 51'200;
  model.hidden = 6144;
  ParallelStrategy strategy = spread(model, {.tensor = 4, .pipeline = 2});
  strategy.sequence_parallel = true;
  strategy.parts = {{0, 2}, {2, 0}};
  const double tensor = 2 * kSequence * kMicroBatch * kHidden;
  CHECK(stage_memory(model, strategy, 1, {1}).communication.value() == Approx(4 * tensor + 2 * tensor / 4));
}

TEST_CASE("activations are those of each chunk times its microbatches alive") {
  const ModelSpec model = gpt_layers(7);
  const ParallelStrategy strategy =
      spread(model, {.pipeline = 2, .chunks = 2});  // parts of 2, 2, 2 and 1 layers
  const double layer = 34 * kSequence * kMicroBatch * kHidden;
  CHECK(stage_memory(model, strategy, 0, {3, 2}).activations.value() == Approx((3 * 2 + 2 * 2) * layer));
  CHECK(stage_memory(model, strategy, 1, {3, 2}).activations.value() == Approx((3 * 2 + 2 * 1) * layer));
}

TEST_CASE(
    "routed tokens are kept on the way to the experts and back, the MLP between them once for each copy") {
  ModelSpec model = gpt_layers(1);
  const double dense = activation_bytes(model, spread(model, {}), 0, 0).value();
  model.shapes[0].experts = 8;
  model.shapes[0].experts_per_token = 2;
  const double tokens = kSequence * kMicroBatch;
  // The 16 h bytes of the MLP once more, and two tensors of 2 h bytes for each of the two copies.
  const double expected = dense + tokens * (16 * kHidden + 2 * 2 * 2 * kHidden);
  ParallelStrategy strategy = spread(model, {.data = 4});
  CHECK(activation_bytes(model, strategy, 0, 0).value() == Approx(expected));
  strategy.expert = 4;  // as many tokens come as go
  CHECK(activation_bytes(model, strategy, 0, 0).value() == Approx(expected));
  // Weighed before the last matrix, a copy is not kept behind it: 2 h bytes less of each.
  SoftwareStack since_2025;
  since_2025.experts.keeps_outputs = false;
  CHECK(activation_bytes(model, strategy, 0, 0, since_2025).value() ==
        Approx(expected - tokens * 2 * 2 * kHidden));
  // In 8 bits what matrices alone read: of the layer's two norms the first's output (h), of each copy itself
  // (h) and what was activated (4 h), a byte of each; the router reads the second's.
  since_2025.fp8_recipe = Fp8Recipe::mxfp8;
  strategy.type = DataType::fp8;
  CHECK(activation_bytes(model, strategy, 0, 0, since_2025).value() ==
        Approx(expected - tokens * 2 * 2 * kHidden - tokens * (1 + 2 * (1 + 4)) * kHidden));
  // Scales of the past: the projection's input (h) once more.
  since_2025.fp8_recipe = Fp8Recipe::delayed;
  CHECK(activation_bytes(model, strategy, 0, 0, since_2025).value() ==
        Approx(expected - tokens * 2 * 2 * kHidden - tokens * 2 * (1 + 4) * kHidden));
}

TEST_CASE("recomputation never needs more memory, nor does sequence parallelism keep more activations") {
  std::mt19937 random(3);
  const auto pick = [&](std::vector<int> values) { return values[random() % values.size()]; };
  for (int draw = 0; draw < 300; ++draw) {
    ModelSpec model = gpt_layers(pick({1, 4, 13, 32}));
    model.shapes.push_back({.hidden = 1024,
                            .heads = 16,
                            .kv_heads = 4,
                            .head_dim = 64,
                            .ffn = 4096,
                            .mlp = MlpKind::gated,
                            .linear_bias = false,
                            .experts = pick({1, 8}),
                            .experts_per_token = 2,
                            .sequence = 512});
    for (int& shape : model.layers) shape = pick({0, 1});
    model.vocabulary = pick({0, 32000});
    model.hidden = 1024;
    ParallelStrategy strategy =
        spread(model, {.tensor = pick({1, 2, 8}), .pipeline = pick({1, 2, 3}), .chunks = pick({1, 2})});
    strategy.flash_attention = random() % 2 == 0;
    const int stage = pick({0, strategy.pipeline - 1});
    const std::vector<int> alive(static_cast<std::size_t>(strategy.chunks), pick({1, 2, 5}));
    INFO("draw " << draw << ": " << model.layer_count() << " layers, tensor " << strategy.tensor(stage));
    const Bytes whole = stage_memory(model, strategy, stage, alive).total();
    const double rounding = 1 + 1e-12;

    ParallelStrategy split = strategy;
    split.sequence_parallel = true;
    CHECK(stage_memory(model, split, stage, alive).activations <=
          stage_memory(model, strategy, stage, alive).activations * rounding);
    strategy.recompute.granularity = RecomputeGranularity::selective;
    CHECK(stage_memory(model, strategy, stage, alive).total() <= whole * rounding);
    strategy.recompute = {.granularity = RecomputeGranularity::full,
                          .method = random() % 2 == 0 ? RecomputeMethod::uniform : RecomputeMethod::block,
                          .layers = pick({1, 2, 5})};
    CHECK(stage_memory(model, strategy, stage, alive).total() <= whole * rounding);
  }
}

}  // namespace orrery
