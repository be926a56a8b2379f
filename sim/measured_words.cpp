#include "sim/measured_words.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <string_view>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

std::string letters_and_digits(const std::string& text) {
  std::string kept;
  for (const unsigned char c : text) {
    if (std::isalnum(c)) kept += static_cast<char>(std::tolower(c));
  }
  return kept;
}

bool has(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}
bool begins(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.starts_with(word); });
}

// Puts what `read` makes of the cell into `said`; false where that is nothing though the cell is not blank.
template <class Value, class Read>
bool take(const std::string& text, Read read, std::optional<Value>& said) {
  if (!text.empty()) said = read(text);
  return text.empty() || said.has_value();
}

}  // namespace

std::optional<Sharding> said_sharding(const std::string& text) {
  const std::string said = letters_and_digits(text);
  if (has(said, {"hsdp", "hybridshard"})) return Sharding::weights_in_node;
  if (has(said, {"zero2", "stage2", "shardgradop"})) return Sharding::gradients;
  if (has(said, {"zero3", "stage3", "fsdp", "fullyshard", "fullshard"})) return Sharding::weights;
  if (has(said, {"zero1", "stage1", "distributedoptimizer", "distopt"})) return Sharding::optimizer;
  if (begins(said, {"no", "ddp", "zero0", "false", "off"})) return Sharding::none;
  return std::nullopt;
}

std::optional<bool> said_switch(const std::string& text) {
  const std::string said = letters_and_digits(text);
  if (begins(said, {"no", "false", "off", "unfused", "eager"}) || said == "0") return false;
  if (begins(said, {"yes", "true", "on", "flash", "fa1", "fa2", "fa3", "fa4", "sdpa", "cudnn"}) ||
      said == "1")
    return true;
  return std::nullopt;
}

std::optional<RecomputeGranularity> said_recompute(const std::string& text) {
  const std::string said = letters_and_digits(text);
  if (begins(said, {"selective", "sac"})) return RecomputeGranularity::selective;
  if (begins(said, {"no", "false", "off"}) || said == "0") return RecomputeGranularity::none;
  if (begins(said, {"full", "yes", "true", "on"}) || has(said, {"checkpoint"}))
    return RecomputeGranularity::full;
  return std::nullopt;
}

std::optional<DataType> said_type(const std::string& text) {
  std::string said = letters_and_digits(text);
  if (has(said, {"fp4", "float4"})) return DataType::fp4;
  if (has(said, {"fp8", "float8"})) return DataType::fp8;
  const bool bf16 = has(said, {"bf16", "bfloat16"});
  for (const std::string_view word : {"bfloat16", "bf16"}) {
    for (std::size_t at; (at = said.find(word)) != std::string::npos;) said.erase(at, word.size());
  }
  if (has(said, {"fp16", "float16", "half", "16mixed"})) return DataType::fp16;
  if (bf16) return DataType::bf16;
  if (has(said, {"tf32", "tensorfloat"})) return DataType::tf32;
  if (has(said, {"fp32", "float32", "single"})) return DataType::fp32;
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
