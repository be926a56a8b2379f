#include "sim/replay/plan_run.hpp"

#include <cmath>

#include "analysis/statistics.hpp"
#include "costmodels/memory/card_memory.hpp"
#include "costmodels/money/egress.hpp"
#include "costmodels/money/energy.hpp"
#include "costmodels/trust/residuals.hpp"
#include "platforms/errors.hpp"
#include "sim/bounds/memory_outlook.hpp"
#include "sim/replay/network.hpp"
#include "sim/version.hpp"
#include "strategies/placement.hpp"
#include "strategies/plan.hpp"

namespace orrery {
namespace {

double tokens_per_iteration(const PriceBook& book, const ParallelStrategy& strategy) {
  const std::int64_t sequence = strategy.sequence > 0 ? strategy.sequence : book.model().default_sequence;
  return static_cast<double>(strategy.global_batch) * static_cast<double>(sequence);
}

// What compute spans of an iteration do on all GPUs.
double hardware_flops(const PriceBook& book, const ParallelStrategy& strategy) {
  double sum = 0;
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    for (int stage = 0; stage < strategy.pipeline; ++stage) {
      const ShardCost& cost = book.shard(shard_key(alike, stage));
      const double gpus = strategy.gpus_of_stage(stage) * strategy.replicas_of_kind(kind);
      for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
        const PartTimes part = book.part_times(cost, alike.part(stage, chunk), alike.recompute, alike.gpus());
        sum += (part.forward_flops + part.backward_flops).value() * gpus *
               static_cast<double>(alike.microbatches());
      }
    }
  }
  return sum;
}

MemoryRow memory_row(const PriceBook& book, const ParallelStrategy& strategy, int stage,
                     const StageMemory& memory) {
  MemoryRow row;
  row.stage = stage;
  row.weights = memory.weights;
  row.gradients = memory.gradients;
  row.optimizer = memory.optimizer;
  row.activations_peak = memory.activations;
  row.logits = memory.logits;
  row.communication = memory.communication;
  row.reserve = memory.total() - memory.allocated() + memory.workspace;
  const NodeGroup& nodes = group_of_stage(book.cluster(), strategy, stage);
  row.capacity = nodes.gpu.memory;
  row.gpu = nodes.gpu.name;
  row.verdict = to_text(memory_verdict(memory, nodes));
  return row;
}

// [stage][chunk]
template <class BytesOfPart>
std::vector<std::vector<Bytes>> by_part(const ParallelStrategy& strategy, const BytesOfPart& of_part) {
  std::vector<std::vector<Bytes>> bytes;
  for (int stage = 0; stage < strategy.pipeline; ++stage) {
    bytes.emplace_back();
    for (int chunk = 0; chunk < strategy.chunks; ++chunk) {
      bytes.back().push_back(of_part(stage, chunk));
    }
  }
  return bytes;
}

}  // namespace

FlopsPerSecond peak_of(const ClusterSpec& cluster, const ParallelStrategy& strategy) {
  FlopsPerSecond sum;
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    for (int stage = 0; stage < strategy.pipeline; ++stage) {
      const auto of_gpu = peak(group_of_stage(cluster, alike, stage).gpu, strategy.type);
      if (of_gpu) sum += *of_gpu * (strategy.gpus_of_stage(stage) * strategy.replicas_of_kind(kind));
    }
  }
  return sum;
}

Totals totals(const PriceBook& book, const ParallelStrategy& strategy, Seconds iteration,
              double total_tokens) {
  Totals result;
  result.iteration = iteration;
  const double tokens = tokens_per_iteration(book, strategy);
  result.tokens_per_s = tokens / iteration.value();
  const double at_peak = peak_of(book.cluster(), strategy).value() * iteration.value();
  const auto utilisation = [&](AttentionCounting counting) {
    const double flops = utilisation_flops(book.model(), strategy.global_batch, strategy.sequence, counting);
    return at_peak > 0 ? flops / at_peak : 0;
  };
  result.mfu = utilisation(AttentionCounting::full);
  result.mfu_causal = utilisation(AttentionCounting::causal);
  result.hfu = at_peak > 0 ? hardware_flops(book, strategy) / at_peak : 0;
  result.interruptions = interruptions(book.cluster(), nodes_in_use(strategy, book.cluster()));
  const Seconds held = iteration * result.interruptions.stretch;
  result.kwh_per_iteration = energy_kwh(book, strategy, iteration) * result.interruptions.stretch;
  if (total_tokens > 0) {
    const double iterations = std::ceil(total_tokens / tokens);
    result.total_time = held * iterations;
    result.kwh_total = result.kwh_per_iteration * iterations;
  }
  Dollars egress;
  if (has_egress_price(book.cluster())) {
    const Topology topology(book.cluster(), strategy.nodes);
    egress = egress_of(book.price(strategy, topology), topology);
  }
  result.cost = run_cost(book.cluster(), strategy.nodes, held, tokens,
                         total_tokens > 0 ? total_tokens : tokens, egress);
  return result;
}

TimeRange interval(const ErrorBand& band, Seconds iteration) {
  return {iteration * band.low, iteration * band.high};
}

Spread spread_of(const std::vector<double>& runs) {
  Spread spread;
  const auto count = static_cast<double>(runs.size());
  for (const double time : runs) spread.mean += time / count;
  double squares = 0;
  for (const double time : runs) squares += (time - spread.mean) * (time - spread.mean);
  spread.deviation = runs.size() > 1 ? std::sqrt(squares / (count - 1)) : 0.0;
  spread.p05 = quantile(runs, 0.05);
  spread.p50 = quantile(runs, 0.50);
  spread.p95 = quantile(runs, 0.95);
  return spread;
}

ReplaySummary summarize(const ReplayResult& replay, double elapsed_s) {
  ReplaySummary summary;
  summary.iteration_s = replay.iteration.value();
  summary.makespan_s = replay.accounting.makespan.value();
  summary.estimate_s = replay.estimate.value();
  summary.bubble_fraction = replay.steady.bubble_fraction;
  summary.imbalance_s = replay.imbalance.value();
  summary.elapsed_s = elapsed_s;
  summary.activities = replay.activities;
  summary.stages = replay.steady.stages;
  return summary;
}

Trace make_trace(ReplayResult& replay, const RunOrigin& origin) {
  Trace trace;
  std::string digests;  // as sha256sum writes them
  for (const InputDigest& input : origin.inputs) digests += input.sha256 + "  " + input.name + "\n";
  trace.run = {{"tool_version", kVersion},
               {"simgrid_version", simgrid_version()},
               {"command_line", origin.command_line},
               {"seeds", std::to_string(origin.seed)},
               {"input_digests", digests},
               {"iteration", to_exact_text(replay.iteration)},
               {"makespan", to_exact_text(replay.accounting.makespan)}};
  trace.iteration = replay.iteration;
  trace.timeline = std::move(replay.timeline);
  trace.accounting = std::move(replay.accounting);
  return trace;
}

Trace make_trace(const ReplayedPlan& plan, ReplayResult& replay, const RunOrigin& origin) {
  const PriceBook& book = *plan.book;
  const ParallelStrategy& strategy = *plan.strategy;
  const std::vector<StageMemory>& memory = *plan.memory;
  const Totals run = totals(book, strategy, replay.iteration, plan.total_tokens);
  const TimeRange where = interval(plan.band, replay.iteration);
  Trace trace = make_trace(replay, origin);
  trace.mfu = run.mfu;
  trace.hfu = run.hfu;
  trace.run.push_back({"model", origin.model});
  trace.run.push_back({"model_digest", origin.model_digest});
  trace.run.push_back({"plan", to_yaml(Plan{origin.model, origin.cluster, strategy, origin.stack})});
  trace.run.push_back({"cluster", to_yaml(book.cluster())});
  trace.run.push_back({"cost_model_digest", origin.cost_models});
  trace.run.push_back({"interval_low", to_exact_text(where.low)});
  trace.run.push_back({"interval_high", to_exact_text(where.high)});
  trace.run.push_back({"interval_basis", plan.band.basis});
  trace.run.push_back({"out_of_memory_chance",
                       chance_text(out_of_memory_chance(fullness(book.cluster(), strategy, memory)))});
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    for (int stage = 0; stage < strategy.pipeline; ++stage) {
      const auto at = static_cast<std::size_t>(kind * strategy.pipeline + stage);
      trace.memory.push_back(memory_row(book, alike, stage, memory[at]));
      trace.memory.back().kind = kind;
    }
  }
  const auto kept = [&](int stage, int chunk) {
    return activation_bytes(book.model(), strategy, stage, chunk, book.stack());
  };
  const auto waiting = [&](int stage, int chunk) {
    return weight_gradient_bytes(book.model(), strategy, stage, chunk, book.stack());
  };
  trace.activations = activation_curve(trace.timeline, by_part(strategy, kept), by_part(strategy, waiting));
  trace.cost.gpu_hours = strategy.gpus() * to_hours(run.iteration);
  if (run.cost) {
    trace.cost.gpu_hours = run.cost->gpu_hours;
    trace.cost.price = run.cost->price;
    trace.cost.per_iteration = run.cost->per_iteration;
    trace.cost.per_million_tokens = run.cost->per_million_tokens;
    if (plan.total_tokens > 0) trace.cost.whole_run = run.cost->total;
  }
  return trace;
}

}  // namespace orrery
