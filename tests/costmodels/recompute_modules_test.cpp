// Selective recomputation by Megatron-LM's modules: what is repeated, and what is no longer kept.
#include "costmodels/layers/layer_operators.hpp"
#include "costmodels/layers/pass_pieces.hpp"
#include "costmodels/layers/stack_effects.hpp"
#include "costmodels/memory/layer_memory.hpp"
#include "costmodels/memory/memory.hpp"
#include "costmodels/operators/local_layer.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/layer_fixture.hpp"

namespace orrery {
namespace {

using test::all_of, test::llama70b_layer, test::mixtral_layer, test::plain;
using enum RecomputeModule;

// One second a compute operator, a hundred a collective.
PassTimes counted(const PassOperators& pass) {
  return {std::vector<Seconds>(pass.compute.size(), Seconds(1)),
          std::vector<Seconds>(pass.communication.size(), Seconds(100))};
}

Pass repeated(const LayerShape& shape, const Sharding& sharding, RecomputeModule module) {
  const BlockOperators layer = layer_operators(shape, true, sharding);
  return module_pass(layer, counted(layer.forward), module);
}

LayerShape deepseek_layer() {
  LayerShape shape = mixtral_layer();
  shape.latent = {.query_rank = 1536, .kv_rank = 512, .rope_dim = 64};
  shape.head_dim = 192;
  shape.value_dim = 128;
  shape.shared_ffn = 2048;
  return shape;
}

Sharding four_ranks() {
  Sharding sharding = plain(1, 4096);
  sharding.tensor = 4;
  sharding.expert = 4;
  sharding.sequence_parallel = true;
  return sharding;
}

}  // namespace

TEST_CASE("each module repeats its own operators, and experts as a whole all of theirs") {
  const Sharding sharding = four_ranks();
  const LayerShape shape = deepseek_layer();
  const auto gemms = [&](RecomputeModule module) {
    return all_of<Gemm>(repeated(shape, sharding, module).operators.compute).size();
  };
  const auto kernels = [&](RecomputeModule module, MemoryKernel kind) {
    std::size_t found = 0;
    for (const MemoryBound& op : all_of<MemoryBound>(repeated(shape, sharding, module).operators.compute))
      found += op.kernel == kind ? 1 : 0;
    return found;
  };
  CHECK(all_of<Attention>(repeated(shape, sharding, core_attn).operators.compute).size() == 1);
  CHECK(gemms(core_attn) == 0);
  CHECK(kernels(layernorm, MemoryKernel::norm) == 2);  // before latent attention and before experts
  CHECK(gemms(layernorm) == 0);
  CHECK(gemms(mla_up_proj) == 2);  // queries; keys and values
  CHECK(kernels(mla_up_proj, MemoryKernel::rope) == 1);
  CHECK(gemms(mlp) == 0);  // no dense one
  CHECK(gemms(moe_act) == 0);
  CHECK(kernels(moe_act, MemoryKernel::activation) == 1);
  CHECK(gemms(shared_experts) == 2);
  CHECK(gemms(moe) == 5);  // router, two of experts, two shared
  CHECK(kernels(moe, MemoryKernel::activation) == 2);
}

TEST_CASE("experts as a whole dispatch their tokens once more, activations alone do not") {
  const Pass all = repeated(deepseek_layer(), four_ranks(), moe);
  int exchanges = 0;
  for (std::size_t i = 0; i < all.operators.communication.size(); ++i) {
    exchanges += std::get<Collective>(all.operators.communication[i]).kind == CollectiveKind::all_to_all;
    CHECK(all.operators.places[i].after <= all.operators.compute.size());
  }
  CHECK(exchanges == 2);
  CHECK(all.operators.experts.count == 2);
  for (std::size_t i = all.operators.experts.first; i < all.operators.experts.end; ++i) {
    const Gemm* gemm = std::get_if<Gemm>(&all.operators.compute[i]);
    if (gemm != nullptr) CHECK(gemm->batch == 2);
  }
  CHECK(repeated(deepseek_layer(), four_ranks(), moe_act).operators.communication.empty());
}

TEST_CASE("a dense MLP repeats its two matrices, and with tensor ranks their collectives") {
  Sharding sharding = plain(1, 4096);
  sharding.tensor = 8;
  sharding.sequence_parallel = true;
  const Pass pass = repeated(llama70b_layer(), sharding, mlp);
  CHECK(all_of<Gemm>(pass.operators.compute).size() == 2);
  CHECK(pass.operators.communication.size() == 2);
  for (const RecomputeModule other : {layernorm, mla_up_proj, moe_act, shared_experts, moe})
    CHECK(repeated(llama70b_layer(), sharding, other).operators.compute.empty());
}

TEST_CASE("the cost of a set is the sum over its modules, those inside experts counted once") {
  const Sharding sharding = four_ranks();
  const BlockOperators layer = layer_operators(deepseek_layer(), true, sharding);
  BlockCost none, one;
  one.modules = module_costs(layer, counted(layer.forward), sharding);
  const auto compute = [&](const RecomputeModules& modules) {
    return repeated_between(none, one, modules).compute.value();
  };
  CHECK(compute({layernorm, moe_act}) == compute({layernorm}) + compute({moe_act}));
  CHECK(compute({moe, moe_act, shared_experts}) == compute({moe}));
  CHECK(compute({core_attn}) == 1);
  // Every operator of the layer's forward but residuals, projections down and out, which no module has.
  double all = 0;
  for (const RecomputeModule module : {core_attn, layernorm, mla_up_proj, moe}) all += compute({module});
  CHECK(all == static_cast<double>(layer.forward.compute.size()) - 2 - 3);
}

TEST_CASE("modules free what they make again") {
  const LayerShape shape = deepseek_layer();
  ParallelStrategy strategy;
  strategy.sequence = 4096;
  strategy.stages.resize(1);
  const LocalLayer local = local_layer(shape, {.sequence = 4096});
  const LayerActivations bytes = layer_activations(shape, local, strategy, {});
  const auto dropped = [&](const RecomputeModules& modules) { return dropped_by(bytes, modules); };
  const double tokens = 4096, element = 2;
  CHECK(dropped({core_attn}) == 0);                            // flash attention keeps no scores
  CHECK(dropped({layernorm}) == element * tokens * 2 * 4096);  // before attention and before experts
  // 32 heads: queries and keys of 192, values of 128; of 8 heads of keys.
  CHECK(dropped({mla_up_proj}) == element * tokens * (32 * 192 + 8 * (192 + 128)));
  CHECK(dropped({moe_act}) == element * tokens * 2 * 14336);  // two copies of a token
  CHECK(dropped({shared_experts}) == element * tokens * 3 * 2048);
  // Each copy before and after its expert, gate and up and their product; the shared expert.
  CHECK(dropped({moe}) == element * tokens * (2 * (2 * 4096 + 3 * 14336) + 3 * 2048));
  CHECK(dropped({moe, moe_act, shared_experts}) == dropped({moe}));
  CHECK(dropped({layernorm, mla_up_proj, moe}) < bytes.rest);
  const LayerShape dense = llama70b_layer();
  const LayerActivations plain_bytes =
      layer_activations(dense, local_layer(dense, {.sequence = 4096}), strategy, {});
  CHECK(dropped_by(plain_bytes, {mlp}) == element * tokens * 3 * 28672);
  // Of 8 bits the product that the last matrix reads is kept in them.
  strategy.type = DataType::fp8;
  const LayerActivations narrow =
      layer_activations(dense, local_layer(dense, {.sequence = 4096}), strategy, {});
  CHECK(dropped_by(narrow, {mlp}) == tokens * (2 * 2 * 28672 + 28672));
}

TEST_CASE("a stage keeps less by what its modules drop, of every layer and microbatch") {
  ModelSpec model = read_model("deepseek-v3");
  model.layers.assign(2, model.layers.back());
  model.vocabulary = 0;
  ParallelStrategy strategy;
  strategy.sequence = 4096;
  strategy.stages.resize(1);
  strategy.parts = {{0, 2}};
  const auto activations = [&] { return activation_bytes(model, strategy, 0, 0).value(); };
  const double all = activations();
  strategy.recompute.granularity = RecomputeGranularity::selective;
  CHECK(activations() == all);
  strategy.recompute.modules = {moe_act};
  // 8 experts a token of 2048.
  CHECK(activations() == all - 2 * 2.0 * 4096 * 8 * 2048);
}

}  // namespace orrery
