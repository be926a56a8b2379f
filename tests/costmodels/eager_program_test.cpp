// What a program of PyTorch's own kernels does otherwise than Megatron-LM, one stack key at a time.
#include "costmodels/layers/stack_effects.hpp"
#include "costmodels/memory/layer_memory.hpp"
#include "costmodels/memory/memory.hpp"
#include "costmodels/plans/price_book.hpp"
#include "costmodels/plans/priced_plan.hpp"
#include "costmodels/stacks/stack_file.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/layer_fixture.hpp"
#include "tests/costmodels/priced_clusters.hpp"
#include "tests/costmodels/stack_times.hpp"

namespace orrery {
namespace {

Sharding four_ways(bool sequence_parallel) {
  Sharding sharding = test::plain(2, 4096);
  sharding.tensor = 4;
  sharding.sequence_parallel = sequence_parallel;
  return sharding;
}

}  // namespace

TEST_CASE("a gate of its own is a matrix more and, without sequence parallelism, a reduction more backward") {
  const bool sequence_parallel = GENERATE(false, true);
  Sharding sharding = four_ways(sequence_parallel);
  const BlockOperators joined = layer_operators(test::llama70b_layer(), true, sharding);
  sharding.stack.separate_gate = true;
  const BlockOperators apart = layer_operators(test::llama70b_layer(), true, sharding);
  CHECK(test::gemm_flops(apart.forward) == test::gemm_flops(joined.forward));
  CHECK(test::gemm_flops(apart.backward) == test::gemm_flops(joined.backward));
  CHECK(test::all_of<Gemm>(apart.forward.compute).size() == 5);  // QKV, projection, gate, up, down
  CHECK(test::all_of<Gemm>(joined.forward.compute).size() == 4);
  CHECK(apart.weight_gradient.size() == joined.weight_gradient.size() + 1);
  CHECK(apart.forward.communication == joined.forward.communication);
  const auto reductions = [](const BlockOperators& layer) {
    return test::times(layer.backward.communication, CollectiveKind::all_reduce);
  };
  if (sequence_parallel) {
    CHECK(apart.backward.communication == joined.backward.communication);
  } else {
    CHECK(reductions(joined) == 2);
    CHECK(reductions(apart) == 3);
    for (const Collective& call : test::all_of<Collective>(apart.backward.communication))
      CHECK(call.bytes == Bytes(2.0 * 2 * 4096 * 8192));  // 16 bits of all tokens
  }
}

TEST_CASE("matrices that gather for themselves: five of a layer, forward and backward") {
  const bool sequence_parallel = GENERATE(false, true);
  Sharding sharding = four_ways(sequence_parallel);
  const BlockOperators joined = layer_operators(test::llama70b_layer(), true, sharding);
  sharding.stack.separate_inputs = true;
  const BlockOperators apart = layer_operators(test::llama70b_layer(), true, sharding);
  CHECK(test::gemm_flops(apart.forward) == test::gemm_flops(joined.forward));
  CHECK(test::all_of<Gemm>(apart.forward.compute).size() == 7);  // Q, K, V, projection, gate, up, down
  const auto count = [](const PassOperators& pass, CollectiveKind kind) {
    return test::times(pass.communication, kind);
  };
  // KempnerForge's profile of 13B on 24 H200 (benchmarks/profiling at 601aba9), all recomputed: 12 gathers
  // and 8 scatters a layer and microbatch, the recomputed forward's last left out.
  if (sequence_parallel) {
    CHECK(2 * count(apart.forward, CollectiveKind::all_gather) +
              count(apart.backward, CollectiveKind::all_gather) ==
          12);
    CHECK(2 * count(apart.forward, CollectiveKind::reduce_scatter) - 1 +
              count(apart.backward, CollectiveKind::reduce_scatter) ==
          8);
  } else {
    CHECK(count(apart.forward, CollectiveKind::all_reduce) == 2);
    CHECK(count(apart.backward, CollectiveKind::all_reduce) == 5);
  }
}

TEST_CASE("recomputation that stops early leaves out the last matrix and what the tensor group makes of it") {
  const bool sequence_parallel = GENERATE(false, true);
  Sharding sharding = four_ways(sequence_parallel);
  const auto repeated = [&](const LayerShape& shape) {
    const BlockOperators layer = layer_operators(shape, true, sharding);
    const PassTimes times{std::vector<Seconds>(layer.forward.compute.size()),
                          std::vector<Seconds>(layer.forward.communication.size())};
    return std::pair(layer.forward, repeated_pass(layer, times).operators);
  };
  const LayerShape shape = test::llama70b_layer();
  const auto [whole, all] = repeated(shape);
  CHECK(all.compute == whole.compute);
  CHECK(all.communication == whole.communication);
  sharding.stack.stops_recomputation = true;
  const auto [forward, rest] = repeated(shape);
  const double down = 2.0 * 2 * 4096 * 8192 * (28672.0 / 4);
  CHECK(test::gemm_flops(rest) == Approx(test::gemm_flops(forward) - down));
  CHECK(test::bytes_of(rest, MemoryKernel::residual) == test::bytes_of(forward, MemoryKernel::residual) / 2);
  // KempnerForge's profile, as below: of the recomputed forward the last exchange is missing.
  CHECK(rest.communication.size() == forward.communication.size() - 1);
  CHECK(rest.places.size() == rest.communication.size());
  // Dropout keeps a mask of the last matrix's result, a norm its input, and experts are weighed.
  LayerShape normed = shape;
  normed.norms = 4;
  const LayerShape experts = test::mixtral_layer();
  for (const LayerShape& keeps : {normed, experts}) {
    const auto [before, after] = repeated(keeps);
    CHECK(after.compute == before.compute);
  }
}

TEST_CASE("an MLP in tiles is made again whole in the backward, ahead of its gradients") {
  using test::all_of, test::bytes_of, test::gemm_flops, test::llama70b_layer;
  Sharding sharding = test::plain(1, 4096);
  const BlockOperators whole = layer_operators(llama70b_layer(), true, sharding);
  sharding.stack.tiled_mlp = true;
  const BlockOperators tiled = layer_operators(llama70b_layer(), true, sharding);
  CHECK(tiled.forward.compute == whole.forward.compute);
  // Gate and up, and down, of 2 x 28672 and 28672.
  CHECK(gemm_flops(tiled.backward) - gemm_flops(whole.backward) == Approx(2.0 * 4096 * 8192 * 3 * 28672));
  const double activation = bytes_of(whole.forward, MemoryKernel::activation);
  CHECK(activation > 0);
  CHECK(bytes_of(tiled.backward, MemoryKernel::activation) ==
        Approx(bytes_of(whole.backward, MemoryKernel::activation) + activation));
  // A backward runs from its end: the last GEMM there is the forward's first of the MLP, then its down.
  const auto gemms = all_of<Gemm>(tiled.backward.compute), forward = all_of<Gemm>(tiled.forward.compute);
  CHECK(gemms.back() == forward[forward.size() - 2]);
  CHECK(gemms[gemms.size() - 2] == forward.back());
}

TEST_CASE("full recomputation takes as much less as the forward's last matrices") {
  SoftwareStack stack;
  const Recompute full{RecomputeGranularity::full, RecomputeMethod::uniform, 1};
  const auto flops = [&] { return test::times_under(stack, {}, full).backward_flops.value(); };
  const double repeats = flops();
  stack.stops_recomputation = true;
  const ModelSpec model = test::llama_7b();
  const LayerShape& layer = model.shapes.at(0);
  const double down = 2.0 * 4096 * static_cast<double>(layer.hidden * layer.ffn);
  CHECK(repeats - flops() == Approx(down * static_cast<double>(model.layers.size())).epsilon(1e-6));
}

TEST_CASE("torchtitan's policy repeats the same of a layer whether its matrices are joined or apart") {
  const auto repeated = [](bool apart) {
    Sharding sharding = four_ways(true);
    sharding.stack.selective = SelectiveRecompute::every_second_gemm;
    sharding.stack.separate_inputs = apart;
    const BlockOperators layer = layer_operators(test::llama70b_layer(), true, sharding);
    const PassTimes times{std::vector<Seconds>(layer.forward.compute.size()),
                          std::vector<Seconds>(layer.forward.communication.size())};
    return module_costs(layer, times, sharding)[index_of(RecomputeModule::core_attn)].flops.value();
  };
  // Keys, the projection and the MLP's second matrix, of 8192 rows over four ranks: 2 FLOPs each.
  CHECK(repeated(false) == Approx(2.0 * 2 * 4096 * 8192 * (1024 + 8192 + 28672) / 4));
  CHECK(repeated(true) == Approx(repeated(false)));
}

TEST_CASE("torchtitan's policy repeats every product in 4 bits, and keeps narrow inputs") {
  Sharding sharding = four_ways(true);
  sharding.stack.selective = SelectiveRecompute::every_second_gemm;
  sharding.type = DataType::fp4;
  const BlockOperators layer = layer_operators(test::llama70b_layer(), true, sharding);
  const PassTimes times{std::vector<Seconds>(layer.forward.compute.size()),
                        std::vector<Seconds>(layer.forward.communication.size())};
  // Keys, queries and values, the projection, gate and up, and the MLP's second matrix.
  CHECK(module_costs(layer, times, sharding)[index_of(RecomputeModule::core_attn)].flops.value() ==
        Approx(2.0 * 2 * 4096 * 8192 * (8192 + 2 * 1024 + 8192 + 3 * 28672) / 4));
  const LayerShape shape = test::llama70b_layer();
  ParallelStrategy strategy;
  strategy.flash_attention = true;
  strategy.type = DataType::fp4;
  const LocalLayer local = local_layer(shape, {.micro_batch = 1, .sequence = 4096});
  // In 4 bits, with scales, what both norms, attention and the activation leave.
  CHECK(layer_activations(shape, local, strategy, sharding.stack).outputs ==
        Approx(2.0 * 4096 * 8192 + 4096 * (3 * 8192 + 28672) * (0.5 + 1 / 16.0)));
}

TEST_CASE("a policy of elementwise kernels repeats no matrix but those of experts") {
  Sharding sharding = four_ways(true);
  sharding.stack.selective = SelectiveRecompute::elementwise;
  LayerShape shape = test::llama70b_layer();
  const auto repeated = [&] {
    const BlockOperators layer = layer_operators(shape, true, sharding);
    const PassTimes times{std::vector<Seconds>(layer.forward.compute.size()),
                          std::vector<Seconds>(layer.forward.communication.size())};
    return module_costs(layer, times, sharding)[index_of(RecomputeModule::core_attn)].flops.value();
  };
  CHECK(repeated() == 0);
  shape.experts = 8;
  shape.experts_per_token = 2;
  CHECK(repeated() > 0);
}

TEST_CASE("each matrix that gathers for itself keeps what it gathered") {
  ParallelStrategy strategy;
  strategy.flash_attention = true;
  strategy.sequence_parallel = true;
  const LayerShape shape = test::llama70b_layer();
  const LocalLayer local =
      local_layer(shape, {.tensor = 4, .micro_batch = 1, .sequence = 4096, .sequence_parallel = true});
  SoftwareStack stack;
  stack.keeps_gathered = true;
  const double joined = layer_activations(shape, local, strategy, stack).all();
  stack.separate_inputs = true;
  // Queries, keys, values, gate and up in place of two norms' outputs: three quarters of 4096 tokens in 16
  // bits each.
  CHECK(layer_activations(shape, local, strategy, stack).all() - joined ==
        Approx((5 - 2) * 2.0 * 4096 * 3 / 4 * 8192));
}

TEST_CASE("a layer without a gate has none of its own") {
  LayerShape shape = test::llama70b_layer();
  shape.mlp = MlpKind::gelu;
  Sharding sharding = four_ways(false);
  const BlockOperators layer = layer_operators(shape, true, sharding);
  sharding.stack.separate_gate = true;
  CHECK(layer_operators(shape, true, sharding).forward.compute == layer.forward.compute);
}

TEST_CASE("gathered logits cross the tensor group once, and every rank has the loss of all of them") {
  const ModelSpec model = read_model("llama2-70b");
  Sharding sharding = four_ways(false);
  const BlockOperators split = head_operators(model, sharding);
  sharding.stack.gathered_logits = true;
  const BlockOperators gathered = head_operators(model, sharding);
  const double logits = 2.0 * 4096 * 32256;  // 32,000 columns padded to 128 for each of four ranks
  const auto calls = test::all_of<Collective>(gathered.forward.communication);
  REQUIRE(calls.size() == 1);  // and no statistics are reduced
  CHECK(calls.front().kind == CollectiveKind::all_gather);
  CHECK(calls.front().bytes == Bytes(2 * logits));
  for (const auto pass : {&BlockOperators::forward, &BlockOperators::backward}) {
    CHECK(test::bytes_of(gathered.*pass, MemoryKernel::cross_entropy) ==
          4 * test::bytes_of(split.*pass, MemoryKernel::cross_entropy));
    CHECK(test::gemm_flops(gathered.*pass) == test::gemm_flops(split.*pass));
  }
  // Joined along the vocabulary: a read and a write of all; backward of a rank's own.
  CHECK(test::copied_bytes(gathered.forward) - test::copied_bytes(split.forward) == 4 * logits);
  CHECK(test::copied_bytes(gathered.backward) - test::copied_bytes(split.backward) == Approx(logits));

  ParallelStrategy strategy;
  strategy.stages = {{.tensor = 4}};
  strategy.parts = {{0, 80}};
  strategy.nodes = {1};
  strategy.sequence = 4096;
  strategy.micro_batch = strategy.global_batch = 2;
  SoftwareStack stack;
  const Bytes of_one = stage_memory(model, strategy, 0, {1}, stack).logits;
  stack.gathered_logits = true;
  CHECK(stage_memory(model, strategy, 0, {1}, stack).logits.value() == Approx(4 * of_one.value()));
  Sharding whole = test::plain(2, 4096);
  const BlockOperators alone = head_operators(model, whole);
  whole.stack.gathered_logits = true;
  CHECK(head_operators(model, whole).forward.compute == alone.forward.compute);
}

TEST_CASE("norms and residuals may take other multiples of their time than other elementwise kernels") {
  const ModelSpec model = read_model("llama2-7b");
  const auto forward = [&](double elementwise, std::optional<double> norm, std::optional<double> residual) {
    SoftwareStack stack;
    stack.host = {};
    stack.kernels.elementwise_time = elementwise;
    stack.kernels.norm_time = norm;
    stack.kernels.residual_time = residual;
    PriceBook book(model, test::two_priced_kinds(), {DataType::bf16, true, 4096, stack});
    book.need(ShardKey{});
    book.predict(test::cost_models());
    return book.part_times(book.shard({}), {0, model.layer_count()}, {}, 1).forward.value();
  };
  const double plain = forward(1, 1, 1);
  const double norms = forward(1, 2, 1) - plain, residuals = forward(1, 1, 2) - plain;
  CHECK(norms > 0);
  CHECK(residuals > 0);
  CHECK(forward(1, 11, 1) - plain == Approx(10 * norms));
  CHECK(forward(1, 1, 11) - plain == Approx(10 * residuals));
  CHECK(forward(3, 1, 1) + 2 * (norms + residuals) == Approx(forward(3, std::nullopt, std::nullopt)));
}

TEST_CASE("kernels for each operation keep the activated half of a gated MLP and what was rotated") {
  const LayerShape shape = test::llama70b_layer();
  const int tensor = GENERATE(1, 2, 4);
  ParallelStrategy strategy;
  strategy.flash_attention = true;
  const LocalLayer local = local_layer(shape, {.tensor = tensor, .micro_batch = 2, .sequence = 4096});
  const auto bytes = [&](const LayerShape& of, const SoftwareStack& stack) {
    return layer_activations(of, local, strategy, stack).all();
  };
  SoftwareStack eager;
  eager.kernels.keeps_activated = eager.kernels.keeps_unrotated = true;
  const double tokens = 2 * 4096;
  // 16 bits of 28,672 columns, 64 query and 8 key heads of 128, over the tensor ranks.
  CHECK(bytes(shape, eager) - bytes(shape, {}) == Approx(2 * tokens * (28672 + (64 + 8) * 128) / tensor));
  LayerShape gpt = shape;
  gpt.mlp = MlpKind::gelu;
  gpt.rotary = false;
  CHECK(bytes(gpt, eager) == bytes(gpt, {}));
  SoftwareStack norms;
  norms.kernels.kept_by_norm = 6;
  CHECK(bytes(shape, norms) - bytes(shape, {}) == Approx(2 * 6 * tokens * 8192));  // on every rank
  LayerShape normed = shape;                                                       // queries and keys too
  normed.qk_norm = true;
  CHECK(bytes(normed, norms) - bytes(normed, {}) ==
        Approx(6 * tokens * (2 * 8192 + (64 + 8) * 128.0 / tensor)));
}

TEST_CASE("an eager activation keeps its half, in experts also what is weighed, until it is recomputed") {
  LayerShape shape = test::llama70b_layer();
  shape.experts = GENERATE(1, 8);
  shape.experts_per_token = shape.experts > 1 ? 2 : 1;
  shape.shared_ffn = shape.experts > 1 ? 1024 : 0;
  ParallelStrategy strategy;
  strategy.flash_attention = true;
  const LocalLayer local = local_layer(shape, {.tensor = 2, .micro_batch = 2, .sequence = 4096});
  SoftwareStack eager;
  eager.kernels.eager_activation = true;
  const LayerActivations fused = layer_activations(shape, local, strategy, {}),
                         kept = layer_activations(shape, local, strategy, eager);
  // 16 bits of 28,672 columns over two ranks: of each token, or twice of each of its two copies and once of
  // the 1,024 of the expert that all visit.
  const double tokens = 2 * 4096, dense = 2 * tokens * 28672 / 2;
  const double more = shape.experts == 1 ? dense : 2 * 2 * dense + 2 * tokens * 1024 / 2;
  CHECK(kept.all() - fused.all() == Approx(more));
  const RecomputeModules modules{shape.experts == 1 ? RecomputeModule::mlp : RecomputeModule::moe,
                                 RecomputeModule::shared_experts};
  CHECK(kept.all() - dropped_by(kept, modules) == Approx(fused.all() - dropped_by(fused, modules)));
}

TEST_CASE("GELU by its formula moves and keeps what its kernels do, of dense MLPs that have GELU") {
  // transformers' NewGELUActivation in 16 bits: x^3, times 0.044715, plus x, times sqrt(2/pi), tanh, plus 1,
  // half of x, product. Two tensors each but the sum with x and the product, which have three.
  const double forward = 2 * (6 * 2 + 2 * 3);
  // Kept are x, tanh, half of x, 1 + tanh and the product; x and the product are kept of one kernel too.
  const double kept = 2 * 3;
  const SoftwareStack formula = read_stack("hf-trainer");
  CHECK(formula.kernels.gelu->forward == forward);
  CHECK(formula.kernels.gelu->kept == kept);
  SoftwareStack one = formula;
  one.kernels.gelu.reset();
  Sharding sharding = test::plain(2, 4096);
  ParallelStrategy strategy;
  strategy.flash_attention = true;
  const auto difference = [&](const LayerShape& shape) {
    const LocalLayer local = local_layer(shape, {.micro_batch = 2, .sequence = 4096});
    sharding.stack = formula;
    const double copied = test::copied_bytes(layer_operators(shape, true, sharding).forward);
    sharding.stack = one;
    return std::pair(copied - test::copied_bytes(layer_operators(shape, true, sharding).forward),
                     layer_activations(shape, local, strategy, formula).all() -
                         layer_activations(shape, local, strategy, one).all());
  };
  const double elements = 2.0 * 4096 * 4 * 12288;
  const auto [moved, stays] = difference(test::gpt3_layer());
  CHECK(moved == Approx(forward * elements));
  CHECK(stays == Approx(kept * elements));
  LayerShape relu = test::gpt3_layer();
  relu.activation = Activation::relu;
  for (const LayerShape& other : {relu, test::llama70b_layer()})
    CHECK(difference(other) == std::pair(0.0, 0.0));
}

TEST_CASE("gradients are all-reduced without the distributed optimizer, or where a program does so with it") {
  CHECK(gradient_collective(false, false) == CollectiveKind::all_reduce);
  CHECK(gradient_collective(false, true) == CollectiveKind::all_reduce);
  CHECK(gradient_collective(true, false) == CollectiveKind::reduce_scatter);
  CHECK(gradient_collective(true, true) == CollectiveKind::all_reduce);
}

}  // namespace orrery
