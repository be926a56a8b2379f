// Published training runs: one row a run, as they were printed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// How a run ended: with what it printed; out of memory; failed for a reason that nobody wrote down; in a row
// that its source or its reader doubts.
enum class RunStatus { ok, out_of_memory, failed, doubted };

// A row by column (README: columns). What a source does not say is blank and reads as absent.
class MeasuredRun {
 public:
  // `framework` is taken as with_known_spelling (program_names.hpp) has it.
  explicit MeasuredRun(std::map<std::string, std::string> cells);

  [[nodiscard]] std::string text(const std::string& column) const;  // "" where absent
  // Absent where it is blank, or 0 of ways and sizes that a run does not have (vpp, cp, ep, ...). Throw
  // InputError naming the run and the column when it holds something else than a number from 1e-9 to 1e15 (a
  // whole number from 1 to `most`).
  [[nodiscard]] std::optional<double> number(const std::string& column) const;
  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& column,
                                                    std::int64_t most = 100'000'000) const;
  [[nodiscard]] std::string id() const { return text("id"); }
  [[nodiscard]] std::string group() const { return text("source_key"); }
  // By the first word of `status`, in any case; blank: ok. Absent for any other word.
  [[nodiscard]] std::optional<RunStatus> status() const;
  [[nodiscard]] bool has_failed() const;  // out of memory included
  // Fills what is absent of what ran from another row of the same run; what was measured stays as it is.
  void complete_from(const MeasuredRun& other);
  // The columns that were filled so.
  [[nodiscard]] const std::vector<std::string>& filled() const { return filled_; }

 private:
  std::map<std::string, std::string> cells_;  // no blank ones
  std::vector<std::string> filled_;
};

// The runs of a table, each of which counts once.
class SeenRuns {
 public:
  // Whether an earlier one had its group and id.
  bool is_again(const MeasuredRun& run) { return !names_.insert(run.group() + " " + run.id()).second; }

 private:
  std::set<std::string> names_;
};
inline constexpr const char* kSecondRow = "a second row of this id";  // why it is left out

struct MeasuredTable {
  std::vector<MeasuredRun> runs;
  // In sentences: columns that are not read though their title is like that of one that is, rows without an
  // id, which are called "line N", and rows that are shorter than the header.
  std::vector<std::string> remarks;
};
// Needs the columns id, gpu, n_gpus and source_key, and a run at least, in every row as far as the last of
// these. Throw InputError.
MeasuredTable read_measured_table(const std::string& path);
std::vector<MeasuredRun> parse_measured_runs(std::string_view csv, const std::string& name);
// The classics that come with Orrery: costmodels/measured/classics.csv.
std::vector<MeasuredRun> classic_runs();

}  // namespace orrery
