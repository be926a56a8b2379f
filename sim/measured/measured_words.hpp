// What the cells of a published run say that are words, however people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "platforms/gpu.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_recompute.hpp"
#include "sim/measured/measured_run.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// Of its program, in the row's cells framework and note; of its model, in model and note.
std::vector<Clause> framework_and_note(const MeasuredRun&);
std::vector<Clause> model_and_note(const MeasuredRun&);

// What replicas keep a share of: ZeRO-1, ZeRO-2, ZeRO-3 and FSDP, or HSDP, whose shares are of a node's.
enum class Sharding { none, optimizer, gradients, weights, weights_in_node };
// "ZeRO-1", "zero_stage 3", "FSDP2", "distributed optimizer: off", "no". Absent: another word, none, or "no
// FSDP", which leaves open what there is instead.
std::optional<Sharding> said_sharding(const std::string&);
// "yes (SDPA)", "True", "FlashAttention-2"; "no", "flash_attn=False". Absent: another word, or none.
std::optional<bool> said_switch(const std::string&);
// "MXFP8", "bfloat16", "fp16 mixed", the narrowest of several that are not denied. Absent: another word, or
// none.
std::optional<DataType> said_type(const std::string&);

// Of a model's name: "GPT MoE, 8 experts a token", "64 experts, top-2", "top_k=8". Absent: none.
std::optional<std::int64_t> said_experts_per_token(const std::string&);

// Of "experts in every second layer", "every other layer has experts", "moe_frequency=2", "--expert-interval
// 2", "interleave_moe_layer_step 2": 2; 1 to 100. Absent: none.
std::optional<std::int64_t> said_expert_interval(const std::string&);

// "capacity factor 1.25", "--moe-train-capacity-factor 2"; 0.1 to 100. Absent: none.
std::optional<double> said_expert_capacity(const std::string&);

// Which CUDA graphs a row says that a program of Megatron's had: of part of each layer (cuda_graph_scope) or
// of whole iterations ("full-iteration CUDA graph"; framework), or none at all (framework, note).
enum class SaidGraphs { nothing, none, parts, iterations };
SaidGraphs said_graphs(const MeasuredRun&);

inline constexpr const char* kOffloaded = "weights and optimizer offloaded to the host";
// Of one row, each absent where it is blank.
struct SaidWords {
  std::optional<Sharding> sharding;
  std::optional<bool> sequence_parallel, flash_attention;
  double optimizer_offload = 0;  // share of the optimizer on the host, and nothing else
  std::optional<SaidRecompute> recompute;
};
// Or what cannot be read: "recompute 'maybe'".
std::variant<SaidWords, std::string> said_words(const MeasuredRun&);

}  // namespace orrery
