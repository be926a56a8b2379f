// What the tests of launch files share: the files, the gaps, an argument, and which flags Megatron-LM knows.
#pragma once

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "strategies/megatron.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/strategies/plan_fixture.hpp"

namespace orrery::test {

inline const Argument& argument(const ArgumentTable& table, const std::string& name) {
  const auto entry =
      std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.first == name; });
  INFO(name);
  REQUIRE(entry != table.end());
  return entry->second;
}

inline ParallelStrategy with_parts(std::vector<int> counts) {
  ParallelStrategy strategy;
  int next = 0;
  for (const int count : counts) {
    strategy.parts.push_back({next, count});
    next += count;
  }
  strategy.pipeline = static_cast<int>(counts.size());
  return strategy;
}

// Those of megatron/training/arguments.py and the configuration classes it makes flags of, August 2026.
inline std::set<std::string> known_flags() {
  std::istringstream words(R"(
--add-qkv-bias --attention-backend --attention-dropout --bf16 --ckpt-format --context-parallel-size
--cross-entropy-loss-fusion --data-parallel-sharding-strategy --disable-bias-linear
--expert-model-parallel-size --ffn-hidden-size --fp16 --fp4-format --fp8-format --global-batch-size
--group-query-attention --hidden-dropout --hidden-size --hybrid-override-pattern
--init-model-with-meta-device --is-hybrid-model --kv-channels --kv-lora-rank --mamba-head-dim
--mamba-num-groups --mamba-num-heads --mamba-state-dim --max-position-embeddings
--megatron-fsdp-main-grads-dtype --micro-batch-size --moe-aux-loss-coeff --moe-ffn-hidden-size
--moe-grouped-gemm --moe-latent-size --moe-layer-freq --moe-router-enable-expert-bias
--moe-router-group-topk --moe-router-load-balancing-type --moe-router-num-groups --moe-router-pre-softmax
--moe-router-score-function --moe-router-topk --moe-router-topk-scaling-factor --moe-shared-expert-gate
--moe-shared-expert-intermediate-size --moe-token-dispatcher-type --mscale --mscale-all-dim
--multi-latent-attention --no-bias-gelu-fusion --no-gradient-accumulation-fusion
--no-overlap-p2p-communication --normalization --num-attention-heads --num-distributed-optimizer-instances
--num-experts --num-layers --num-layers-per-virtual-pipeline-stage --num-query-groups
--optimizer-cpu-offload --optimizer-offload-fraction --overlap-grad-reduce --overlap-param-gather
--pipeline-model-parallel-layout --pipeline-model-parallel-size --position-embedding-type --q-lora-rank
--qk-head-dim --qk-layernorm --qk-pos-emb-head-dim --recompute-granularity --recompute-method
--recompute-num-layers --rope-scaling-factor --rotary-base --rotary-percent --rotary-scaling-factor
--seq-length --sequence-parallel --spec --squared-relu --swiglu --tensor-model-parallel-size
--tp-comm-overlap --untie-embeddings-and-output-weights --use-distributed-optimizer --use-flash-attn
--use-megatron-fsdp --use-precision-aware-optimizer --use-rope-scaling --v-head-dim
)");
  return {std::istream_iterator<std::string>(words), {}};
}

inline LaunchFiles files_of(const ModelSpec& model, const ParallelStrategy& strategy) {
  auto result = launch_files(model, strategy, two_kinds());
  if (auto* gaps = std::get_if<std::vector<std::string>>(&result)) FAIL("gap: " << gaps->front());
  return std::get<LaunchFiles>(result);
}

inline std::string first_gap(const ModelSpec& model, const ParallelStrategy& strategy) {
  const auto result = launch_files(model, strategy, two_kinds());
  const auto* gaps = std::get_if<std::vector<std::string>>(&result);
  return gaps == nullptr ? "none" : gaps->front();
}

// One a line.
inline std::string all_gaps(const ModelSpec& model, const ParallelStrategy& strategy) {
  std::string lines;
  for (const std::string& gap : megatron_gaps(model, strategy, two_kinds())) lines += gap + "\n";
  return lines;
}

inline void check_flags_are_known(const std::string& arguments) {
  const std::set<std::string> known = known_flags();
  std::istringstream lines(arguments);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(known.count(line.substr(0, line.find(' '))) == 1);
  }
}

}  // namespace orrery::test
