#include "sim/measured/measured_words.hpp"

#include <algorithm>
#include <regex>

#include "platforms/errors.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"

namespace orrery {
namespace {

// Puts what `read` makes of the cell into `said`; false where that is nothing though the cell is not blank.
template <class Value, class Read>
bool take(const std::string& text, Read read, std::optional<Value>& said) {
  if (!text.empty()) said = read(text);
  return text.empty() || said.has_value();
}

}  // namespace

std::vector<Clause> framework_and_note(const MeasuredRun& run) {
  return clauses_of(run.text("framework") + "; " + run.text("note"));
}

std::vector<Clause> model_and_note(const MeasuredRun& run) {
  return clauses_of(run.text("model") + "; " + run.text("note"));
}

SaidGraphs said_graphs(const MeasuredRun& run) {
  const std::vector<Clause> program = clauses_of(run.text("framework"));
  if (affirms(program, {"*partialcudagraph*", "cudagraphsofrouter"})) return SaidGraphs::parts;
  if (affirms(program, {"*fulliterationcudagraph*", "*fulliterationgraph*"})) return SaidGraphs::iterations;
  const bool none = said(framework_and_note(run), {"*cudagraph", "*cudagraphs"}) == Said::no;
  return none ? SaidGraphs::none : SaidGraphs::nothing;
}

std::optional<Sharding> said_sharding(const std::string& text) {
  const auto clauses = clauses_of(text);
  if (clauses.empty()) return std::nullopt;
  const Said in_node = said(clauses, {"hsdp*", "hybridshard*"});
  Said gradients = said(clauses, {"*zero2", "stage2", "shardgradop*"});
  const Said weights = said(clauses, {"*zero3", "stage3", "*fsdp*", "fullyshard*", "fullshard*"});
  // FSDP that keeps the weights it gathered for the forward (PyTorch's fully_shard).
  if (weights == Said::yes && said(clauses, {"reshardafterforward"}) == Said::no) gradients = Said::yes;
  const Said optimizer = said(clauses, {"*zero1", "stage1", "*distributedoptimizer*", "distopt*"});
  if (affirms(clauses, {"noshard"})) return Sharding::none;  // FSDP's NO_SHARD
  if (in_node == Said::yes) return Sharding::weights_in_node;
  if (gradients == Said::yes) return Sharding::gradients;
  if (weights == Said::yes) return Sharding::weights;
  if (optimizer == Said::yes) return Sharding::optimizer;
  if (is_denial(clauses.front()) || affirms(clauses, {"ddp*", "*zero0", "stage0", "unsharded"}))
    return Sharding::none;
  // Who has no ZeRO-3 may have ZeRO-1.
  if (in_node == Said::no || gradients == Said::no || weights == Said::no) return std::nullopt;
  const bool denied = optimizer == Said::no || said(clauses, {"zero", "sharded", "sharding"}) == Said::no;
  return denied ? std::optional(Sharding::none) : std::nullopt;
}

std::optional<bool> said_switch(const std::string& text) {
  const auto clauses = clauses_of(text);
  if (clauses.empty()) return std::nullopt;
  if (is_denial(clauses.front())) return false;
  if (affirms(clauses, {"only", "except", "partly", "partially", "some"})) return std::nullopt;
  switch (
      said(clauses, {"yes", "true", "on", "1", "enabled", "used", "flash*", "fa", "fa1", "fa2", "fa3", "fa4",
                     "sdpa*", "cudnn*", "memoryefficient*", "xformers", "sp", "sequenceparallel*"})) {
    case Said::yes:
      return true;
    case Said::no:
      return false;
    case Said::nothing:
      break;
  }
  if (affirms(clauses, {"unfused", "eager"})) return false;
  return std::nullopt;
}

std::optional<DataType> said_type(const std::string& text) {
  const auto clauses = clauses_of(text);
  if (affirms(clauses, {"*fp4*", "float4*"})) return DataType::fp4;
  if (affirms(clauses, {"*fp8*", "float8*"})) return DataType::fp8;
  if (affirms(clauses, {"*fp16*", "float16*", "half", "16mixed"})) return DataType::fp16;
  if (affirms(clauses, {"*bf16*", "bfloat16*"})) return DataType::bf16;
  if (affirms(clauses, {"*tf32*", "tensorfloat*"})) return DataType::tf32;
  if (affirms(clauses, {"*fp32*", "float32*", "single"})) return DataType::fp32;
  return std::nullopt;
}

std::optional<std::int64_t> said_experts_per_token(const std::string& text) {
  static const std::regex kPerToken(
      R"((\d{1,4}) +(?:active +|activated +)?experts? +(?:a|per|each|/) *token|\btop[ _-]?k?[ _=:-]*(\d{1,4})\b)",
      std::regex::icase);
  constexpr std::size_t kLongest = 200;  // std::regex goes as deep as its text is long
  std::smatch found;
  const std::string start = text.substr(0, kLongest);
  if (!std::regex_search(start, found, kPerToken)) return std::nullopt;
  const std::int64_t said = std::stoll(found[1].matched ? found[1] : found[2]);
  return said > 0 ? std::optional(said) : std::nullopt;
}

std::optional<std::int64_t> said_expert_interval(const std::string& text) {
  static const std::string kEvery =
      R"(every (?:(other|second|third|fourth)|(\d{1,2})(?:nd|rd|th)) (?:layer|block))";
  static const std::regex kOrdinal(R"((?:experts?|moe)(?: layers?| blocks?)? (?:in|at|of|for) )" + kEvery +
                                   "|" + kEvery +
                                   R"( (?:has|is|with|of|a|an|moe)[ a-z]{0,12}(?:experts?|moe))"),
      kSwitch(
          R"((?:expert[ _-]?interval|moe[ _-]?(?:layer[ _-]?)?freq(?:uency)?|moe[ _-]?layer[ _-]?step)[ "':=]*(\d{1,2})(?!\d))");
  constexpr std::size_t kLongest = 400;  // std::regex goes as deep as its text is long
  const std::string low = lower_case(text).substr(0, kLongest);
  std::smatch found;
  if (std::regex_search(low, found, kOrdinal)) {
    const std::string word = found[1].matched ? found[1] : found[3];
    const std::string number = found[2].matched ? found[2] : found[4];
    if (!number.empty()) return std::max<std::int64_t>(1, std::stoll(number));
    return word == "third" ? 3 : word == "fourth" ? 4 : 2;
  }
  if (!std::regex_search(low, found, kSwitch)) return std::nullopt;
  return std::max<std::int64_t>(1, std::stoll(found[1]));
}

std::optional<double> said_expert_capacity(const std::string& text) {
  static const std::regex kFactor(
      R"(^capacity[ _-]?factor[ "':=]*(?:of |is )?(\d{1,2}(?:\.\d{1,4})?)(?![\d.]*\d))");
  const std::string low = lower_case(text);
  constexpr std::size_t kLongest = 100;  // std::regex goes as deep as its text is long
  std::smatch found;
  for (std::size_t at = low.find("capacity"); at != std::string::npos; at = low.find("capacity", at + 1)) {
    const std::string start = low.substr(at, kLongest);
    if (!std::regex_search(start, found, kFactor)) continue;
    const double factor = std::stod(found[1]);
    if (factor >= 0.1) return factor;
  }
  return std::nullopt;
}

namespace {

// "no (SDPA's memory-efficient kernel)" has a kernel that stores no scores.
std::optional<bool> said_flash_attention(const std::string& text) {
  if (affirms(clauses_of(text), {"*memoryefficient*", "xformers"})) return true;
  return said_switch(text);
}

// "ZeRO-3 + optimizer offload (fraction 0.25)"; all where none is said.
double said_fraction(const std::string& cell) {
  static const std::regex kFraction(R"((?:fraction|ratio)\s*(0?\.\d+))", std::regex::icase);
  std::smatch found;
  return std::regex_search(cell, found, kFraction) ? std::stod(found[1]) : 1.0;
}

}  // namespace

std::variant<SaidWords, std::string> said_words(const MeasuredRun& run) {
  SaidWords words;
  const auto unread = [&](const char* column, const std::string& expected) {
    return std::string(column) + " " + quote_for_message(run.text(column)) + ", not " + expected;
  };
  if (!take(run.text("optimizer_sharding"), said_sharding, words.sharding))
    return unread("optimizer_sharding", "ZeRO-1, ZeRO-2, ZeRO-3, FSDP, HSDP or no");
  const auto sharding = clauses_of(run.text("optimizer_sharding"));
  const bool offloaded = affirms(
      sharding, {"*optimizeroffload*", "*offloadoptimizer*", "*optimizercpuoffload*", "cpuoptimizer"});
  if (offloaded) words.optimizer_offload = said_fraction(run.text("optimizer_sharding"));
  if (!offloaded && affirms(sharding, {"*offload*"}))
    return "optimizer_sharding " + quote_for_message(run.text("optimizer_sharding")) + ": " + kOffloaded;
  if (!take(run.text("sequence_parallel"), said_switch, words.sequence_parallel))
    return unread("sequence_parallel", "yes or no");
  if (!take(run.text("flash_attn"), said_flash_attention, words.flash_attention))
    return unread("flash_attn", "yes or no");
  if (!take(run.text("recompute"), said_recompute, words.recompute))
    return unread("recompute",
                  "none, full, full of N layers by block or uniform, or selective with modules (" +
                      names_of_modules() + ")");
  return words;
}

}  // namespace orrery
