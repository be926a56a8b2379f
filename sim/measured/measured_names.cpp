#include "sim/measured/measured_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "sim/measured/cell_text.hpp"
#include "strategies/model.hpp"

namespace orrery {
namespace {

// "NVIDIA A100 80GB HBM2e": a100, 80gb.
std::vector<std::string> card_words(const std::string& name) {
  constexpr std::array kNoise{"nvidia", "geforce", "tesla",       "amd",       "instinct",   "gpu",
                              "dgx",    "hgx",     "hbm2",        "hbm2e",     "hbm3",       "hbm3e",
                              "nvl72",  "nvl36",   "one",         "blackwell", "generation", "edition",
                              "server", "hopper",  "workstation", "oam",       "ac"};
  std::vector<std::string> words(1);
  for (const unsigned char c : name) {
    if (std::isalnum(c)) {
      words.back() += static_cast<char>(std::tolower(c));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  const auto is_noise = [&](const std::string& word) {
    return word.empty() || std::find(kNoise.begin(), kNoise.end(), word) != kNoise.end();
  };
  words.erase(std::remove_if(words.begin(), words.end(), is_noise), words.end());
  // "80 GB" is one word, and so is "80G"; "8x" before a card counts them.
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] != "gb") continue;
    words[i - 1] += "gb";
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (std::string& word : words) {
    const std::size_t digits = word.find_first_not_of("0123456789");
    if (digits == 0 || digits == std::string::npos) continue;
    if (word.substr(digits) == "g") word += "b";
    if (word[digits] == 'x' && digits + 1 < word.size()) word.erase(0, digits + 1);
  }
  return words;
}

// Forms of a board are matched by how they start: SXM is SXM4, SXM3 is not SXM2 but the same board faster or
// slower by a few percent.
bool is_word_of(const std::string& word, const std::vector<std::string>& card) {
  const std::string form = word.rfind("sxm", 0) == 0 ? "sxm" : word;
  return std::any_of(card.begin(), card.end(), [&](const std::string& own) {
    return form == "sxm" ? own.rfind(form, 0) == 0 : own == word;
  });
}

// "192gb" of a B200, of which its driver says 180: within a tenth.
bool is_memory_of(const std::string& word, const GpuSpec& gpu) {
  const std::size_t digits = word.find_first_not_of("0123456789");
  if (digits == 0 || digits > 3 || word.substr(digits) != "gb") return false;
  constexpr double kApart = 0.1;
  return std::abs(std::stod(word) / to_gibibytes(gpu.memory) - 1) < kApart;
}

}  // namespace

const GpuSpec* gpu_called(const std::string& name, double gigabytes) {
  std::vector<std::string> words = card_words(name);
  if (words.empty()) return nullptr;
  // Where the name is an alias its card comes first; with another memory it is another card.
  const auto has_memory = [&](const GpuSpec& gpu) {
    return gigabytes == 0 || is_word_of(std::to_string(std::lround(gigabytes)) + "gb", card_words(gpu.name));
  };
  // Word by word; `about`: with what is sold of its memory.
  const auto has_words = [&](const GpuSpec& gpu, bool about) {
    const std::vector<std::string> card = card_words(gpu.name);
    return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
      return is_word_of(word, card) || (about && is_memory_of(word, gpu));
    });
  };
  const auto fits = [&](const GpuSpec& gpu) { return has_words(gpu, false); };
  const auto is_alias = [&](const GpuSpec& gpu) {
    return std::any_of(gpu.aliases.begin(), gpu.aliases.end(),
                       [&](const std::string& alias) { return card_words(alias) == words; });
  };
  const std::vector<GpuSpec>& catalog = gpu_catalog();
  const auto first = [&](const auto& wanted) {
    const auto found = std::find_if(catalog.begin(), catalog.end(), wanted);
    return found == catalog.end() ? nullptr : &*found;
  };
  const GpuSpec* found = first([&](const GpuSpec& gpu) { return is_alias(gpu) && has_memory(gpu); });
  if (!found) found = first([&](const GpuSpec& gpu) { return fits(gpu) && has_memory(gpu); });
  if (!found) found = first(is_alias);
  if (!found) found = first(fits);
  if (!found) found = first([&](const GpuSpec& gpu) { return has_words(gpu, true); });
  // "GB10 (DGX Spark)", a card and its machine.
  if (const std::size_t machine = name.find(" ("); !found && machine != std::string::npos)
    return gpu_called(name.substr(0, machine), gigabytes);
  return found;
}

std::string_view architecture_of(const MeasuredRun& run) {
  const GpuSpec* gpu = gpu_called(run.text("gpu"), 0);
  return gpu ? std::string_view(gpu->architecture) : std::string_view();
}

bool multiplies_in_fp8(const MeasuredRun& run) {
  const GpuSpec* gpu = gpu_called(run.text("gpu"), 0);
  return gpu && gpu->fp8.has_value();
}

std::optional<std::string> builtin_model_called(const std::string& name) {
  // "meta-llama/Meta-Llama-3.1-405B"; of that size 3.1, and 3.3, have the layers of 3.
  std::string wanted = letters_and_digits(name.substr(name.rfind('/') + 1));
  if (wanted.starts_with("metallama")) wanted.erase(0, 4);
  const auto longest = [](const std::string& text) {
    std::optional<std::string> found;
    for (const std::string& known : builtin_model_names()) {
      if (!text.starts_with(letters_and_digits(known))) continue;
      if (!found || known.size() > found->size()) found = known;
    }
    return found;
  };
  if (auto found = longest(wanted)) return found;
  for (const std::string_view release : {"llama31", "llama33"}) {
    if (wanted.starts_with(release)) return longest("llama3" + wanted.substr(release.size()));
  }
  return std::nullopt;
}

}  // namespace orrery
