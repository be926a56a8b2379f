// The time of a published run's iteration: printed, or implied by what else it prints; and what its memory is
// a reading of.
#include <algorithm>

#include "platforms/errors.hpp"
#include "platforms/units.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_dates.hpp"
#include "sim/measured/measured_plan.hpp"
#include "sim/replay/plan_run.hpp"

namespace orrery {
namespace {

// What the FLOPs of a rate are of: the model's multiplications, its head's and not its embedding's, with what
// of the attention; or six for every parameter; or what was computed, recomputation too.
struct Counted {
  enum class Attention { none, causal, full } attention = Attention::full;
  bool all_parameters = false, hardware = false;
};

// Absent where it is blank, or words that nobody knows.
std::optional<Counted> counted_flops(const std::string& convention) {
  const auto clauses = clauses_of(convention);
  if (clauses.empty() || said(clauses, {"said", "stated", "given", "known"}) == Said::no) return std::nullopt;
  const Said hardware = said(clauses, {"hardware", "hfu", "*recomput*"});
  if (hardware == Said::yes) return Counted{.hardware = true};
  const std::string text = lower_case(convention);
  const Said causal = said(clauses, {"causal", "causally"});
  // "6ND", "6 * N * tokens"; but "6N + 12LHQT" has the attention too: of every parameter both times (PaLM,
  // arXiv 2204.02311, appendix B).
  const std::size_t six = text.find_first_not_of(" *", text.find('6') + 1);
  const bool parameters = says(text, "6") && six != std::string::npos && text[six] == 'n';
  Counted counted{.all_parameters = parameters};
  if (causal == Said::yes)
    counted.attention = Counted::Attention::causal;
  else if (parameters && !says(text, "+"))
    counted.attention = Counted::Attention::none;
  const bool is_known = parameters || causal != Said::nothing || hardware == Said::no ||
                        affirms(clauses, {"model", "mfu", "full", "whole", "12lh*"});
  return is_known ? std::optional(counted) : std::nullopt;
}

// The share of layers that are recomputed in full.
double recomputed_share(const ParallelStrategy& strategy, int layers) {
  if (strategy.recompute.method == RecomputeMethod::uniform) return 1;
  double recomputed = 0;
  for (const LayerRange& part : strategy.parts) recomputed += std::min(part.count, strategy.recompute.layers);
  return recomputed / layers;
}

double flops_of(const MeasuredRun& run, const MeasuredPlan& plan, const Counted& counted) {
  const ParallelStrategy& strategy = plan.strategies.front();
  const auto count = [&](AttentionCounting counting) {
    return (counted.all_parameters ? utilisation_flops : model_flops)(plan.model, strategy.global_batch,
                                                                      strategy.sequence, counting);
  };
  const double full = count(AttentionCounting::full), causal = count(AttentionCounting::causal);
  const double attention = plan.model.causal ? 2 * (full - causal) : 0;
  if (!counted.hardware) {
    switch (counted.attention) {
      case Counted::Attention::none:
        return full - attention;
      case Counted::Attention::causal:
        return causal;
      case Counted::Attention::full:
        return full;
    }
  }
  // Of layers that are recomputed a forward more, a third (Narayanan et al. 2021, equation 3); of selective
  // recomputation the attention's (Korthikanti et al. 2022, appendix A). A row that is silent means all.
  const bool silent = run.text("recompute").empty();
  const RecomputeGranularity repeated = silent ? RecomputeGranularity::full : strategy.recompute.granularity;
  if (repeated == RecomputeGranularity::none) return full;
  if (repeated == RecomputeGranularity::selective) return full + attention / 3;
  const double head = head_flops(plan.model, strategy.global_batch, strategy.sequence);
  const double share = silent ? 1 : recomputed_share(strategy, plan.model.layer_count());
  return full + share * (full - head) / 3;
}

struct Rate {
  FlopsPerSecond of_gpu;
  Counted counted;
};

bool is_said(const MeasuredRun& run, std::initializer_list<const char*> columns) {
  return std::any_of(columns.begin(), columns.end(),
                     [&](const char* column) { return !run.text(column).empty(); });
}

// Whether it says its time, or how much of its work it did in one.
bool says_its_time(const MeasuredRun& run) {
  return is_said(run, {"iter_time_s", "tokens_per_s_per_gpu", "samples_per_s"});
}

// The column of the share of a peak that makes its time; null: another does.
const char* share_of_time(const MeasuredRun& run) {
  if (says_its_time(run) || is_said(run, {"tflops_per_gpu"})) return nullptr;
  if (is_said(run, {"mfu_pct"})) return "mfu_pct";
  return is_said(run, {"hfu_pct"}) ? "hfu_pct" : nullptr;
}

// What a GPU computed of the model, with half of a causal one's attention.
FlopsPerSecond computed_rate(const ModelSpec& model, const ParallelStrategy& strategy, double seconds) {
  return FlopsPerSecond(
      model_flops(model, strategy.global_batch, strategy.sequence, AttentionCounting::causal) /
      (seconds * strategy.gpus()));
}

// What a rate counts where nobody says it: all of the attention, but half of a causal one's in what
// Megatron-LM prints since its commit 8873b55d (6 March 2025, num_floating_point_operations of training.py),
// and with it Megatron-Bridge (training/utils/flop_utils.py) and Primus. NeMo's tables of that year count
// all.
Counted usual_count(const MeasuredRun& run) {
  constexpr double kHalved = 2025.25;
  const std::string framework = lower_case(run.text("framework"));
  const bool megatron = says_any(framework, {"megatron", "primus"}) && !says(framework, "nemo");
  if (!megatron || run.text("tflops_per_gpu").empty() || date_of_program(run) < kHalved) return {};
  return {.attention = Counted::Attention::causal};
}

// As printed, or as a share of the data sheet's.
std::optional<Rate> rate_of(const MeasuredRun& run, const MeasuredPlan& plan) {
  const Counted said = counted_flops(run.text("flops_convention")).value_or(usual_count(run));
  if (const auto rate = run.number("tflops_per_gpu")) return Rate{teraflops(*rate), said};
  const auto best = peak(plan.cluster.groups.front().gpu, plan.strategies.front().type);
  if (!best) return std::nullopt;
  if (const auto share = run.number("mfu_pct")) return Rate{*best * (*share / 100), said};
  if (const auto share = run.number("hfu_pct"))
    return Rate{*best * (*share / 100), Counted{.hardware = true}};
  return std::nullopt;
}

}  // namespace

std::optional<double> measured_seconds(const MeasuredRun& run, const MeasuredPlan& plan) {
  if (const auto time = run.number("iter_time_s")) return time;
  const ParallelStrategy& strategy = plan.strategies.front();
  const double gpus = static_cast<double>(*run.integer("n_gpus"));
  const double batch = static_cast<double>(strategy.global_batch),
               sequence = static_cast<double>(strategy.sequence);
  if (const auto tokens = run.number("tokens_per_s_per_gpu")) return batch * sequence / (*tokens * gpus);
  if (const auto samples = run.number("samples_per_s")) return batch / *samples;
  const auto rate = rate_of(run, plan);
  if (!rate) return std::nullopt;
  return flops_of(run, plan, rate->counted) / (rate->of_gpu.value() * gpus);
}

std::optional<std::string> assumed_convention(const MeasuredRun& run) {
  const std::string convention = run.text("flops_convention");
  if (convention.empty() || says_its_time(run) || !is_said(run, {"tflops_per_gpu", "mfu_pct"}) ||
      counted_flops(convention))
    return std::nullopt;
  const bool half = usual_count(run).attention == Counted::Attention::causal;
  return "FLOPs " + quote_for_message(convention) + ": taken as the model's, with " +
         (half ? "half" : "all") + " of the attention";
}

std::optional<double> measured_gibibytes(const MeasuredRun& run, const MeasuredPlan& plan) {
  const auto printed = run.number("peak_mem_gb");
  if (!printed || *printed <= to_gibibytes(plan.cluster.groups.front().gpu.memory)) return printed;
  return to_gibibytes(Bytes(*printed * kGiga));
}

std::optional<std::string> beyond_data_sheet(const MeasuredRun& run, const MeasuredPlan& plan) {
  constexpr double kRounded = 1.001;  // 85.9 GB are 80 GiB
  const GpuSpec& gpu = plan.cluster.groups.front().gpu;
  if (const auto gib = measured_gibibytes(run, plan); gib && *gib > kRounded * to_gibibytes(gpu.memory))
    return "a peak of " + run.text("peak_mem_gb") + " GB on a card of " + to_text(gpu.memory);
  const auto rate = rate_of(run, plan);
  const auto best = peak(gpu, plan.strategies.front().type);
  if (rate && best && rate->of_gpu > *best)
    return "a rate of " + to_text(rate->of_gpu) + " on a GPU of at most " + to_text(*best);
  // Whatever else it prints: at least the model's FLOPs it computed in its time.
  const auto seconds = measured_seconds(run, plan);
  if (!seconds) return std::nullopt;
  return beyond_data_sheet(plan.model, plan.cluster, plan.strategies.front(), *seconds);
}

std::optional<std::string> far_below_data_sheet(const MeasuredRun& run, const MeasuredPlan& plan) {
  constexpr double kLeastPercent = 1, kLeastShare = 1e-3;  // of the peak: no published run reaches as little
  if (const char* share = share_of_time(run); share != nullptr && *run.number(share) < kLeastPercent)
    return std::string(share) + " " + run.text(share) + ": a fraction? Expected percent, of at least 1";
  const ParallelStrategy& strategy = plan.strategies.front();
  const auto seconds = measured_seconds(run, plan);
  if (!seconds) return std::nullopt;
  const FlopsPerSecond best = peak_of(plan.cluster, strategy) / strategy.gpus();
  const FlopsPerSecond reached = computed_rate(plan.model, strategy, *seconds);
  if (reached >= best * kLeastShare) return std::nullopt;
  return "a time in which a GPU would compute " + to_text(reached) + ", of " + to_text(best) +
         ": expected seconds of one iteration";
}

std::optional<std::string> beyond_data_sheet(const ModelSpec& model, const ClusterSpec& cluster,
                                             const ParallelStrategy& strategy, double seconds) {
  const FlopsPerSecond best = peak_of(cluster, strategy) / strategy.gpus();
  const FlopsPerSecond reached = computed_rate(model, strategy, seconds);
  if (best <= FlopsPerSecond(0) || reached <= best) return std::nullopt;
  return "a time in which a GPU would compute " + to_text(reached) + ", of at most " + to_text(best);
}

MemoryFigure measured_figure(const MeasuredRun& run, const SoftwareStack& stack) {
  const std::string said = run.text("peak_mem_figure");
  return said.empty() ? stack.memory_figure
                      : parse_memory_figure(said, "run " + run.id() + ", peak_mem_figure");
}

}  // namespace orrery
