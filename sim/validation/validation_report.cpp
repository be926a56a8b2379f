#include "sim/validation/validation_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "analysis/table.hpp"
#include "platforms/errors.hpp"
#include "sim/validation/breakdown.hpp"

namespace orrery {
namespace {

std::string percent(double fraction) {
  return fixed(100 * fraction, 1);
}
std::string signed_percent(double fraction) {
  return (fraction > 0 ? "+" : "") + percent(fraction);
}

constexpr std::size_t kManyGroups = 40;  // more than people read one by one

bool has_many_groups(const Validation& validation) {
  return groups_of(validation).size() > kManyGroups;
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

bool says_of_memory(const MemoryAccuracy& memory) {
  return memory.runs + memory.true_positive + memory.false_negative + memory.unexplained + memory.risky +
             memory.false_positive >
         0;
}

Table memory_table(const char* by) {
  Table table;
  table.columns.push_back({by});
  for (const char* title : {"peaks", "mean %", "bias %", "failed, foreseen", "out of memory, called safe",
                            "failed unexplained, fits", "ran, called risky", "ran, called too big"})
    table.columns.push_back({title, Align::right});
  return table;
}

void add_memory(Table& table, const std::string& name, const MemoryAccuracy& memory) {
  if (!says_of_memory(memory)) return;
  table.rows.push_back(
      {name, std::to_string(memory.runs), memory.runs > 0 ? percent(memory.errors.mean) : "-",
       memory.runs > 0 ? signed_percent(memory.errors.bias) : "-", std::to_string(memory.true_positive),
       std::to_string(memory.false_negative), std::to_string(memory.unexplained),
       std::to_string(memory.risky), std::to_string(memory.false_positive)});
}

Table memory_of_groups(const Validation& validation) {
  Table table = memory_table("group");
  for (const std::string& group : groups_of(validation))
    add_memory(table, group, memory_accuracy(validation, group));
  return table;
}

Table memory_of_rows(const Validation& validation, const Breakdown& breakdown) {
  Table table = memory_table(breakdown.by.c_str());
  for (const ErrorShare& row : breakdown.rows) add_memory(table, row.time.name, row.memory);
  add_memory(table, "all", memory_accuracy(validation, ""));
  return table;
}

Table times_table(const Breakdown& breakdown) {
  Table table;
  table.columns.push_back({breakdown.by});
  for (const char* title : {"groups", "runs", "mean %", "median %", "p90 %", "bias %", "inside %"})
    table.columns.push_back({title, Align::right});
  for (const ErrorShare& row : breakdown.rows) {
    if (row.time.runs == 0) continue;
    const ErrorSummary& errors = row.time.errors;
    table.rows.push_back({row.time.name, std::to_string(row.time.groups), std::to_string(row.time.runs),
                          percent(errors.mean), percent(errors.median), percent(errors.p90),
                          signed_percent(errors.bias), fixed(100 * row.inside, 0)});
  }
  return table;
}

// The ten that are furthest off, of those of three runs and more.
Table furthest_table(const Validation& validation) {
  constexpr std::size_t kShown = 10, kRuns = 3;
  std::vector<GroupAccuracy> groups;
  for (const std::string& name : groups_of(validation)) {
    GroupAccuracy group = accuracy(validation, name);
    if (group.runs >= kRuns) groups.push_back(std::move(group));
  }
  std::stable_sort(groups.begin(), groups.end(), [](const GroupAccuracy& a, const GroupAccuracy& b) {
    return a.errors.mean > b.errors.mean;
  });
  Table table;
  table.columns = {{"group"}, {"runs", Align::right}, {"mean %", Align::right}, {"bias %", Align::right}};
  for (const GroupAccuracy& group : groups) {
    if (table.rows.size() == kShown) break;
    table.rows.push_back({group.name, std::to_string(group.runs), percent(group.errors.mean),
                          signed_percent(group.errors.bias)});
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

// The tables of what runs have in common, for groups that are too many to be read.
std::string digest_text(const Validation& validation, const Coverages& coverage) {
  const GroupAccuracy all = accuracy(validation, "");
  std::string text = std::to_string(all.runs) + " runs of " + std::to_string(all.groups) +
                     " groups with a time, predicted over published: mean error " + percent(all.errors.mean) +
                     " %, median " + percent(all.errors.median) + " %,\nbias " +
                     signed_percent(all.errors.bias) + " %, rank correlation " + fixed(all.spearman, 3) +
                     "; inside %: of runs, those in the 90 % interval made without their group, in the mean\n"
                     "over groups\n";
  const std::vector<Breakdown> by = breakdowns(validation, coverage.time);
  for (const Breakdown& one : by) text += "\n" + to_text(times_table(one));
  text += "\nFurthest off, of groups of three runs and more\n\n" + to_text(furthest_table(validation));
  const Table memory = memory_of_rows(validation, by.front());
  if (!memory.rows.empty()) text += "\nMemory of the fullest GPU\n\n" + to_text(memory);
  return text;
}

std::string groups_text(const Validation& validation, const Coverages& coverage) {
  std::string text =
      "Time of an iteration, predicted over published; rank: Spearman; regret: of the plan predicted fastest "
      "among\n"
      "plans for the same model, GPUs and batch\n\n" +
      to_text(groups_table(validation));
  const Table memory = memory_of_groups(validation);
  if (!memory.rows.empty()) text += "\nMemory of the fullest GPU\n\n" + to_text(memory);
  if (!coverage.time.empty())
    text +=
        "\nRuns inside the 90 % interval of their time that was made without their group, and without all of "
        "its\n"
        "source; width: of ln(predicted / measured); score: width and 20 x the distance of runs outside\n\n" +
        to_text(coverage_table(coverage.time));
  if (!coverage.memory.empty())
    text += "\nThe same of their memory\n\n" + to_text(coverage_table(coverage.memory));
  return text;
}

// What its runs' sources leave out, and how it was taken.
std::string assumptions_text(const Validation& validation) {
  std::string text;
  std::map<std::string, std::size_t> assumed;
  for (const ValidatedRun& run : validation.runs) {
    for (const std::string& assumption : run.assumptions) ++assumed[assumption];
  }
  if (!assumed.empty())
    text +=
        "\nAssumed where the source is silent; of what is open the settings within a tenth of the fastest "
        "count,\nby the geometric mean of the least and the most\n\n" +
        to_text(counts_table("assumption", assumed));
  const Table filled = filled_table(validation);
  if (!filled.rows.empty())
    text += "\nCells that rows leave blank, and what they were taken for\n\n" + to_text(filled);
  return text;
}

}  // namespace

std::string validation_text(const Validation& validation, Listed listed, const Coverages& coverage) {
  const bool digest = listed == Listed::digest && has_many_groups(validation);
  std::string text;
  if (listed == Listed::runs) text += to_text(runs_table(validation)) + "\n";
  text += digest ? digest_text(validation, coverage) : groups_text(validation, coverage);
  for (const ComputedTimes& group : validation.computed) text += "\n" + remark(group) + "\n";
  if (!coverage.out_of_memory.empty())
    text += "\nChances to run out of memory, by sources other than the run's that publish such runs\n\n" +
            to_text(chances_table(coverage.out_of_memory));
  if (!digest) text += assumptions_text(validation);
  std::map<std::string, std::vector<std::string>> skipped;  // ids
  for (const SkippedRun& run : validation.skipped)
    skipped[digest ? run.reason : run.group + ": " + run.reason].push_back(run.id);
  if (!skipped.empty()) text += "\nLeft out\n\n" + to_text(skipped_table(skipped));
  text += other_units_text(validation);
  if (digest) text += "\n--groups lists each group, and what was assumed of its runs\n";
  return text;
}

std::string ablation_text(const std::vector<NamedValidation>& all) {
  const Validation& first = all.front().validation;
  // One that was run, under its name.
  std::vector<std::pair<std::string, RunFilter>> columns;
  if (has_many_groups(first)) {
    columns.emplace_back("all", [](const ValidatedRun&) { return true; });
    const Breakdown by_program = breakdowns(first).front();
    for (const ErrorShare& row : by_program.rows)
      columns.emplace_back(row.time.name, [name = row.time.name](const ValidatedRun& run) {
        return run.trust.family == name;
      });
  } else {
    for (const std::string& group : groups_of(first))
      columns.emplace_back(group, [group](const ValidatedRun& run) { return run.group == group; });
  }
  std::erase_if(columns, [&](const auto& one) { return accuracy(first, one.second).runs == 0; });
  Table table;
  table.columns.push_back({"mean error / bias, %"});
  for (const auto& [name, takes] : columns) table.columns.push_back({name, Align::right});
  for (const NamedValidation& one : all) {
    std::vector<std::string> row{one.name};
    for (const auto& [name, takes] : columns) {
      const GroupAccuracy of = accuracy(one.validation, takes);
      row.push_back(percent(of.errors.mean) + "/" + signed_percent(of.errors.bias));
    }
    table.rows.push_back(std::move(row));
  }
  return to_text(table);
}

}  // namespace orrery
