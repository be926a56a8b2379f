#include "sim/search/compare_estimators.hpp"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "analysis/table.hpp"
#include "costmodels/estimate/estimate.hpp"
#include "costmodels/estimators/estimators.hpp"
#include "sim/replay/children.hpp"
#include "sim/replay/replay.hpp"
#include "traces/json_text.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

// The replay and every estimate of one plan, as bytes between processes.
std::string play(const PlayablePlan& playable) {
  const auto& [topology, plan] = playable;
  const PlanPrograms programs = make_programs(plan);
  const TrafficFlows flows(plan, programs, topology, Folding::on);
  Json times;
  for (const Estimator& estimator : estimators()) {
    times.push_back(estimator.iteration({plan, programs, topology, flows}).value());
  }
  times.push_back(steady_iteration(replay(plan, programs, topology, flows, {}).iteration_ends).value());
  return times.dump();
}

std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * fraction);
  return text;
}

std::string correlation(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value);
  return std::isnan(value) ? "" : text;
}

Json number(double value) {
  return std::isnan(value) ? Json() : Json(value);
}

}  // namespace

Comparison compare_estimators(std::size_t plans, const PlanSource& source, int jobs,
                              const std::function<void(std::size_t)>& done) {
  std::vector<ChildTask> tasks;
  for (std::size_t i = 0; i < plans; ++i) tasks.push_back([&source, i] { return play(source(i)); });
  Comparison all;
  all.estimates.resize(estimators().size());
  for (const std::string& answer : run_in_children(tasks, jobs, done)) {
    const Json times = Json::parse(answer);
    for (std::size_t i = 0; i < all.estimates.size(); ++i)
      all.estimates[i].push_back(times.at(i).get<double>());
    all.replay.push_back(times.at(all.estimates.size()).get<double>());
  }
  return all;
}

std::vector<EstimatorErrors> errors_of(const Comparison& comparison) {
  std::vector<EstimatorErrors> rows;
  for (std::size_t i = 0; i < comparison.estimates.size(); ++i) {
    const PredictedAndMeasured pairs{comparison.estimates[i], comparison.replay};
    rows.push_back({std::string(estimators()[i].name), summarize_errors(pairs), spearman(pairs),
                    kendall_tau_b(pairs), top1_regret(pairs)});
  }
  return rows;
}

std::string to_text(const std::vector<EstimatorErrors>& rows) {
  Table table;
  table.columns = {{"estimator"},
                   {"mean error", Align::right},
                   {"worst", Align::right},
                   {"bias", Align::right},
                   {"Spearman", Align::right},
                   {"Kendall", Align::right},
                   {"regret of its first choice", Align::right}};
  for (const EstimatorErrors& row : rows) {
    table.rows.push_back({row.name, percent(row.errors.mean), percent(row.errors.maximum),
                          percent(row.errors.bias), correlation(row.spearman), correlation(row.kendall),
                          percent(row.top1_regret)});
  }
  return to_text(table);
}

std::string comparison_json(const Comparison& comparison, const std::vector<EstimatorErrors>& rows) {
  Json json;
  json["plans"] = comparison.replay.size();
  json["estimators"] = Json::array();
  for (const EstimatorErrors& row : rows) {
    json["estimators"].push_back({{"name", row.name},
                                  {"mape", row.errors.mean},
                                  {"max_ape", row.errors.maximum},
                                  {"bias", row.errors.bias},
                                  {"spearman", number(row.spearman)},
                                  {"kendall", number(row.kendall)},
                                  {"top1_regret", row.top1_regret}});
  }
  return json_document(json);
}

}  // namespace orrery
