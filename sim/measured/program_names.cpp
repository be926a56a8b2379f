#include "sim/measured/program_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>

namespace orrery {
namespace {

struct Spelling {
  std::string_view letters;  // in lower case, without signs
  std::string_view name;
};
constexpr std::array kSpellings{
    Spelling{"nemoautomodel", "NeMo AutoModel"},
    Spelling{"nemo", "NeMo"},
    Spelling{"megatrondeepspeed", "Megatron-DeepSpeed"},
    Spelling{"megatronbridge", "Megatron-Bridge"},
    Spelling{"megatroncore", "Megatron-Core"},
    Spelling{"mcore", "Megatron-Core"},
    Spelling{"megatronlm", "Megatron-LM"},
    Spelling{"megatronllama", "Megatron-LLaMA"},
    Spelling{"deepspeedzero3", "DeepSpeed ZeRO-3"},
    Spelling{"deepspeedzerostage3", "DeepSpeed ZeRO-3"},
    Spelling{"torchtitan", "torchtitan"},
    Spelling{"torchtune", "torchtune"},
    Spelling{"llmfoundry", "llm-foundry"},
    Spelling{"internevo", "InternEvo"},
    Spelling{"flagscale", "FlagScale"},
    Spelling{"fastllm", "Fast-LLM"},
    Spelling{"metaseq", "metaseq"},
    Spelling{"kempnerforge", "KempnerForge"},
};

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

// Where the text goes on after the letters; absent where it does not begin with them as whole words.
std::optional<std::size_t> end_of(std::string_view letters, std::string_view text) {
  std::size_t matched = 0, at = 0;
  for (; at < text.size() && matched < letters.size(); ++at) {
    if (!is_word_character(text[at])) continue;
    if (std::tolower(static_cast<unsigned char>(text[at])) != letters[matched++]) return std::nullopt;
  }
  const bool whole = matched == letters.size() && (at == text.size() || !is_word_character(text[at]));
  return whole ? std::optional(at) : std::nullopt;
}

}  // namespace

std::string with_known_spelling(const std::string& framework) {
  for (const Spelling& known : kSpellings) {
    if (const auto end = end_of(known.letters, framework))
      return std::string(known.name) + framework.substr(*end);
  }
  return framework;
}

}  // namespace orrery
