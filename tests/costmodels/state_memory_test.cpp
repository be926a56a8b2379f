// Parameters, and what is kept of each: weights, gradients, optimizer states.
#include "costmodels/layers/stage_parts.hpp"
#include "costmodels/memory/layer_memory.hpp"
#include "costmodels/memory/memory.hpp"
#include "costmodels/stacks/stack_file.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/gpt_plans.hpp"
#include "tests/costmodels/layer_fixture.hpp"

namespace orrery {
namespace {

constexpr double kHidden = 6144;

double parameters_of_all_stages(const ModelSpec& model, const ParallelStrategy& strategy) {
  double sum = 0.0;
  for (int stage = 0; stage < strategy.pipeline; ++stage) sum += stage_parameters(model, strategy, stage);
  return sum;
}

}  // namespace

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

TEST_CASE("a head of few outputs has a matrix and logits of its own") {
  const ModelSpec words = read_model("llama2-7b");
  ModelSpec few = words;
  few.outputs = words.vocabulary;
  const auto logits = [](const ModelSpec& model) {
    return logit_bytes(model, spread(model, {.tensor = 2}), 0, 1, 0, SoftwareStack{}).peak;
  };
  // As many as words: an untied head.
  CHECK(logits(few) == logits(words));
  CHECK(stage_parameters(few, spread(few, {}), 0) == stage_parameters(words, spread(words, {}), 0));
  // Megatron-LM's rows are a multiple of 128 on every tensor rank.
  few.outputs = 1000;
  CHECK(logits(few) / logits(words) == Approx(1024.0 / 32'000));
  CHECK(stage_parameters(words, spread(words, {}), 0) - stage_parameters(few, spread(few, {}), 0) ==
        (32'000.0 - 1024) * 4096);
}

TEST_CASE("logits are of the tokens that the head sees") {
  ModelSpec model = read_model("llama2-7b");
  ParallelStrategy strategy = spread(model, {});
  const auto logits = [&] { return logit_bytes(model, strategy, 0, 1, 0, SoftwareStack{}).peak; };
  const double all = logits();
  model.predicted_tokens = strategy.sequence / 8;
  CHECK(logits() == all / 8);
  strategy.sequence = 0;  // the model's own, of which the head sees as many
  CHECK(logits() == all / 8);
  const double tokens = 3.0 * 2048;
  ModelSpec whole = model;
  whole.predicted_tokens = 0;
  CHECK(model_flops(whole, 3, 2048, AttentionCounting::full) -
            model_flops(model, 3, 2048, AttentionCounting::full) ==
        Approx(6.0 * 32'000 * 4096 * tokens * 7 / 8).epsilon(1e-12));
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

TEST_CASE("moments that an optimizer does not have are not kept, whatever the type") {
  const auto type = GENERATE(DataType::bf16, DataType::fp16, DataType::fp32);
  const ModelSpec model = gpt_layers(2);
  ParallelStrategy strategy = spread(model, {});
  strategy.type = type;
  SoftwareStack stack;
  const auto states = [&] {
    return stage_memory(model, strategy, 0, {1}, stack).optimizer.value() /
           stage_parameters(model, strategy, 0);
  };
  const double adam = states();
  stack.states.moments = 4;
  CHECK(states() == Approx(adam - 4));
  stack.states.moments = 0;
  CHECK(states() == Approx(adam - 8));
  stack.states.moments = 8;
  CHECK(states() == Approx(adam));
  // Both in 16 bits.
  stack.states.optimizer = 4;
  stack.states.moments = 2;
  if (type == DataType::bf16) CHECK(states() == Approx(2));
}

// hf-trainer has gradients of 2 B in bf16; they are sent in the bytes they have.
TEST_CASE("buckets hold copies of gradients where there are replicas to send them to") {
  const ModelSpec model = gpt_layers(2);
  const SoftwareStack stack = read_stack("hf-trainer");
  const auto each = [&](int replicas, DataType type, bool sharded = false) {
    ParallelStrategy strategy = spread(model, {.data = replicas});
    strategy.type = type;
    strategy.distributed_optimizer = sharded;
    return stage_memory(model, strategy, 0, {1}, stack).gradients.value() /
           stage_parameters(model, strategy, 0);
  };
  for (const auto& [type, bytes] : {std::pair(DataType::bf16, 2.0), std::pair(DataType::fp32, 4.0)}) {
    CHECK(each(1, type) == bytes);
    CHECK(each(2, type) == 2 * bytes);
    CHECK(each(2, type, true) == bytes);
  }
}

// Rows and columns of a byte each for a weight of the layers, the head's in 16 bits.
TEST_CASE("weights cast once an iteration are kept in 8 or 4 bits too, and their casting takes time") {
  ModelSpec model = gpt_layers(2);
  model.vocabulary = 51200;
  ParallelStrategy strategy = spread(model, {.data = 2});
  SoftwareStack stack;
  const double layers = stage_parameters(gpt_layers(2), spread(gpt_layers(2), {}), 0);
  const auto more = [&](DataType type, Fp8Recipe recipe) {
    strategy.type = type;
    stack.fp8_recipe = recipe;
    stack.casts_weights_once = false;
    const Bytes without = stage_memory(model, strategy, 0, {1}, stack).weights;
    stack.casts_weights_once = true;
    CHECK(stage_memory(model, strategy, 0, {1}, stack).weights - without ==
          cast_weights(model, strategy, 0, stack));
    return cast_weights(model, strategy, 0, stack).value() / layers;
  };
  CHECK(more(DataType::bf16, Fp8Recipe::delayed) == 0);
  CHECK(more(DataType::fp8, Fp8Recipe::tensorwise) == Approx(2));
  CHECK(more(DataType::fp8, Fp8Recipe::mxfp8) == Approx(2 + 2.0 / 32));
  CHECK(more(DataType::fp4, Fp8Recipe::mxfp8) == Approx(1 + 2.0 / 16));
  strategy.fully_sharded = strategy.distributed_optimizer = true;  // cast when they are gathered
  CHECK(cast_weights(model, strategy, 0, stack) == Bytes(0));
}

// What programs choose of gradients they choose for bf16, some for fp16 too.
TEST_CASE("fp16 and fp32 take the same bytes of a parameter under every preset, but for copies that stay") {
  const ModelSpec model = gpt_layers(2);
  ParallelStrategy strategy = spread(model, {.data = 4});
  const double parameters = stage_parameters(model, strategy, 0);
  for (const std::string& name : builtin_stack_names()) {
    const SoftwareStack stack = read_stack(name);
    const double half = stack.keeps_step_copies ? 16 + 4 : 16;
    for (const auto& [type, bytes] : {std::pair(DataType::fp16, half), std::pair(DataType::fp32, 16.0)}) {
      if (type == DataType::fp16 && stack.fp16_as_bf16) continue;
      strategy.type = type;
      const StageMemory memory = stage_memory(model, strategy, 0, {64}, stack);
      const Bytes states = memory.weights + memory.gradients + memory.optimizer -
                           gradient_buckets(strategy, parameters, stack);
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

TEST_CASE("without gradient sync but for the last microbatch those of the others are added up whole") {
  ModelSpec model = gpt_layers(8);
  ParallelStrategy strategy = spread(model, {.data = 16});
  strategy.fully_sharded = strategy.distributed_optimizer = true;
  SoftwareStack stack;
  stack.reduced_gradient = 4;
  const double all = stage_parameters(model, strategy, 0);
  const auto gradients = [&](std::int64_t microbatches, bool whole) {
    strategy.global_batch = 16 * strategy.micro_batch * microbatches;
    for (ReplicaKind& kind : strategy.replicas) kind.microbatches = microbatches;
    stack.adds_up_whole = whole;
    return stage_memory(model, strategy, 0, {1}, stack).gradients.value();
  };
  CHECK(gradients(2, true) - gradients(2, false) == Approx(4 * all));
  CHECK(gradients(1, true) == gradients(1, false));
  // Of experts that one GPU alone has nothing is sharded.
  model.shapes[0].experts = 16;
  const double one_way = stage_parameters(model, strategy, 0);  // dense and experts
  CHECK(gradients(2, true) - gradients(2, false) == Approx(4 * one_way));
  strategy.expert = 16;
  const double all_ways = stage_parameters(model, strategy, 0);  // dense and a 16th of the experts
  CHECK(gradients(2, true) - gradients(2, false) == Approx(4 * (16 * all_ways - one_way) / 15));
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

TEST_CASE("of sharded weights embedding and head stay whole, as their program's units are") {
  ModelSpec model = gpt_layers(2);
  const std::int64_t words = 51200;
  model.vocabulary = words;
  model.tied_embeddings = false;
  ParallelStrategy strategy = spread(model, {.data = 4});
  strategy.distributed_optimizer = strategy.fully_sharded = true;
  const double table = static_cast<double>(words * model.hidden);
  const auto weights = [&](const char* unit) {
    return stage_memory(model, strategy, 0, {1}, parse_stack(std::string("root_unit: ") + unit, "s.yaml"))
        .weights.value();
  };
  const double none = weights("none");
  CHECK(weights("head") - none == Approx(2 * table));
  CHECK(weights("embedding_and_head") - none == Approx(2 * 2 * table).epsilon(0.001));  // and the final norm
  // A model that nobody wraps is whole with all gradients; of layers two and the gradient of one are.
  const double all = stage_parameters(model, strategy, 0), layer = (all - 2 * table) / 2;
  CHECK(weights("all") - none == Approx(2 * (all - 2 * layer)).epsilon(0.001));
  model.tied_embeddings = true;
  const double tied = weights("none");
  CHECK(weights("head") - tied == Approx(2 * table));
  CHECK(weights("embedding_and_head") - tied == Approx(2 * table).epsilon(0.001));
}

TEST_CASE(
    "gradients of a step's only microbatch come while its activations go, and the optimizer's copy after") {
  const ModelSpec model = gpt_layers(8);
  ParallelStrategy strategy = spread(model, {});
  strategy.global_batch = strategy.micro_batch;
  const double all = stage_parameters(model, strategy, 0);
  SoftwareStack stack = parse_stack("{gradient: 2, states: {weight: 2, optimizer: 4}}", "s.yaml");
  const auto allocated = [&](int alive) {
    return stage_memory(model, strategy, 0, {alive}, stack).allocated().value();
  };
  const double with_gradients = allocated(1);
  stack.frees_gradients = true;
  const StageMemory memory = stage_memory(model, strategy, 0, {1}, stack);
  const double activations = (memory.activations + memory.workspace + memory.logits).value();
  REQUIRE(activations < 2 * all);
  // Either all activations, or all gradients, and weights and moments always.
  CHECK(with_gradients == Approx((2 + 2 + 4) * all + activations));
  CHECK(allocated(1) == Approx((2 + 2 + 4) * all));
  stack.optimizer_copy = 2;
  CHECK(allocated(1) == Approx((2 + 2 + 4 + 2) * all));
  strategy.global_batch =
      2 * strategy.micro_batch;  // the first one's gradients meet the second one's activations
  CHECK(allocated(1) == Approx((2 + 2 + 4) * all + std::max(activations, 2 * all)));
}

TEST_CASE("a head that works in pieces keeps as much of its logits as of the hidden states") {
  ModelSpec model = gpt_layers(2);
  model.vocabulary = 128000;
  const ParallelStrategy strategy = spread(model, {});
  SoftwareStack stack;
  stack.chunked_loss = true;
  const double logits = stage_memory(model, strategy, 0, {1}, stack).logits.value();
  const double tokens = static_cast<double>(strategy.micro_batch * strategy.sequence),
               hidden = static_cast<double>(model.hidden);
  // A piece of hidden's size, hidden's gradient, and the matrix's, which is there before its layers' are.
  CHECK(logits == Approx(2 * (2 * tokens * hidden + 128000 * hidden)).epsilon(0.001));
}

TEST_CASE("a loss in pieces of the sequence holds one piece's logits and the whole of its gradient in fp32") {
  ModelSpec model = gpt_layers(2);
  model.vocabulary = 128000;
  const ParallelStrategy strategy = spread(model, {});
  SoftwareStack stack;
  stack.logit_peak = 6;
  const double tokens = static_cast<double>(strategy.micro_batch * strategy.sequence),
               hidden = static_cast<double>(model.hidden);
  const auto logits = [&] { return stage_memory(model, strategy, 0, {1}, stack).logits.value(); };
  CHECK(logits() == Approx(6 * tokens * 128000));
  stack.loss_pieces = 8;
  // Copies of the pieces in 16 bits, their gradients and the matrix's in fp32.
  CHECK(logits() == Approx(6 * tokens * 128000 / 8 + (2 + 4) * tokens * hidden + 4 * 128000 * hidden));
}

TEST_CASE("a softmax in 32 bits keeps what it gave beside what is multiplied") {
  const ModelSpec model = gpt_layers(1);
  ParallelStrategy strategy = spread(model, {});
  strategy.flash_attention = false;
  const LocalLayer local = local_layer(model.shapes.front(), {.micro_batch = 1, .sequence = 2048});
  SoftwareStack stack;
  const auto kept = [&](SoftmaxKernel softmax) {
    stack.softmax = softmax;
    return layer_activations(model.shapes.front(), local, strategy, stack).scores / (48.0 * 2048 * 2048);
  };
  // With dropout: what softmax gave, a mask of one byte and what is multiplied.
  CHECK(kept(SoftmaxKernel::stepwise) == 2 + 1 + 2);
  CHECK(kept(SoftmaxKernel::stepwise_wide) == 4 + 1 + 2);
  CHECK(kept(SoftmaxKernel::formula) == kept(SoftmaxKernel::stepwise));
  CHECK(kept(SoftmaxKernel::formula_wide) == kept(SoftmaxKernel::stepwise_wide));
  stack.dropout = Dropout::off;
  CHECK(kept(SoftmaxKernel::stepwise) == 2);
  CHECK(kept(SoftmaxKernel::stepwise_wide) == 4 + 2);
}

TEST_CASE("what eager kernels around experts hold is there in the backward of one layer") {
  LayerShape shape = test::llama70b_layer();
  shape.experts = 8;
  shape.experts_per_token = 2;
  ParallelStrategy strategy;
  strategy.flash_attention = true;
  const LocalLayer local = local_layer(shape, {.micro_batch = 1, .sequence = 4096});
  SoftwareStack stack;
  const LayerActivations without = layer_activations(shape, local, strategy, stack);
  stack.experts.eager_memory = 50;
  const LayerActivations with = layer_activations(shape, local, strategy, stack);
  CHECK(with.all() == without.all());
  CHECK(with.gradients - without.gradients == Approx(50.0 * 2 * 4096 * 8192));
  shape.experts = shape.experts_per_token = 1;
  CHECK(layer_activations(shape, local_layer(shape, {.micro_batch = 1, .sequence = 4096}), strategy, stack)
            .gradients < without.gradients);
}

TEST_CASE("a copy of all gradients to reduce is held beside what activations leave in the cache") {
  const ModelSpec model = gpt_layers(8);
  const ParallelStrategy strategy = spread(model, {.data = 16});
  SoftwareStack stack;
  const StageMemory without = stage_memory(model, strategy, 0, {4}, stack);
  stack.gradient_copy = 2;
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

}  // namespace orrery
