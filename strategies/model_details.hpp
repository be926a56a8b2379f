// What a model says that changes none of its times; launch files need it.
#pragma once

#include <cstdint>

namespace orrery {

// What bends an MLP: of both its matrices' outputs where it is gated (SwiGLU is silu, GeGLU gelu).
enum class Activation { gelu, silu, relu, squared_relu, other };

// How wavelengths of rotary positions are stretched: by Llama 3.1's rule for 8,192 tokens, by YaRN (arXiv
// 2309.00071) over 4,096 with beta_fast 32 and beta_slow 1 (DeepSeek-V2), or otherwise.
enum class RotaryStretch { none, llama3, yarn, other };

struct RotaryPositions {
  double base = 10'000;  // of the wavelengths (rope_theta)
  double share = 1;      // of each head's width that turns (partial_rotary_factor)
  RotaryStretch stretch = RotaryStretch::none;
  double factor = 1;  // of the stretch; the next two are of YaRN
  double mscale = 1;
  double mscale_all_dim = 0;
  bool operator==(const RotaryPositions&) const = default;
};
// Whether sines and cosines are multiplied by a factor other than 1 (_yarn_get_concentration_factor of
// Megatron-LM core/models/common/embeddings/yarn_rotary_pos_embedding.py).
inline bool scales_rotation(const RotaryPositions& rotary) {
  return rotary.stretch == RotaryStretch::yarn && rotary.factor > 1 && rotary.mscale != rotary.mscale_all_dim;
}

// How tokens choose experts and how these are kept busy alike. As Mixtral where nothing is said.
struct ExpertRouter {
  bool sigmoid = false;             // of each score by itself (DeepSeek-V3), or softmax over the experts
  bool normalised = true;           // the weights of the chosen experts add up to one
  double scaling = 1;               // of those weights
  std::int64_t groups = 1;          // experts are chosen from the best `chosen_groups` of so many
  std::int64_t chosen_groups = 1;   //
  double balance_loss = 0;          // coefficient of the auxiliary loss; 0: none
  bool balances_sequences = false;  // that loss is of each sequence (DeepSeek-V2), or of a microbatch
  bool operator==(const ExpertRouter&) const = default;
};

}  // namespace orrery
