#include "sim/validation/validation_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/table.hpp"
#include "costmodels/memory/memory_parts.hpp"
#include "platforms/errors.hpp"
#include "traces/json_text.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

std::string percent(double fraction) {
  return fixed(100 * fraction, 1);
}
std::string signed_percent(double fraction) {
  return (fraction > 0 ? "+" : "") + percent(fraction);
}

Table groups_table(const Validation& validation) {
  Table table;
  table.columns.push_back({"group"});
  for (const char* title :
       {"runs", "mean %", "median %", "p90 %", "worst %", "bias %", "rank", "regret %", "sets"})
    table.columns.push_back({title, Align::right});
  const auto add = [&](const std::string& name, const GroupAccuracy& all) {
    if (all.runs == 0) return;
    table.rows.push_back({name, std::to_string(all.runs), percent(all.errors.mean),
                          percent(all.errors.median), percent(all.errors.p90), percent(all.errors.maximum),
                          signed_percent(all.errors.bias), fixed(all.spearman, 3),
                          all.sets > 0 ? percent(all.mean_regret) : "-", std::to_string(all.sets)});
  };
  for (const std::string& group : groups_of(validation)) {
    add(group, accuracy(validation, group));
    const auto kinds = kinds_of(validation, group);
    for (const std::string& kind : kinds) {
      if (kinds.size() > 1) add("  " + kind, accuracy(validation, group, kind));
    }
  }
  add("all", accuracy(validation, ""));
  return table;
}

std::string remark(const ComputedTimes& group) {
  char text[256];
  std::snprintf(
      text, sizeof text,
      ": computed, not measured. %zu times between those of a smaller and a larger batch lie %.1g %% "
      "off\nthe straight line through these, where runs of one plan scatter by 0.1 %% and more; "
      "intervals do without them.",
      group.between, 100 * group.deviation);
  return group.group + text;
}

Table memory_table(const Validation& validation) {
  Table table;
  table.columns.push_back({"group"});
  for (const char* title : {"peaks", "mean %", "bias %", "failed, foreseen", "out of memory, called safe",
                            "failed unexplained, fits", "ran, called risky", "ran, called too big"})
    table.columns.push_back({title, Align::right});
  for (const std::string& group : groups_of(validation)) {
    const MemoryAccuracy memory = memory_accuracy(validation, group);
    if (memory.runs + memory.true_positive + memory.false_negative + memory.unexplained + memory.risky +
            memory.false_positive ==
        0)
      continue;
    table.rows.push_back(
        {group, std::to_string(memory.runs), memory.runs > 0 ? percent(memory.errors.mean) : "-",
         memory.runs > 0 ? signed_percent(memory.errors.bias) : "-", std::to_string(memory.true_positive),
         std::to_string(memory.false_negative), std::to_string(memory.unexplained),
         std::to_string(memory.risky), std::to_string(memory.false_positive)});
  }
  return table;
}

Table runs_table(const Validation& validation) {
  Table table;
  table.columns = {{"run"},
                   {"measured s", Align::right},
                   {"predicted s", Align::right},
                   {"error %", Align::right},
                   {"range s", Align::right},
                   {"GiB", Align::right},
                   {"predicted GiB", Align::right},
                   {"figure"}};
  for (const ValidatedRun& run : validation.runs) {
    const std::string range = run.high > run.low ? fixed(run.low, 3) + "-" + fixed(run.high, 3) : "";
    table.rows.push_back(
        {run.id,
         run.measured ? fixed(*run.measured, 4)
         : run.failed ? "failed"
                      : "",
         fixed(run.predicted, 4), run.measured ? signed_percent(run.predicted / *run.measured - 1) : "",
         range, run.measured_memory ? fixed(*run.measured_memory, 1) : "", fixed(run.predicted_memory, 1),
         run.measured_memory ? std::string(to_text(run.memory_figure)) : ""});
  }
  return table;
}

// The mean of groups used, each counting once.
IntervalQuality mean_of(const std::vector<Coverage>& coverage, IntervalQuality Coverage::*which) {
  IntervalQuality sum;
  double groups = 0;
  for (const Coverage& one : coverage) {
    if (!one.used) continue;
    ++groups;
    for (double IntervalQuality::*part :
         {&IntervalQuality::inside, &IntervalQuality::width, &IntervalQuality::score})
      sum.*part += (one.*which).*part;
  }
  for (double IntervalQuality::*part :
       {&IntervalQuality::inside, &IntervalQuality::width, &IntervalQuality::score})
    sum.*part /= groups;
  return sum;
}

Table coverage_table(const std::vector<Coverage>& coverage) {
  Table table;
  table.columns = {{"group"}};
  for (const char* title : {"runs", "inside %", "width", "score", "source out %", "width", "score"})
    table.columns.push_back({title, Align::right});
  table.columns.push_back({"its first run's interval"});
  const auto add = [&](const std::string& name, const std::string& runs, const IntervalQuality& group_out,
                       const IntervalQuality& source_out, const std::string& basis) {
    table.rows.push_back({name, runs, fixed(100 * group_out.inside, 0), fixed(group_out.width, 2),
                          fixed(group_out.score, 2), fixed(100 * source_out.inside, 0),
                          fixed(source_out.width, 2), fixed(source_out.score, 2), basis});
  };
  for (const Coverage& one : coverage)
    add(one.name, std::to_string(one.runs), one.group_out, one.source_out, one.band.basis);
  add("mean of groups used", "", mean_of(coverage, &Coverage::group_out),
      mean_of(coverage, &Coverage::source_out), "");
  return table;
}

Table chances_table(const std::vector<ForeseenChances>& chances) {
  Table table;
  table.columns = {{"chance"}};
  for (const char* title : {"runs", "mean chance %", "ran out", "%"})
    table.columns.push_back({title, Align::right});
  for (const ForeseenChances& row : chances) {
    if (row.runs == 0) continue;
    const double share = static_cast<double>(row.ran_out) / static_cast<double>(row.runs);
    table.rows.push_back({fixed(100 * row.low, 0) + " to " + fixed(100 * row.high, 0) + " %",
                          std::to_string(row.runs), percent(row.mean), std::to_string(row.ran_out),
                          percent(share)});
  }
  return table;
}

// Text -> of how many runs, in the order of the text.
Table counts_table(const char* title, const std::map<std::string, std::size_t>& counts) {
  Table table;
  table.columns = {{"runs", Align::right}, {title}};
  for (const auto& [text, count] : counts) table.rows.push_back({std::to_string(count), text});
  return table;
}

// Cells that rows leave blank -> how many runs each of its sources filled so.
std::map<std::pair<std::string, std::string>, std::map<std::string, std::size_t>> filled_counts(
    const Validation& validation) {
  std::map<std::pair<std::string, std::string>, std::map<std::string, std::size_t>> counts;
  for (const ValidatedRun& run : validation.runs) {
    for (const FilledCell& cell : run.filled) ++counts[{cell.column, cell.value}][cell.from];
  }
  return counts;
}

// "stack torchtitan (12), stack hf-trainer (3)": the three that filled the most runs, and how many others
// there are.
std::string sources_text(const std::map<std::string, std::size_t>& counts) {
  constexpr std::size_t kNamed = 3;
  if (counts.size() == 1) return counts.begin()->first;
  std::vector<std::pair<std::string, std::size_t>> most(counts.begin(), counts.end());
  std::stable_sort(most.begin(), most.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> named;
  for (const auto& [from, runs] : most) {
    if (named.size() < kNamed) named.push_back(from + " (" + std::to_string(runs) + ")");
  }
  const std::size_t others = most.size() - named.size();
  return comma_list(named) + (others > 0 ? " and " + std::to_string(others) + " more" : "");
}

Table filled_table(const Validation& validation) {
  Table table;
  table.columns = {{"runs", Align::right}, {"cell"}, {"taken for"}, {"from"}};
  for (const auto& [cell, counts] : filled_counts(validation)) {
    std::size_t runs = 0;
    for (const auto& [from, count] : counts) runs += count;
    table.rows.push_back({std::to_string(runs), cell.first, cell.second, sources_text(counts)});
  }
  return table;
}

// Reason -> ids, of which the first three are named.
Table skipped_table(const std::map<std::string, std::vector<std::string>>& skipped) {
  constexpr std::size_t kNamed = 3;
  Table table;
  table.columns = {{"runs", Align::right}, {"reason"}, {"of which"}};
  for (const auto& [reason, ids] : skipped) {
    const std::size_t named = std::min(kNamed, ids.size());
    const std::vector<std::string> first(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(named));
    table.rows.push_back(
        {std::to_string(ids.size()), reason, comma_list(first) + (named < ids.size() ? ", ..." : "")});
  }
  return table;
}

// Runs so far from their prediction that another unit is likelier than another speed.
std::string other_units_text(const Validation& validation) {
  constexpr double kFar = 50;
  std::string text;
  for (const ValidatedRun& run : validation.runs) {
    if (!run.measured || std::abs(std::log(*run.measured / run.predicted)) < std::log(kFar)) continue;
    text += "\n" + run.id + ": measured " + fixed(*run.measured, 3) + " s, " + fixed(run.predicted, 3) +
            " s predicted: are its plan and its unit right?\n";
  }
  return text;
}

}  // namespace

std::string validation_text(const Validation& validation, RunRows rows, const Coverages& coverage) {
  std::string text;
  if (rows == RunRows::listed) text += to_text(runs_table(validation)) + "\n";
  text +=
      "Time of an iteration, predicted over published; rank: Spearman; regret: of the plan predicted fastest "
      "among\n"
      "plans for the same model, GPUs and batch\n\n" +
      to_text(groups_table(validation));
  for (const ComputedTimes& group : validation.computed) text += "\n" + remark(group) + "\n";
  const Table memory = memory_table(validation);
  if (!memory.rows.empty()) text += "\nMemory of the fullest GPU\n\n" + to_text(memory);
  if (!coverage.time.empty())
    text +=
        "\nRuns inside the 90 % interval of their time that was made without their group, and without all of "
        "its\n"
        "source; width: of ln(predicted / measured); score: width and 20 x the distance of runs outside\n\n" +
        to_text(coverage_table(coverage.time));
  if (!coverage.memory.empty())
    text += "\nThe same of their memory\n\n" + to_text(coverage_table(coverage.memory));
  if (!coverage.out_of_memory.empty())
    text += "\nChances to run out of memory, by sources other than the run's that publish such runs\n\n" +
            to_text(chances_table(coverage.out_of_memory));
  std::map<std::string, std::size_t> assumed;
  std::map<std::string, std::vector<std::string>> skipped;  // ids
  for (const ValidatedRun& run : validation.runs) {
    for (const std::string& assumption : run.assumptions) ++assumed[assumption];
  }
  for (const SkippedRun& run : validation.skipped) skipped[run.group + ": " + run.reason].push_back(run.id);
  if (!assumed.empty())
    text +=
        "\nAssumed where the source is silent; of what is open the settings within a tenth of the fastest "
        "count,\nby the geometric mean of the least and the most\n\n" +
        to_text(counts_table("assumption", assumed));
  const Table filled = filled_table(validation);
  if (!filled.rows.empty())
    text += "\nCells that rows leave blank, and what they were taken for\n\n" + to_text(filled);
  if (!skipped.empty()) text += "\nLeft out\n\n" + to_text(skipped_table(skipped));
  return text + other_units_text(validation);
}

namespace {

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
  json["memory"] = {{"rows", memory.runs},
                    {"mape", mean_or_null(memory.errors.mean, memory.runs)},
                    {"bias", mean_or_null(memory.errors.bias, memory.runs)}};
  json["oom"] = {{"true_positive", memory.true_positive},
                 {"false_positive", memory.false_positive},
                 {"false_negative", memory.false_negative},
                 {"unexplained", memory.unexplained},
                 {"risky", memory.risky}};
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

std::string ablation_text(const std::vector<NamedValidation>& all) {
  Table table;
  table.columns.push_back({"mean error / bias, %"});
  for (const std::string& group : groups_of(all.front().validation)) {
    if (accuracy(all.front().validation, group).runs > 0) table.columns.push_back({group, Align::right});
  }
  for (const NamedValidation& one : all) {
    std::vector<std::string> row{one.name};
    for (std::size_t i = 1; i < table.columns.size(); ++i) {
      const GroupAccuracy group = accuracy(one.validation, table.columns[i].title);
      row.push_back(percent(group.errors.mean) + "/" + signed_percent(group.errors.bias));
    }
    table.rows.push_back(std::move(row));
  }
  return to_text(table);
}

}  // namespace orrery
