#include "sim/measured/measured_recompute.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "platforms/errors.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"

namespace orrery {
namespace {

// What a word tells.
enum class Tells {
  full,
  selective,
  recomputes,
  off,
  module,
  number,
  layers,
  block,
  uniform,
  of,
  attention,
  some,
  nothing,
  unknown
};

struct Word {
  std::string_view text;
  Tells tells;
};
constexpr std::array kWords{
    Word{"full", Tells::full},
    Word{"sac", Tells::selective},
    // MaxText's remat_policy: results of matrices are kept, and attention's too or not.
    Word{"minimal", Tells::selective},
    Word{"minimal_flash", Tells::off},
    Word{"minimal_with_context", Tells::off},
    Word{"remat", Tells::nothing},
    Word{"remat_policy", Tells::nothing},
    Word{"policy", Tells::nothing},
    Word{"ac", Tells::recomputes},
    Word{"yes", Tells::recomputes},
    Word{"true", Tells::recomputes},
    Word{"on", Tells::recomputes},
    Word{"enabled", Tells::recomputes},
    Word{"used", Tells::recomputes},
    Word{"layer", Tells::layers},
    Word{"layers", Tells::layers},
    Word{"blocks", Tells::layers},
    Word{"num_layers", Tells::layers},
    Word{"recompute_num_layers", Tells::layers},
    Word{"block", Tells::block},
    Word{"uniform", Tells::uniform},
    Word{"of", Tells::of},
    Word{"attention", Tells::attention},
    Word{"attn", Tells::attention},
    Word{"only", Tells::some},
    Word{"except", Tells::some},
    Word{"last", Tells::some},
    Word{"half", Tells::some},
    Word{"every", Tells::some},
    Word{"some", Tells::some},
    Word{"partial", Tells::some},
    Word{"partly", Tells::some},
    Word{"one", Tells::number},
    Word{"first", Tells::nothing},
    Word{"all", Tells::nothing},
    Word{"the", Tells::nothing},
    Word{"per", Tells::nothing},
    Word{"each", Tells::nothing},
    Word{"at", Tells::nothing},
    Word{"a", Tells::nothing},
    Word{"time", Tells::nothing},
    Word{"and", Tells::nothing},
    Word{"op", Tells::nothing},
    Word{"transformer", Tells::nothing},
    Word{"activation", Tells::nothing},
    Word{"activations", Tells::nothing},
    Word{"gradient", Tells::nothing},
    Word{"gradients", Tells::nothing},
    Word{"granularity", Tells::nothing},
    Word{"method", Tells::nothing},
    Word{"num", Tells::nothing},
    Word{"module", Tells::nothing},
    Word{"modules", Tells::nothing},
};

std::optional<RecomputeModule> module_called(std::string_view word) {
  const auto known = std::find_if(kRecomputeModules.begin(), kRecomputeModules.end(),
                                  [&](RecomputeModule module) { return to_text(module) == word; });
  return known == kRecomputeModules.end() ? std::nullopt : std::optional(*known);
}

Tells tells(std::string_view word) {
  const auto known =
      std::find_if(kWords.begin(), kWords.end(), [&](const Word& one) { return one.text == word; });
  if (known != kWords.end()) return known->tells;
  if (module_called(word)) return Tells::module;
  if (word.find_first_not_of("0123456789") == std::string_view::npos) return Tells::number;
  if (word.starts_with("selective")) return Tells::selective;
  return says_any(word, {"checkpoint", "recomput", "ckpt"}) ? Tells::recomputes : Tells::unknown;
}

// "activation checkpointing of every block" is of all layers; "every second layer", "every 2 layers" are not.
Clause without_every_layer(const Clause& clause) {
  Clause kept;
  for (std::size_t i = 0; i < clause.size(); ++i) {
    const std::size_t layer = i + 1 < clause.size() && clause[i + 1] == "transformer" ? i + 2 : i + 1;
    const bool every = clause[i] == "every" && layer < clause.size() &&
                       (clause[layer] == "layer" || clause[layer] == "block");
    if (every)
      i = layer;
    else
      kept.push_back(clause[i]);
  }
  return kept;
}

// What all clauses tell together.
struct Told {
  bool full = false, selective = false, recomputes = false, off = false;
  bool layers = false, block = false, uniform = false, of = false;
  bool remark = false;  // of words that are not known
  bool doubt = false;
  std::vector<int> numbers;
  std::vector<RecomputeModule> modules;
};

void hear(const Clause& clause, Told& told) {
  constexpr std::size_t kMostDigits = 6;
  const auto has = [&](std::initializer_list<Tells> wanted) {
    return std::any_of(clause.begin(), clause.end(), [&](const std::string& word) {
      return !denies(word) && std::find(wanted.begin(), wanted.end(), tells(word)) != wanted.end();
    });
  };
  const bool cuts = has({Tells::layers, Tells::block, Tells::uniform, Tells::some});
  if (std::any_of(clause.begin(), clause.end(), denies)) {
    // "not full" leaves selective open; "no layers" is no way to say anything.
    told.doubt |= cuts;
    told.off |= is_denial(clause) || (has({Tells::recomputes}) && !has({Tells::full, Tells::selective}));
    return;
  }
  const bool claims = has({Tells::full, Tells::selective, Tells::recomputes, Tells::module});
  const bool unknown = has({Tells::unknown});
  // "full attention", "full (attention)"; but flash attention is another matter.
  told.doubt |= has({Tells::some}) || (unknown ? claims || cuts : has({Tells::attention}));
  if (unknown && !claims && !cuts) {
    told.remark = true;
    return;
  }
  told.full |= has({Tells::full});
  told.selective |= has({Tells::selective});
  told.recomputes |= has({Tells::recomputes});
  told.off |= has({Tells::off});
  told.layers |= has({Tells::layers});
  told.block |= has({Tells::block});
  told.uniform |= has({Tells::uniform});
  for (const std::string& word : clause) {
    const Tells what = tells(word);
    if (what == Tells::module) told.modules.push_back(*module_called(word));
    if (what == Tells::of) told.of = !told.numbers.empty();  // "8 of 32", and not "of 8 layers"
    if (what != Tells::number) continue;
    told.doubt |= word.size() > kMostDigits;
    if (!told.doubt) told.numbers.push_back(word == "one" ? 1 : std::stoi(word));
  }
}

// Which layers, of full recomputation. One layer is all of them, one by one, or the first alone.
std::optional<SaidRecompute> in_said_layers(const Told& told) {
  SaidRecompute said{{.granularity = RecomputeGranularity::full}, std::nullopt};
  const std::vector<int>& numbers = told.numbers;
  if (told.block && told.uniform) return std::nullopt;
  if (numbers.empty()) return told.block ? std::nullopt : std::optional(said);
  if (numbers.front() == 0 || numbers.size() != (told.of ? 2 : 1)) return std::nullopt;
  if (told.uniform) {
    if (told.of) return std::nullopt;
    said.recompute.layers = numbers.front();
    return said;
  }
  if (!told.block && (!told.layers || (numbers.front() == 1 && !told.of))) return std::nullopt;
  said.layers = {numbers.front(), std::nullopt};
  if (told.of) said.layers->of = numbers.back();
  return said;
}

}  // namespace

std::optional<SaidRecompute> said_recompute(const std::string& text) {
  const std::vector<Clause> clauses = clauses_of(text, "_");
  if (clauses.empty()) return std::nullopt;
  if (is_denial(clauses.front())) return SaidRecompute{};
  Told told;
  for (const Clause& clause : clauses) hear(without_every_layer(clause), told);
  if (told.doubt || (told.full && told.selective)) return std::nullopt;
  if (told.selective) {
    if (told.off || told.remark || told.layers || told.block || told.uniform || !told.numbers.empty())
      return std::nullopt;
    SaidRecompute said{{.granularity = RecomputeGranularity::selective}, std::nullopt};
    if (!told.modules.empty()) said.recompute.modules = std::initializer_list<RecomputeModule>{};
    for (const RecomputeModule module : told.modules) said.recompute.modules.add(module);
    return said;
  }
  if (!told.modules.empty()) return std::nullopt;
  if (told.full) return told.off ? std::nullopt : in_said_layers(told);
  if (told.off) return SaidRecompute{};
  return told.recomputes ? in_said_layers(told) : std::nullopt;
}

std::string names_of_modules() {
  std::vector<std::string> names;
  for (const RecomputeModule module : kRecomputeModules) names.emplace_back(to_text(module));
  return comma_list(names);
}

std::optional<Recompute> recompute_of_parts(const Recompute& recompute, const RecomputedLayers& said,
                                            const std::vector<LayerRange>& parts) {
  int all = 0, most = 0, least = 0, with_layers = 0;
  for (const LayerRange& part : parts) {
    if (part.count == 0) continue;
    all += part.count;
    most = std::max(most, part.count);
    least = with_layers == 0 ? part.count : std::min(least, part.count);
    ++with_layers;
  }
  int count = said.count;
  if (count > all) return std::nullopt;
  if (said.of) {
    const bool of_model = *said.of == all, of_each_part = *said.of == most && most == least;
    if (count > *said.of || (!of_model && !of_each_part)) return std::nullopt;
    if (of_model && count % with_layers != 0) return std::nullopt;
    if (of_model) count /= with_layers;
    if (count > least) return std::nullopt;  // fewer of that part than of the others
  }
  Recompute some = recompute;
  if (count >= most) return some;
  some.method = RecomputeMethod::block;
  some.layers = count;
  return some;
}

}  // namespace orrery
