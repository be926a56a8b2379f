#include "platforms/yaml.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

using namespace orrery;

namespace {

YamlValue parse(const std::string& text) {
  return YamlValue::parse(text, "f.yaml");
}

std::string parse_trouble(const std::string& text) {
  return input_error([&] { parse(text); });
}

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

}  // namespace

TEST_CASE("scalars, lists and maps are told apart and keep the order of the file") {
  const YamlValue root = parse("b: 1\na: [x, y]\nc: {d: }\n");
  CHECK(root.kind() == YamlValue::Kind::map);
  CHECK(root.keys() == std::vector<std::string>{"b", "a", "c"});
  CHECK(root.at("a").kind() == YamlValue::Kind::list);
  CHECK(root.at("a").items()[1].text() == "y");
  CHECK(root.at("c").at("d").kind() == YamlValue::Kind::null);
  CHECK_FALSE(root.find("e").has_value());
}

TEST_CASE("a place is file, line and key path") {
  const YamlValue root = parse("groups:\n  - name: a\n  - name: b\n    count: x\n");
  CHECK(root.at("groups").items()[1].at("count").place() == "f.yaml:4: groups[1].count");
  CHECK(root.place() == "f.yaml:1");
  CHECK(parse("- [0, 7]").items()[0].items()[1].place() == "f.yaml:1: [0][1]");
}

TEST_CASE("a value outlives the document it comes from") {
  std::optional<YamlValue> value;
  {
    const YamlValue root = parse("a: {b: [1, 2]}");
    value = root.at("a").at("b").items()[1];
  }
  CHECK(value->text() == "2");
  CHECK(value->place() == "f.yaml:1: a.b[1]");
}

TEST_CASE("whole numbers are whole, complete and inside their range") {
  CHECK(parse("-3").integer(-5, 5) == -3);
  const auto text =
      GENERATE(values<std::string>({"6", "-6", "1.0", "1e1", "0x1", "1 2", "", "a", "[1]", "{a: 1}", "~",
                                    "99999999999999999999", "+1", "1_0", "\"\""}));
  INFO(text);
  CHECK_THROWS_AS(parse(text).integer(-5, 5), InputError);
}

TEST_CASE("numbers are finite and inside their range") {
  CHECK(parse("1.5e0").number(0, 2) == 1.5);
  const auto text =
      GENERATE(values<std::string>({"3", "-1", "nan", ".nan", "inf", ".inf", "1x", "", "[1]", "1e999"}));
  INFO(text);
  CHECK_THROWS_AS(parse(text).number(0, 2), InputError);
}

TEST_CASE("only true and false are booleans") {
  CHECK(parse("true").boolean());
  CHECK_FALSE(parse("false").boolean());
  CHECK_THROWS_AS(parse("yes").boolean(), InputError);
  CHECK_THROWS_AS(parse("1").boolean(), InputError);
}

TEST_CASE("a word is one of those named, or the nearest is said") {
  const YamlValue map = YamlValue::parse("a: ring\nb: rign\nc: [ring]\n", "f.yaml");
  const std::vector<std::string> names{"tree", "ring"};
  CHECK(map.at("a").one_of(names) == 1);
  CHECK(input_error([&] { static_cast<void>(map.at("b").one_of(names)); }) ==
        "f.yaml:2: b: found 'rign'; expected one of tree, ring, did you mean 'ring'?");
  CHECK(contains(input_error([&] { static_cast<void>(map.at("c").one_of(names)); }), "found a list"));
}

TEST_CASE("quantities carry a unit, and their errors the place") {
  CHECK(parse("5us").quantity<Seconds>() == microseconds(5));
  CHECK(contains(input_error([] { return parse("a: 5").at("a").quantity<Seconds>(); }),
                 "f.yaml:1: a: found '5' (the unit"));
  CHECK(contains(input_error([] { return parse("a: 0s").at("a").positive_quantity<Seconds>(); }),
                 "above zero (1e-15 or more)"));
  CHECK_THROWS_AS(parse("[5us]").quantity<Seconds>(), InputError);
}

TEST_CASE("asking for the wrong kind says what stands there") {
  CHECK(contains(input_error([] { return parse("a: [1]").at("a").text(); }), "found a list"));
  CHECK(contains(input_error([] { return parse("a: {b: 1}").at("a").items(); }), "found a map"));
  CHECK(contains(input_error([] { return parse("a:").at("a").keys(); }), "found nothing"));
  CHECK(contains(input_error([] { return parse("a: x").at("a").find("b"); }), "found 'x'"));
}

TEST_CASE("a missing key and an unknown key are named") {
  CHECK(input_error([] { return parse("a: {b: 1}").at("a").at("c"); }) ==
        "f.yaml:1: a: found no key 'c'; expected a map with the key 'c'");
  CHECK(input_error([] {
          return parse("name: x\ncuont: 1").allow_keys({"name", "count"});
        }) ==
        "f.yaml:2: cuont: found the unknown key 'cuont', did you mean 'count'?; expected one of name, count");
}

TEST_CASE("a key with a line break keeps the message on one line") {
  const std::string trouble = input_error([] { return parse("\"a\\nb\": x").at("a\nb").integer(0, 1); });
  CHECK(trouble == "f.yaml:1: 'a\\nb': found 'x'; expected a whole number from 0 to 1");
}

TEST_CASE("a duplicate key is refused with both lines, also in flow maps and deep inside") {
  CHECK(parse_trouble("a: 1\nb: 2\na: 3\n") ==
        "f.yaml:3:1: found the key 'a' a second time; expected each key once (it already stands in line 1)");
  CHECK(contains(parse_trouble("x:\n  - {k: 1, k: 2}"), "'k' a second time"));
}

TEST_CASE("the same key in different maps is no duplicate") {
  CHECK(parse_trouble("[{a: 1}, {a: 2}]").empty());
}

TEST_CASE("broken YAML is refused with line and column") {
  const std::string trouble = parse_trouble("a: 1\nb: [1, 2\nc: 3");
  CHECK(contains(trouble, "f.yaml:"));
  CHECK(contains(trouble, "broken YAML"));
  CHECK(contains(parse_trouble("a: \"x"), "f.yaml:1:"));
}

TEST_CASE("a second document, a foreign tag and a key that is no text are refused") {
  CHECK(contains(parse_trouble("a: 1\n---\nb: 2"), "f.yaml:2:1: found a second document"));
  CHECK(contains(parse_trouble("a: !!python/object x"), "the tag"));
  CHECK(contains(parse_trouble("a: !mine [1]"), "the tag"));
  CHECK(contains(parse_trouble("{[1]: 2}"), "a list as a key"));
  CHECK(contains(parse_trouble("? {a: 1}\n: 2"), "a map as a key"));
  CHECK(contains(parse_trouble("~: 2"), "an empty key"));
  CHECK(contains(parse_trouble("a: &x 1\n*x : 2"), "an alias as a key"));
  CHECK(parse_trouble("---\na: !!str 1\n...\n").empty());
}

TEST_CASE("an empty document is nothing") {
  const auto text = GENERATE(values<std::string>({"", "\n\n", "# only a comment\n", "---\n", "~"}));
  CHECK(parse(text).kind() == YamlValue::Kind::null);
  CHECK_THROWS_AS(parse(text).at("a"), InputError);
}

TEST_CASE("an alias is a copy of its anchor under its own key path") {
  const YamlValue root = parse("a: &x {k: [1, 2]}\nb: *x\n");
  CHECK(root.at("b").at("k").items()[1].text() == "2");
  CHECK(root.at("b").at("k").items()[1].place() == "f.yaml:1: b.k[1]");  // the line where the text stands
}

TEST_CASE("a value that contains itself is refused") {
  CHECK(contains(parse_trouble("a: &x [1, *x]"), "an alias inside the value it names"));
  CHECK(contains(parse_trouble("&x {a: {b: *x}}"), "an alias inside the value it names"));
  CHECK(contains(parse_trouble("a: *unknown"), "broken YAML"));
}

TEST_CASE("aliases that multiply stop at a million values") {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int level = 1; level < 12; ++level) {
    const std::string below = "*a" + std::to_string(level - 1);
    const std::string name = "a" + std::to_string(level);
    bomb += name + ": &" + name + " [" + below + repeated(", " + below, 9) + "]\n";
  }
  CHECK(contains(parse_trouble(bomb), "more than a million values"));
}

TEST_CASE("aliases that deepen stop at 64 levels") {
  std::string text = "a0: &a0 [x]\n";
  for (int level = 1; level < 80; ++level) {
    const std::string name = "a" + std::to_string(level);
    text += name + ": &" + name + " [*a" + std::to_string(level - 1) + "]\n";
  }
  CHECK(contains(parse_trouble(text), "64 levels"));
}

TEST_CASE("nesting stops at 64 levels, however it is written") {
  CHECK(parse_trouble(repeated("[", 64) + repeated("]", 64)).empty());
  const auto open = GENERATE(values<std::string>({"[", "{a: ", "- ", "? ", "[[", "{? "}));
  INFO(open);
  CHECK_FALSE(parse_trouble(repeated(open, 65)).empty());
  CHECK_FALSE(parse_trouble(repeated(open, 20000)).empty());
}

TEST_CASE("bytes that are no text are refused before they are parsed") {
  const auto text = GENERATE(values<std::string>(
      {std::string("a: \0b", 5), "a: \x04", "a: \x1b[0m", "a: \x7f", "\xff\xfe", "a: \x80", "a: \xc3",
       "a: \xc0\x80", "a: \xf5\x80\x80\x80", "a: \xed\xa0\x80", "a: \xf0\x80\x80\x80"}));
  CHECK(contains(parse_trouble("x: 1\n" + text), "f.yaml:2"));
  CHECK(contains(parse_trouble("x: 1\n" + text), "UTF-8"));
  CHECK(contains(parse_trouble("a: \xff"), "the byte '\\xff'"));
}

TEST_CASE("text in UTF-8, tabs, carriage returns and a byte order mark are read") {
  CHECK(parse("\xef\xbb\xbf"
              "a: \xc3\xa4\r\nb: 1\t# tab\r\n")
            .at("a")
            .text() == "\xc3\xa4");
}

TEST_CASE("a document beyond 16 MiB is refused") {
  CHECK(contains(parse_trouble(std::string((std::size_t{16} << 20) + 1, '#')), "more than 16 MiB"));
}

TEST_CASE("a file that is missing or is a folder is refused by its path") {
  CHECK(contains(input_error([] { return YamlValue::read_file("/nonexistent/x.yaml"); }),
                 "/nonexistent/x.yaml: found no readable"));
  CHECK(contains(input_error([] { return read_text_file(ORRERY_SOURCE_DIR); }), "a folder"));
}

TEST_CASE("a file is read with all its bytes") {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "orrery_yaml_test_bytes";
  const std::string content = repeated(std::string("a\0\r\n\xff", 5), 50'000);
  std::ofstream(path, std::ios::binary) << content;
  CHECK(read_text_file(path.string()) == content);
  std::filesystem::remove(path);
}
