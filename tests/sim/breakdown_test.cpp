#include "sim/validation/breakdown.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "sim/validation/validation_report.hpp"
#include "tests/platforms/input_error.hpp"

namespace orrery {
namespace {

ValidatedRun run(const std::string& group, const std::string& program, std::int64_t gpus, double predicted) {
  ValidatedRun one;
  one.id = group + std::to_string(gpus);
  one.group = group;
  one.kind = one.gpu = gpus > 8 ? "H100" : "A100";
  one.gpus = gpus;
  one.trust.family = program;
  one.measured = 1.0;
  one.predicted = one.low = one.high = predicted;
  return one;
}

const ErrorShare& row(const std::vector<Breakdown>& all, std::size_t by, const std::string& name) {
  for (const ErrorShare& one : all.at(by).rows) {
    if (one.time.name == name) return one;
  }
  FAIL("no row " << name);
  throw std::logic_error("unreachable");
}

}  // namespace

TEST_CASE("what runs have in common is told whatever their group") {
  Validation made;
  made.runs = {run("a", "nemo", 1, 1.1), run("b", "nemo", 8, 0.9), run("b", "nemo", 9, 0.8),
               run("c", "rare", 64, 1.4), run("d", "seldom", 1000, 1.0)};
  made.runs.push_back(run("e", "nemo", 8, 2.0));  // ran out of memory: of no group with a time
  made.runs.back().measured.reset();
  made.runs.back().failed = made.runs.back().out_of_memory = true;
  made.runs.back().verdict = MemoryVerdict::too_big;
  const std::vector<Coverage> coverage{
      {.name = "a A100", .runs = 1, .group_out = {.inside = 1}},
      {.name = "b A100", .runs = 1, .group_out = {.inside = 0.5}},
      {.name = "b H100", .runs = 1, .used = false, .group_out = {.inside = 0}}};
  const std::vector<Breakdown> all = breakdowns(made, coverage, 2);
  REQUIRE(all.size() == 4);
  const ErrorShare& nemo = row(all, 0, "nemo");
  CHECK(nemo.time.groups == 2);
  CHECK(nemo.time.runs == 3);
  CHECK(nemo.time.errors.mean == Approx((0.1 + 0.1 + 0.2) / 3));
  CHECK(nemo.time.errors.bias == Approx((0.1 - 0.1 - 0.2) / 3));
  CHECK(nemo.inside == Approx((1 + 0.5) / 2));
  CHECK(nemo.memory.true_positive == 1);
  const ErrorShare& others = row(all, 0, "2 others");
  CHECK(others.time.errors.mean == Approx(0.2));
  CHECK(std::isnan(others.inside));
  CHECK(all[0].rows.size() == 2);
  CHECK(row(all, 1, "A100").time.runs == 2);
  CHECK(row(all, 2, "measured GPU, dense").time.runs == 5);
  std::vector<std::string> sizes;
  for (const ErrorShare& one : all[3].rows) sizes.push_back(one.time.name);
  CHECK(sizes == std::vector<std::string>{"1", "2 to 8", "9 to 64", "more than 512"});
  // One name that is rare keeps it.
  CHECK(row(breakdowns({.runs = {made.runs[3]}}), 0, "rare").time.runs == 1);
}

TEST_CASE("a report of many groups tells what they have in common, of few each group") {
  Validation few, many;
  for (int i = 0; i < 41; ++i) {
    many.runs.push_back(run("group-" + std::to_string(i), "nemo", 8, 1.0 + i / 100.0));
    many.runs.push_back(run("group-" + std::to_string(i), "nemo", 8, 1.0 + i / 100.0));
    many.runs.push_back(run("group-" + std::to_string(i), "nemo", 8, 1.0 + i / 100.0));
    if (i < 40) few.runs.push_back(many.runs.back());
  }
  const std::string digest = validation_text(many, Listed::digest);
  CHECK(contains(digest, "123 runs of 41 groups with a time"));
  CHECK(contains(digest, "mean error 20.0 %, median 20.0 %,\nbias +20.0 %"));
  CHECK(contains(digest, "\nnemo         41   123    20.0"));
  CHECK(contains(digest, "\ngroup-40"));        // among those furthest off,
  CHECK_FALSE(contains(digest, "\ngroup-30"));  // which are ten
  CHECK(contains(digest, "--groups"));
  CHECK(contains(validation_text(many, Listed::groups), "\ngroup-30"));
  CHECK(contains(validation_text(few, Listed::digest), "\ngroup-30"));
  CHECK(contains(validation_json(many), R"("by": "program")"));
  // Of what an ablation takes away too.
  CHECK(contains(ablation_text({{"as it is", many}}), "20.0/+20.0  20.0/+20.0\n"));
  CHECK_FALSE(contains(ablation_text({{"as it is", many}}), "group-30"));
  CHECK(contains(ablation_text({{"as it is", few}}), "group-30"));
}

}  // namespace orrery
