// What every training set is made with; included by their sources only.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "costmodels/training_set.hpp"

namespace orrery {

// Faster than this share of the reference cannot be: a unit mistaken or a kernel that did not run.
inline constexpr double kBelievableEfficiency = 2.0;

// Counts the times that a data sheet rules out by reason, and refuses a source with too many of them: its
// times are in another unit. Single misreadings are left out.
class SourceCheck {
 public:
  // `what`: the operators in messages. `files` outlive the check.
  SourceCheck(std::string what, TaughtFiles& files) : what_(std::move(what)), files_(&files) {}

  // `reference`: time at the data-sheet peak or bandwidth.
  bool believes(const std::string& source, TableLine, Seconds reference, Seconds time);
  void refuse_wrong_sources() const;  // throws InputError

 private:
  struct Counts {
    std::int64_t wrong = 0, all = 0;
  };
  std::string what_;
  TaughtFiles* files_;
  std::map<std::string, Counts> sources_;
};

void add_row(TrainingSet&, const std::vector<float>& features, Seconds reference, Seconds time,
             std::string model, std::string shape, std::string gpu);
void add_unique(std::vector<std::string>& sorted, const std::string& text);
const GpuSpec& gpu_named(const std::string& name);

// Lets labels with few rows be heard: a label counts by the square root of its rows (`even` 0.5) or all count
// alike (`even` 1), but no row more than 30 times the average, since some labels have a dozen rows.
void balance(TrainingSet&, const std::vector<std::string>& labels, float even);

bool has_too_few_rows(const TrainingSet&);  // to teach a model
// Notes the best efficiency measured, where there are rows.
void finish(TrainingSet&);

}  // namespace orrery
