// What the cell of a published run says of recomputation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "strategies/recompute.hpp"
#include "strategies/strategy.hpp"

namespace orrery {

// Of full recomputation: so many layers of each part, or of so many layers together.
struct RecomputedLayers {
  int count;
  std::optional<int> of;
  bool operator==(const RecomputedLayers&) const = default;
};

struct SaidRecompute {
  Recompute recompute;  // of all layers, unless:
  std::optional<RecomputedLayers> layers;
};
// "full", "activation checkpointing", "full, 8 layers", "full (8 of 32 layers)", "full: block 4", "selective:
// moe", "gradient_checkpointing=False". Absent: another word, none, or what can mean more than one ("full
// attention").
std::optional<SaidRecompute> said_recompute(const std::string&);
std::string names_of_modules();  // "core_attn, layernorm, ..."

// The recomputation of a plan with these parts: Megatron-LM's block method, the first layers of each part.
// Absent where the layers said are not those of every part alike.
std::optional<Recompute> recompute_of_parts(const Recompute&, const RecomputedLayers&,
                                            const std::vector<LayerRange>& parts);

}  // namespace orrery
