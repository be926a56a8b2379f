// What the layers of published models are like that are not built in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/measured/measured_run.hpp"
#include "strategies/model.hpp"

namespace orrery {

// What layers are like, by words in a model's name.
struct LayerFamily {
  std::string_view words = {};  // any of them
  const char* name;
  MlpKind mlp = MlpKind::gelu;
  NormKind norm = NormKind::layer_norm;
  bool bias = false, rotary = false, learned_positions = false, tied = false;
  bool both_ways = false, parallel_residual = false;
  bool qk_norm = false, wide_qk_norm = false;  // of `LayerShape`
  bool capped_scores = false, capped_logits = false;
  int norms = 2;
};

std::string to_text(const LayerFamily&);  // "Llama: gated MLP, RMSNorm, rotary, untied, no biases"

// The family of the model's name. One that no family has: GPT's layers, unless its MLP is not of 4 h, as two
// matrices have, or, where nobody says how wide that is, keys and values are shared: Llama's then.
const LayerFamily& family_of(const MeasuredRun&, std::int64_t hidden);

}  // namespace orrery
