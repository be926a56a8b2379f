// Groups of residuals and outcomes from a validation, and how far these hold for runs they were made without.
#include "sim/validation/interval_fit.hpp"

#include <cmath>

#include "tests/catch.hpp"

namespace orrery {
namespace {

ValidatedRun run_of(const std::string& group, double predicted, std::optional<double> measured) {
  ValidatedRun run;
  run.group = group;
  run.kind = "A100";
  run.trust.family = "f";
  run.predicted = predicted;
  run.measured = measured;
  return run;
}

ValidatedRun peak_of(const std::string& group, double predicted, double measured) {
  ValidatedRun run = run_of(group, 1, std::nullopt);
  run.predicted_memory = predicted;
  run.measured_memory = measured;
  return run;
}

ValidatedRun outcome(const std::string& group, double fullness, bool ran_out) {
  ValidatedRun run = run_of(group, 1, std::nullopt);
  run.fullness = fullness;
  run.failed = run.out_of_memory = ran_out;
  return run;
}

TEST_CASE("times and peaks make groups of their own; a source is left out of those of time alone") {
  Validation validation;
  validation.runs = {run_of("a", 1, 2), run_of("a", 4, 2), run_of("b", 3, 3), peak_of("a", 40, 80),
                     peak_of("c", 30, 30)};
  const Residuals all = residuals_of(validation, {"a"});
  REQUIRE(all.time.size() == 1);
  CHECK(all.time[0].source == "b");
  REQUIRE(all.memory.size() == 2);
  CHECK(all.memory[0].mean == Approx(std::log(0.5)));
  const Residuals both = residuals_of(validation);
  REQUIRE(both.time.size() == 2);
  // ln 1/2 and ln 2: their mean is 0, their variance over n - 1 is 2 (ln 2)^2.
  CHECK(both.time[0].runs == 2);
  CHECK(both.time[0].mean == Approx(0).margin(1e-12));
  CHECK(both.time[0].variance == Approx(2 * std::log(2) * std::log(2)));
}

TEST_CASE("a run lies inside where the facts that its row leaves open hold its time") {
  Validation validation;
  for (const double predicted : {0.99, 1.0, 1.01}) validation.runs.push_back(run_of("near", predicted, 1));
  validation.runs.push_back(run_of("far", 1, 100));
  for (ValidatedRun& run : validation.runs) run.low = run.high = run.predicted;
  const auto inside = [&](Predicted what) {
    for (const Coverage& row : coverage_of(validation, what)) {
      if (row.name == "far A100") return row.group_out.inside;
    }
    return -1.0;
  };
  CHECK(inside(Predicted::time) == 0);
  validation.runs.back().high = 120;  // its slowest plan
  CHECK(inside(Predicted::time) == 1);
  const ErrorBand open = over_open_facts({.low = 0.9, .high = 1.1}, validation.runs.back());
  CHECK(open.low == 0.9);
  CHECK(open.high == 120);
}

TEST_CASE("only sources that publish runs that ran out tell of the chances to, and never of their own runs") {
  Validation validation;
  const auto add = [&](const std::string& group, double fullness, bool ran_out) {
    for (int copy = 0; copy < 6; ++copy) validation.runs.push_back(outcome(group, fullness, ran_out));
  };
  for (const double fullness : {0.5, 0.6, 0.7}) add("silent", 2 * fullness, false);  // above its cards
  CHECK(foreseen_chances(validation).empty());
  CHECK(residuals_of(validation).out_of_memory == built_in_residuals().out_of_memory);
  for (const char* source : {"a", "b"}) {
    add(source, 0.7, false);
    add(source, 1.3, true);
  }
  const OutOfMemoryModel model = residuals_of(validation).out_of_memory;
  CHECK(model.even == Approx(std::sqrt(0.7 * 1.3)).epsilon(0.01));  // half way, in logarithms
  std::size_t runs = 0, ran_out = 0;
  for (const ForeseenChances& row : foreseen_chances(validation)) {
    runs += row.runs;
    ran_out += row.ran_out;
    if (row.runs == 0) continue;
    CHECK(row.mean >= row.low);
    CHECK(row.mean <= row.high);
    CHECK((row.high <= 0.5 ? row.ran_out == 0 : row.ran_out == row.runs));
  }
  CHECK(runs == 24);
  CHECK(ran_out == 12);
  // A third source for which counts mean something else does not change what is said of itself.
  add("c", 0.4, true);
  for (const ForeseenChances& row : foreseen_chances(validation)) {
    if (row.high <= 0.01) CHECK(row.ran_out == 6);
  }
}

TEST_CASE("a run that failed for a reason nobody wrote down tells nothing of memory") {
  Validation validation;
  for (int copy = 0; copy < 8; ++copy) {
    validation.runs.push_back(outcome("a", 0.7, false));
    validation.runs.push_back(outcome("a", 1.3, true));
  }
  const OutOfMemoryModel before = residuals_of(validation).out_of_memory;
  ValidatedRun stopped = outcome("a", 0.5, true);
  stopped.out_of_memory = false;
  for (int copy = 0; copy < 8; ++copy) validation.runs.push_back(stopped);
  CHECK(residuals_of(validation).out_of_memory == before);
}

}  // namespace
}  // namespace orrery
