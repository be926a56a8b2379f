// Cells of tables as people write them: matching without case and punctuation.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

namespace orrery {

std::string lower_case(std::string);
// In lower case, and of other characters those of `also`: "ZeRO stage-1" is "zerostage1".
std::string letters_and_digits(std::string_view text, std::string_view also = "");

bool says(std::string_view text, std::string_view word);  // anywhere in it
bool says_any(std::string_view text, std::initializer_list<std::string_view> words);
bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> words);

// The first row of a table whose `start` the text begins with; null: none.
template <class Row, std::size_t Count>
const Row* row_starting(const std::array<Row, Count>& rows, std::string_view text) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return text.starts_with(row.start); });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace orrery
