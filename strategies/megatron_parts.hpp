// Inside of megatron*.cpp: values of arguments, and what the model has to say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "strategies/megatron.hpp"

namespace orrery {

constexpr std::monostate kNone;

inline Argument number(std::int64_t value) {
  return static_cast<double>(value);
}
inline Argument number_or_none(bool present, std::int64_t value) {
  return present ? number(value) : Argument(kNone);
}
// None where it is what Megatron-LM takes when nothing is said.
inline Argument unless(double usual, double value) {
  return value == usual ? Argument(kNone) : Argument(value);
}
inline Argument text(std::string_view value) {
  return std::string(value);
}

// Tensor ways of the stage that has the most.
int widest_tensor(const ParallelStrategy&);

// Of the arguments that say what the model is.
std::vector<ArgumentRow> model_argument_rows();

using Gaps = std::vector<std::string>;

// What of the model Megatron-LM's arguments cannot say.
Gaps megatron_model_gaps(const ModelSpec&);

}  // namespace orrery
