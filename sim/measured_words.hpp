// What the cells of a published run say that are words, however people write them.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "platforms/gpu.hpp"
#include "sim/measured_run.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// What replicas keep a share of: ZeRO-1, ZeRO-2, ZeRO-3 and FSDP, or HSDP, whose shares are of a node's.
enum class Sharding { none, optimizer, gradients, weights, weights_in_node };
// "ZeRO-1", "zero_stage 3", "FSDP2", "distributed optimizer", "no". Absent: another word, or none.
std::optional<Sharding> said_sharding(const std::string&);
// "yes (SDPA)", "True", "FlashAttention-2"; "no", "False". Absent: another word, or none.
std::optional<bool> said_switch(const std::string&);
// "full", "activation checkpointing", "selective: moe", "none". Absent: another word, or none.
std::optional<RecomputeGranularity> said_recompute(const std::string&);
// "MXFP8", "bfloat16", "fp16 mixed", the narrowest of several. Absent: another word, or none.
std::optional<DataType> said_type(const std::string&);

// Of one row, each absent where it is blank.
struct SaidWords {
  std::optional<Sharding> sharding;
  std::optional<bool> sequence_parallel, flash_attention;
  std::optional<RecomputeGranularity> recompute;
};
// Or what cannot be read: "recompute 'maybe'".
std::variant<SaidWords, std::string> said_words(const MeasuredRun&);

}  // namespace orrery
