// Files that tests write again with a change.
#pragma once

#include <string>

#include "tests/catch.hpp"

namespace orrery::test {

// The text with `to` for the first `from`, which it has to have.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  CAPTURE(text, from);
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace orrery::test
