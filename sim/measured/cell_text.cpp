#include "sim/measured/cell_text.hpp"

#include <cctype>

namespace orrery {

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string letters_and_digits(std::string_view text, std::string_view also) {
  std::string kept;
  for (const unsigned char c : text) {
    if (std::isalnum(c) || also.find(static_cast<char>(c)) != std::string_view::npos)
      kept += static_cast<char>(std::tolower(c));
  }
  return kept;
}

bool says(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

bool says_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return says(text, word); });
}

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.starts_with(word); });
}

}  // namespace orrery
