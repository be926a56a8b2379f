// Rules that drop candidates: expressions over Megatron-LM's argument names.
//
//   $tensor_model_parallel_size * $pipeline_model_parallel_size > 64 && $recompute_granularity == "full"
//
// Names stand with or without `$`. Numbers, "texts", true, false, None; + - * / %, == != < <= > >=, && || !,
// parentheses, with the precedence of C. None is equal to None only; any calculation with None is None, and
// None is neither below nor above anything. Comparing different kinds (a number with a text) is an error, not
// false, and so are a calculation that gives infinity or NaN (1 / 0) and a text that Megatron-LM does not
// take for the argument it is compared with.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/arguments.hpp"

namespace orrery {

class Rule {
 public:
  // `place`: file and line, or the option. Throws InputError{"place:column", ...} for broken syntax, an
  // unknown name and wrong kinds, also in parts that would rarely be reached: every part is tried on an
  // example of each argument.
  Rule(std::string text, std::string place);
  ~Rule();
  Rule(Rule&&) noexcept;
  Rule& operator=(Rule&&) noexcept;

  // True drops the candidate. An argument that the table lacks is None. Takes about a microsecond. One rule
  // must not be evaluated by two threads at once: the values are bound inside.
  [[nodiscard]] bool matches(const ArgumentTable&) const;
  [[nodiscard]] const std::string& text() const { return text_; }
  // The arguments it names, without `$`, each once, in the order of the text.
  [[nodiscard]] std::vector<std::string> arguments() const;

 private:
  struct Program;
  std::string text_;
  std::unique_ptr<Program> program_;
};

// A file with one rule a line; `#` outside a text starts a comment. Throws InputError.
std::vector<Rule> read_rules(const std::string& path);
std::vector<Rule> parse_rules(std::string_view text, const std::string& file);

}  // namespace orrery
