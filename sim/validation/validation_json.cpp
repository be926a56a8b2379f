#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "costmodels/memory/memory_parts.hpp"
#include "sim/validation/breakdown.hpp"
#include "sim/validation/validation_report.hpp"
#include "traces/json_text.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

// Without runs there is no error, not one of 0.
Json mean_or_null(double value, std::size_t runs) {
  return runs > 0 ? number_or_null(value) : Json();
}

void add_errors(Json& into, const GroupAccuracy& group) {
  into["mape"] = mean_or_null(group.errors.mean, group.runs);
  into["median_ape"] = mean_or_null(group.errors.median, group.runs);
  into["p90_ape"] = mean_or_null(group.errors.p90, group.runs);
  into["max_ape"] = mean_or_null(group.errors.maximum, group.runs);
  into["bias"] = mean_or_null(group.errors.bias, group.runs);
  into["spearman"] = number_or_null(group.spearman);
  into["mean_regret"] = group.sets > 0 ? number_or_null(group.mean_regret) : Json();
  into["regret_sets"] = group.sets;
}

Json groups_json(const Validation& validation) {
  Json groups = Json::array();
  for (const std::string& name : groups_of(validation)) {
    const GroupAccuracy group = accuracy(validation, name);
    if (group.runs == 0) continue;
    Json row;
    row["name"] = name;
    row["rows"] = group.runs;
    row["computed"] = std::any_of(validation.computed.begin(), validation.computed.end(),
                                  [&](const ComputedTimes& one) { return one.group == name; });
    add_errors(row, group);
    row["kinds"] = Json::array();
    for (const std::string& kind : kinds_of(validation, name)) {
      const GroupAccuracy part = accuracy(validation, name, kind);
      Json of_kind{{"name", kind}, {"rows", part.runs}};
      add_errors(of_kind, part);
      row["kinds"].push_back(std::move(of_kind));
    }
    groups.push_back(std::move(row));
  }
  return groups;
}

Json memory_json(const MemoryAccuracy& memory) {
  return {{"rows", memory.runs},
          {"mape", mean_or_null(memory.errors.mean, memory.runs)},
          {"bias", mean_or_null(memory.errors.bias, memory.runs)}};
}

Json oom_json(const MemoryAccuracy& memory) {
  return {{"true_positive", memory.true_positive},
          {"false_positive", memory.false_positive},
          {"false_negative", memory.false_negative},
          {"unexplained", memory.unexplained},
          {"risky", memory.risky}};
}

Json breakdown_json(const Breakdown& breakdown) {
  Json rows = Json::array();
  for (const ErrorShare& share : breakdown.rows) {
    Json row{{"name", share.time.name}, {"groups", share.time.groups}, {"rows", share.time.runs}};
    add_errors(row, share.time);
    row["inside"] = number_or_null(share.inside);
    row["memory"] = memory_json(share.memory);
    row["oom"] = oom_json(share.memory);
    rows.push_back(std::move(row));
  }
  return {{"by", breakdown.by}, {"rows", std::move(rows)}};
}

Json interval_json(const Coverage& one) {
  return {{"group", one.name},
          {"rows", one.runs},
          {"inside", one.group_out.inside},
          {"inside_source_out", one.source_out.inside},
          {"width", one.group_out.width},
          {"interval_score", one.group_out.score},
          {"width_source_out", one.source_out.width},
          {"interval_score_source_out", one.source_out.score},
          {"factors", {one.band.low, one.band.high}},
          {"basis", one.band.basis}};
}

Json intervals_json(const std::vector<Coverage>& coverage) {
  Json rows = Json::array();
  for (const Coverage& one : coverage) rows.push_back(interval_json(one));
  return rows;
}

Json filled_json(const std::vector<FilledCell>& filled) {
  Json cells = Json::array();
  for (const FilledCell& cell : filled)
    cells.push_back({{"cell", cell.column}, {"value", cell.value}, {"from", cell.from}});
  return cells;
}

Json parts_json(const StageMemory& memory) {
  Json parts;
  for (const auto& [name, bytes] : memory_parts(memory)) parts[name] = to_gibibytes(bytes);
  return parts;
}

Json run_json(const ValidatedRun& run) {
  return {{"id", run.id},
          {"group", run.group},
          {"kind", run.kind},
          {"trust", to_text(run.trust)},
          {"family", run.trust.family},
          {"measured_s", run.measured ? Json(*run.measured) : Json()},
          {"predicted_s", run.predicted},
          {"range_s", {run.low, run.high}},
          {"interval_s", {run.predicted * run.band.low, run.predicted * run.band.high}},
          {"measured_gib", run.measured_memory ? Json(*run.measured_memory) : Json()},
          {"predicted_gib", run.predicted_memory},
          {"memory_parts_gib", parts_json(run.memory)},
          {"memory_figure", to_text(run.memory_figure)},
          {"memory", to_text(run.verdict)},
          {"fullness", run.fullness},
          {"out_of_memory", run.out_of_memory},
          {"assumptions", run.assumptions},
          {"filled", filled_json(run.filled)}};
}

Json filled_counts_json(const Validation& validation) {
  Json rows = Json::array();
  for (const auto& [cell, counts] : filled_counts(validation)) {
    for (const auto& [from, runs] : counts)
      rows.push_back({{"cell", cell.first}, {"value", cell.second}, {"from", from}, {"rows", runs}});
  }
  return rows;
}

}  // namespace

std::string validation_json(const Validation& validation, const Coverages& coverage) {
  const GroupAccuracy all = accuracy(validation, "");
  Json json;
  json["rows"] = all.runs;
  json["remarks"] = validation.remarks;
  json["skipped"] = Json::array();
  for (const SkippedRun& run : validation.skipped)
    json["skipped"].push_back({{"id", run.id}, {"reason", run.reason}});
  add_errors(json, all);
  json["groups"] = groups_json(validation);
  const MemoryAccuracy memory = memory_accuracy(validation, "");
  json["memory"] = memory_json(memory);
  json["oom"] = oom_json(memory);
  json["breakdowns"] = Json::array();
  for (const Breakdown& one : breakdowns(validation, coverage.time))
    json["breakdowns"].push_back(breakdown_json(one));
  json["intervals"] = intervals_json(coverage.time);
  json["memory_intervals"] = intervals_json(coverage.memory);
  json["out_of_memory_chances"] = Json::array();
  for (const ForeseenChances& row : coverage.out_of_memory)
    json["out_of_memory_chances"].push_back(
        {{"chance", {row.low, row.high}}, {"rows", row.runs}, {"mean", row.mean}, {"ran_out", row.ran_out}});
  json["filled"] = filled_counts_json(validation);
  json["runs"] = Json::array();
  for (const ValidatedRun& run : validation.runs) json["runs"].push_back(run_json(run));
  return json_document(json);
}

std::string ablation_json(const std::vector<NamedValidation>& all) {
  Json json;
  json["ablation"] = Json::array();
  for (const NamedValidation& one : all)
    json["ablation"].push_back(
        {{"name", one.name}, {"validation", Json::parse(validation_json(one.validation))}});
  return json_document(json);
}

}  // namespace orrery
