// Catch2 of Debian 12 (version 2) and of newer releases (version 3) under one name.
#pragma once

#include <string>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
namespace orrery {
inline auto contains_text(const std::string& part) {
  return Catch::Matchers::ContainsSubstring(part);
}
}  // namespace orrery
#else
#include <catch2/catch.hpp>
namespace orrery {
inline auto contains_text(const std::string& part) {
  return Catch::Contains(part);
}
}  // namespace orrery
#endif
