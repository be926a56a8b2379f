#include "analysis/table.hpp"

#include <cmath>

#include "platforms/errors.hpp"
#include "tests/catch.hpp"

namespace orrery {

TEST_CASE("text goes left, numbers right, nothing trails") {
  const Table table{{{"plan", Align::left}, {"hours", Align::right}, {"note", Align::left}},
                    {{"a", "7.5", "x"}, {"longer", "1234.5", ""}}};
  CHECK(to_text(table) ==
        "plan     hours  note\n"
        "------  ------  ----\n"
        "a          7.5  x\n"
        "longer  1234.5\n");
}

TEST_CASE("columns stay aligned whatever the alphabet") {
  CHECK(display_width("µs") == 2);
  CHECK(display_width("集群") == 4);
  CHECK(display_width("e\u0301") == 1);   // e and a combining accent
  CHECK(display_width("\xff\xc3") == 2);  // no UTF-8: one column a byte
  const Table table{{{"name"}, {"n", Align::right}}, {{"集群", "1"}, {"µs", "2"}}};
  CHECK(to_text(table) == "name  n\n----  -\n集群  1\nµs    2\n");
}

TEST_CASE("a cell cannot break the table") {
  const Table table{{{"a"}}, {{"x\n\x1b[31my"}}};
  CHECK(to_text(table) == "a\n--------\nx  [31my\n");
}

TEST_CASE("a table without rows still has its header") {
  CHECK(to_text({{{"a"}}, {}}) == "a\n-\n");
}

TEST_CASE("a row of another width is a defect") {
  CHECK_THROWS_AS(to_text({{{"a"}}, {{"1", "2"}}}), Defect);
  CHECK_THROWS_AS(to_csv({{{"a"}}, {{}}}), Defect);
}

TEST_CASE("CSV quotes what RFC 4180 wants quoted and nothing else") {
  CHECK(csv_cell("plain text") == "plain text");
  CHECK(csv_cell("a,b") == "\"a,b\"");
  CHECK(csv_cell("say \"hi\"") == "\"say \"\"hi\"\"\"");
  CHECK(csv_cell("two\nlines") == "\"two\nlines\"");
  CHECK(to_csv({{{"a"}, {"b,c"}}, {{"1", "x\"y"}}}) == "a,\"b,c\"\n1,\"x\"\"y\"\n");
}

TEST_CASE("a number that rounds to zero has no sign, and what is no number is a dash") {
  CHECK(fixed(std::nan(""), 2) == "-");
  CHECK(fixed(-0.0004, 3) == "0.000");
  CHECK(fixed(-0.0006, 3) == "-0.001");
  CHECK(fixed(-10, 0) == "-10");
  CHECK(fixed(-1e-9, 0) == "0");
  CHECK(fixed(2.5, 1) == "2.5");
}

TEST_CASE("a table loses columns in the order given until it fits") {
  Table table;
  table.columns = {{"a"}, {"bb"}, {"cccc", Align::right}};  // 1 + 2 + 2 + 2 + 4 = 11 columns wide
  table.rows = {{"1", "22", "4"}};
  Table same = table, narrower = table, least = table;
  CHECK(narrow(same, 11, {"cccc", "bb"}).empty());
  CHECK(narrow(narrower, 10, {"no such column", "cccc", "bb"}) == std::vector<std::string>{"cccc"});
  CHECK(to_text(narrower) == "a  bb\n-  --\n1  22\n");
  CHECK(narrow(least, 0, {"bb"}) == std::vector<std::string>{"bb"});
  CHECK(to_text(least) == "a  cccc\n-  ----\n1     4\n");
}

}  // namespace orrery
