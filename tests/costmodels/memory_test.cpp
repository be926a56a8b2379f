#include "costmodels/memory.hpp"

#include <random>

#include "costmodels/local_layer.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/gpt_plans.hpp"
#include "tests/costmodels/layer_fixture.hpp"

namespace orrery {
namespace {

constexpr double kMicroBatch = 2, kSequence = 2048, kHidden = 6144, kHeads = 48;

double parameters_of_all_stages(const ModelSpec& model, const ParallelStrategy& strategy) {
  double sum = 0.0;
  for (int stage = 0; stage < strategy.pipeline; ++stage) sum += stage_parameters(model, strategy, stage);
  return sum;
}

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

// Untied, multi-token prediction starts from a word table of its own.
TEST_CASE("stages together hold the published number of parameters, padding and second word tables") {
  for (const std::string& name : builtin_model_names()) {
    INFO(name);
    const ModelSpec model = read_model(name);
    const double padding =
        static_cast<double>((padded_vocabulary(model.vocabulary, 1) - model.vocabulary) * model.hidden);
    const double table = static_cast<double>(model.vocabulary * model.hidden) + padding;
    const double total = static_cast<double>(total_parameters(model));
    const double tables = model.vocabulary == 0 ? 0 : model.tied_embeddings ? 1 : 2;
    CHECK(parameters_of_all_stages(model, spread(model, {})) ==
          Approx(total + tables * padding).epsilon(1e-12));
    const double copy = model.has_second_word_table() ? table : 0;
    CHECK(parameters_of_all_stages(model, spread(model, {.pipeline = 4})) ==
          Approx(total + tables * padding + copy).epsilon(1e-12));
  }
}

TEST_CASE("norms over all heads and a bias of the logits are held, a share on each tensor rank") {
  const ModelSpec plain = read_model("llama2-7b");
  ModelSpec more = plain;
  more.shapes[0].qk_norm = more.shapes[0].wide_qk_norm = more.head_bias = true;
  const double norms = 32 * 2 * 4096;  // 32 layers of 4096 queries and keys
  CHECK(static_cast<double>(total_parameters(more) - total_parameters(plain)) == norms + 32'000);
  // Rows of the head are a multiple of 128 on every tensor rank.
  const std::pair<int, int> padded[]{{1, 32'000}, {8, 32 * 1024}};
  for (const auto& [tensor, rows] : padded)
    CHECK(stage_parameters(more, spread(more, {.tensor = tensor}), 0) -
              stage_parameters(plain, spread(plain, {.tensor = tensor}), 0) ==
          (norms + rows) / tensor);
}

TEST_CASE("tensor parallelism divides matrices and keeps norms and output biases whole") {
  const ModelSpec model = gpt_layers(1);
  // Two LayerNorms (weight and bias), the biases of projection and down matrix.
  const double replicated = 6 * kHidden;
  const double whole = stage_parameters(model, spread(model, {}), 0);
  CHECK(whole == 12 * kHidden * kHidden + 13 * kHidden);
  CHECK(stage_parameters(model, spread(model, {.tensor = 8}), 0) == replicated + (whole - replicated) / 8);
}

TEST_CASE(
    "a parameter takes 18 bytes in bf16, 16 in fp16 and fp32; the distributed optimizer shards the "
    "states") {
  // Megatron Core user guide, distributed optimizer: 6 + 12/d, 4 + 16/d, 8 + 8/d, where fp16 has 4 of the 16
  // in the step alone.
  const auto [type, fixed, sharded] = GENERATE(table<DataType, double, double>(
      {{DataType::bf16, 6, 12}, {DataType::fp16, 4, 12}, {DataType::fp32, 8, 8}}));
  const ModelSpec model = gpt_layers(2);
  ParallelStrategy strategy = spread(model, {.data = 4});
  strategy.type = type;
  const double parameters = stage_parameters(model, strategy, 0);
  const auto states = [&] {
    const StageMemory memory = stage_memory(model, strategy, 0, {64});
    return (memory.weights + memory.gradients + memory.optimizer).value() / parameters;
  };
  CHECK(states() == Approx(fixed + sharded));
  strategy.distributed_optimizer = true;
  CHECK(states() == Approx(fixed + sharded / 4));
  strategy.context = 2;  // context ranks hold the same weights
  CHECK(states() == Approx(fixed + sharded / 8));
  strategy.optimizer_instances = 4;  // each over two of the eight copies
  CHECK(states() == Approx(fixed + sharded / 2));
}

// What programs choose of gradients they choose for bf16.
TEST_CASE("fp16 and fp32 take the same bytes of a parameter under every preset") {
  const ModelSpec model = gpt_layers(2);
  ParallelStrategy strategy = spread(model, {.data = 4});
  const double parameters = stage_parameters(model, strategy, 0);
  for (const std::string& name : builtin_stack_names()) {
    const SoftwareStack stack = read_stack(name);
    for (const auto& [type, bytes] : {std::pair(DataType::fp16, 16.0), std::pair(DataType::fp32, 16.0)}) {
      strategy.type = type;
      const StageMemory memory = stage_memory(model, strategy, 0, {64}, stack);
      const Bytes states = memory.weights + memory.gradients + memory.optimizer;
      CHECK(std::pair(name, states.value()) == std::pair(name, bytes * parameters));
      CHECK(gradient_kept(stack, type) == gradient_bytes(type));
    }
    CHECK(gradient_sent(stack, DataType::fp32) == 4);
  }
}

// 12 B of a bf16 parameter leave the GPU; 16 B of it are on the host (weight, gradient, two moments in fp32).
TEST_CASE("an offloaded optimizer leaves the GPU and fills the host") {
  const ModelSpec model = gpt_layers(2);
  ParallelStrategy strategy = spread(model, {.data = 4});
  strategy.distributed_optimizer = true;
  const double shard = stage_parameters(model, strategy, 0) / 4;
  const StageMemory plain = stage_memory(model, strategy, 0, {1});
  strategy.optimizer_offload = 0.25;
  const StageMemory quarter = stage_memory(model, strategy, 0, {1});
  CHECK(plain.host == Bytes(0));
  CHECK(quarter.host.value() == Approx(16 * shard / 4));
  CHECK((plain.total() - quarter.total()).value() == Approx(12 * shard / 4));
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

TEST_CASE("experts are spread over the expert group and their states over the replicas left") {
  ModelSpec model = gpt_layers(1);
  model.shapes[0].experts = 8;
  model.shapes[0].experts_per_token = 2;
  ParallelStrategy strategy = spread(model, {.data = 8});
  const double all = stage_parameters(model, strategy, 0);
  const double expert = 8 * (8 * kHidden * kHidden + 5 * kHidden);
  strategy.expert = 4;
  CHECK(stage_parameters(model, strategy, 0) == Approx(all - expert * 3 / 4));
  strategy.distributed_optimizer = true;
  CHECK(optimizer_shard_parameters(model, strategy, 0) == Approx((all - expert) / 8 + expert / 4 / 2));
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
  CHECK(stage_memory(model, strategy, 1, {3}, stack).logits.value() == Approx((14 + 2 * 6) * logits));
  // A fused loss holds the logits in 16 bits and their softmax in 32, all the time.
  stack.cross_entropy = CrossEntropyKernel::fused;
  CHECK(stage_memory(model, strategy, 1, {3}, stack).logits.value() == Approx(3 * 6 * logits));
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

TEST_CASE("fully sharded weights are whole for two layers, gradients for one") {
  const ModelSpec model = gpt_layers(8);
  ParallelStrategy strategy = spread(model, {.data = 16});
  strategy.fully_sharded = true;
  strategy.distributed_optimizer = true;
  SoftwareStack stack;
  stack.reduced_gradient = 4;
  const double all = stage_parameters(model, strategy, 0), layer = all / 8;
  const StageMemory memory = stage_memory(model, strategy, 0, {1}, stack);
  CHECK(memory.weights.value() == Approx(4 * all / 16 + 2 * 2 * layer));
  CHECK(memory.gradients.value() == Approx(4 * all / 16 + (2 + 4) * layer));
  CHECK(memory.optimizer.value() == Approx(8 * all / 16));
}

TEST_CASE("ZeRO-2 shards gradients and states and keeps weights whole, beside buffers to reduce by") {
  const ModelSpec model = gpt_layers(8);
  ParallelStrategy strategy = spread(model, {.data = 16});
  strategy.fully_sharded = strategy.distributed_optimizer = true;
  SoftwareStack stack;
  const Bytes without = stage_memory(model, strategy, 0, {1}, stack).communication;
  stack.whole_weights = true;
  stack.gradient = 2;
  stack.reduce_buffers = Bytes(3e6);
  const double all = stage_parameters(model, strategy, 0);
  const StageMemory memory = stage_memory(model, strategy, 0, {1}, stack);
  // Rajbhandari et al. 2020 (arXiv 1910.02054, figure 1): 2 + (2 + 12) / 16 bytes of a parameter.
  CHECK((memory.weights + memory.gradients + memory.optimizer).value() == Approx((2 + 14.0 / 16) * all));
  CHECK(memory.weights.value() == Approx(2 * all));
  CHECK((memory.communication - without).value() == 3e6);
}

TEST_CASE("a program says what it keeps of a parameter: all in 16 bits, or fp32 beside its casts") {
  const ModelSpec model = gpt_layers(2);
  ParallelStrategy strategy = spread(model, {.data = 4});
  const double all = stage_parameters(model, strategy, 0);
  const auto states = [&](const char* stack) {
    const StageMemory memory = stage_memory(model, strategy, 0, {1}, parse_stack(stack, "s.yaml"));
    return (memory.weights + memory.gradients + memory.optimizer).value() / all;
  };
  CHECK(states("{gradient: 2, states: {weight: 2, optimizer: 4}}") == Approx(2 + 2 + 4));
  CHECK(states("{states: {weight: 6, optimizer: 8}}") == Approx(6 + 4 + 8));
  strategy.distributed_optimizer = true;
  CHECK(states("states: {optimizer: 4}") == Approx(2 + 4 + 4.0 / 4));
  strategy.fully_sharded = true;  // and two layers are whole at a time, the gradients of one
  const double layers = (2 * 2 + (2 + 2)) / 2.0;
  CHECK(states("{gradient: 2, states: {weight: 2, optimizer: 12}}") == Approx((2 + 2 + 12) / 4.0 + layers));
}

TEST_CASE("a copy of all gradients to reduce is held beside what activations leave in the cache") {
  const ModelSpec model = gpt_layers(8);
  const ParallelStrategy strategy = spread(model, {.data = 16});
  SoftwareStack stack;
  stack.gradient_copy = 2;
  const StageMemory without = stage_memory(model, strategy, 0, {4}, stack);  // sent as they are kept
  stack.reduced_gradient = 2;
  const StageMemory with = stage_memory(model, strategy, 0, {4}, stack);
  const double copy = 2 * stage_parameters(model, strategy, 0);
  REQUIRE(copy < (without.activations + without.logits).value());
  CHECK(with.allocated() == without.allocated());
  CHECK((with.reserved() - without.reserved()).value() == Approx(copy));
  // With next to no activations it is what tensors take the most.
  const StageMemory few = stage_memory(model, strategy, 0, {0}, stack);
  const double rest = (few.weights + few.optimizer + few.communication).value();
  CHECK(few.allocated().value() == Approx(rest + gradient_bytes(strategy.type) * copy / 2 + copy));
}

TEST_CASE("the optimizer's fp32 copy of fp16 gradients takes the place of activations") {
  const ModelSpec model = gpt_layers(8);
  ParallelStrategy strategy = spread(model, {.data = 4});
  strategy.type = DataType::bf16;
  strategy.distributed_optimizer = true;
  SoftwareStack stack;
  stack.gradient = 2;  // all states as those of fp16
  const auto memory = [&](DataType type, int microbatches) {
    strategy.type = type;
    return stage_memory(model, strategy, 0, {microbatches}, stack);
  };
  const double copy = 4 * stage_parameters(model, strategy, 0) / 4;
  const auto more = [&](int microbatches) {
    return (memory(DataType::fp16, microbatches).reserved() - memory(DataType::bf16, microbatches).reserved())
        .value();
  };
  const StageMemory bf16 = memory(DataType::bf16, 4);
  REQUIRE(copy < (bf16.activations + bf16.workspace).value());
  CHECK(memory(DataType::fp16, 4).allocated() == bf16.allocated());
  // Tensor by tensor, it leaves blocks that activations use in place of those they would leave.
  REQUIRE(bf16.cached.value() < copy);
  CHECK(more(4) == Approx(copy - bf16.cached.value()));
  stack.flat_gradients = true;  // one tensor
  CHECK(more(4) == Approx(copy));
  stack.flat_gradients = false;
  stack.cached_share = 0;  // segments that grow and shrink
  CHECK(more(4) == 0);
  // With next to no activations it is what tensors take the most.
  const StageMemory few = memory(DataType::bf16, 0);
  CHECK((memory(DataType::fp16, 0).allocated() - few.allocated()).value() ==
        Approx(copy - (few.activations + few.workspace + few.logits).value()));
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

TEST_CASE("in a pipeline sharded gradients are whole until they are reduced, and weights as they compute") {
  const ModelSpec model = gpt_layers(4);
  ParallelStrategy strategy = spread(model, {.pipeline = 2, .data = 8});
  strategy.distributed_optimizer = strategy.fully_sharded = true;
  const double count = stage_parameters(model, strategy, 0);
  SoftwareStack stack;
  stack.whole_weights = true;
  CHECK(stage_memory(model, strategy, 0, {1}, stack).gradients.value() == Approx(4 * count));
  stack.whole_weights = false;
  strategy.type = DataType::fp32;
  CHECK(stage_memory(model, strategy, 0, {1}, stack).weights.value() == Approx(4 * count + 4 * count / 8));
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
