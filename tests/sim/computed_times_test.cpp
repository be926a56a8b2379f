// Which published times are sums of a program: on times made up with and without scatter.
#include "sim/validation/computed_times.hpp"

#include <algorithm>
#include <cstdio>
#include <random>

#include "sim/validation/validation_report.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {
namespace {

// `plans` plans with batches of 32 to 256, 3.137 ms a microbatch of each layer and 41.29 beside them, written
// down to `digits`; each time off by a share drawn with the deviation `scatter`.
std::vector<MeasuredRun> made(int plans, double scatter, int digits = 6) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(0, 1);
  std::string rows;
  for (int plan = 0; plan < plans; ++plan) {
    for (const int batch : {32, 64, 128, 256}) {
      const int layers = 12 + plan, microbatches = batch / 16;
      const double seconds = (0.04129 + 0.003137 * layers * microbatches) * (1 + scatter * noise(random));
      char row[256];
      std::snprintf(
          row, sizeof row,
          "%d-%d,g,A100,80,8,16,,Megatron-LM,GPT,%d,2048,16,51200,2048,fp16,%d,4,4,1,1,4,full,%.*g,,"
          "ok\n",
          plan, batch, layers, batch, digits, seconds);
      rows += row;
    }
  }
  return test::runs_of(rows);
}

}  // namespace

TEST_CASE("times without scatter are computed, those that scatter as machines do are measured") {
  // Four batches have two between others.
  const auto found = computed_times(made(10, 0));
  REQUIRE(found.size() == 1);
  CHECK(found.front().group == "g");
  CHECK(found.front().between == 20);
  CHECK(found.front().deviation < 2e-6);  // what rounding leaves
  CHECK(computed_times(made(10, 1e-3)).empty());
  CHECK(computed_times(made(300, 1e-3)).empty());
}

TEST_CASE("few times, rounded ones, and batches of unlike plans prove nothing") {
  CHECK(computed_times(made(3, 0)).empty());
  CHECK(computed_times(made(4, 0)).size() == 1);
  CHECK(computed_times(made(10, 0, 3)).empty());
  std::vector<MeasuredRun> alone = made(40, 0);
  std::erase_if(alone, [](const MeasuredRun& run) { return run.integer("gbs") == 64; });
  CHECK(computed_times(alone).size() == 1);  // three batches of each plan are left
  std::erase_if(alone, [](const MeasuredRun& run) { return run.integer("gbs") == 128; });
  CHECK(computed_times(alone).empty());
}

TEST_CASE("a validation says which of its groups were computed") {
  const CostModels costs = CostModels::built_in();
  const Validation computed = validate(made(4, 0), costs, {}), measured = validate(made(4, 1e-3), costs, {});
  CHECK(contains(validation_text(computed, Listed::digest), "g: computed, not measured. 8 times between"));
  CHECK(contains(validation_json(computed), "\"computed\": true"));
  CHECK_FALSE(contains(validation_text(measured, Listed::digest), "computed, not measured"));
  CHECK(contains(validation_json(measured), "\"computed\": false"));
}

}  // namespace orrery
