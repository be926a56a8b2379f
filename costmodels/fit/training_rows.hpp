// What every training set is made with; included by their sources only.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "costmodels/fit/training_set.hpp"

namespace orrery {

// A measured time beside what a data sheet says of it.
struct TimeCheck {
  Seconds least;     // no operator is faster: a unit mistaken or a kernel that did not run
  Seconds expected;  // at the data-sheet peak or bandwidth, with launches
  Seconds time;
};

// Counts the times that a data sheet rules out by reason, and refuses a source with too many of them: its
// times are in another unit. Single misreadings are left out. Refuses a source also where its long times are
// off in the median: its sizes are in another unit.
class SourceCheck {
 public:
  // `what`: the operators in messages. `files` outlive the check.
  SourceCheck(std::string what, TaughtFiles& files) : what_(std::move(what)), files_(&files) {}

  bool believes(const std::string& source, TableLine, const TimeCheck&);
  void refuse_wrong_sources() const;  // throws InputError
  // Of collectives and transfers: says of a table's source that its links may be given in another unit.
  void doubt_fast_links() const;

 private:
  struct Counts {
    std::int64_t wrong = 0, all = 0;
    TableLine first_wrong{};
  };
  struct Believed {
    Seconds expected, time;
  };
  using TableSource = std::pair<std::size_t, std::string>;  // its file, and its name there

  void refuse_wrong_sizes() const;
  // How many times longer than expected the long times of each are, in the median; where there are some.
  [[nodiscard]] std::map<TableSource, double> medians() const;
  std::string what_;
  TaughtFiles* files_;
  std::map<std::string, Counts> sources_;
  std::map<TableSource, std::vector<Believed>> believed_;
};

void add_row(TrainingSet&, const std::vector<float>& features, Seconds reference, Seconds time,
             std::string model, std::string shape, std::string gpu);
void add_unique(std::vector<std::string>& sorted, const std::string& text);
// What a measured row timed.
Gemm operator_of(const MeasuredGemm&);
Attention operator_of(const MeasuredAttention&, AttentionKernel, SoftmaxKernel);
// One of the own GPUs of the profiles, else of the catalog.
const GpuSpec& gpu_named(const Profiles&, const std::string& name);

// Lets labels with few rows be heard: a label counts by the square root of its rows (`even` 0.5) or all count
// alike (`even` 1), but no row more than 30 times the average, since some labels have a dozen rows.
void balance(TrainingSet&, const std::vector<std::string>& labels, float even);

bool has_too_few_rows(const TrainingSet&);  // to teach a model
// Notes the best efficiency measured, where there are rows.
void finish(TrainingSet&);

}  // namespace orrery
