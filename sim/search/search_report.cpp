#include "sim/search/search_report.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "costmodels/memory/card_memory.hpp"
#include "strategies/placement.hpp"

namespace orrery {
namespace {

std::string grouped(std::size_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

// Whole from 100 on, three digits below.
std::string short_number(double value) {
  return fixed(value, value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3);
}

std::string percent(double share) {
  return fixed(100 * share, 1) + " %";
}

// "-9 +12 %": where nine true times of ten lie.
std::string interval_text(const ErrorBand& band) {
  char text[48];
  std::snprintf(text, sizeof text, "%+.0f %+.0f %%", 100 * (band.low - 1), 100 * (band.high - 1));
  return text;
}

std::string dollars(const std::optional<RunCost>& cost, Dollars RunCost::*column, int digits) {
  return cost ? fixed((*cost.*column).value(), digits) : std::string("?");
}

// Largest memory of a GPU, with the share of what its card holds.
std::string memory_text(const ClusterSpec& cluster, const RatedPlan& plan) {
  const std::vector<const NodeGroup*> groups = groups_of_stages(cluster, plan.strategy);
  double most = 0, share = 0;
  for (std::size_t at = 0; at < plan.memory.size(); ++at) {
    const Bytes counted = plan.memory[at].total();
    most = std::max(most, counted.value());
    share = std::max(share, counted / groups[at]->gpu.memory);
  }
  return fixed(most / kGibi, 1) + " GiB " + fixed(100 * share, 0) + " %";
}

std::string recompute_text(const Recompute& recompute) {
  return recompute.granularity == RecomputeGranularity::none ? "-"
                                                             : std::string(to_text(recompute.granularity));
}

std::string plus_between(std::string words) {
  std::replace(words.begin(), words.end(), ' ', '+');
  return words;
}

// "n x 3,4" folded: equal neighbours are counted.
template <class Items, class Text>
std::string folded(const Items& items, const std::string& separator, Text text) {
  std::string result;
  for (std::size_t i = 0; i < items.size();) {
    std::size_t end = i;
    while (end < items.size() && items[end] == items[i]) ++end;
    if (!result.empty()) result += separator;
    result += text(items[i], end - i);
    i = end;
  }
  return result;
}

}  // namespace

std::string switches_text(const ParallelStrategy& strategy) {
  std::string text;
  const bool usual =
      strategy.schedule == ScheduleKind::one_f_one_b || strategy.schedule == ScheduleKind::interleaved;
  if (!usual) text += std::string(to_text(strategy.schedule)) + " ";
  if (strategy.expert > 1) text += "ep" + std::to_string(strategy.expert) + " ";
  if (strategy.expert_tensor && *strategy.expert_tensor != strategy.tensor(0))
    text += "et" + std::to_string(*strategy.expert_tensor) + " ";
  if (strategy.sequence_parallel) text += "sp ";
  if (strategy.distributed_optimizer) text += "do ";
  if (strategy.optimizer_instances > 1) text += "di" + std::to_string(strategy.optimizer_instances) + " ";
  if (strategy.fully_sharded) text += "fs ";
  if (strategy.overlap_grad_reduce) text += "og ";
  if (strategy.overlap_param_gather) text += "op ";
  if (strategy.tensor_overlap) text += *strategy.tensor_overlap ? "tc " : "no-tc ";
  if (strategy.optimizer_offload > 0) {
    text += "co";
    if (strategy.optimizer_offload < 1) text += ":" + fixed(strategy.optimizer_offload, 2);
    text += " ";
  }
  if (strategy.schedule == ScheduleKind::interleaved && strategy.transfers == TransferMode::blocking)
    text += "bp ";
  if (strategy.order != RankOrder::cp_dp_pp) text += "pd ";
  if (!strategy.hosts.empty()) text += "ho ";
  if (strategy.recompute.granularity != RecomputeGranularity::none) {
    text += "re-" + std::string(to_text(strategy.recompute.granularity));
    const bool selective = strategy.recompute.granularity == RecomputeGranularity::selective;
    if (selective && strategy.recompute.modules != RecomputeModules())
      text += ":" + plus_between(to_text(strategy.recompute.modules));
    if (strategy.recompute.method == RecomputeMethod::block)
      text += ":" + std::to_string(strategy.recompute.layers);
    text += " ";
  }
  if (!text.empty()) text.pop_back();
  return text.empty() ? "-" : text;
}

// Unlike replicas: "3 x (4 h100) 10 mb | 1 x (4 a100) 2 mb", with the microbatches of each.
std::string stages_text(const ClusterSpec& cluster, const ParallelStrategy& strategy) {
  std::string text;
  for (int kind = 0; kind < static_cast<int>(strategy.replicas.size()); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    text += (kind == 0 ? "" : " | ") + std::to_string(strategy.replicas_of_kind(kind)) + " x (" +
            stages_text(cluster, alike) + ") " + std::to_string(alike.microbatches()) + " mb";
  }
  if (!text.empty()) return text;
  return folded(strategy.stages, " + ", [&](const StageDevices& stage, std::size_t count) {
    const std::string& name = cluster.groups[static_cast<std::size_t>(stage.group)].name;
    return std::to_string(count) + " " + name;
  });
}

std::string tensor_text(const ParallelStrategy& strategy) {
  std::vector<int> tensors;
  for (const StageDevices& stage : strategy.stages) tensors.push_back(stage.tensor);
  return folded(tensors, "/", [](int tensor, std::size_t) { return std::to_string(tensor); });
}

std::string layers_text(const ParallelStrategy& strategy) {
  std::vector<int> counts;
  for (const LayerRange& part : strategy.parts) counts.push_back(part.count);
  return folded(counts, " ", [](int layers, std::size_t count) {
    return count == 1 ? std::to_string(layers) : std::to_string(count) + "x" + std::to_string(layers);
  });
}

namespace {

// "plan 3: 41.2 h and 1500.00 USD (12.00 for 1.2 TB between regions), 812 kWh".
std::string totals_text(const ReportedPlan& plan) {
  const Totals& run = plan.replayed;
  std::string text = "plan " + std::to_string(plan.rank) + ": ";
  if (run.total_time) text += short_number(to_hours(*run.total_time)) + " h";
  if (run.cost) text += ", " + fixed(run.cost->total.value(), 2) + " USD";
  if (run.cost && run.cost->egress.value() > 0)
    text += " (" + fixed(run.cost->egress.value(), 2) + " of it for data between regions)";
  if (run.kwh_total) text += ", " + short_number(*run.kwh_total) + " kWh";
  const Interruptions& lost = run.interruptions;
  if (lost.every) {
    text += "\n  interrupted every " + short_number(to_hours(*lost.every)) +
            " h on average, checkpoints after " + short_number(lost.interval.value() / 60) +
            " min of work: " + fixed(lost.stretch, 3) + " times as long as without";
  }
  return text + "\n";
}

// Where the fastest plan is likely to run out of memory, the fastest that is not.
std::string safety_text(const SearchReport& report, const ReportedPlan& fastest) {
  if (fastest.memory.out_of_memory <= kSafeChance) return "";
  const auto safe = std::find_if(report.plans.begin(), report.plans.end(), [](const ReportedPlan& plan) {
    return plan.memory.out_of_memory <= kSafeChance;
  });
  const std::string limit = fixed(100 * kSafeChance, 0) + " %";
  std::string text =
      "  its chance to run out of memory is " + chance_text(fastest.memory.out_of_memory) + "; ";
  if (safe == report.plans.end())
    return text + "no plan here has " + limit + " or less: --memory-risk looks for some\n";
  const double slower = safe->replayed.iteration / fastest.replayed.iteration - 1;
  return text + "the fastest of at most " + limit + " is plan " + std::to_string(safe->rank) + ", " +
         percent(slower) + " slower\n";
}

}  // namespace

Answers answers(const SearchReport& report) {
  Answers found;
  for (const ReportedPlan& plan : report.plans) {
    if (!plan.replayed.cost) continue;
    const auto& best =
        report.plans[static_cast<std::size_t>(found.cheapest.value_or(plan.rank) - 1)].replayed.cost;
    if (!found.cheapest || plan.replayed.cost->total < best->total) found.cheapest = plan.rank;
  }
  return found;
}

std::string answers_text(const SearchReport& report) {
  const Answers found = answers(report);
  std::string limits;
  if (report.job->budget) limits += " within " + fixed(report.job->budget->value(), 2) + " USD";
  if (report.job->deadline) {
    limits += (limits.empty() ? " within " : " and ") + short_number(to_hours(*report.job->deadline)) + " h";
  }
  const auto row = [&](int rank) { return totals_text(report.plans[static_cast<std::size_t>(rank - 1)]); };
  std::string text = "fastest" + limits + ": " + row(found.fastest);
  text += safety_text(report, report.plans[static_cast<std::size_t>(found.fastest - 1)]);
  if (found.cheapest) text += "cheapest" + limits + ": " + row(*found.cheapest);
  return text;
}

Table terminal_table(const SearchReport& report, const std::vector<int>& ranks) {
  bool money_in_thousands = false;
  for (const ReportedPlan& plan : report.plans) {
    money_in_thousands =
        money_in_thousands || (plan.replayed.cost && plan.replayed.cost->total.value() >= 1e5);
  }
  Table table;
  table.columns = {{"#", Align::right},
                   {"stages"},
                   {"layers"},
                   {"T", Align::right},
                   {"C", Align::right},
                   {"D", Align::right},
                   {"v", Align::right},
                   {"mbs", Align::right},
                   {"switches"},
                   {"s/iter", Align::right},
                   {"interval", Align::right},
                   {"tokens/s", Align::right},
                   {"MFU", Align::right},
                   {"bubble", Align::right},
                   {"imbal. s", Align::right},
                   {"memory", Align::right},
                   {"OOM", Align::right},
                   {"$/Mtok", Align::right},
                   {"kWh", Align::right},
                   {"hours", Align::right},
                   {money_in_thousands ? "k$ total" : "$ total", Align::right}};
  for (const int rank : ranks) {
    const ReportedPlan& row = report.plans[static_cast<std::size_t>(rank - 1)];
    const ParallelStrategy& strategy = row.plan.strategy;
    table.rows.push_back(
        {std::to_string(rank),
         stages_text(report.job->cluster, strategy),
         layers_text(strategy),
         tensor_text(strategy),
         std::to_string(strategy.context),
         std::to_string(strategy.data),
         std::to_string(strategy.chunks),
         std::to_string(strategy.micro_batch),
         switches_text(strategy),
         fixed(row.replayed.iteration.value(), 3),
         interval_text(row.band),
         fixed(row.replayed.tokens_per_s, 0),
         percent(row.replayed.mfu),
         percent(row.replay.bubble_fraction),
         fixed(row.replay.imbalance_s, 3),
         memory_text(report.job->cluster, row.plan),
         chance_text(row.memory.out_of_memory),
         dollars(row.replayed.cost, &RunCost::per_million_tokens, 3),
         row.replayed.kwh_total ? short_number(*row.replayed.kwh_total) : "?",
         row.replayed.total_time ? short_number(to_hours(*row.replayed.total_time)) : "?",
         row.replayed.cost ? short_number(row.replayed.cost->total.value() / (money_in_thousands ? 1000 : 1))
                           : "?"});
  }
  return table;
}

namespace {

// The columns of one plan, each with its text.
std::vector<std::pair<const char*, std::string>> csv_fields(const SearchReport& report,
                                                            const ReportedPlan& row) {
  const ParallelStrategy& strategy = row.plan.strategy;
  double memory = 0;
  for (const StageMemory& stage : row.plan.memory) memory = std::max(memory, to_gibibytes(stage.total()));
  const bool on_front =
      std::find(report.pareto.begin(), report.pareto.end(), row.rank) != report.pareto.end();
  const bool full = strategy.recompute.granularity == RecomputeGranularity::full;
  const auto yes = [](bool value) { return std::string(value ? "true" : "false"); };
  return {{"rank", std::to_string(row.rank)},
          {"pareto", yes(on_front)},
          {"stages", stages_text(report.job->cluster, strategy)},
          {"layers", layers_text(strategy)},
          {"gpus", std::to_string(strategy.gpus())},
          {"tensor_model_parallel_size", tensor_text(strategy)},
          {"pipeline_model_parallel_size", std::to_string(strategy.pipeline)},
          {"data_parallel_size", std::to_string(strategy.data)},
          {"context_parallel_size", std::to_string(strategy.context)},
          {"expert_model_parallel_size", std::to_string(strategy.expert)},
          {"num_virtual_stages_per_pipeline_rank", std::to_string(strategy.chunks)},
          {"micro_batch_size", std::to_string(strategy.micro_batch)},
          {"sequence_parallel", yes(strategy.sequence_parallel)},
          {"use_distributed_optimizer", yes(strategy.distributed_optimizer)},
          {"overlap_grad_reduce", yes(strategy.overlap_grad_reduce)},
          {"overlap_param_gather", yes(strategy.overlap_param_gather)},
          {"recompute_granularity", recompute_text(strategy.recompute)},
          {"recompute_method", full ? std::string(to_text(strategy.recompute.method)) : "-"},
          {"recompute_num_layers", full ? std::to_string(strategy.recompute.layers) : "-"},
          {"estimate_s", fixed(row.estimate.iteration.value(), 6)},
          {"replay_s", fixed(row.replayed.iteration.value(), 6)},
          {"interval_low_s", fixed(row.estimate_interval().low.value(), 6)},
          {"interval_high_s", fixed(row.estimate_interval().high.value(), 6)},
          {"tokens_per_s", fixed(row.replayed.tokens_per_s, 1)},
          {"mfu", fixed(row.replayed.mfu, 5)},
          {"mfu_causal", fixed(row.replayed.mfu_causal, 5)},
          {"hfu", fixed(row.replayed.hfu, 5)},
          {"bubble_fraction", fixed(row.replay.bubble_fraction, 5)},
          {"imbalance_s", fixed(row.replay.imbalance_s, 6)},
          {"memory_gib", fixed(memory, 3)},
          {"memory_low_gib", fixed(memory * row.memory.band.low, 3)},
          {"memory_high_gib", fixed(memory * row.memory.band.high, 3)},
          {"out_of_memory_chance", fixed(row.memory.out_of_memory, 5)},
          {"usd_per_iteration", dollars(row.replayed.cost, &RunCost::per_iteration, 4)},
          {"usd_per_mtoken", dollars(row.replayed.cost, &RunCost::per_million_tokens, 6)},
          {"hours_total", row.replayed.total_time ? fixed(to_hours(*row.replayed.total_time), 2) : ""},
          {"usd_total", dollars(row.replayed.cost, &RunCost::total, 2)},
          {"usd_egress", dollars(row.replayed.cost, &RunCost::egress, 2)},
          {"kwh_total", row.replayed.kwh_total ? fixed(*row.replayed.kwh_total, 3) : ""},
          {"stretch", fixed(row.replayed.interruptions.stretch, 6)},
          {"trace", row.trace}};
}

}  // namespace

Table csv_table(const SearchReport& report) {
  Table table;
  for (const ReportedPlan& row : report.plans) {
    std::vector<std::string> cells;
    for (auto& [name, text] : csv_fields(report, row)) {
      if (table.rows.empty()) table.columns.push_back({name});
      cells.push_back(std::move(text));
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string counts_text(const SearchSpaceCounts& counts) {
  std::string text = grouped(counts.enumerated) + " candidates, ";
  if (counts.pruned > 0) {
    // Where nothing was found nothing is better than what is pruned: it is beyond the limits.
    text += grouped(counts.pruned) + " of them cannot be " +
            (counts.evaluated > 0 ? "among the best" : "within the limits") + " whatever their memory\n" +
            "(--explain looks at them all); of the others ";
  }
  text += grouped(counts.evaluated) + " feasible; ";
  if (counts.evaluated > 0) {
    text += grouped(counts.estimated) + " played by the exact recurrence" +
            (counts.estimated < counts.evaluated ? ", the others cannot be among the best; " : "; ");
  }
  text += grouped(counts.operators) + " operators priced\n";
  std::vector<std::pair<std::string, std::size_t>> reasons(counts.reasons.begin(), counts.reasons.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (reasons.empty()) return text + "none rejected\n";
  const std::size_t width = grouped(reasons.front().second).size();
  text += "rejected:\n";
  for (const auto& [reason, count] : reasons) {
    const std::string number = grouped(count);
    text += "  " + std::string(width - number.size(), ' ') + number + "  " + reason + "\n";
  }
  return text;
}

}  // namespace orrery
