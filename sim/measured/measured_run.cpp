#include "sim/measured/measured_run.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "costmodels/trust/classics.hpp"
#include "platforms/errors.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/measured_columns.hpp"
#include "sim/measured/program_names.hpp"
#include "traces/csv_stream.hpp"

namespace orrery {
namespace {

// What tables write for a fact that they do not have.
bool is_blank(const std::string& cell) {
  constexpr std::array<std::string_view, 14> kBlanks{
      "",         "-",           "?",          "n/a",          "na",
      "unknown",  "unspecified", "not given",  "not stated",   "not reported",
      "not said", "not known",   "unreported", "not specified"};
  return std::find(kBlanks.begin(), kBlanks.end(), lower_case(cell)) != kBlanks.end();
}

// Ways and sizes that a run does not have, where tables also write 0.
bool is_none(const std::string& column, const std::string& cell) {
  constexpr std::array kOptional{
      "tp", "pp", "vpp", "dp", "cp", "ep", "etp", "n_experts", "optimizer_instances"};
  return cell == "0" && std::find(kOptional.begin(), kOptional.end(), column) != kOptional.end();
}

// "1,024" as spreadsheets print it: groups of three digits.
std::string without_separators(const std::string& cell) {
  const std::size_t first = cell.find(','), last = cell.rfind(',');
  if (first == std::string::npos || first == 0 || first > 3) return cell;
  for (std::size_t comma = first; comma <= last; comma += 4) {
    const bool group = cell[comma] == ',' && cell.size() >= comma + 4 &&
                       std::all_of(cell.begin() + static_cast<std::ptrdiff_t>(comma) + 1,
                                   cell.begin() + static_cast<std::ptrdiff_t>(comma) + 4,
                                   [](char digit) { return digit >= '0' && digit <= '9'; });
    if (!group) return cell;
  }
  if (last + 4 < cell.size() && cell[last + 4] != '.') return cell;
  std::string digits = cell;
  std::erase(digits, ',');
  return digits;
}

std::string some_of(std::vector<std::string> names) {
  constexpr std::size_t kShown = 5;
  const std::size_t all = names.size();
  if (all > kShown) names.resize(kShown);
  return comma_list(names) + (all > kShown ? " and " + std::to_string(all - kShown) + " more" : "");
}

// Places of the columns that are read. Throws InputError where one that every table needs is not there.
std::vector<std::pair<std::string, std::size_t>> places_of_columns(const CsvStream& stream,
                                                                   const std::string& name) {
  for (const std::string& needed : needed_columns()) {
    if (!stream.find_column(needed))
      throw InputError(name, "no column '" + needed + "'",
                       "a header with it" + title_meant_by(needed, stream.titles()));
  }
  std::vector<std::pair<std::string, std::size_t>> columns;
  for (const std::string& column : known_columns()) {
    if (const auto place = stream.find_column(column)) columns.emplace_back(column, *place);
  }
  return columns;
}

// Trailing cells may be left off, as they are blank, but none that every row needs.
void require_cells(const CsvStream& stream, const std::string& name) {
  const std::size_t cells = stream.fields().size();
  std::size_t least = 0;
  for (const std::string& needed : needed_columns()) least = std::max(least, stream.column(needed) + 1);
  if (cells >= least && cells <= stream.columns()) return;
  throw InputError(name + ", line " + std::to_string(stream.line()), std::to_string(cells) + " cells",
                   std::to_string(least) + " to " + std::to_string(stream.columns()) +
                       ", as the header has: quote a cell that has commas");
}

MeasuredTable read_all(CsvStream& stream, const std::string& name) {
  const auto columns = places_of_columns(stream, name);
  MeasuredTable table;
  std::vector<std::string> without_id, short_rows;
  while (stream.next()) {
    require_cells(stream, name);
    std::map<std::string, std::string> cells;
    for (const auto& [column, place] : columns) {
      if (place >= stream.fields().size()) continue;
      const std::string cell(stream.fields()[place]);
      if (!is_blank(cell)) cells.emplace(column, cell);
    }
    const std::string line = "line " + std::to_string(stream.line());
    if (cells.emplace("id", line).second) without_id.push_back(line);
    if (stream.fields().size() < stream.columns()) short_rows.push_back(cells.at("id"));
    table.runs.emplace_back(std::move(cells));
  }
  if (table.runs.empty()) throw InputError(name, "a header and no row", "a row for each run");
  if (!without_id.empty())
    table.remarks.push_back(name + ": rows without an id are called by their line: " + some_of(without_id));
  if (!short_rows.empty())
    table.remarks.push_back(
        name + ": rows with fewer cells than the header, the last of which are taken as blank: " +
        some_of(short_rows));
  return table;
}

}  // namespace

MeasuredRun::MeasuredRun(std::map<std::string, std::string> cells) : cells_(std::move(cells)) {
  if (const auto framework = cells_.find("framework"); framework != cells_.end())
    framework->second = with_known_spelling(framework->second);
}

std::string MeasuredRun::text(const std::string& column) const {
  const auto cell = cells_.find(column);
  return cell == cells_.end() ? std::string() : cell->second;
}

std::optional<RunStatus> MeasuredRun::status() const {
  struct Word {
    std::string_view start;
    RunStatus status;
  };
  constexpr std::array kWords{Word{"ok", RunStatus::ok},
                              Word{"oom", RunStatus::out_of_memory},
                              Word{"out of memory", RunStatus::out_of_memory},
                              Word{"failed", RunStatus::failed},
                              Word{"inconsistent", RunStatus::doubted},
                              Word{"suspect", RunStatus::doubted}};
  const std::string said = lower_case(text("status"));
  if (said.empty()) return RunStatus::ok;
  const Word* found = row_starting(kWords, said);
  return found == nullptr ? std::nullopt : std::optional(found->status);
}

bool MeasuredRun::has_failed() const {
  return status() == RunStatus::out_of_memory || status() == RunStatus::failed;
}

std::optional<double> MeasuredRun::number(const std::string& column) const {
  const auto cell = cells_.find(column);
  if (cell == cells_.end() || is_none(column, cell->second)) return std::nullopt;
  const auto value = parse_number(without_separators(cell->second));
  constexpr double kLeast = 1e-9, kMost = 1e15;  // times made of such numbers are finite and above zero
  if (!value || !(*value >= kLeast && *value <= kMost))
    throw InputError("run " + id() + ", " + column, quote_for_message(cell->second),
                     "a number above zero, from 1e-9 to 1e15");
  return value;
}

std::optional<std::int64_t> MeasuredRun::integer(const std::string& column, std::int64_t most) const {
  const auto value = number(column);
  if (!value) return std::nullopt;
  if (*value != std::floor(*value) || *value > static_cast<double>(most)) {
    throw InputError("run " + id() + ", " + column, quote_for_message(text(column)),
                     "a whole number from 1 to " + std::to_string(most));
  }
  return static_cast<std::int64_t>(*value);
}

void MeasuredRun::complete_from(const MeasuredRun& other) {
  constexpr std::array kNotOfTheRun{
      "source",         "note",        "source_location", "iter_time_s",
      "tflops_per_gpu", "mfu_pct",     "hfu_pct",         "tokens_per_s_per_gpu",
      "samples_per_s",  "peak_mem_gb", "status"};
  for (const auto& [column, value] : other.cells_) {
    const bool skipped = std::find(kNotOfTheRun.begin(), kNotOfTheRun.end(), column) != kNotOfTheRun.end();
    if (!skipped && cells_.emplace(column, value).second) filled_.push_back(column);
  }
}

MeasuredTable read_measured_table(const std::string& path) {
  CsvStream stream(path, path);
  MeasuredTable table = read_all(stream, path);
  for (const std::string& remark : remarks_on_titles(stream.titles()))
    table.remarks.push_back(path + ": " + remark);
  return table;
}

std::vector<MeasuredRun> parse_measured_runs(std::string_view csv, const std::string& name) {
  CsvStream stream(CsvStream::Text{csv}, name);
  return read_all(stream, name).runs;
}

std::vector<MeasuredRun> classic_runs() {
  return parse_measured_runs(classics_csv(), "classics.csv");
}

}  // namespace orrery
