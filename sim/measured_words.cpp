#include "sim/measured_words.hpp"

#include <string_view>

#include "platforms/errors.hpp"
#include "sim/cell_text.hpp"

namespace orrery {
namespace {

// Puts what `read` makes of the cell into `said`; false where that is nothing though the cell is not blank.
template <class Value, class Read>
bool take(const std::string& text, Read read, std::optional<Value>& said) {
  if (!text.empty()) said = read(text);
  return text.empty() || said.has_value();
}

}  // namespace

std::optional<Sharding> said_sharding(const std::string& text) {
  const std::string said = letters_and_digits(text);
  if (says_any(said, {"hsdp", "hybridshard"})) return Sharding::weights_in_node;
  if (says_any(said, {"zero2", "stage2", "shardgradop"})) return Sharding::gradients;
  if (says_any(said, {"zero3", "stage3", "fsdp", "fullyshard", "fullshard"})) return Sharding::weights;
  if (says_any(said, {"zero1", "stage1", "distributedoptimizer", "distopt"})) return Sharding::optimizer;
  if (starts_with_any(said, {"no", "ddp", "zero0", "false", "off"})) return Sharding::none;
  return std::nullopt;
}

std::optional<bool> said_switch(const std::string& text) {
  const std::string said = letters_and_digits(text);
  if (starts_with_any(said, {"no", "false", "off", "unfused", "eager"}) || said == "0") return false;
  if (starts_with_any(said, {"yes", "true", "on", "flash", "fa1", "fa2", "fa3", "fa4", "sdpa", "cudnn"}) ||
      said == "1")
    return true;
  return std::nullopt;
}

std::optional<RecomputeGranularity> said_recompute(const std::string& text) {
  const std::string said = letters_and_digits(text);
  if (starts_with_any(said, {"selective", "sac"})) return RecomputeGranularity::selective;
  if (starts_with_any(said, {"no", "false", "off"}) || said == "0") return RecomputeGranularity::none;
  if (starts_with_any(said, {"full", "yes", "true", "on"}) || says(said, "checkpoint"))
    return RecomputeGranularity::full;
  return std::nullopt;
}

std::optional<DataType> said_type(const std::string& text) {
  std::string said = letters_and_digits(text);
  if (says_any(said, {"fp4", "float4"})) return DataType::fp4;
  if (says_any(said, {"fp8", "float8"})) return DataType::fp8;
  const bool bf16 = says_any(said, {"bf16", "bfloat16"});
  for (const std::string_view word : {"bfloat16", "bf16"}) {
    for (std::size_t at; (at = said.find(word)) != std::string::npos;) said.erase(at, word.size());
  }
  if (says_any(said, {"fp16", "float16", "half", "16mixed"})) return DataType::fp16;
  if (bf16) return DataType::bf16;
  if (says_any(said, {"tf32", "tensorfloat"})) return DataType::tf32;
  if (says_any(said, {"fp32", "float32", "single"})) return DataType::fp32;
  return std::nullopt;
}

std::variant<SaidWords, std::string> said_words(const MeasuredRun& run) {
  SaidWords words;
  const auto unread = [&](const char* column, const char* expected) {
    return std::string(column) + " " + quote_for_message(run.text(column)) + ", not " + expected;
  };
  if (!take(run.text("optimizer_sharding"), said_sharding, words.sharding))
    return unread("optimizer_sharding", "ZeRO-1, ZeRO-2, ZeRO-3, FSDP, HSDP or no");
  if (!take(run.text("sequence_parallel"), said_switch, words.sequence_parallel))
    return unread("sequence_parallel", "yes or no");
  if (!take(run.text("flash_attn"), said_switch, words.flash_attention))
    return unread("flash_attn", "yes or no");
  if (!take(run.text("recompute"), said_recompute, words.recompute))
    return unread("recompute", "none, full or selective");
  return words;
}

}  // namespace orrery
