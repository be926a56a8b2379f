// Fits every efficiency model to measured operators, and says how wrong each is on what it did not see.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "costmodels/models/model_card.hpp"
#include "traces/profile_reader.hpp"

namespace orrery {

struct FitOptions {
  std::vector<std::string> profiles;  // folders of measured operator tables (traces/profile_reader.hpp)
  std::string output;                 // folder; created when missing
  std::uint64_t seed = 1;
  InventedTimes invented = InventedTimes::refused;
  std::vector<GpuSpec> own_gpus{};  // which the tables may name beside the catalog's
  bool operator==(const FitOptions&) const = default;
};

// Errors of predicted times against measured ones: |predicted / measured - 1|, shares of 1.
struct FitError {
  std::string model{};
  // "random" rows held out (optimistic: neighbours of the same matrix stay in); "model": all rows of a
  // transformer; "model+shape": and what others have of its matrices; "shape": of a weight matrix (N, K);
  // "gpu": of a GPU or a system; "head dim": of one head dimension. "bars": nothing held out, the published
  // bars of attention as they are.
  std::string held_out{};
  std::string rows{};  // which of the held-out rows: "all", "M >= 1024", "GPU A100-SXM4-80GB"
  std::int64_t count = 0;
  double mape = 0, median = 0, p95 = 0, worst = 0;
  double bias = 0;  // geometric mean of predicted / measured, less 1
};

struct FitInput {
  std::string file;  // relative to its folder
  std::string sha256;
  std::string path{};                               // with the folder, as it was given
  std::int64_t rows = 0, used = 0;                  // used: measurements that teach, or of kinds with too few
  std::map<std::string, std::int64_t> skipped{};    // measurements by reason
  std::map<std::string, std::size_t> first_line{};  // of the file, by reason
  std::map<std::string, std::string> first_found{};  // there, of unreadable ones: "'nan' in column 'time_us'"
  std::vector<std::string> gemms_not_read{};         // columns
  std::vector<std::string> doubts{};                 // what was taken all the same, in sentences
};

// ", first in line 4: 'nan' in column 'time_us'" of what was skipped for a reason; empty where no line is
// known.
std::string first_line(const FitInput&, const std::string& reason);

struct FittedModel {
  std::string file, kind, sha256;
  std::vector<std::string> gpus;
  std::int64_t rows = 0;
  std::size_t features = 0;
  int trees = 0, leaves = 0;
  double learning_rate = 0, row_share = 1, column_share = 1;
};

struct FitReport {
  std::vector<FittedModel> models{};
  std::vector<FitError> errors{};
  std::vector<FitInput> inputs{};
  std::vector<std::string> not_read{};  // files below the folders that are no table of a known name
  PassFactors passes{};
  std::map<std::string, std::int64_t> left_out{};  // measurements of kinds with too few, by reason
  std::string xgboost{};                           // version
  std::uint64_t seed = 0;
};

// Fewer measurements than this fit no model of a kind.
inline constexpr std::int64_t kLeastRows = 60;
// A GPU with at least this many GEMMs gets a model of its own.
inline constexpr std::int64_t kLeastRowsOfGpu = 200;

// Writes one .ubj a model and provenance.json. The same profiles and seed give the same bytes. Throws
// InputError for unreadable profiles, for too few rows of every kind (a kind with too few is left to the
// built-in models, and named among what was left out), and for a folder that cannot be written.
FitReport fit(const FitOptions&);

std::string to_json(const FitReport&);  // also the content of provenance.json
std::string to_table(const FitReport&);

}  // namespace orrery
