// What a program leaves in memory beside what its passes need.
#include "costmodels/memory/memory.hpp"

#include "costmodels/stacks/stack_file.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/gpt_plans.hpp"

namespace orrery {
namespace {

// One tensor of a microbatch, in 16 bits.
double tensor_bytes(const ModelSpec& model, const ParallelStrategy& strategy) {
  return 2.0 * static_cast<double>(strategy.micro_batch * strategy.sequence * model.shapes[0].hidden);
}

TEST_CASE("tensors that a tensor group exchanges stay until the GPU has passed them, as far as CUDA queues") {
  const auto [layers, recomputed, tensors] = GENERATE(table<int, bool, double>({
      {4, false, 2 * 4.0},          // two of a layer, all four layers launched at once
      {4, true, 4 * 4.0},           // and two more when the forward is repeated
      {96, false, 2 * 1024 / 30.},  // 1,024 launches of 30 a layer
      {96, true, 2 * 1024 / 30.},   // more than the 4 x 1024 / 90 of a backward
  }));
  const ModelSpec model = gpt_layers(layers);
  ParallelStrategy strategy = spread(model, {.tensor = 4});
  if (recomputed) strategy.recompute.granularity = RecomputeGranularity::full;
  SoftwareStack stack;
  stack.cached_share = 0;
  const auto memory = [&] { return stage_memory(model, strategy, 0, {1}, stack); };
  REQUIRE(memory().cached == Bytes(0));
  stack.records_streams = true;
  CHECK(memory().cached.value() == Approx(tensors * tensor_bytes(model, strategy)));
  CHECK(memory().must_fit().value() == Approx((memory().total() - memory().cached).value()));
  // Not beside what the allocator keeps anyway.
  stack.cached_share = 10;
  const Bytes kept = memory().cached;
  stack.records_streams = false;
  CHECK(memory().cached == kept);
  strategy = spread(model, {});
  stack.records_streams = true, stack.cached_share = 0;
  CHECK(memory().cached == Bytes(0));  // nothing is exchanged
}

TEST_CASE("a stage but the last may keep what it sends, a tensor for each microbatch that is alive") {
  ModelSpec model = gpt_layers(8);
  model.hidden = 6144;
  const ParallelStrategy strategy = spread(model, {.pipeline = 4});
  SoftwareStack stack;
  const auto activations = [&](int stage, int alive) {
    return stage_memory(model, strategy, stage, {alive}, stack).activations.value();
  };
  for (int stage = 0; stage < 4; ++stage) {
    const int alive = 4 - stage;
    stack.keeps_stage_outputs = false;
    const double without = activations(stage, alive);
    stack.keeps_stage_outputs = true;
    CHECK(activations(stage, alive) - without ==
          Approx(stage < 3 ? alive * tensor_bytes(model, strategy) : 0.0).margin(1));
  }
}

TEST_CASE("a stage may have a buffer for each message of an iteration, but for inputs that are alive") {
  ModelSpec model = gpt_layers(8);
  model.hidden = 6144;
  ParallelStrategy strategy = spread(model, {.pipeline = 4});
  strategy.global_batch = 2 * 12;  // twelve microbatches of two
  SoftwareStack stack;
  const auto messages = [&](int stage) {
    return stage_memory(model, strategy, stage, {4 - stage}, stack).communication.value() /
           tensor_bytes(model, strategy);
  };
  for (int stage = 0; stage < 4; ++stage) {
    stack.receives_ahead = false;
    CHECK(messages(stage) == Approx(2));
    stack.receives_ahead = true;
    const int inputs = stage > 0 ? 12 - (4 - stage) : 0, gradients = stage < 3 ? 12 : 0;
    CHECK(messages(stage) == Approx(inputs + gradients));
  }
}

TEST_CASE("logits may take more where they are sharded, and a row that says them says them of all") {
  ModelSpec model = gpt_layers(1);
  model.vocabulary = 51200, model.hidden = 6144;
  SoftwareStack stack = parse_stack("{logit_peak: 4, sharded_logit_peak: 10}", "s.yaml");
  const auto bytes_of_logit = [&](int tensor) {
    const ParallelStrategy strategy = spread(model, {.tensor = tensor});
    return stage_memory(model, strategy, 0, {1}, stack).logits.value() / (2.0 * 2048 * 51200 / tensor);
  };
  CHECK(bytes_of_logit(1) == Approx(4));
  CHECK(bytes_of_logit(2) == Approx(10));
  stack = parse_stack("{like: torchtitan, logit_peak: 4}", "s.yaml");
  REQUIRE(read_stack("torchtitan").sharded_logit_peak);
  CHECK(bytes_of_logit(2) == Approx(4));
}

TEST_CASE("logits that stay after their backward are there beside those of a loss") {
  ModelSpec model = gpt_layers(8);
  model.vocabulary = 51200, model.hidden = 6144;
  const ParallelStrategy strategy = spread(model, {.tensor = 2, .pipeline = 2});
  SoftwareStack stack;
  const auto logits = [&](int stage) {
    return stage_memory(model, strategy, stage, {1}, stack).logits.value();
  };
  const double once = logits(1);
  stack.stale_logits = 2;
  CHECK(logits(1) - once == Approx(2 * 2.0 * 2 * 2048 * 51200 / 2));
  CHECK(logits(0) == 0);
}

TEST_CASE("fp32 copies of fp16 gradients that stay are there beside activations") {
  const ModelSpec model = gpt_layers(2);
  ParallelStrategy strategy = spread(model, {});
  strategy.type = DataType::fp16;
  SoftwareStack stack;
  const auto gradients = [&] { return stage_memory(model, strategy, 0, {4}, stack).gradients.value(); };
  const double parameters = stage_parameters(model, strategy, 0);
  REQUIRE(gradients() == Approx(2 * parameters));  // activations are more than the copies
  stack.keeps_step_copies = true;
  CHECK(gradients() == Approx((2 + 4) * parameters));
  strategy.type = DataType::bf16;  // kept in fp32 anyway
  const double wide = gradients();
  stack.keeps_step_copies = false;
  CHECK(gradients() == wide);
}

TEST_CASE("PyTorch's softmax makes a second tensor of scores in the backward") {
  const ModelSpec model = gpt_layers(1);
  ParallelStrategy strategy = spread(model, {});
  strategy.flash_attention = false;
  SoftwareStack stack;
  const auto workspace = [&] { return stage_memory(model, strategy, 0, {1}, stack).workspace.value(); };
  const double fused = workspace();
  stack.softmax = SoftmaxKernel::eager;
  CHECK(workspace() - fused == Approx(2.0 * 2 * 48 * 2048 * 2048));
}

}  // namespace
}  // namespace orrery
