// A CSV table with a header, plain or gzipped, read row by row.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

class GzipFile;

class CsvStream {
 public:
  // Opens the file and reads its header. Throws InputError.
  explicit CsvStream(const std::string& path, std::string name);
  // Reads a table that is in memory already.
  struct Text {
    std::string_view csv;
  };
  CsvStream(Text, std::string name);
  CsvStream(const CsvStream&) = delete;
  CsvStream& operator=(const CsvStream&) = delete;
  ~CsvStream();

  // As its messages name the table.
  [[nodiscard]] const std::string& name() const { return name_; }

  // Position of a column. Both throw InputError where the title stands twice; the first one also where it
  // does not stand at all.
  [[nodiscard]] std::size_t column(const std::string& title) const;
  [[nodiscard]] std::optional<std::size_t> find_column(std::string_view title) const;
  [[nodiscard]] std::size_t columns() const { return header_.size(); }
  [[nodiscard]] const std::vector<std::string>& titles() const { return header_; }

  // Moves to the next row; false after the last. Throws InputError for a gzip that GzipFile refuses, a quote
  // that is not closed, and a row of more than 16 MiB.
  bool next();
  // The line in which the row ends; the first of the file is 1.
  [[nodiscard]] std::size_t line() const { return row_line_; }
  // Fields of the row, without quotes; valid until the next call of `next`.
  [[nodiscard]] const std::vector<std::string_view>& fields() const { return fields_; }

 private:
  void read_header();
  bool next_line();
  bool fill();
  void split();
  std::string_view without_doubled_quotes(std::string_view field);

  std::string name_;
  std::unique_ptr<GzipFile> file_;  // none: the table was in memory
  std::string buffer_;
  std::size_t begin_ = 0;
  bool ended_ = false;
  std::size_t row_line_ = 0;
  std::string_view line_;
  std::vector<std::string_view> fields_;
  std::deque<std::string> unescaped_;  // what fields_ shows in place of what the line says
  std::vector<std::string> header_;
};

// The number a field holds; absent for anything but one finite number.
std::optional<double> parse_number(std::string_view field);

}  // namespace orrery
