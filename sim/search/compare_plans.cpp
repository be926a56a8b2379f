#include "sim/search/compare_plans.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "analysis/table.hpp"
#include "costmodels/memory/card_memory.hpp"
#include "costmodels/memory/memory.hpp"
#include "costmodels/trust/residuals.hpp"
#include "sim/search/json_output.hpp"
#include "sim/search/search_report.hpp"
#include "strategies/megatron.hpp"
#include "strategies/placement.hpp"
#include "traces/json_text.hpp"

namespace orrery {
namespace {

constexpr const char* kPlan = "plan";
constexpr const char* kArguments = "Megatron-LM arguments";

std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string text_of(const Argument& argument) {
  if (const auto* number = std::get_if<double>(&argument)) return short_text(*number);
  if (const auto* truth = std::get_if<bool>(&argument)) return *truth ? "true" : "false";
  if (const auto* text = std::get_if<std::string>(&argument)) return *text;
  return "none";
}

class Facts {
 public:
  void in(std::string group) { group_ = std::move(group); }
  void say(const std::string& name, std::string text) { all_.push_back({group_, name, std::move(text)}); }
  void count(const std::string& name, double value) {
    all_.push_back({group_, name, short_text(value), value});
  }
  void pass(const std::string& name, const Argument& argument) {
    all_.push_back({group_, name, text_of(argument), {}, argument});
  }
  std::vector<PlanFact> all() && { return std::move(all_); }

 private:
  std::string group_;
  std::vector<PlanFact> all_;
};

void add_shape(Facts& facts, const PlanSide& side) {
  facts.in(kPlan);
  facts.say("model", side.model);
  facts.say("cluster", side.cluster);
  facts.say("stages", stages_text(side.book.cluster(), side.strategy));
  facts.say("layers of the parts", layers_text(side.strategy));
  facts.count("GPUs", side.strategy.gpus());
  facts.count("microbatches", static_cast<double>(side.strategy.microbatches()));
  facts.say("schedule", std::string(to_text(side.strategy.schedule)));
  const bool each = reduced_in_passes(side.strategy, side.book.stack());
  facts.say("gradients reduced", each ? "each microbatch" : "once a step");
  facts.in(kArguments);
  for (const auto& [name, value] : megatron_arguments(side.book.model(), side.strategy)) {
    facts.pass(name, value);
  }
}

void add_run(Facts& facts, const PlanSide& side) {
  const Totals run = totals(side.book, side.strategy, Seconds(side.replay.iteration_s), side.total_tokens);
  facts.in("run");
  facts.count("iteration, s", side.replay.iteration_s);
  facts.count("interval from, s", side.replay.iteration_s * side.band.low);
  facts.count("interval to, s", side.replay.iteration_s * side.band.high);
  facts.count("chance to run out of memory",
              out_of_memory_chance(fullness(side.book.cluster(), side.strategy, side.memory)));
  facts.count("tokens a second", run.tokens_per_s);
  facts.count("MFU", run.mfu);
  facts.count("MFU, causal attention", run.mfu_causal);
  facts.count("HFU", run.hfu);
  facts.count("bubble, share of all ranks' time", side.replay.bubble_fraction);
  facts.count("imbalance, s", side.replay.imbalance_s);
  if (run.cost) facts.count("USD an iteration", run.cost->per_iteration.value());
  if (run.cost) facts.count("USD a million tokens", run.cost->per_million_tokens.value());
  if (run.total_time) facts.count("hours in all", to_hours(*run.total_time));
  if (run.total_time && run.cost) facts.count("USD in all", run.cost->total.value());
  facts.in("estimators, s");
  for (const auto& [name, seconds] : side.estimates) facts.count(name, seconds);
}

void add_times(Facts& facts, const Accounting& times) {
  facts.count("compute, s", times.compute.value());
  facts.count("exposed tensor, s", times.exposed_tp.value());
  facts.count("exposed p2p, s", times.exposed_p2p.value());
  facts.count("exposed data, s", times.exposed_dp.value());
  facts.count("optimizer, s", times.optimizer.value());
  facts.count("bubble warm-up, s", times.bubble_warmup.value());
  facts.count("bubble steady, s", times.bubble_steady.value());
  facts.count("bubble drain, s", times.bubble_drain.value());
}

Accounting mean_of(const std::vector<StageAccounting>& stages) {
  Accounting mean;
  const double share = 1.0 / static_cast<double>(stages.size());
  for (const StageAccounting& stage : stages) {
    for (const auto column : {&Accounting::compute, &Accounting::exposed_tp, &Accounting::exposed_p2p,
                              &Accounting::exposed_dp, &Accounting::optimizer, &Accounting::bubble_warmup,
                              &Accounting::bubble_steady, &Accounting::bubble_drain}) {
      mean.*column += stage.mean.*column * share;
    }
  }
  return mean;
}

void add_stage(Facts& facts, const PlanSide& side, const StageAccounting& times) {
  const ParallelStrategy& strategy = side.strategy;
  const auto at = static_cast<std::size_t>(times.stage);
  facts.in("stage " + std::to_string(times.stage));
  const NodeGroup& nodes = group_of_stage(side.book.cluster(), strategy, times.stage);
  facts.say("GPU", nodes.gpu.name);
  facts.count("GPUs", strategy.gpus_of_stage(times.stage) * strategy.data);
  facts.count("tensor ways", strategy.tensor(times.stage));
  double layers = 0;
  for (int chunk = 0; chunk < strategy.chunks; ++chunk) layers += strategy.part(times.stage, chunk).count;
  facts.count("layers", layers);
  facts.count("memory, GiB", to_gibibytes(side.memory[at].total()));
  facts.count("memory allocated, GiB", to_gibibytes(side.memory[at].allocated()));
  facts.count("memory usable, GiB", to_gibibytes(usable_memory(nodes)));
  add_times(facts, times.mean);
}

std::string ratio_text(const FactPair& pair) {
  if (!pair.differs() || !pair.sides[0] || !pair.sides[1]) return "";
  const auto first = pair.sides[0]->number, second = pair.sides[1]->number;
  if (!first || !second || *second == 0) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", *first / *second);
  return text;
}

}  // namespace

std::vector<PlanFact> plan_facts(const PlanSide& side) {
  Facts facts;
  add_shape(facts, side);
  add_run(facts, side);
  facts.in("all stages");
  add_times(facts, mean_of(side.replay.stages));
  for (const StageAccounting& stage : side.replay.stages) add_stage(facts, side, stage);
  return std::move(facts).all();
}

bool FactPair::differs() const {
  return !sides[0] || !sides[1] || sides[0]->text != sides[1]->text;
}

std::vector<FactPair> side_by_side(const std::vector<PlanFact>& first, const std::vector<PlanFact>& second) {
  std::vector<FactPair> pairs;
  for (const PlanFact& fact : first) pairs.push_back({fact.group, fact.name, {fact, std::nullopt}});
  for (const PlanFact& fact : second) {
    const auto same = std::find_if(pairs.begin(), pairs.end(), [&](const FactPair& pair) {
      return pair.group == fact.group && pair.name == fact.name;
    });
    if (same != pairs.end()) {
      same->sides[1] = fact;
      continue;
    }
    const auto last = std::find_if(pairs.rbegin(), pairs.rend(),
                                   [&](const FactPair& pair) { return pair.group == fact.group; });
    pairs.insert(last == pairs.rend() ? pairs.end() : last.base(),
                 {fact.group, fact.name, {std::nullopt, fact}});
  }
  return pairs;
}

std::string to_text(const std::vector<FactPair>& pairs, const std::array<std::string, 2>& paths) {
  Table table;
  table.columns = {
      {""}, {""}, {paths[0], Align::right}, {paths[1], Align::right}, {"first / second", Align::right}};
  std::string group;
  for (const FactPair& pair : pairs) {
    if (pair.group == kArguments && !pair.differs()) continue;
    if (pair.group != group) table.rows.push_back({"", pair.group, "", "", ""});
    group = pair.group;
    const auto cell = [&](std::size_t side) { return pair.sides[side] ? pair.sides[side]->text : "-"; };
    table.rows.push_back({pair.differs() ? "*" : "", "  " + pair.name, cell(0), cell(1), ratio_text(pair)});
  }
  return to_text(table) + "\n* differs; times of a stage are means over its ranks\n";
}

std::string to_json(const std::vector<FactPair>& pairs, const std::array<std::string, 2>& paths) {
  using Json = nlohmann::ordered_json;
  Json json;
  for (std::size_t side = 0; side < 2; ++side) {
    Json plan{{"path", paths[side]}};
    for (const FactPair& pair : pairs) {
      if (!pair.sides[side]) continue;
      const PlanFact& fact = *pair.sides[side];
      plan[pair.group][pair.name] = fact.argument ? Json::parse(argument_json(*fact.argument))
                                    : fact.number ? Json(*fact.number)
                                                  : Json(fact.text);
    }
    json["plans"].push_back(std::move(plan));
  }
  json["differences"] = Json::array();
  for (const FactPair& pair : pairs) {
    if (pair.differs()) json["differences"].push_back(pair.group + ": " + pair.name);
  }
  return json_document(json);
}

}  // namespace orrery
