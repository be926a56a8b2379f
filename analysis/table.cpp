#include "analysis/table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

struct Range {
  std::uint32_t first, last;
};

// Unicode 15 East_Asian_Width W and F, in the blocks that names and units come from, and the emoji blocks.
constexpr std::array kWide = {
    Range{0x1100, 0x115F},   Range{0x2E80, 0x303E},   Range{0x3041, 0xA4CF},   Range{0xAC00, 0xD7A3},
    Range{0xF900, 0xFAFF},   Range{0xFE30, 0xFE6F},   Range{0xFF00, 0xFF60},   Range{0xFFE0, 0xFFE6},
    Range{0x1F300, 0x1F64F}, Range{0x1F900, 0x1F9FF}, Range{0x20000, 0x3FFFD},
};
// Combining marks, zero-width characters and variation selectors.
constexpr std::array kZeroWidth = {
    Range{0x0300, 0x036F}, Range{0x200B, 0x200F}, Range{0x20D0, 0x20FF},
    Range{0xFE00, 0xFE0F}, Range{0xFE20, 0xFE2F},
};

template <std::size_t N>
bool contains(const std::array<Range, N>& ranges, std::uint32_t point) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [point](const Range& range) { return point >= range.first && point <= range.last; });
}

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t length = 1;  // bytes
};

// A byte that begins no character counts as one, as terminals show it.
CodePoint decode(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
  if (length == 1 || length > text.size()) return {first, 1};
  std::uint32_t value = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0U) != 0x80U) return {first, 1};
    value = value << 6U | (next & 0x3FU);
  }
  return {value, length};
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

std::string printable(std::string_view cell) {
  std::string result(cell);
  std::replace_if(result.begin(), result.end(), is_control, ' ');
  return result;
}

void trim_end(std::string& line) {
  line.erase(line.find_last_not_of(' ') + 1);
}

std::string text_line(const Table& table, const std::vector<std::string>& cells,
                      const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string cell = printable(cells[i]);
    const std::string blanks(widths[i] - display_width(cell), ' ');
    if (i > 0) line += "  ";
    line += table.columns[i].align == Align::right ? blanks + cell : cell + blanks;
  }
  trim_end(line);
  return line + "\n";
}

std::vector<std::string> titles(const Table& table) {
  std::vector<std::string> result;
  for (const TableColumn& column : table.columns) result.push_back(column.title);
  return result;
}

std::vector<std::size_t> column_widths(const Table& table) {
  std::vector<std::size_t> widths;
  for (const TableColumn& column : table.columns) widths.push_back(display_width(column.title));
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  return widths;
}

void check_shape(const Table& table) {
  for (const auto& row : table.rows) ORRERY_ENSURE(row.size() == table.columns.size());
}

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const CodePoint point = decode(text);
    if (!contains(kZeroWidth, point.value)) width += contains(kWide, point.value) ? 2 : 1;
    text.remove_prefix(point.length);
  }
  return width;
}

std::vector<std::string> narrow(Table& table, std::size_t width,
                                const std::vector<std::string>& first_to_go) {
  check_shape(table);
  std::vector<std::string> gone;
  for (const std::string& title : first_to_go) {
    std::size_t total = 0;
    for (const std::size_t column : column_widths(table)) total += column + 2;
    if (total <= width + 2) break;
    const auto found = std::find_if(table.columns.begin(), table.columns.end(),
                                    [&](const TableColumn& column) { return column.title == title; });
    if (found == table.columns.end()) continue;
    for (auto& row : table.rows) row.erase(row.begin() + (found - table.columns.begin()));
    table.columns.erase(found);
    gone.push_back(title);
  }
  return gone;
}

std::string to_text(const Table& table) {
  check_shape(table);
  const std::vector<std::size_t> widths = column_widths(table);
  std::vector<std::string> rule;
  for (const std::size_t width : widths) rule.emplace_back(width, '-');
  std::string text = text_line(table, titles(table), widths) + text_line(table, rule, widths);
  for (const auto& row : table.rows) text += text_line(table, row, widths);
  return text;
}

std::string fixed(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  const bool is_zero = std::string_view(text).find_first_not_of("-0.") == std::string_view::npos;
  return text[0] == '-' && is_zero ? text + 1 : text;
}

std::string csv_cell(std::string_view cell) {
  if (cell.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(cell);
  std::string quoted = "\"";
  for (const char c : cell) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string to_csv(const Table& table) {
  check_shape(table);
  std::string text;
  const auto add_line = [&text](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) text += (i > 0 ? "," : "") + csv_cell(cells[i]);
    text += '\n';
  };
  add_line(titles(table));
  for (const auto& row : table.rows) add_line(row);
  return text;
}

}  // namespace orrery
