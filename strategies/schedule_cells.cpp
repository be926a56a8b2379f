#include "strategies/schedule_cells.hpp"

#include <algorithm>
#include <charconv>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

struct ActionName {
  std::string_view name;
  CellKind kind;
  bool microbatch;  // a number follows
};
constexpr ActionName kActions[] = {
    {"F", CellKind::forward, true},         {"B", CellKind::backward, true},
    {"BW", CellKind::full_backward, true},  {"I", CellKind::input_gradient, true},
    {"W", CellKind::weight_gradient, true}, {"SEND_F", CellKind::transfer, true},
    {"RECV_F", CellKind::transfer, true},   {"SEND_B", CellKind::transfer, true},
    {"RECV_B", CellKind::transfer, true},   {"UNSHARD", CellKind::other, false},
    {"RESHARD", CellKind::other, false},    {"REDUCE_GRAD", CellKind::other, false},
};
constexpr std::string_view kOverlap = "OVERLAP_F_B";
constexpr int kMostNumber = 999'999;  // of stages and of microbatches

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const std::size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

class CellReader {
 public:
  explicit CellReader(const std::string& file) : file_(file) {}

  // Appends what a cell holds: nothing, an operation, or a pair that torch runs side by side as
  // (0F1;1B0)OVERLAP_F_B and that is read as one after the other.
  void read(std::string_view text, int line, int column, std::vector<Cell>& cells) const {
    Cell cell;
    cell.line = line;
    cell.column = column;
    cell.text = trimmed(text);
    const std::string_view word = cell.text;
    if (word.empty()) return;
    if (word.front() != '(') {
      cells.push_back(operation(std::move(cell)));
      return;
    }
    const std::size_t close = word.find(')');
    if (close == std::string_view::npos || word.substr(close + 1) != kOverlap) fail(cell);
    for (const std::string_view piece : split(word.substr(1, close - 1), ';')) {
      Cell inner = cell;
      inner.text = trimmed(piece);
      cells.push_back(operation(std::move(inner)));
    }
  }

 private:
  [[noreturn]] void fail(const Cell& cell) const {
    throw InputError(
        place_of(cell, file_), quote_for_message(cell.text),
        "a stage, an action (F, B, I or W) and a microbatch, as 0F3, or nothing where the rank idles");
  }

  [[nodiscard]] int number(const Cell& cell, std::string_view& rest) const {
    int value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error == std::errc::invalid_argument || rest.front() == '-') fail(cell);
    if (error == std::errc::result_out_of_range || value > kMostNumber) {
      throw InputError(place_of(cell, file_), quote_for_message(cell.text),
                       "stages and microbatches up to " + std::to_string(kMostNumber));
    }
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return value;
  }

  [[nodiscard]] Cell operation(Cell cell) const {
    std::string_view rest = cell.text;
    if (rest.empty()) fail(cell);
    cell.stage = number(cell, rest);
    const std::string_view name = rest.substr(0, rest.find_first_of("0123456789"));
    const auto* action = std::find_if(std::begin(kActions), std::end(kActions),
                                      [name](const ActionName& known) { return known.name == name; });
    if (action == std::end(kActions)) fail(cell);
    cell.kind = action->kind;
    rest.remove_prefix(name.size());
    if (rest.empty() && !action->microbatch) return cell;
    if (rest.empty()) fail(cell);
    cell.microbatch = number(cell, rest);
    if (!rest.empty()) fail(cell);
    return cell;
  }

  const std::string& file_;
};

}  // namespace

std::string place_of(const Cell& cell, const std::string& file) {
  return file + ":" + std::to_string(cell.line) + ", cell " + std::to_string(cell.column) + " (rank " +
         std::to_string(cell.line - 1) + ")";
}

std::vector<std::vector<Cell>> read_schedule_cells(std::string_view text, const std::string& file) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string_view::npos) {
    throw InputError(file, "an empty file", "one line for each rank, of cells as 0F0,0F1,0B0");
  }
  const CellReader reader(file);
  std::vector<std::vector<Cell>> ranks;
  for (const std::string_view line : split(text.substr(0, last + 1), '\n')) {
    std::vector<Cell>& cells = ranks.emplace_back();
    int column = 0;
    for (const std::string_view cell : split(line, ',')) {
      reader.read(cell, static_cast<int>(ranks.size()), ++column, cells);
    }
  }
  return ranks;
}

}  // namespace orrery
