#include "strategies/rule_words.hpp"

#include <array>
#include <cmath>
#include <cstdlib>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

// Longer marks first, so that `<=` is not read as `<`.
constexpr std::array<std::string_view, 16> kMarks{"==", "!=", "<=", ">=", "&&", "||", "<", ">",
                                                  "!",  "+",  "-",  "*",  "/",  "%",  "(", ")"};

// Only ASCII, whatever the locale.
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name(char c) {
  return is_name_start(c) || is_digit(c);
}

class Scanner {
 public:
  Scanner(std::string_view rule, const std::string& place) : rule_(rule), place_(place) {}

  std::vector<RuleWord> words() {
    std::vector<RuleWord> all;
    for (skip_blanks(); at_ < rule_.size(); skip_blanks()) all.push_back(word());
    return all;
  }

 private:
  void skip_blanks() {
    while (at_ < rule_.size() && (rule_[at_] == ' ' || rule_[at_] == '\t')) ++at_;
  }

  RuleWord word() {
    const char c = rule_[at_];
    if (c == '$' || is_name_start(c)) return name();
    if (is_digit(c) || c == '.') return number();
    if (c == '"') return text();
    return mark();
  }

  RuleWord name() {
    const std::size_t first = at_;
    if (rule_[at_] == '$') ++at_;
    const std::size_t start = at_;
    if (at_ < rule_.size() && is_name_start(rule_[at_]))
      while (at_ < rule_.size() && is_name(rule_[at_])) ++at_;
    if (at_ == start) fail(first, "a name after $, such as $tensor_model_parallel_size");
    return {RuleWord::Kind::name, std::string(rule_.substr(start, at_ - start)), first};
  }

  RuleWord number() {
    const std::size_t first = at_;
    while (at_ < rule_.size() && (is_name(rule_[at_]) || rule_[at_] == '.' || is_exponent_sign())) ++at_;
    const std::string digits(rule_.substr(first, at_ - first));
    char* end = nullptr;
    const double value = std::strtod(digits.c_str(), &end);
    const bool hexadecimal = digits.size() > 1 && (digits[1] == 'x' || digits[1] == 'X');
    if (*end != '\0' || hexadecimal || !std::isfinite(value)) fail(first, "a decimal number");
    return {RuleWord::Kind::number, digits, first};
  }

  [[nodiscard]] bool is_exponent_sign() const {
    const bool sign = rule_[at_] == '+' || rule_[at_] == '-';
    return sign && (rule_[at_ - 1] == 'e' || rule_[at_ - 1] == 'E');
  }

  RuleWord text() {
    const std::size_t first = at_++;
    while (at_ < rule_.size() && rule_[at_] != '"') {
      if (rule_[at_] == '\\' || static_cast<unsigned char>(rule_[at_]) < ' ')
        fail(at_, "a text without backslashes and control characters");
      ++at_;
    }
    if (at_ == rule_.size()) fail(first, "a closing quote");
    ++at_;
    return {RuleWord::Kind::text, std::string(rule_.substr(first + 1, at_ - first - 2)), first};
  }

  RuleWord mark() {
    for (const std::string_view mark : kMarks) {
      if (rule_.substr(at_, mark.size()) != mark) continue;
      at_ += mark.size();
      return {RuleWord::Kind::mark, std::string(mark), at_ - mark.size()};
    }
    if (rule_[at_] == '=') fail(at_, "== to compare");
    if (rule_[at_] == '\'') fail(at_, "a text in double quotes");
    fail(at_, "a name, number, text, parenthesis or one of == != < <= > >= + - * / % && || !");
  }

  [[noreturn]] void fail(std::size_t at, const std::string& expected) const {
    throw InputError(rule_place(place_, at), quote_for_message(rule_.substr(at, 20)), expected);
  }

  std::string_view rule_;
  const std::string& place_;
  std::size_t at_ = 0;
};

// Walks over the words, knowing only whether an operand or an operator comes next.
class SyntaxCheck {
 public:
  SyntaxCheck(std::string_view rule, const std::string& place) : rule_(rule), place_(place) {}

  void read(const RuleWord& word) {
    if (word.kind != RuleWord::Kind::mark) {
      operand(word);
    } else if (word.text == "(") {
      opening(word);
    } else if (word.text == ")") {
      closing(word);
    } else {
      operation(word);
    }
  }

  void finish() const {
    if (operand_next_) fail(rule_.size(), "a name, number, text or parenthesis");
    if (!open_.empty()) fail(open_.back(), "a closing parenthesis for this one");
  }

 private:
  void operand(const RuleWord& word) {
    if (!operand_next_) {
      const bool is_and = word.text == "and", is_or = word.text == "or";
      fail(word.at, is_and || is_or ? std::string("an operator: ") + (is_and ? "&&" : "||")
                                    : "an operator before this");
    }
    operand_next_ = after_prefix_ = false;
  }

  void opening(const RuleWord& word) {
    if (!operand_next_) fail(word.at, "an operator before this");
    after_prefix_ = false;
    open_.push_back(word.at);
  }

  void closing(const RuleWord& word) {
    if (operand_next_) fail(word.at, "a name, number or text before this");
    if (open_.empty()) fail(word.at, "an opening parenthesis for this one");
    open_.pop_back();
  }

  void operation(const RuleWord& word) {
    const bool can_be_prefix = word.text == "!" || word.text == "-";
    if (operand_next_) {
      if (!can_be_prefix) fail(word.at, "a name, number, text or parenthesis before this");
      if (after_prefix_)
        fail(word.at, "parentheses between two prefixes");  // the expression library knows one
      after_prefix_ = true;
    } else {
      if (word.text == "!") fail(word.at, "an operator before this");
      operand_next_ = true;
    }
  }

  [[noreturn]] void fail(std::size_t at, const std::string& expected) const {
    const std::string found = at < rule_.size() ? quote_for_message(rule_.substr(at, 20)) : "the end";
    throw InputError(rule_place(place_, at), found, expected);
  }

  std::string_view rule_;
  const std::string& place_;
  std::vector<std::size_t> open_;
  bool operand_next_ = true;
  bool after_prefix_ = false;
};

}  // namespace

std::string rule_place(const std::string& place, std::size_t at) {
  return place + ":" + std::to_string(at + 1);
}

std::vector<RuleWord> rule_words(std::string_view rule, const std::string& place) {
  return Scanner(rule, place).words();
}

void check_rule_syntax(const std::vector<RuleWord>& words, std::string_view rule, const std::string& place) {
  SyntaxCheck check(rule, place);
  for (const RuleWord& word : words) check.read(word);
  check.finish();
}

}  // namespace orrery
