#include "sim/search/search_replays.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "sim/bounds/plan_band.hpp"
#include "sim/replay/children.hpp"
#include "sim/search/json_output.hpp"
#include "traces/clean_up.hpp"

namespace orrery {
namespace {

constexpr int kLinkBins = 100;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Traces are written before the ranks are known, so under other names first. What is left of those at the end
// is removed: a search that fails, and plans that were left out, leave nothing behind.
class UnrankedTraces {
 public:
  UnrankedTraces(std::string folder, std::size_t count) : folder_(std::move(folder)), count_(count) {
    for (std::size_t i = 0; i < count_; ++i) add_temporary(path(i));
  }
  UnrankedTraces(const UnrankedTraces&) = delete;
  UnrankedTraces& operator=(const UnrankedTraces&) = delete;
  ~UnrankedTraces() {
    std::error_code ignored;
    for (std::size_t i = 0; i < count_; ++i) {
      std::filesystem::remove(path(i), ignored);
      drop_temporary(path(i));
    }
  }

  [[nodiscard]] std::string path(std::size_t index) const {
    return numbered(folder_ + "/unranked-trace", static_cast<int>(index) + 1, ".h5");
  }

 private:
  std::string folder_;
  std::size_t count_;
};

std::string replay_one(const ReplayOrder& order, const RatedPlan& plan, const ErrorBand& band,
                       const std::string& path) {
  const double start = now_s();
  const Topology topology(order.job.cluster, plan.strategy.nodes);
  ReplayResult replay =
      run_replay(order.book.price(plan.strategy, topology), topology, {kLinkBins, Folding::on});
  const ReplaySummary summary = summarize(replay, now_s() - start);
  write_trace(path, make_trace({&order.book, &plan.strategy, order.job.total_tokens, band, &plan.memory, {}},
                               replay, order.origin));
  return to_bytes(summary);
}

ReportedPlan reported(const ReplayOrder& order, RatedPlan plan, ErrorBand band, ReplaySummary replay) {
  ReportedPlan row;
  row.band = std::move(band);
  row.replay = std::move(replay);
  row.plan = std::move(plan);
  const ParallelStrategy& strategy = row.plan.strategy;
  row.estimate = totals(order.book, strategy, row.plan.iteration, order.job.total_tokens);
  row.replayed = totals(order.book, strategy, Seconds(row.replay.iteration_s), order.job.total_tokens);
  row.memory = memory_outlook(order.book, strategy, row.plan.memory);
  row.extrapolated = order.book.extrapolations(strategy);
  return row;
}

void rank(std::vector<ReportedPlan>& plans, const std::string& folder) {
  std::stable_sort(plans.begin(), plans.end(), [](const ReportedPlan& a, const ReportedPlan& b) {
    const auto held = [](const ReportedPlan& plan) {
      return plan.replayed.iteration * plan.replayed.interruptions.stretch;
    };
    return held(a) < held(b);
  });
  int rank = 0;
  for (ReportedPlan& plan : plans) {
    plan.rank = ++rank;
    const std::string unranked = std::move(plan.trace);
    plan.trace = numbered(folder + "/trace", rank, ".h5");
    std::error_code trouble;
    std::filesystem::rename(unranked, plan.trace, trouble);
    if (trouble) throw InputError(plan.trace, trouble.message(), "a file name that can be written");
  }
}

}  // namespace

std::string numbered(const std::string& stem, int rank, const std::string& extension) {
  char text[16];
  std::snprintf(text, sizeof text, "-%02d", rank);
  return stem + text + extension;
}

std::vector<ReportedPlan> replay_plans(const ReplayOrder& order, std::vector<RatedPlan> plans,
                                       SearchSpaceCounts& counts, Progress& progress) {
  const UnrankedTraces traces(order.folder, plans.size());
  std::vector<ErrorBand> bands;  // before there are children, which must not predict
  for (const RatedPlan& plan : plans) bands.push_back(plan_band(order.book, plan.strategy, order.costs));
  std::vector<ChildTask> tasks;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    tasks.push_back([&, i] { return replay_one(order, plans[i], bands[i], traces.path(i)); });
  }
  const std::vector<std::string> answers = run_in_children(
      tasks, order.jobs, [&](std::size_t done) { progress.update("replaying plans", done, tasks.size()); });
  std::vector<ReportedPlan> rows;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    ReportedPlan row =
        reported(order, std::move(plans[i]), std::move(bands[i]), summary_from_bytes(answers[i]));
    if (const auto obstacle = limit_obstacle(
            order.job, row.replayed.total_time.value_or(row.replayed.iteration), row.replayed.cost)) {
      --counts.evaluated;
      ++counts.rejected[InfeasibleKind::budget];
      ++counts.reasons[*obstacle + " when replayed"];
      continue;
    }
    row.trace = traces.path(i);
    rows.push_back(std::move(row));
  }
  rank(rows, order.folder);
  return rows;
}

}  // namespace orrery
