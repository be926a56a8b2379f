// The words of a rule, checked before the expression library sees them, so that errors point at the
// character.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery {

struct RuleWord {
  enum class Kind { name, number, text, mark };
  Kind kind;
  std::string text;  // of a name without `$`
  std::size_t at;    // first character, from 0
};

// Throws InputError{"place:column", ...} for a character, number or text that no rule has.
std::vector<RuleWord> rule_words(std::string_view rule, const std::string& place);

// Throws InputError{"place:column", ...} unless operands and operators alternate and parentheses close.
void check_rule_syntax(const std::vector<RuleWord>& words, std::string_view rule, const std::string& place);

// "rules.txt:3:15" for character 14.
std::string rule_place(const std::string& place, std::size_t at);

}  // namespace orrery
