// What an InputError says, for tests of messages.
#pragma once

#include <string>

#include "platforms/errors.hpp"

// The one-line message of the InputError that `action` throws; empty when it throws none.
template <class Action>
std::string input_error(Action&& action) {
  try {
    action();
  } catch (const orrery::InputError& error) {
    return error.what();
  }
  return {};
}

// Its three parts, "place | found | expected"; "no error" when it throws none.
template <class Action>
std::string input_error_parts(Action&& action) {
  try {
    action();
  } catch (const orrery::InputError& error) {
    return error.place + " | " + error.found + " | " + error.expected;
  }
  return "no error";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
