#include "traces/csv_stream.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

#include "platforms/errors.hpp"
#include "traces/gzip_file.hpp"

namespace orrery {
namespace {

constexpr std::size_t kLongestLine = std::size_t{16} << 20;  // /dev/zero, and what a little gzip holds of it

// Whether what was read of a row ends inside a quoted field: one that begins with a quote.
class OpenQuote {
 public:
  void read(std::string_view text) {
    if (!open_ && text.find('"') == std::string_view::npos) return;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (open_ && c == '"' && text.substr(i + 1).starts_with('"')) {
        ++i;
      } else if (c == '"' && (open_ || begins_)) {
        open_ = !open_;
      }
      begins_ = !open_ && c == ',';
    }
  }
  [[nodiscard]] bool is_open() const { return open_; }

 private:
  bool open_ = false, begins_ = true;
};

}  // namespace

CsvStream::CsvStream(const std::string& path, std::string name) : name_(std::move(name)) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw InputError(name_, "a folder", "a CSV table, plain or gzipped");
  file_ = std::make_unique<GzipFile>(path, name_);
  read_header();
}

CsvStream::CsvStream(Text text, std::string name) : name_(std::move(name)), buffer_(text.csv), ended_(true) {
  read_header();
}

CsvStream::~CsvStream() = default;

void CsvStream::read_header() {
  if (!next_line()) throw InputError(name_, "an empty file", "a CSV table with a header");
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // which spreadsheets write ahead of UTF-8
  if (line_.starts_with(kByteOrderMark)) line_.remove_prefix(kByteOrderMark.size());
  split();
  header_.assign(fields_.begin(), fields_.end());
}

std::optional<std::size_t> CsvStream::find_column(std::string_view title) const {
  const auto found = std::find(header_.begin(), header_.end(), title);
  if (found == header_.end()) return std::nullopt;
  if (std::find(found + 1, header_.end(), title) != header_.end())
    throw InputError(name_, "the column '" + *found + "' a second time", "each column once");
  return found - header_.begin();
}

std::size_t CsvStream::column(const std::string& title) const {
  if (const auto found = find_column(title)) return *found;
  throw InputError(name_, "no column '" + title + "'", "a header with it" + did_you_mean(title, header_));
}

bool CsvStream::next() {
  do {
    if (!next_line()) return false;
  } while (line_.empty());
  split();
  return true;
}

// Appends the next piece of the file; false at its end.
bool CsvStream::fill() {
  if (ended_) return false;
  buffer_.erase(0, begin_);
  begin_ = 0;
  const std::size_t old = buffer_.size();
  constexpr std::size_t kPiece = 1U << 16U;
  buffer_.resize(old + kPiece);
  const std::size_t got = file_->read(buffer_.data() + old, kPiece);
  buffer_.resize(old + got);
  ended_ = got == 0;
  return !ended_;
}

// A row ends with its line, but for line breaks inside quotes.
bool CsvStream::next_line() {
  OpenQuote quote;
  std::size_t length = 0, read = 0;  // of the row; of what was found of it
  for (std::size_t from = 0;;) {
    const std::size_t end = buffer_.find('\n', begin_ + from);
    const std::size_t found = std::min(end, buffer_.size()) - begin_;
    if (end == std::string::npos) {
      if (found > kLongestLine) throw InputError(name_, "a line of more than 16 MiB", "a CSV table");
      if (fill()) {
        from = found;
        continue;
      }
      if (found == 0) return false;
    }
    quote.read(std::string_view(buffer_).substr(begin_ + read, found - read));
    length = found;
    if (!quote.is_open()) break;
    if (end == std::string::npos)
      throw InputError(name_ + ":" + std::to_string(row_line_ + 1), "a quote that is not closed",
                       "a quote at the end of the field, and two for one inside");
    read = from = found + 1;
  }
  line_ = std::string_view(buffer_).substr(begin_, length);
  row_line_ += 1 + static_cast<std::size_t>(std::count(line_.begin(), line_.end(), '\n'));
  if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
  begin_ = std::min(begin_ + length + 1, buffer_.size());
  return true;
}

// RFC 4180: a quoted field holds commas, line breaks, and two quotes for one.
void CsvStream::split() {
  fields_.clear();
  unescaped_.clear();
  std::string_view rest = line_;
  for (;;) {
    const bool quoted = rest.starts_with('"');
    std::size_t close = quoted ? rest.find('"', 1) : 0;
    bool doubled = false;
    while (quoted && close != std::string_view::npos && rest.substr(close + 1).starts_with('"')) {
      doubled = true;
      close = rest.find('"', close + 2);
    }
    const std::size_t comma = rest.find(',', close == std::string_view::npos ? 0 : close);
    std::string_view field = rest.substr(0, comma);
    if (quoted && field.size() >= 2 && field.back() == '"') field = field.substr(1, field.size() - 2);
    fields_.push_back(doubled ? without_doubled_quotes(field) : field);
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
  }
}

std::string_view CsvStream::without_doubled_quotes(std::string_view field) {
  std::string& kept = unescaped_.emplace_back();
  for (std::size_t i = 0; i < field.size(); ++i) {
    kept += field[i];
    if (field[i] == '"' && field.substr(i + 1).starts_with('"')) ++i;
  }
  return kept;
}

std::optional<double> parse_number(std::string_view field) {
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

}  // namespace orrery
