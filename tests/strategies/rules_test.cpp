// The rule language: what matches, and where errors point.
#include "strategies/rules.hpp"

#include <algorithm>
#include <string>

#include "platforms/errors.hpp"
#include "strategies/rule_book.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

using namespace orrery;

namespace {

const ArgumentTable kTable{
    {"tensor_model_parallel_size", 8.0},
    {"pipeline_model_parallel_size", 16.0},
    {"recompute_granularity", std::string("full")},
    {"sequence_parallel", true},
    {"num_layers_per_virtual_pipeline_stage", std::monostate{}},
    {"micro_batch_size", 3.0},
};

bool matches(const std::string& rule) {
  return Rule(rule, "test").matches(kTable);
}

std::string error_of(const std::string& rule) {
  return input_error_parts([&] {
    Rule parsed(rule, "rules.txt:3");
    static_cast<void>(parsed.matches(kTable));
  });
}

}  // namespace

TEST_CASE("a calculation that gives no number is an error, at its sign") {
  for (const char* rule : {"1/0 > 1", "1/0 < 1", "$micro_batch_size * 1e308 * 10 > 1"})
    CHECK(contains(error_of(rule), "infinity"));
  CHECK(contains(error_of("$micro_batch_size % 0 == 0"), "NaN"));
  CHECK(contains(error_of("0/0 == 0"), "rules.txt:3"));
  // What divides by zero for one candidate alone is an error when that comes.
  CHECK(contains(error_of("8 / ($tensor_model_parallel_size - 8) > 1"), "infinity"));
}

TEST_CASE("rules that match") {
  const auto* rule = GENERATE(values<const char*>({
      "$tensor_model_parallel_size * $pipeline_model_parallel_size > 64 && $recompute_granularity == "
      "\"full\"",
      "tensor_model_parallel_size*pipeline_model_parallel_size>64&&recompute_granularity==\"full\"",
      "$tensor_model_parallel_size == 8",
      "$tensor_model_parallel_size != 4",
      "$micro_batch_size % 2 == 1",
      "$tensor_model_parallel_size % $pipeline_model_parallel_size == 8",
      "!($tensor_model_parallel_size < 8)",
      "!(!$sequence_parallel)",
      "$sequence_parallel",
      "$sequence_parallel == true",
      "$sequence_parallel != False",
      "1 + 2 * 3 == 7",
      "(1 + 2) * 3 == 9",
      "10 - 4 - 3 == 3",
      "2 - -1 == 3",
      "-$micro_batch_size < -2",
      "1 / 4 == 0.25",
      "1e3 == 1000",
      ".5 < 1",
      "$micro_batch_size == 3 || 1 == 2 && 1 == 2",
      "true || false && false",
      "1 < 2 == true",
      "$recompute_granularity != \"selective\"",
      "$recompute_granularity != None",
      "$num_layers_per_virtual_pipeline_stage == None",
      "None == None",
      "None == $num_layers_per_virtual_pipeline_stage + 1",
      "!($num_layers_per_virtual_pipeline_stage > 0)",
      "!($num_layers_per_virtual_pipeline_stage <= 0)",
      "-$num_layers_per_virtual_pipeline_stage == None",
      "!false&&!false",
      "1<2&&!(2<1)",
      "$micro_batch_size!=-3",
  }));
  INFO(rule);
  CHECK(matches(rule));
}

TEST_CASE("rules that do not match") {
  const auto* rule = GENERATE(values<const char*>({
      "$tensor_model_parallel_size > 8",
      "$recompute_granularity == None",
      "$recompute_granularity == \"selective\"",
      "$num_layers_per_virtual_pipeline_stage != None",
      "$num_layers_per_virtual_pipeline_stage == 1",
      "$num_layers_per_virtual_pipeline_stage < 5",
      "$num_layers_per_virtual_pipeline_stage > 5",
      "!$sequence_parallel",
      "true && false || false",
      // A table without the argument reads as None.
      "$num_experts == 8",
  }));
  INFO(rule);
  CHECK_FALSE(matches(rule));
}

TEST_CASE("a rule is evaluated anew for each table") {
  const Rule rule("$tensor_model_parallel_size > 4 || $recompute_granularity == \"full\"", "test");
  CHECK_FALSE(
      rule.matches({{"tensor_model_parallel_size", 2.0}, {"recompute_granularity", std::monostate{}}}));
  CHECK(rule.matches({{"tensor_model_parallel_size", 8.0}, {"recompute_granularity", std::monostate{}}}));
  // Another order of the table.
  CHECK(rule.matches({{"recompute_granularity", std::string("full")}, {"tensor_model_parallel_size", 2.0}}));
  CHECK_FALSE(rule.matches({}));
}

TEST_CASE("a rule book drops what its rules drop, and evaluates each once for the arguments it names") {
  const ModelSpec model = read_model("gpt2-345m");
  std::vector<Rule> rules;
  for (const char* text : {"$tensor_model_parallel_size > 4", "$data_parallel_size * $micro_batch_size == 6",
                           "$recompute_num_layers > 2 && $pipeline_model_parallel_layout != None"}) {
    rules.emplace_back(text, "test");
  }
  RuleBook book(model, rules);
  std::size_t dropped = 0, plans = 0;
  for (int i = 0; i < 4000; ++i) {
    ParallelStrategy strategy;
    strategy.stages.assign(2, {0, 1 << i % 4});
    strategy.pipeline = 2;
    strategy.data = 1 + i / 4 % 5;
    strategy.micro_batch = 1 + i / 20 % 5;
    strategy.global_batch = 64 * i;  // in no rule
    strategy.sequence = 1024;
    strategy.recompute = {RecomputeGranularity::full, RecomputeMethod::block, 1 + i / 100 % 4};
    strategy.parts = {{0, 12 + i / 400 % 2}, {12 + i / 400 % 2, 12 - i / 400 % 2}};
    const ArgumentTable table = megatron_arguments(model, strategy);
    const auto first =
        std::find_if(rules.begin(), rules.end(), [&](const Rule& rule) { return rule.matches(table); });
    REQUIRE(book.dropping(strategy) == (first == rules.end() ? nullptr : &*first));
    ++plans;
    dropped += first == rules.end() ? 0 : 1;
  }
  CHECK(dropped > plans / 5);
  CHECK(dropped < plans);
  // 4 tensor ways; 5 replicas x 5 micro batches; 4 numbers of layers x 2 layouts.
  CHECK(book.evaluations() == 4 + 5 * 5 + 4 * 2);
}

TEST_CASE("errors point at the character and say what to write") {
  struct Row {
    const char* rule;
    const char* place;
    const char* says;
  };
  const auto row = GENERATE(values<Row>({
      {"$tensor_model_paralel_size > 8", "rules.txt:3:1 ", "did you mean 'tensor_model_parallel_size'"},
      {"1 < $nonsense_xyzzy", "rules.txt:3:5 ", "a Megatron-LM argument"},
      {"$micro_batch_size = 3", "rules.txt:3:19 ", "== to compare"},
      {"$micro_batch_size == 'x'", "rules.txt:3:22 ", "double quotes"},
      {"$recompute_granularity == \"full", "rules.txt:3:27 ", "a closing quote"},
      {"$micro_batch_size > 3x", "rules.txt:3:21 ", "a decimal number"},
      {"$micro_batch_size > 0x10", "rules.txt:3:21 ", "a decimal number"},
      {"$micro_batch_size > 1e999", "rules.txt:3:21 ", "a decimal number"},
      {"$ > 3", "rules.txt:3:1 ", "a name after $"},
      {"$micro_batch_size > 3 ? true : false", "rules.txt:3:23 ", "&& || !"},
      {"$micro_batch_size[0] > 3", "rules.txt:3:18 ", "one of =="},
      {"(1 < 2) && (3 < 4", "rules.txt:3:12 ", "a closing parenthesis"},
      {"1 < 2)", "rules.txt:3:6 ", "an opening parenthesis"},
      {"1 < 2 &&", "rules.txt:3:9 ", "a name, number, text or parenthesis"},
      {"1 < 2 3", "rules.txt:3:7 ", "an operator before this"},
      {"1 < 2 and 3 < 4", "rules.txt:3:7 ", "an operator: &&"},
      {"1 < 2 or 3 < 4", "rules.txt:3:7 ", "an operator: ||"},
      {"!!$sequence_parallel", "rules.txt:3:2 ", "parentheses between"},
      {"$micro_batch_size", "rules.txt:3:1 ", "which is a number"},
      {"\"full\"", "rules.txt:3:1 ", "which is a text"},
      {"None", "rules.txt:3:1 ", "which is None"},
      {"$micro_batch_size == \"3\"", "rules.txt:3:19 ", "not a number and a text"},
      {"$sequence_parallel == 1", "rules.txt:3:20 ", "not true or false and a number"},
      {"$recompute_granularity < 3", "rules.txt:3:24 ", "numbers on each side, not a text"},
      {"$micro_batch_size && true", "rules.txt:3:19 ", "true or false on each side, not a number"},
      {"$recompute_granularity == \"ful\"", "rules.txt:3:27 ", "one of full, selective, did you mean 'full'"},
      {"1 < 2 || \"blocks\" != $recompute_method", "rules.txt:3:10 ", "one of uniform, block"},
      // Wrong kinds show themselves behind a condition that hides them, too.
      {"false && $recompute_granularity + 1 > 2", "rules.txt:3:33 ", "numbers on each side, not a text"},
  }));
  const std::string error = error_of(row.rule);
  INFO(row.rule << "\n" << error);
  CHECK(error.rfind(row.place, 0) == 0);
  CHECK(contains(error, row.says));
}

TEST_CASE("broken syntax is an input error, whatever it is") {
  const auto* rule = GENERATE(values<const char*>({
      "",
      "  ",
      "(",
      ")",
      "()",
      "1 +",
      "+",
      "* 3",
      "1 2",
      "1 < 2)",
      "(1 < 2",
      "1 < < 2",
      "!",
      "&&",
      "1 < 2 &&",
      "!= 3",
      "\"a\" \"b\"",
      "None None",
      "$micro_batch_size $micro_batch_size",
      "1 < 2 ()",
      "-",
      "--",
      "1 !",
      "true false",
      "$micro_batch_size(3)",
      "1,2",
      "a;b",
      "\x80",
      "\"\\n\" == \"x\"",
  }));
  INFO(rule);
  CHECK(error_of(rule) != "no error");
}

TEST_CASE("long and deep rules are refused or read, never a crash") {
  CHECK(contains(error_of(std::string(100'000, '(')), "at most"));
  CHECK(error_of(std::string(4000, '(')) != "no error");
  CHECK(matches(std::string(1000, '(') + "1 < 2" + std::string(1000, ')')));
  std::string negations = "true";
  for (int i = 0; i < 1000; ++i) negations = "!(" + negations + ")";
  CHECK(matches(negations));
}

TEST_CASE("a rule file has one rule a line and comments") {
  const auto rules = parse_rules(
      "# small pipelines only\n\n  $pipeline_model_parallel_size > 8  # a comment\r\n"
      "$recompute_modules == \"a # b\"",
      "rules.txt");
  REQUIRE(rules.size() == 2);
  CHECK(rules[0].text() == "  $pipeline_model_parallel_size > 8");
  CHECK(rules[0].matches(kTable));
  CHECK_FALSE(rules[1].matches(kTable));
  CHECK_THROWS_AS(parse_rules("1 < 2\n1 <\n", "rules.txt"), InputError);
  CHECK_THROWS_AS(read_rules("no-such-file.txt"), InputError);
}
