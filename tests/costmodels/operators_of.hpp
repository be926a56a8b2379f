#pragma once

#include <variant>
#include <vector>

#include "costmodels/operator.hpp"

namespace orrery {

// Those of one kind, in order.
template <class Kind>
std::vector<Kind> all_of(const std::vector<Operator>& operators) {
  std::vector<Kind> found;
  for (const Operator& op : operators) {
    if (const Kind* kind = std::get_if<Kind>(&op)) found.push_back(*kind);
  }
  return found;
}

}  // namespace orrery
