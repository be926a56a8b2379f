#include "sim/search/mixed_gain.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/table.hpp"
#include "costmodels/estimate/estimate.hpp"
#include "sim/bounds/feasibility.hpp"
#include "sim/replay/children.hpp"
#include "sim/search/json_output.hpp"
#include "sim/search/search_report.hpp"
#include "strategies/partition.hpp"
#include "traces/json_text.hpp"

namespace orrery {
namespace {

constexpr int kPlansMadeEqual = 1000;

PriceBook book_of(const SearchJob& job, const SoftwareStack& stack) {
  return {job.model, job.cluster, {job.type, true, job.sequence, stack}};
}

struct Tools {
  std::vector<Rule>& rules;
  const CostModels& models;
  const SoftwareStack& stack;
  int jobs = 1;
};

std::vector<ParallelStrategy> searched(SearchJob job, int top, const Tools& tools) {
  job.top = top;
  PriceBook book = book_of(job, tools.stack);
  std::vector<ParallelStrategy> plans;
  for (RatedPlan& plan :
       search(job, tools.rules, tools.models, book, [](const std::string&, std::size_t, std::size_t) {
       }).plans) {
    if (plan.among_fastest) plans.push_back(std::move(plan.strategy));
  }
  return plans;
}

// With virtual stages layers must divide. The shares of unlike replicas are to be chosen again.
bool make_equal(ParallelStrategy& plan, int layers) {
  if (plan.chunks > 1 && layers % plan.part_count() != 0) return false;
  plan.parts = equal_parts(layers, plan.part_count());
  for (ReplicaKind& kind : plan.replicas) kind.microbatches = 0;
  return !plan.parts.empty();
}

bool shares_are_open(const ParallelStrategy& plan) {
  return !plan.replicas.empty() && plan.replicas.front().microbatches == 0;
}

struct Estimated {
  ParallelStrategy plan;
  Seconds time;
};

// Those that fit, fastest first.
std::vector<Estimated> estimated(const SearchJob& job, std::vector<ParallelStrategy> plans, PriceBook& book) {
  StageFitter fitter(book);
  std::vector<Estimated> rows;
  for (ParallelStrategy& plan : plans) {
    if (shares_are_open(plan)) plan = book.with_chosen_shares(plan);
    const Topology topology(job.cluster, plan.nodes);
    const PricedPlan priced = book.price(plan, topology);
    const PlanPrograms programs = make_programs(priced);
    if (fitter.too_full(plan, fitter.memory_of(plan, programs))) continue;
    const Seconds time = estimate_iteration(priced, programs, topology);
    rows.push_back({std::move(plan), time});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Estimated& a, const Estimated& b) { return a.time < b.time; });
  return rows;
}

GainRow best_of(const std::string& way, const SearchJob& job, const std::vector<ParallelStrategy>& plans,
                const Tools& tools) {
  GainRow row{way, {}, job.cluster, {}, {}, {}};
  PriceBook book = book_of(job, tools.stack);
  for (const ParallelStrategy& plan : plans) book.need(plan);
  if (plans.empty()) return row;
  static_cast<void>(book.predict(tools.models));
  row.own = book.own_answers();
  std::vector<Estimated> rows = estimated(job, plans, book);
  if (rows.empty()) return row;
  row.estimate = rows.front().time;
  rows.resize(std::min(rows.size(), static_cast<std::size_t>(job.top)));
  std::vector<ChildTask> tasks;
  for (const Estimated& each : rows) {
    tasks.push_back([&] {
      const Topology topology(job.cluster, each.plan.nodes);
      return to_bytes(summarize(run_replay(book.price(each.plan, topology), topology, {}), 0));
    });
  }
  const std::vector<std::string> answers = run_in_children(tasks, tools.jobs);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Seconds time(summary_from_bytes(answers[i]).iteration_s);
    if (row.plan && time >= row.replayed) continue;
    row.plan = rows[i].plan;
    row.replayed = time;
    row.cost = totals(book, *row.plan, time, job.total_tokens).cost;
  }
  return row;
}

// Peak of one GPU for the job's type: groups that have none are refused before.
double speed(const SearchJob& job, std::size_t group) {
  return peak(job.cluster.groups[group].gpu, job.type)->value();
}

std::pair<std::size_t, std::size_t> fastest_and_slowest(const SearchJob& job) {
  std::size_t fastest = 0, slowest = 0;
  for (std::size_t group = 1; group < job.cluster.groups.size(); ++group) {
    if (speed(job, group) > speed(job, fastest)) fastest = group;
    if (speed(job, group) < speed(job, slowest)) slowest = group;
  }
  return {fastest, slowest};
}

}  // namespace

std::vector<GainRow> mixed_gain(const SearchJob& job, std::vector<Rule>& rules, const CostModels& models,
                                const SoftwareStack& stack, int jobs) {
  const Tools tools{rules, models, stack, jobs};
  const auto [fastest, slowest] = fastest_and_slowest(job);
  std::vector<GainRow> rows;
  rows.push_back(best_of("heterogeneous", job, searched(job, job.top, tools), tools));

  std::vector<ParallelStrategy> equal;
  for (ParallelStrategy& plan : searched(job, kPlansMadeEqual, tools)) {
    if (make_equal(plan, job.model.layer_count())) equal.push_back(std::move(plan));
  }
  rows.push_back(best_of("equal layers", job, equal, tools));

  SearchJob alone = job;
  alone.cluster.groups = {job.cluster.groups[fastest]};
  rows.push_back(
      best_of(alone.cluster.groups[0].name + " alone", alone, searched(alone, job.top, tools), tools));

  SearchJob alike = job;
  for (NodeGroup& group : alike.cluster.groups) group.gpu = job.cluster.groups[slowest].gpu;
  rows.push_back(
      best_of("all as " + job.cluster.groups[slowest].name, job, searched(alike, job.top, tools), tools));
  return rows;
}

std::string to_text(const SearchJob& job, const std::vector<GainRow>& rows) {
  Table table;
  table.columns = {{"way"},
                   {"stages"},
                   {"layers"},
                   {"T", Align::right},
                   {"D", Align::right},
                   {"s/iter", Align::right},
                   {"x", Align::right},
                   {"$/Mtok", Align::right}};
  for (const GainRow& row : rows) {
    if (!row.plan) {
      table.rows.push_back({row.way, "nothing fits", "", "", "", "", "", ""});
      continue;
    }
    table.rows.push_back({row.way, stages_text(row.cluster, *row.plan), layers_text(*row.plan),
                          tensor_text(*row.plan), std::to_string(row.plan->data),
                          fixed(row.replayed.value(), 3), fixed(row.replayed / rows.front().replayed, 3),
                          row.cost ? fixed(row.cost->per_million_tokens.value(), 3) : "?"});
  }
  return job.model.name + " on " + job.cluster.name +
         ", replayed; x: time over that of the first row; alone: without rent for the other groups\n\n" +
         to_text(table);
}

std::string to_json(const SearchJob& job, const std::vector<GainRow>& rows) {
  nlohmann::ordered_json json{{"model", job.model.name}, {"cluster", job.cluster.name}};
  json["ways"] = nlohmann::ordered_json::array();
  for (const GainRow& row : rows) {
    nlohmann::ordered_json way{
        {"way", row.way}, {"estimate_s", nullptr}, {"iteration_s", nullptr}, {"usd_per_mtoken", nullptr}};
    if (row.plan) {
      way["estimate_s"] = row.estimate.value();
      way["iteration_s"] = row.replayed.value();
      if (row.cost) way["usd_per_mtoken"] = row.cost->per_million_tokens.value();
      way["stages"] = stages_text(row.cluster, *row.plan);
      way["layers"] = layers_text(*row.plan);
    }
    json["ways"].push_back(std::move(way));
  }
  return json_document(json);
}

}  // namespace orrery
