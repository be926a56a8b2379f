// Rows of a CSV table against what RFC 4180 says of them.
#include "traces/csv_stream.hpp"

#include <fstream>

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/traces/scratch_folder.hpp"

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

TEST_CASE("quoted fields hold commas, line breaks, and two quotes for one") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> rows{
      {"1,2,3", {"1", "2", "3"}},
      {",,", {"", "", ""}},
      {"\"1,5\",2,\"\"", {"1,5", "2", ""}},
      {"\"GPT \"\"104B\"\" (58B: wrong, per the document)\",58,32",
       {"GPT \"104B\" (58B: wrong, per the document)", "58", "32"}},
      {"\"\"\"\",x,\"a\"\"\"", {"\"", "x", "a\""}},
      {"3\" disk,2,3", {"3\" disk", "2", "3"}},
      {"\"1\n2\",\"per \"\"node\"\"\r\n\",\"\n\"", {"1\n2", "per \"node\"\r\n", "\n"}},
      {"\"a,\"\"\n\"\"b\",2,3", {"a,\"\n\"b", "2", "3"}},
  };
  for (const auto& [row, fields] : rows) CHECK(fields_of(row) == fields);
}

TEST_CASE("a quote that is never closed is refused where its row begins") {
  CsvStream stream(CsvStream::Text{"a,b\n1,\"2\n2\"\n3,\"4\n5,6\n"}, "made-up.csv");
  REQUIRE(stream.next());
  CHECK(contains(input_error([&] { stream.next(); }), "made-up.csv:4: found a quote that is not closed"));
}

// Rows of many lines across the pieces in which a file is read.
TEST_CASE("rows of a file are those of its text") {
  const ScratchFolder folder;
  std::string csv = "a,b\n";
  for (int row = 0; row < 3000; ++row)
    csv += std::to_string(row) + ",\"" + std::string(static_cast<std::size_t>(row % 97), '\n') + "\"\"x\"\n";
  std::ofstream(folder.file("rows.csv"), std::ios::binary) << csv;
  CsvStream file(folder.file("rows.csv"), "rows.csv"), text(CsvStream::Text{csv}, "rows.csv");
  for (int row = 0; row < 3000; ++row) {
    REQUIRE(file.next());
    REQUIRE(text.next());
    CHECK(file.fields() == text.fields());
    CHECK(file.fields()[1].size() == static_cast<std::size_t>(row % 97) + 2);
  }
  CHECK_FALSE(file.next());
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

TEST_CASE("a file that the system cannot read is refused, and no empty one") {
  // The first page of a process is never mapped.
  CHECK(input_error([] { CsvStream("/proc/self/mem", "memory.csv"); }) ==
        "memory.csv: found an error while it was read; expected a file that can be read");
}

TEST_CASE("a file without line ends is refused before it fills the memory") {
  CHECK(input_error([] { CsvStream("/dev/zero", "zero.csv"); }) ==
        "zero.csv: found a line of more than 16 MiB; expected a CSV table");
}

}  // namespace orrery
