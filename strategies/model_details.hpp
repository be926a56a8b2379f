// What a model says that changes none of its times; launch files need it.
#pragma once

#include <cstdint>

namespace orrery {

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
