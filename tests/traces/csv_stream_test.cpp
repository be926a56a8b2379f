// Rows of a CSV table against what RFC 4180 says of them.
#include "traces/csv_stream.hpp"

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

namespace orrery {
namespace {

std::vector<std::string> fields_of(const std::string& row) {
  const std::string table = "a,b,c\n" + row + "\n";
  CsvStream stream(CsvStream::Text{table}, "made-up.csv");
  REQUIRE(stream.next());
  std::vector<std::string> fields(stream.fields().begin(), stream.fields().end());
  CHECK_FALSE(stream.next());
  return fields;
}

}  // namespace

TEST_CASE("quoted fields hold commas, and two quotes for one") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> rows{
      {"1,2,3", {"1", "2", "3"}},
      {",,", {"", "", ""}},
      {"\"1,5\",2,\"\"", {"1,5", "2", ""}},
      {"\"GPT \"\"104B\"\" (58B: wrong, per the document)\",58,32",
       {"GPT \"104B\" (58B: wrong, per the document)", "58", "32"}},
      {"\"\"\"\",x,\"a\"\"\"", {"\"", "x", "a\""}},
      {"3\" disk,2,3", {"3\" disk", "2", "3"}},
      {"\"open, 2,3", {"\"open", " 2", "3"}},
  };
  for (const auto& [row, fields] : rows) CHECK(fields_of(row) == fields);
}

TEST_CASE("a byte order mark is none of the first column's title") {
  CsvStream stream(CsvStream::Text{"\xef\xbb\xbf"
                                   "a,b\n1,2\n"},
                   "made-up.csv");
  CHECK(stream.column("a") == 0);
}

TEST_CASE("a folder is refused as one") {
  CHECK(input_error([] { CsvStream("/", "root.csv"); }) ==
        "root.csv: found a folder; expected a CSV table, plain or gzipped");
}

TEST_CASE("a file without line ends is refused before it fills the memory") {
  CHECK(input_error([] { CsvStream("/dev/zero", "zero.csv"); }) ==
        "zero.csv: found a line of more than 16 MiB; expected a CSV table");
}

}  // namespace orrery
