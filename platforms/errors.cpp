#include "platforms/errors.hpp"

#include <algorithm>
#include <cctype>

#include "platforms/utf8.hpp"

namespace orrery {

InputError::InputError(std::string place_, std::string found_, std::string expected_)
    : std::runtime_error(place_ + ": found " + found_ + "; expected " + expected_),
      place(std::move(place_)),
      found(std::move(found_)),
      expected(std::move(expected_)) {}

void fail_ensure(const char* condition, const char* file, int line) {
  throw Defect(std::string(file) + ":" + std::to_string(line) + ": broken promise: " + condition);
}

namespace {

bool same_letter(char x, char y) {
  return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
}

// A letter more, less or in place of another; one in another case decides among equals alone.
constexpr std::size_t kEdit = 1000, kCase = 1;
constexpr std::size_t kBegun = 4;  // letters that tell which longer name is meant

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j * kEdit;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i * kEdit;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const char x = a[i - 1], y = b[j - 1];
      const std::size_t replace = diagonal + (x == y ? 0 : same_letter(x, y) ? kCase : kEdit);
      diagonal = row[j];
      row[j] = std::min({row[j] + kEdit, row[j - 1] + kEdit, replace});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string* best = nullptr;
  std::size_t best_distance = (std::max<std::size_t>(2, name.size() / 3) + 1) * kEdit;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  const bool may_be_begun = best == nullptr && name.size() >= kBegun;
  for (const std::string& candidate : candidates) {
    if (may_be_begun && candidate.starts_with(name) && (best == nullptr || candidate.size() < best->size()))
      best = &candidate;
  }
  return best == nullptr ? std::string() : ", did you mean " + quote_for_message(*best) + "?";
}

std::string comma_list(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t index = 0; index < names.size(); ++index) list += (index == 0 ? "" : ", ") + names[index];
  return list;
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_letter);
}

namespace {

// C0, delete, and C1, which some terminals obey in UTF-8 too.
bool is_control(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  return byte(0) == 0xc2 && byte(1) < 0xa0;
}

std::string escaped(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (bytes == "\n") return "\\n";
  std::string text;
  for (const char character : bytes) {
    const auto byte = static_cast<unsigned char>(character);
    text += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
  }
  return text;
}

}  // namespace

std::string escape_for_message(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(length, 1));
    shown += length == 0 || is_control(character) ? escaped(character) : std::string(character);
    text.remove_prefix(character.size());
  }
  return shown;
}

std::string quote_for_message(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  return "'" + escape_for_message(shortened(text, kLongest)) + "'";
}

}  // namespace orrery
