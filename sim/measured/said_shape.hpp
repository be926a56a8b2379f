// The sizes of a published run's model, as its row prints them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/measured/measured_run.hpp"

namespace orrery {

struct SaidShape {
  std::optional<std::int64_t> layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary, experts,
      experts_per_token;
  std::int64_t expert_interval = 1;  // of so many layers one has experts
  bool all_experts = false;          // the row says that every layer has
  bool latent = false;               // attention
};

// Throws InputError for a cell that is no such number, whether the model needs it or not.
SaidShape printed_shape(const MeasuredRun&);

// As printed, or, where neither layers nor width are, of the published model of that name and size.
SaidShape said_shape(const MeasuredRun&, SaidShape printed, std::vector<std::string>& assumptions);

}  // namespace orrery
