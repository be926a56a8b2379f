// Scores and logits that tanh keeps below a cap (Gemma 2).
#include "costmodels/memory/memory.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/gpt_plans.hpp"
#include "tests/costmodels/layer_fixture.hpp"

namespace orrery {
namespace {

using namespace test;

// Three kernels read and write 16 bits forward; backward the middle one reads its output besides.
constexpr double kForward = 3 * (2 + 2), kBackward = (2 + 2) + (2 + 2 + 2) + (2 + 2);

Sharding one_sequence(AttentionKernel attention) {
  Sharding sharding = plain(1, 2048);
  sharding.attention = attention;
  return sharding;
}

}  // namespace

TEST_CASE("capped scores are three kernels of unfused attention, and none of a fused one") {
  LayerShape capped = gpt3_layer();
  capped.capped_scores = true;
  const double scores = 2048.0 * 2048 * 96;
  for (const AttentionKernel kernel : {AttentionKernel::unfused, AttentionKernel::flash2}) {
    const BlockOperators with = layer_operators(capped, true, one_sequence(kernel));
    const BlockOperators without = layer_operators(gpt3_layer(), true, one_sequence(kernel));
    const double times = kernel == AttentionKernel::unfused ? scores : 0;
    const MemoryKernel kind = MemoryKernel::activation;
    CHECK(bytes_of(with.forward, kind) - bytes_of(without.forward, kind) == Approx(kForward * times));
    CHECK(bytes_of(with.backward, kind) - bytes_of(without.backward, kind) == Approx(kBackward * times));
  }
}

TEST_CASE("capped logits are three kernels and a tensor, unless a compiled loss has them in its own") {
  ModelSpec model = gpt_layers(1), capped = model;
  model.vocabulary = capped.vocabulary = 51200;
  capped.capped_logits = true;
  const double logits = 2048.0 * 51200;
  for (const CrossEntropyKernel loss : {CrossEntropyKernel::separate, CrossEntropyKernel::online}) {
    Sharding sharding = one_sequence(AttentionKernel::flash2);
    sharding.stack.cross_entropy = loss;
    const double times = loss == CrossEntropyKernel::separate ? logits : 0;
    const BlockOperators with = head_operators(capped, sharding), without = head_operators(model, sharding);
    const MemoryKernel kind = MemoryKernel::cross_entropy;
    CHECK(bytes_of(with.forward, kind) - bytes_of(without.forward, kind) == Approx(kForward * times));
    CHECK(bytes_of(with.backward, kind) - bytes_of(without.backward, kind) == Approx(kBackward * times));
    const ParallelStrategy strategy = spread(model, {});
    const Bytes more = stage_memory(capped, strategy, 0, {1}, sharding.stack).logits -
                       stage_memory(model, strategy, 0, {1}, sharding.stack).logits;
    CHECK(more.value() == Approx(2 * times * static_cast<double>(strategy.micro_batch)));
  }
}

TEST_CASE("a layer keeps what tanh gave of unfused scores") {
  ModelSpec model = gpt_layers(1), capped = model;
  capped.shapes.front().capped_scores = true;
  ParallelStrategy strategy = spread(model, {});
  const auto more = [&] {
    return activation_bytes(capped, strategy, 0, 0, {}) - activation_bytes(model, strategy, 0, 0, {});
  };
  CHECK(more() == Bytes(0));
  strategy.flash_attention = false;
  const double scores = static_cast<double>(strategy.micro_batch * model.shapes.front().heads) * 2048 * 2048;
  CHECK(more().value() == Approx(2 * scores));
}

}  // namespace orrery
