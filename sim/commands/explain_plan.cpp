// `orrery search --explain PLAN`: one plan judged by the search, in words or as JSON.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "analysis/table.hpp"
#include "costmodels/memory/card_memory.hpp"
#include "sim/commands/inputs.hpp"
#include "sim/commands/plan_file.hpp"
#include "sim/commands/search_options.hpp"
#include "sim/replay/children.hpp"
#include "sim/search/explain.hpp"
#include "sim/search/json_output.hpp"
#include "sim/search/search_report.hpp"
#include "strategies/placement.hpp"
#include "strategies/plan.hpp"
#include "traces/json_text.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

std::string seconds_text(Seconds time) {
  return fixed(time.value(), 4) + " s an iteration";
}

// A row a stage, of unlike replicas those of each kind: what fills its GPUs, and where its time goes when it
// is played, which is a mean over the replicas and says nothing of unlike ones.
Table stage_table(const SearchJob& job, const PlanVerdict& plan, const std::vector<StageAccounting>& times) {
  Table table;
  for (const char* name :
       {"stage", "gpu", "layers", "weights", "gradients", "optimizer", "activations", "other", "allocated",
        "reserved", "GiB on card", "usable", "compute s", "tensor s", "p2p s", "data s", "bubble s"}) {
    table.columns.push_back({name, Align::right});
  }
  const ParallelStrategy& strategy = plan.strategy;
  const std::vector<const NodeGroup*> groups = groups_of_stages(job.cluster, strategy);
  for (std::size_t at = 0; at < plan.memory.size(); ++at) {
    const int stage = static_cast<int>(at) % strategy.pipeline;
    const NodeGroup& nodes = *groups[at];
    int layers = 0;
    for (int chunk = 0; chunk < strategy.chunks; ++chunk) layers += strategy.part(stage, chunk).count;
    std::vector<std::string> row{std::to_string(stage), nodes.gpu.name, std::to_string(layers)};
    const StageMemory& memory = plan.memory[at];
    const Bytes named = memory.weights + memory.gradients + memory.optimizer + memory.activations;
    for (const Bytes part :
         {memory.weights, memory.gradients, memory.optimizer, memory.activations, memory.allocated() - named,
          memory.allocated(), memory.reserved(), memory.total(), usable_memory(nodes)})
      row.push_back(fixed(to_gibibytes(part), 1));
    if (strategy.replicas.empty() && at < times.size()) {
      const Accounting& mean = times[at].mean;
      for (const Seconds part : {mean.compute, mean.exposed_tp, mean.exposed_p2p, mean.exposed_dp,
                                 mean.bubble_warmup + mean.bubble_steady + mean.bubble_drain})
        row.push_back(fixed(part.value(), 3));
    } else {
      row.resize(table.columns.size(), "-");
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<StageAccounting> played(const SearchJob& job, const PriceBook& book, const PlanVerdict& plan) {
  const ChildTask task = [&] {
    const Topology topology(job.cluster, plan.strategy.nodes);
    return to_bytes(summarize(run_replay(book.price(plan.strategy, topology), topology, {}), 0));
  };
  return summary_from_bytes(run_in_children({task}, 1).front()).stages;
}

std::string feasible_text(const SearchJob& job, const Explanation& why) {
  std::string text = "It can run: " + seconds_text(*why.plan.iteration) + " by estimate.\n";
  if (why.faster == 0) return text + "No plan that the search found is faster.\n";
  text += (why.at_least ? "At least " : "") + std::to_string(why.faster) + " of the " +
          std::to_string(why.feasible) + " candidates looked at are faster: rank " +
          (why.at_least ? "above " : "") + std::to_string(why.faster + (why.at_least ? 0 : 1)) +
          ". The fastest, and what they do otherwise:\n";
  for (const BetterPlan& better : why.better) {
    const double gain = 1 - better.plan.iteration / *why.plan.iteration;
    text += "\n  " + seconds_text(better.plan.iteration) + ", " + fixed(100 * gain, 1) + " % less, on " +
            stages_text(job.cluster, better.plan.strategy) + "\n";
    for (const std::string& difference : better.differences) text += "    " + difference + "\n";
  }
  return text;
}

std::string infeasible_text(const Explanation& why) {
  std::string text = "It is infeasible: " + why.plan.reason + "\n";
  if (why.tried.empty())
    return text + "No change is known that makes it feasible on the same GPUs with the same batch.\n";
  const bool helps = !why.tried.front().verdict.infeasible;
  text += helps ? "What makes it feasible, on the same GPUs with the same batch, fastest first:\n"
                : "No one or two changes on the same GPUs with the same batch make it feasible.\n";
  bool failed = false;
  for (const TriedChange& tried : why.tried) {
    const PlanVerdict& verdict = tried.verdict;
    if (verdict.infeasible && !failed) text += "What does not, and why:\n";
    failed = failed || verdict.infeasible.has_value();
    text += "  " + tried.change + ": " +
            (verdict.infeasible ? verdict.reason : seconds_text(*verdict.iteration)) + "\n";
  }
  return text;
}

std::string explanation_json(const std::string& path, const Explanation& why, const Table& stages) {
  Json json{
      {"plan", path}, {"feasible", !why.plan.infeasible}, {"reason", nullptr}, {"iteration_s", nullptr}};
  if (why.plan.infeasible) json["reason"] = why.plan.reason;
  if (why.plan.iteration) json["iteration_s"] = why.plan.iteration->value();
  json["faster"] = why.plan.infeasible ? Json() : Json(why.faster);
  json["more_than_looked_at"] = why.at_least;
  json["better"] = Json::array();
  for (const BetterPlan& better : why.better)
    json["better"].push_back(
        {{"iteration_s", better.plan.iteration.value()}, {"differences", better.differences}});
  json["tried"] = Json::array();
  for (const TriedChange& tried : why.tried) {
    const PlanVerdict& verdict = tried.verdict;
    json["tried"].push_back({{"change", tried.change},
                             {"feasible", !verdict.infeasible},
                             {"reason", verdict.infeasible ? Json(verdict.reason) : Json()},
                             {"iteration_s", verdict.iteration ? Json(verdict.iteration->value()) : Json()}});
  }
  json["stages"] = Json::array();
  for (const auto& row : stages.rows) {
    Json stage;
    for (std::size_t i = 0; i < row.size(); ++i) stage[stages.columns[i].title] = row[i];
    json["stages"].push_back(std::move(stage));
  }
  return json_document(json);
}

void require_same_job(const SearchJob& job, const std::string& path, const ParallelStrategy& plan) {
  const auto differs = [&](const char* what, std::int64_t theirs, std::int64_t ours) {
    if (theirs == ours) return;
    throw InputError(path, std::string(what) + " " + std::to_string(theirs),
                     "that of the search, " + std::to_string(ours));
  };
  differs("global batch", plan.global_batch, job.global_batch);
  differs("sequence", plan.sequence, job.sequence);
  if (plan.type != job.type)
    throw InputError(path, "type " + std::string(to_text(plan.type)),
                     "that of the search, " + std::string(to_text(job.type)) + " (--precision)");
  const auto groups = static_cast<std::int64_t>(job.cluster.groups.size());
  differs("the number of node groups in `nodes`:", static_cast<std::int64_t>(plan.nodes.size()), groups);
  const auto require_group = [&](int group) {
    if (group >= groups)
      throw InputError(path, "node group " + std::to_string(group),
                       "a node group of the cluster, from 0 to " + std::to_string(groups - 1));
  };
  for (const StageDevices& stage : plan.stages) require_group(stage.group);
  for (const ReplicaKind& kind : plan.replicas)
    std::for_each(kind.groups.begin(), kind.groups.end(), require_group);
}

}  // namespace

int explain_plan(const CommandLine& line, const std::string& path) {
  const SearchJob job = read_search_job(line);
  std::vector<Rule> rules = read_search_rules(line);
  Plan plan = read_plan(path);
  if (plan.strategy.sequence == 0) plan.strategy.sequence = job.model.default_sequence;
  if (plan.cluster != line.required("cluster"))
    throw InputError(path, "the cluster " + quote_for_message(plan.cluster),
                     "that of the search (--cluster)");
  if (plan.model != line.required("model"))
    throw InputError(path, "the model " + quote_for_message(plan.model), "that of the search (--model)");
  require_same_job(job, path, plan.strategy);
  PriceBook book(job.model, job.cluster, {job.type, true, job.sequence, read_stack_option(line)});
  use_layer_profiles(line, book);
  const CostModels costs = read_costs(line);
  const Explanation why =
      explain(job, rules, costs, book, plan.strategy, [](const std::string&, std::size_t, std::size_t) {});
  warn_of_silent_costs(line, costs, book.own_answers(), {&job.cluster});
  const bool can_be_played = why.plan.iteration && !why.plan.infeasible;
  const Table stages = why.plan.memory.empty() ? Table{}
                                               : stage_table(job, why.plan,
                                                             can_be_played ? played(job, book, why.plan)
                                                                           : std::vector<StageAccounting>{});
  if (line.json()) {
    std::cout << explanation_json(path, why, stages);
  } else {
    std::cout << path << ": " << stages_text(job.cluster, plan.strategy) << "\n"
              << (why.plan.infeasible ? infeasible_text(why) : feasible_text(job, why));
    if (!stages.rows.empty())
      std::cout << "\nStage by stage, GiB of one GPU" << (can_be_played ? " and seconds when replayed" : "")
                << "\n\n"
                << to_text(stages);
  }
  return why.plan.infeasible ? 1 : 0;
}

}  // namespace orrery
