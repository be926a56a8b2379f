// muParserX does the parsing and the evaluation; the operators are ours, because its own know no None, no `%`
// and no
// `!`, and let a comparison of a number with a text pass as false.
#include "strategies/rules.hpp"

#include <muparserx/mpParser.h>
#include <muparserx/mpValReader.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "platforms/errors.hpp"
#include "strategies/rule_words.hpp"

namespace orrery {
namespace {

// A longer rule is a mistake, and its parse would take long.
constexpr std::size_t kLongestRule = 4096;

// The library cannot assign its own void value, so None is a text that no rule can spell.
const std::string kNone("\0None", 5);

enum class Kind { number, boolean, text, none };

Kind kind_of(const mup::IValue& value) {
  switch (value.GetType()) {
    case 'b':
      return Kind::boolean;
    case 's':
      return value.GetString() == kNone ? Kind::none : Kind::text;
    default:
      return Kind::number;
  }
}

std::string describe(const mup::IValue& value) {
  switch (kind_of(value)) {
    case Kind::number:
      return "a number";
    case Kind::boolean:
      return "true or false";
    case Kind::text:
      return "a text";
    case Kind::none:
      return "None";
  }
  return "";
}

[[noreturn]] void refuse(const std::string& expected, const mup::IValue& value) {
  throw mup::ParserError(expected + ", not " + describe(value));
}

bool truth(const mup::IValue& value) {
  if (kind_of(value) != Kind::boolean) refuse("true or false on each side", value);
  return value.GetBool();
}

double number(const mup::IValue& value) {
  if (kind_of(value) != Kind::number) refuse("numbers on each side", value);
  return value.GetFloat();
}

bool equal(const mup::IValue& a, const mup::IValue& b) {
  const Kind kind = kind_of(a);
  if (kind == Kind::none || kind_of(b) == Kind::none) return kind == kind_of(b);
  if (kind != kind_of(b))
    throw mup::ParserError("two values of one kind, not " + describe(a) + " and " + describe(b));
  if (kind == Kind::number) return a.GetFloat() == b.GetFloat();
  if (kind == Kind::boolean) return a.GetBool() == b.GetBool();
  return a.GetString() == b.GetString();
}

using Binary = std::function<mup::Value(const mup::IValue&, const mup::IValue&)>;

class BinaryOperator final : public mup::IOprtBin {
 public:
  BinaryOperator(const char* name, mup::EOprtPrecedence precedence, Binary function)
      : IOprtBin(name, precedence, mup::oaLEFT), function_(std::move(function)) {}
  void Eval(mup::ptr_val_type& result, const mup::ptr_val_type* arguments, int /*count*/) override {
    *result = function_(*arguments[0], *arguments[1]);
  }
  [[nodiscard]] const mup::char_type* GetDesc() const override { return ""; }
  [[nodiscard]] mup::IToken* Clone() const override { return new BinaryOperator(*this); }

 private:
  Binary function_;
};

using Unary = mup::Value (*)(const mup::IValue&);

class PrefixOperator final
    : public mup::IOprtInfix {  // what the library calls infix stands before its operand
 public:
  PrefixOperator(const char* name, Unary function) : IOprtInfix(name, mup::prINFIX), function_(function) {}
  void Eval(mup::ptr_val_type& result, const mup::ptr_val_type* arguments, int /*count*/) override {
    *result = function_(*arguments[0]);
  }
  [[nodiscard]] const mup::char_type* GetDesc() const override { return ""; }
  [[nodiscard]] mup::IToken* Clone() const override { return new PrefixOperator(*this); }

 private:
  Unary function_;
};

template <class Calculate>
Binary calculation(Calculate calculate) {
  return [calculate](const mup::IValue& a, const mup::IValue& b) {
    const bool none = kind_of(a) == Kind::none || kind_of(b) == Kind::none;
    if (kind_of(a) != Kind::none) number(a);
    if (kind_of(b) != Kind::none) number(b);
    if (none) return mup::Value(kNone);
    const double result = calculate(a.GetFloat(), b.GetFloat());
    if (!std::isfinite(result))
      throw mup::ParserError(std::string("a calculation that gives a number, not ") +
                             (std::isnan(result) ? "NaN" : "infinity"));
    return mup::Value(result);
  };
}

template <class Compare>
Binary comparison(Compare compare) {
  return [compare](const mup::IValue& a, const mup::IValue& b) {
    const bool none = kind_of(a) == Kind::none || kind_of(b) == Kind::none;
    if (kind_of(a) != Kind::none) number(a);
    if (kind_of(b) != Kind::none) number(b);
    return mup::Value(!none && compare(a.GetFloat(), b.GetFloat()));
  };
}

// && and || evaluate both sides: nothing has side effects, and so a wrong kind shows itself when the rule is
// read.
Binary logic(bool (*combine)(bool, bool)) {
  return [combine](const mup::IValue& a, const mup::IValue& b) {
    const bool left = truth(a);
    return mup::Value(combine(left, truth(b)));
  };
}

void define(mup::ParserXBase& parser, const char* name, mup::EOprtPrecedence precedence, Binary function) {
  parser.DefineOprt(mup::TokenPtr<mup::IOprtBin>(new BinaryOperator(name, precedence, std::move(function))));
}

void define_operators(mup::ParserXBase& parser) {
  using std::fmod;
  parser.DefineOprtChars("+-*/%=!<>&|");
  parser.DefineInfixOprtChars("!-+");
  define(parser, "+", mup::prADD_SUB, calculation(std::plus<>{}));
  define(parser, "-", mup::prADD_SUB, calculation(std::minus<>{}));
  define(parser, "*", mup::prMUL_DIV, calculation(std::multiplies<>{}));
  define(parser, "/", mup::prMUL_DIV, calculation(std::divides<>{}));
  define(parser, "%", mup::prMUL_DIV, calculation([](double a, double b) { return fmod(a, b); }));
  define(parser, "<", mup::prRELATIONAL2, comparison(std::less<>{}));
  define(parser, "<=", mup::prRELATIONAL2, comparison(std::less_equal<>{}));
  define(parser, ">", mup::prRELATIONAL2, comparison(std::greater<>{}));
  define(parser, ">=", mup::prRELATIONAL2, comparison(std::greater_equal<>{}));
  define(parser, "==", mup::prRELATIONAL1,
         [](const mup::IValue& a, const mup::IValue& b) { return mup::Value(equal(a, b)); });
  define(parser, "!=", mup::prRELATIONAL1,
         [](const mup::IValue& a, const mup::IValue& b) { return mup::Value(!equal(a, b)); });
  define(parser, "&&", mup::prLOGIC_AND, logic([](bool a, bool b) { return a && b; }));
  define(parser, "||", mup::prLOGIC_OR, logic([](bool a, bool b) { return a || b; }));
  const auto prefix = [&](const char* name, Unary function) {
    parser.DefineInfixOprt(mup::TokenPtr<mup::IOprtInfix>(new PrefixOperator(name, function)));
  };
  prefix("!", [](const mup::IValue& a) { return mup::Value(!truth(a)); });
  prefix("-", [](const mup::IValue& a) {
    return kind_of(a) == Kind::none ? mup::Value(kNone) : mup::Value(-number(a));
  });
}

void define_literals(mup::ParserXBase& parser) {
  parser.DefineNameChars("$_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
  parser.AddValueReader(new mup::DblValReader);  // the parser owns them
  parser.AddValueReader(new mup::StrValReader);
  for (const char* name : {"true", "True"}) parser.DefineConst(name, mup::Value(true));
  for (const char* name : {"false", "False"}) parser.DefineConst(name, mup::Value(false));
  parser.DefineConst("None", mup::Value(kNone));
}

bool is_literal(const std::string& name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "None";
}

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const auto& [name, value] : argument_examples()) names.push_back(name);
  return names;
}

// Texts an argument may have, where Megatron-LM takes no other (megatron/training/arguments.py,
// megatron/core/transformer/transformer_config.py).
const std::map<std::string, std::vector<std::string>, std::less<>>& argument_choices() {
  static const std::map<std::string, std::vector<std::string>, std::less<>> kChoices{
      {"data_parallel_sharding_strategy", {"no_shard", "optim", "optim_grads", "optim_grads_params"}},
      {"fp8_format", {"e4m3", "hybrid"}},
      {"normalization", {"LayerNorm", "RMSNorm"}},
      {"position_embedding_type", {"learned_absolute", "rope", "yarn", "mrope", "relative", "none"}},
      {"recompute_granularity", {"full", "selective"}},
      {"recompute_method", {"uniform", "block"}},
  };
  return kChoices;
}

// A rule that compares such an argument with another text would never drop anything, or everything.
void check_choices(const std::vector<RuleWord>& words, const std::string& place) {
  const auto is_equality = [](const RuleWord& word) { return word.text == "==" || word.text == "!="; };
  const auto check = [&](const RuleWord& name, const RuleWord& text) {
    const auto choices = argument_choices().find(name.text);
    if (name.kind != RuleWord::Kind::name || text.kind != RuleWord::Kind::text) return;
    if (choices == argument_choices().end()) return;
    const auto& all = choices->second;
    if (std::find(all.begin(), all.end(), text.text) == all.end())
      throw InputError(rule_place(place, text.at), quote_for_message(text.text),
                       "one of " + comma_list(all) + did_you_mean(text.text, all));
  };
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    if (words[i].kind != RuleWord::Kind::mark || !is_equality(words[i])) continue;
    check(words[i - 1], words[i + 1]);
    check(words[i + 1], words[i - 1]);
  }
}

void assign(mup::Value& value, const Argument& argument) {
  if (const auto* number = std::get_if<double>(&argument))
    value = *number;
  else if (const auto* boolean = std::get_if<bool>(&argument))
    value = *boolean;
  else if (const auto* text = std::get_if<std::string>(&argument))
    value = *text;
  else
    value = kNone;
}

// An argument the rule names. The parser holds the address of `value`.
struct Binding {
  std::string name;
  mup::Value value;
  std::size_t guess = 0;  // where the last table held it: tables of one search have one order
};

const Argument* find(const ArgumentTable& table, Binding& binding) {
  if (binding.guess < table.size() && table[binding.guess].first == binding.name)
    return &table[binding.guess].second;
  for (binding.guess = 0; binding.guess < table.size(); ++binding.guess)
    if (table[binding.guess].first == binding.name) return &table[binding.guess].second;
  return nullptr;
}

}  // namespace

struct Rule::Program {
  explicit Program(std::string rule_place) : place(std::move(rule_place)) {
    define_literals(parser);
    define_operators(parser);
  }

  void bind(const RuleWord& word) {
    const auto names = known_names();
    if (std::find(names.begin(), names.end(), word.text) == names.end())
      throw InputError(orrery::rule_place(place, word.at), quote_for_message(word.text),
                       "a Megatron-LM argument" + did_you_mean(word.text, names));
    for (const auto& binding : bindings)
      if (binding->name == word.text) return;
    bindings.push_back(std::make_unique<Binding>(Binding{word.text, mup::Value(kNone)}));
    parser.DefineVar(word.text, mup::Variable(&bindings.back()->value));
    parser.DefineVar("$" + word.text, mup::Variable(&bindings.back()->value));
  }

  // The syntax was checked before, so that what is left are our operators' refusals of a kind, at their
  // character.
  [[noreturn]] void rethrow(mup::ParserError& error, const std::string& text) const {
    const std::string& hint = error.GetContext().Hint;
    const std::size_t at =
        error.GetPos() < 0 ? 0 : std::min(static_cast<std::size_t>(error.GetPos()), text.size());
    throw InputError(orrery::rule_place(place, at), quote_for_message(text.substr(at, 20)),
                     hint.empty() ? error.GetMsg() : hint);
  }

  bool evaluate(const std::string& text) const {
    try {
      const mup::IValue& result = parser.Eval();
      if (kind_of(result) == Kind::boolean) return result.GetBool();
      throw InputError(orrery::rule_place(place, 0),
                       quote_for_message(text) + ", which is " + describe(result),
                       "a rule that is true or false, such as one with a comparison");
    } catch (mup::ParserError& error) {
      rethrow(error, text);
    }
  }

  bool matches(const ArgumentTable& table, const std::string& text) const {
    static const Argument kAbsent = std::monostate{};
    for (const auto& binding : bindings) {
      const Argument* argument = find(table, *binding);
      assign(binding->value, argument == nullptr ? kAbsent : *argument);
    }
    return evaluate(text);
  }

  std::string place;
  mup::ParserXBase parser;
  std::vector<std::unique_ptr<Binding>> bindings;
};

Rule::Rule(std::string text, std::string place) : text_(std::move(text)) {
  if (text_.size() > kLongestRule)
    throw InputError(place, "a rule of " + std::to_string(text_.size()) + " characters",
                     "at most " + std::to_string(kLongestRule));
  const auto words = rule_words(text_, place);
  if (words.empty()) throw InputError(place, "nothing", "a rule such as $tensor_model_parallel_size > 8");
  check_rule_syntax(words, text_, place);
  check_choices(words, place);
  program_ = std::make_unique<Program>(std::move(place));
  for (const RuleWord& word : words)
    if (word.kind == RuleWord::Kind::name && !is_literal(word.text)) program_->bind(word);
  try {
    program_->parser.SetExpr(text_);
  } catch (mup::ParserError& error) {
    program_->rethrow(error, text_);
  }
  static_cast<void>(matches(argument_examples()));
}

Rule::~Rule() = default;
Rule::Rule(Rule&&) noexcept = default;
Rule& Rule::operator=(Rule&&) noexcept = default;

std::vector<std::string> Rule::arguments() const {
  std::vector<std::string> names;
  for (const auto& binding : program_->bindings) names.push_back(binding->name);
  return names;
}

bool Rule::matches(const ArgumentTable& table) const {
  return program_->matches(table, text_);
}

}  // namespace orrery
