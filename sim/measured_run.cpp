#include "sim/measured_run.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "costmodels/classics.hpp"
#include "platforms/errors.hpp"
#include "sim/cell_text.hpp"
#include "traces/csv_stream.hpp"

namespace orrery {
namespace {

constexpr std::array kNeeded{"id", "source_key", "gpu", "n_gpus"};
constexpr std::array kColumns{"id",
                              "source_location",
                              "source_key",
                              "source",
                              "gpu",
                              "gpu_mem_gb",
                              "gpus_per_node",
                              "n_gpus",
                              "cluster_desc",
                              "cluster",
                              "stage_groups",
                              "interconnect",
                              "framework",
                              "model",
                              "params_b",
                              "layers",
                              "hidden",
                              "heads",
                              "kv_heads",
                              "head_dim",
                              "expert_load_cv",
                              "ffn",
                              "vocab",
                              "seq",
                              "n_experts",
                              "precision",
                              "gbs",
                              "mbs",
                              "tp",
                              "pp",
                              "vpp",
                              "dp",
                              "cp",
                              "ep",
                              "etp",
                              "sequence_parallel",
                              "recompute",
                              "flash_attn",
                              "optimizer_sharding",
                              "optimizer_instances",
                              "schedule",
                              "layer_partition",
                              "iter_time_s",
                              "tflops_per_gpu",
                              "mfu_pct",
                              "hfu_pct",
                              "tokens_per_s_per_gpu",
                              "samples_per_s",
                              "peak_mem_gb",
                              "peak_mem_figure",
                              "status",
                              "flops_convention",
                              "note",
                              "stack"};

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
  constexpr std::array kOptional{"vpp", "cp", "ep", "etp", "n_experts", "optimizer_instances"};
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

std::vector<MeasuredRun> read_all(CsvStream& stream, const std::string& name) {
  for (const char* column : kNeeded) static_cast<void>(stream.column(column));
  std::vector<std::pair<std::string, std::size_t>> columns;
  for (const char* column : kColumns) {
    if (const auto place = stream.find_column(column)) columns.emplace_back(column, *place);
  }
  std::vector<MeasuredRun> runs;
  while (stream.next()) {
    if (stream.fields().size() > stream.columns())
      throw InputError(name + ", run " + std::to_string(runs.size() + 1),
                       std::to_string(stream.fields().size()) + " cells",
                       "at most " + std::to_string(stream.columns()) + ", as the header has");
    std::map<std::string, std::string> cells;
    for (const auto& [column, place] : columns) {
      if (place >= stream.fields().size()) continue;
      const std::string cell(stream.fields()[place]);
      if (!is_blank(cell)) cells.emplace(column, cell);
    }
    runs.emplace_back(std::move(cells));
  }
  if (runs.empty()) throw InputError(name, "a header and no row", "a row for each run");
  return runs;
}

}  // namespace

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
  MeasuredTable table{read_all(stream, path), {}};
  const std::vector<std::string> known(kColumns.begin(), kColumns.end());
  for (const std::string& title : stream.titles()) {
    if (std::find(known.begin(), known.end(), title) != known.end()) continue;
    if (const std::string nearest = did_you_mean(title, known); !nearest.empty())
      table.misspelt.push_back(path + ": column " + quote_for_message(title) + " is not read" + nearest);
  }
  return table;
}

std::vector<MeasuredRun> parse_measured_runs(std::string_view csv, const std::string& name) {
  CsvStream stream(CsvStream::Text{csv}, name);
  return read_all(stream, name);
}

std::vector<MeasuredRun> classic_runs() {
  return parse_measured_runs(classics_csv(), "classics.csv");
}

}  // namespace orrery
