// What is said of a plan's memory: its fullest card, and where the fastest plan is not the safest.
#include "sim/bounds/memory_outlook.hpp"

#include "costmodels/trust/residuals.hpp"
#include "sim/bounds/feasibility.hpp"
#include "sim/search/search_report.hpp"
#include "tests/catch.hpp"
#include "tests/sim/random_search.hpp"

namespace orrery {
namespace {

TEST_CASE("the outlook of a plan is that of the card that is fullest for its size", "[slow]") {
  std::mt19937 random(21);
  std::size_t plans = 0;
  for (int i = 0; i < 6; ++i) {
    const SearchJob job = test::random_job(random);
    PriceBook book = test::book_of(job);
    for (const RatedPlan& plan : test::run(job, book).plans) {
      ++plans;
      double fullest = 0;
      for (std::size_t at = 0; at < plan.memory.size(); ++at) {
        const int stages = plan.strategy.pipeline, kind = static_cast<int>(at) / stages;
        const int group = kind == 0 && plan.strategy.replicas.empty()
                              ? plan.strategy.stages[at].group
                              : plan.strategy.replicas[static_cast<std::size_t>(kind)].groups[at % stages];
        const Bytes card = job.cluster.groups[static_cast<std::size_t>(group)].gpu.memory;
        const StageMemory& memory = plan.memory[at];
        fullest = std::max(fullest, (memory.total() - memory.cached + memory.split) / card);
      }
      const MemoryOutlook outlook = memory_outlook(book, plan.strategy, plan.memory);
      CHECK(outlook.fullness == Approx(fullest));
      CHECK(outlook.out_of_memory == Approx(built_in_residuals().out_of_memory.chance(fullest)));
      CHECK(outlook.band.low < outlook.band.high);
    }
  }
  CHECK(plans > 6);
}

TEST_CASE("a chance is said in whole percent, and a small one as small") {
  CHECK(chance_text(0.284) == "28 %");
  CHECK(chance_text(0.01) == "1 %");
  CHECK(chance_text(0.0099) == "< 1 %");
}

TEST_CASE(
    "where the fastest plan may run out of memory the fastest safe one is named, or the way to find one") {
  SearchJob job;
  SearchReport report;
  report.job = &job;
  const auto said = [&](const std::vector<double>& chances) {
    report.plans.clear();
    for (const double chance : chances) {
      ReportedPlan plan;
      plan.rank = static_cast<int>(report.plans.size()) + 1;
      plan.replayed.iteration = Seconds(10 + 0.1 * static_cast<double>(report.plans.size()));
      plan.memory.out_of_memory = chance;
      report.plans.push_back(plan);
    }
    return answers_text(report);
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK_FALSE(has(said({0.05, 0.3}), "run out of memory"));
  // 10.2 s over 10 s.
  CHECK(has(said({0.28, 0.06, 0.01}), "is 28 %; the fastest of at most 5 % is plan 3, 2.0 % slower"));
  CHECK(has(said({0.28, 0.06}), "no plan here has 5 % or less: --memory-risk looks for some"));
}

}  // namespace
}  // namespace orrery
