#include "sim/search/json_output.hpp"

#include <nlohmann/json.hpp>

#include "costmodels/memory/card_memory.hpp"
#include "costmodels/memory/memory_parts.hpp"
#include "platforms/errors.hpp"
#include "strategies/megatron.hpp"
#include "strategies/placement.hpp"
#include "traces/json_text.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Argument& argument) {
  if (const auto* number = std::get_if<double>(&argument)) {
    const auto whole = static_cast<std::int64_t>(*number);
    return static_cast<double>(whole) == *number ? Json(whole) : Json(*number);
  }
  if (const auto* truth = std::get_if<bool>(&argument)) return *truth;
  if (const auto* text = std::get_if<std::string>(&argument)) return *text;
  return nullptr;
}

Json strategy_json(const ModelSpec& model, const ParallelStrategy& strategy) {
  Json json = Json::object();
  for (const auto& [name, value] : megatron_arguments(model, strategy)) json[name] = to_json(value);
  return json;
}

// Of one GPU of a stage: on the card in all, of that what its tensors take and what PyTorch reserves; what
// the card must have usable, which decides the verdict; and what all of it is made of.
void add_memory(Json& row, const StageMemory& memory) {
  row["memory_gib"] = to_gibibytes(memory.total());
  row["memory_allocated_gib"] = to_gibibytes(memory.allocated());
  row["memory_reserved_gib"] = to_gibibytes(memory.reserved());
  row["memory_needed_gib"] = to_gibibytes(memory.needed());
  for (const auto& [name, bytes] : memory_parts(memory)) row["memory_parts_gib"][name] = to_gibibytes(bytes);
  if (memory.host > Bytes(0)) row["host_memory_gib"] = to_gibibytes(memory.host);
}

// Where nine of ten such counts of a GPU's memory lie, GiB.
Json memory_interval_json(const StageMemory& memory, const ErrorBand& band) {
  const double counted = to_gibibytes(memory.total());
  return {counted * band.low, counted * band.high};
}

void add_outlook(Json& json, const MemoryOutlook& outlook) {
  json["out_of_memory_chance"] = outlook.out_of_memory;
  json["memory_interval_basis"] = outlook.band.basis;
  if (outlook.hosts_fit)
    json["host_memory_verdict"] = to_text(*outlook.hosts_fit ? MemoryVerdict::fits : MemoryVerdict::too_big);
}

// A row a stage; of unlike replicas, those of the first kind, then those of the next.
Json stages_json(const ClusterSpec& cluster, const RatedPlan& plan, const ErrorBand& band) {
  Json stages = Json::array();
  const std::vector<const NodeGroup*> groups = groups_of_stages(cluster, plan.strategy);
  for (std::size_t at = 0; at < plan.memory.size(); ++at) {
    const int stage = static_cast<int>(at) % plan.strategy.pipeline;
    const int kind = static_cast<int>(at) / plan.strategy.pipeline;
    const ParallelStrategy alike = plan.strategy.of_kind(kind);
    const StageDevices& devices = alike.stages[static_cast<std::size_t>(stage)];
    const LayerRange& layers = plan.strategy.part(stage, 0);
    Json row;
    row["gpu"] = groups[at]->gpu.name;
    row["gpus"] = plan.strategy.gpus_of_stage(stage) * plan.strategy.replicas_of_kind(kind);
    row["layers"] = {layers.first, layers.count};
    if (plan.strategy.chunks > 1) {
      for (int chunk = 0; chunk < plan.strategy.chunks; ++chunk) {
        const LayerRange& part = plan.strategy.part(stage, chunk);
        row["chunks"].push_back({part.first, part.count});
      }
    }
    row["tensor"] = devices.tensor;
    if (!plan.strategy.replicas.empty()) {
      row["stage"] = stage;
      row["replicas"] = plan.strategy.replicas_of_kind(kind);
      row["microbatches"] = alike.microbatches();
    }
    add_memory(row, plan.memory[at]);
    row["memory_interval_gib"] = memory_interval_json(plan.memory[at], band);
    row["memory_verdict"] = to_text(memory_verdict(plan.memory[at], *groups[at]));
    stages.push_back(std::move(row));
  }
  return stages;
}

Json memory_json(const ClusterSpec& cluster, const ParallelStrategy& strategy,
                 const std::vector<StageMemory>& memory, const ErrorBand& band) {
  Json rows = Json::array();
  const std::vector<const NodeGroup*> groups = groups_of_stages(cluster, strategy);
  for (std::size_t at = 0; at < memory.size(); ++at) {
    const int kind = static_cast<int>(at) / strategy.pipeline,
              stage = static_cast<int>(at) % strategy.pipeline;
    Json row{{"stage", stage},
             {"kind", kind},
             {"memory_verdict", to_text(memory_verdict(memory[at], *groups[at]))}};
    add_memory(row, memory[at]);
    row["memory_interval_gib"] = memory_interval_json(memory[at], band);
    rows.push_back(std::move(row));
  }
  return rows;
}

// Kinds of unlike replicas: the GPUs of their stages, and the microbatches of each replica.
Json replicas_json(const ClusterSpec& cluster, const ParallelStrategy& strategy) {
  Json rows = Json::array();
  for (const ReplicaKind& kind : strategy.replicas) {
    Json row{{"replicas", kind.count}, {"microbatches", kind.microbatches}, {"gpus", Json::array()}};
    for (const int group : kind.groups)
      row["gpus"].push_back(cluster.groups[static_cast<std::size_t>(group)].gpu.name);
    rows.push_back(std::move(row));
  }
  return rows;
}

// Hours between two of the whole run and of work between checkpoints, null without any; by how much they
// stretch it.
Json interruptions_json(const Interruptions& interruptions) {
  Json json{{"hours_between", nullptr}, {"checkpoint_hours", nullptr}, {"stretch", interruptions.stretch}};
  if (!interruptions.every) return json;
  json["hours_between"] = to_hours(*interruptions.every);
  json["checkpoint_hours"] = to_hours(interruptions.interval);
  return json;
}

Json totals_json(const Totals& totals) {
  Json json;
  json["iteration_s"] = totals.iteration.value();
  json["tokens_per_s"] = totals.tokens_per_s;
  json["mfu"] = totals.mfu;
  json["mfu_causal"] = totals.mfu_causal;
  json["hfu"] = totals.hfu;
  const auto money = [&](Dollars RunCost::*column) {
    return totals.cost ? Json((*totals.cost.*column).value()) : Json();
  };
  json["usd_per_iteration"] = money(&RunCost::per_iteration);
  json["usd_per_mtoken"] = money(&RunCost::per_million_tokens);
  json["usd_total"] = money(&RunCost::total);
  json["usd_egress"] = money(&RunCost::egress);
  json["kwh_per_iteration"] = totals.kwh_per_iteration;
  json["kwh_total"] = totals.kwh_total ? Json(*totals.kwh_total) : Json();
  json["interruptions"] = interruptions_json(totals.interruptions);
  json["hours_total"] = totals.total_time ? Json(to_hours(*totals.total_time)) : Json();
  return json;
}

Json interval_json(const TimeRange& band) {
  return {band.low.value(), band.high.value()};
}

Json accounting_json(const Accounting& time) {
  Json json;
  json["compute_s"] = time.compute.value();
  json["exposed_tp_s"] = time.exposed_tp.value();
  json["exposed_p2p_s"] = time.exposed_p2p.value();
  json["exposed_dp_s"] = time.exposed_dp.value();
  json["optimizer_s"] = time.optimizer.value();
  json["bubble"] = {{"warmup_s", time.bubble_warmup.value()},
                    {"steady_s", time.bubble_steady.value()},
                    {"drain_s", time.bubble_drain.value()}};
  return json;
}

// The mean over the replicas of a stage.
Json stage_times_json(const std::vector<StageAccounting>& stages) {
  Json rows = Json::array();
  for (const StageAccounting& stage : stages) {
    Json row;
    row["stage"] = stage.stage;
    row.update(accounting_json(stage.mean));
    rows.push_back(std::move(row));
  }
  return rows;
}

Json plan_json(const SearchReport& report, const ReportedPlan& plan) {
  const ParallelStrategy& strategy = plan.plan.strategy;
  Json json;
  json["rank"] = plan.rank;
  json["strategy"] = strategy_json(report.job->model, strategy);
  json["stages"] = stages_json(report.job->cluster, plan.plan, plan.memory.band);
  add_outlook(json, plan.memory);
  json["estimate"] = totals_json(plan.estimate);
  json["estimate"]["interval_s"] = interval_json(plan.estimate_interval());
  json["estimate"]["extrapolated"] = plan.extrapolated;
  json["replay"] = totals_json(plan.replayed);
  json["replay"]["interval_s"] = interval_json(interval(plan.band, plan.replayed.iteration));
  json["interval_basis"] = plan.band.basis;
  json["replay"]["extrapolated"] = plan.extrapolated;
  json["replay"]["bubble_fraction"] = plan.replay.bubble_fraction;
  json["replay"]["imbalance_s"] = plan.replay.imbalance_s;
  json["replay"]["stages"] = stage_times_json(plan.replay.stages);
  json["nodes"] = strategy.nodes;
  json["order"] = to_text(strategy.order);
  if (!strategy.hosts.empty()) json["hosts"] = strategy.hosts;
  json["trace"] = plan.trace.empty() ? Json() : Json(plan.trace);
  return json;
}

Json counts_json(const SearchSpaceCounts& counts) {
  const auto rejected = [&](InfeasibleKind kind) {
    const auto found = counts.rejected.find(kind);
    return found == counts.rejected.end() ? std::size_t{0} : found->second;
  };
  Json json;
  json["enumerated"] = counts.enumerated;
  json["rejected"] = {{"shape", rejected(InfeasibleKind::shape)},
                      {"rule", rejected(InfeasibleKind::rule)},
                      {"memory", rejected(InfeasibleKind::memory)},
                      {"budget", rejected(InfeasibleKind::budget)}};
  json["pruned"] = counts.pruned;
  json["evaluated"] = counts.evaluated;
  json["estimated"] = counts.estimated;
  json["operators"] = counts.operators;
  json["reasons"] = counts.reasons;
  return json;
}

}  // namespace

std::string argument_json(const Argument& argument) {
  return to_json(argument).dump();
}

std::string replay_json(const ReplaySummary& replay, const ReplayedPlan& plan) {
  Json json;
  json["iteration_s"] = replay.iteration_s;
  json["makespan_s"] = replay.makespan_s;
  json["estimate_s"] = replay.estimate_s;
  json["bubble_fraction"] = replay.bubble_fraction;
  json["imbalance_s"] = replay.imbalance_s;
  json["mfu"] = nullptr;
  json["usd"] = nullptr;
  if (plan.book != nullptr) {
    const Totals run = totals(*plan.book, *plan.strategy, Seconds(replay.iteration_s), plan.total_tokens);
    json["mfu"] = run.mfu;
    json["mfu_causal"] = run.mfu_causal;
    json["hfu"] = run.hfu;
    json["interval_s"] = interval_json(interval(plan.band, run.iteration));
    json["interval_basis"] = plan.band.basis;
    json["extrapolated"] = plan.extrapolated;
    if (!plan.strategy->replicas.empty())
      json["replicas"] = replicas_json(plan.book->cluster(), *plan.strategy);
    if (run.cost) json["usd"] = run.cost->per_iteration.value();
    json["memory"] =
        memory_json(plan.book->cluster(), *plan.strategy, *plan.memory, plan.memory_outlook.band);
    add_outlook(json, plan.memory_outlook);
    json["tokens_per_s"] = run.tokens_per_s;
    json["kwh_per_iteration"] = run.kwh_per_iteration;
    if (run.kwh_total) json["kwh_total"] = *run.kwh_total;
    json["interruptions"] = interruptions_json(run.interruptions);
    if (run.total_time) json["hours_total"] = to_hours(*run.total_time);
    if (run.total_time && run.cost) {
      json["usd_total"] = run.cost->total.value();
      json["usd_egress"] = run.cost->egress.value();
    }
  }
  if (!replay.runs.empty()) {
    const Spread spread = spread_of(replay.runs);
    json["runs"] = {{"count", replay.runs.size()}, {"mean_s", spread.mean}, {"deviation_s", spread.deviation},
                    {"p05_s", spread.p05},         {"p50_s", spread.p50},   {"p95_s", spread.p95}};
  }
  json["activities"] = replay.activities;
  json["elapsed_s"] = replay.elapsed_s;
  json["stages"] = stage_times_json(replay.stages);
  return json_document(json);
}

std::string files_json(const std::vector<std::string>& paths) {
  return json_document(Json{{"files", paths}});
}

std::string search_json(const SearchReport& report) {
  Json json;
  json["model"] = {{"name", report.job->model.name}, {"parameters", total_parameters(report.job->model)}};
  json["space"] = counts_json(report.counts);
  json["elapsed_s"] = {{"total", report.total_elapsed.value()},
                       {"enumerate", report.elapsed.enumerate.value()},
                       {"predict", report.elapsed.predict.value()},
                       {"estimate", report.elapsed.estimate.value()},
                       {"replay", report.replay_elapsed.value()}};
  json["plans"] = Json::array();
  for (const ReportedPlan& plan : report.plans) json["plans"].push_back(plan_json(report, plan));
  json["pareto"] = report.pareto;
  const Answers found = answers(report);
  json["answers"] = {{"fastest", report.plans.empty() ? Json() : Json(found.fastest)},
                     {"cheapest", found.cheapest ? Json(*found.cheapest) : Json()}};
  json["cost_models"] = report.cost_models;
  return json_document(json);
}

namespace {

constexpr Seconds Accounting::*kColumns[] = {&Accounting::compute,       &Accounting::exposed_tp,
                                             &Accounting::exposed_p2p,   &Accounting::exposed_dp,
                                             &Accounting::optimizer,     &Accounting::bubble_warmup,
                                             &Accounting::bubble_steady, &Accounting::bubble_drain};

Json columns(const Accounting& accounting) {
  Json values = Json::array();
  for (const auto column : kColumns) values.push_back((accounting.*column).value());
  return values;
}

Accounting accounting(const Json& values) {
  Accounting result;
  std::size_t index = 0;
  for (const auto column : kColumns) result.*column = Seconds(values.at(index++).get<double>());
  return result;
}

}  // namespace

std::string to_bytes(const ReplaySummary& summary) {
  Json json{{"iteration", summary.iteration_s}, {"makespan", summary.makespan_s},
            {"estimate", summary.estimate_s},   {"bubble", summary.bubble_fraction},
            {"imbalance", summary.imbalance_s}, {"elapsed", summary.elapsed_s},
            {"activities", summary.activities}};
  json["stages"] = Json::array();
  for (const StageAccounting& stage : summary.stages) {
    json["stages"].push_back({stage.stage, columns(stage.mean), columns(stage.maximum)});
  }
  return json.dump();
}

ReplaySummary summary_from_bytes(const std::string& bytes) {
  const Json json = Json::parse(bytes);
  ReplaySummary summary;
  json.at("iteration").get_to(summary.iteration_s);
  json.at("makespan").get_to(summary.makespan_s);
  json.at("estimate").get_to(summary.estimate_s);
  json.at("bubble").get_to(summary.bubble_fraction);
  json.at("imbalance").get_to(summary.imbalance_s);
  json.at("elapsed").get_to(summary.elapsed_s);
  json.at("activities").get_to(summary.activities);
  for (const Json& stage : json.at("stages")) {
    summary.stages.push_back({stage.at(0).get<int>(), accounting(stage.at(1)), accounting(stage.at(2))});
  }
  return summary;
}

}  // namespace orrery
