// The time of a published run's iteration: printed, or implied by what else it prints; and what its memory is
// a reading of.
#include "platforms/errors.hpp"
#include "platforms/units.hpp"
#include "sim/measured_names.hpp"
#include "sim/measured_plan.hpp"

namespace orrery {
namespace {

// Of one GPU: as printed, or as a share of the data sheet's.
std::optional<FlopsPerSecond> speed_of_gpu(const MeasuredRun& run, const MeasuredPlan& plan) {
  if (const auto rate = run.number("tflops_per_gpu")) return teraflops(*rate);
  const auto share = run.number("mfu_pct");
  const auto best = peak(plan.cluster.groups.front().gpu, plan.strategies.front().type);
  if (!share || !best) return std::nullopt;
  return *best * (*share / 100);
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
  const auto rate = speed_of_gpu(run, plan);
  if (!rate) return std::nullopt;
  const std::string convention = run.text("flops_convention");
  const auto counting = says(convention, "causal") ? AttentionCounting::causal : AttentionCounting::full;
  double work = model_flops(plan.model, strategy.global_batch, strategy.sequence, counting);
  if (says(convention, "hardware FLOPs")) {
    // Narayanan et al. 2021, equation 3: with recomputation.
    const double layers = plan.model.layer_count(), hidden = static_cast<double>(plan.model.hidden);
    work =
        96 * batch * sequence * layers * hidden * hidden *
        (1 + sequence / (6 * hidden) + static_cast<double>(plan.model.vocabulary) / (16 * layers * hidden));
  }
  return work / (rate->value() * gpus);
}

MemoryFigure measured_figure(const MeasuredRun& run, const SoftwareStack& stack) {
  const std::string said = run.text("peak_mem_figure");
  if (said.empty()) return stack.memory_figure;
  if (const auto figure = memory_figure_called(said)) return *figure;
  throw InputError("run " + run.id() + ", peak_mem_figure", quote_for_message(said),
                   "allocated, reserved or card");
}

}  // namespace orrery
