#include "sim/validation/validation.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "costmodels/estimate/estimate.hpp"
#include "costmodels/memory/card_memory.hpp"
#include "costmodels/plans/layer_pricing.hpp"
#include "costmodels/plans/plan_kind.hpp"
#include "costmodels/plans/price_book.hpp"
#include "platforms/errors.hpp"
#include "sim/bounds/feasibility.hpp"
#include "sim/bounds/plan_band.hpp"
#include "sim/replay/children.hpp"
#include "sim/replay/on_threads.hpp"
#include "sim/replay/run_replay.hpp"
#include "strategies/placement.hpp"

namespace orrery {
namespace {

// Runs of one model on one kind of cluster with one stack: priced in one batch.
struct SharedBook {
  ModelSpec model;
  ClusterSpec cluster;
  SoftwareStack stack;
  DataType type;
  bool flash_attention;
  std::int64_t sequence;
  std::vector<const LayerProfile*> layers;  // of each node group; null: predicted
  std::unique_ptr<PriceBook> book;
};

SharedBook& book_for(std::vector<SharedBook>& books, const MeasuredPlan& plan, const ClusterSpec& cluster,
                     const std::vector<const LayerProfile*>& layers) {
  const ParallelStrategy& s = plan.strategies.front();
  for (SharedBook& known : books) {
    if (known.type == s.type && known.flash_attention == s.flash_attention && known.sequence == s.sequence &&
        known.model == plan.model && known.cluster == cluster && known.stack == plan.stack &&
        known.layers == layers)
      return known;
  }
  books.push_back(
      {plan.model, cluster, plan.stack, s.type, s.flash_attention, s.sequence, layers,
       std::make_unique<PriceBook>(plan.model, cluster,
                                   JobPrecision{s.type, s.flash_attention, s.sequence, plan.stack})});
  for (std::size_t group = 0; group < layers.size(); ++group) {
    if (layers[group] != nullptr) books.back().book->use_layers(static_cast<int>(group), *layers[group]);
  }
  return books.back();
}

// Of each node group of the run's cluster.
std::vector<const LayerProfile*> layers_for(const ValidationOptions& options, const std::string& group,
                                            const ClusterSpec& cluster) {
  std::vector<const LayerProfile*> layers(cluster.groups.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (const std::string& name : {std::string(), group, cluster.groups[i].name}) {
      if (const auto found = options.layers.find(name); found != options.layers.end())
        layers[i] = &found->second;
    }
  }
  return layers;
}

// Why the layers of a run cannot be priced from a profile.
std::optional<std::string> unmeasured(const std::vector<const LayerProfile*>& layers,
                                      const MeasuredPlan& plan) {
  try {
    for (const ParallelStrategy& strategy : plan.strategies) {
      for (int kind = 0; kind < strategy.kinds(); ++kind) {
        const ParallelStrategy of_kind = strategy.of_kind(kind);
        for (int stage = 0; stage < of_kind.pipeline; ++stage) {
          const int group = of_kind.stages[static_cast<std::size_t>(stage)].group;
          const LayerProfile* profile = layers[static_cast<std::size_t>(group)];
          if (profile == nullptr) continue;
          static_cast<void>(measured_layers(*profile, plan.model,
                                            plan.cluster.groups[static_cast<std::size_t>(group)],
                                            shard_key(of_kind, stage)));
        }
      }
    }
  } catch (const InputError&) {
    return "layers that the layer profile does not have";
  }
  return std::nullopt;
}

struct MappedRun {
  const MeasuredRun* run;
  MeasuredPlan plan;
  std::vector<PriceBook*> books;  // on each network that the row leaves open; the plan's first
  // Of what does not hang on the network: memory, kernels.
  [[nodiscard]] const PriceBook& book() const { return *books.front(); }
};

bool is_too_big(StageFitter& fitter, const ParallelStrategy& strategy) {
  return fitter.worst_verdict(strategy, fitter.memory_of(strategy)) == MemoryVerdict::too_big;
}

// A run that ran did fit: where its source is silent and its plan is far too big as it stands, as little is
// recomputed as makes it fit its card as counted.
void recompute_what_must_have_been(const MeasuredRun& run, const PriceBook& book, MeasuredPlan& plan) {
  if (run.has_failed() || plan.stack.may_drop_activations || !run.text("recompute").empty()) return;
  StageFitter fitter(book);
  bool recomputes = false;
  for (ParallelStrategy& strategy : plan.strategies) {
    const RecomputeGranularity said = strategy.recompute.granularity;
    if (!is_too_big(fitter, strategy)) continue;
    for (const auto granularity : {RecomputeGranularity::selective, RecomputeGranularity::full}) {
      if (fullness(book.cluster(), strategy, fitter.memory_of(strategy)) <= 1) break;
      strategy.recompute.granularity = granularity;
    }
    recomputes |= strategy.recompute.granularity != said;
  }
  if (!recomputes) return;
  std::erase(plan.assumptions, "no recomputation");
  plan.assumptions.emplace_back("recomputation: as little as makes it fit");
}

// With all recomputed that its source may have left unsaid.
ParallelStrategy leanest(const MeasuredRun& run, const MeasuredPlan& plan, ParallelStrategy strategy) {
  if (plan.stack.may_drop_activations && run.text("recompute").empty())
    strategy.recompute.granularity = RecomputeGranularity::full;
  return strategy;
}

// Of what a row leaves open a run that ran had something that fits.
void drop_what_cannot_have_run(const MeasuredRun& run, const PriceBook& book, MeasuredPlan& plan) {
  if (run.has_failed() || plan.strategies.size() == 1) return;
  StageFitter fitter(book);
  std::vector<ParallelStrategy> fitting;
  for (const ParallelStrategy& strategy : plan.strategies) {
    if (!is_too_big(fitter, leanest(run, plan, strategy))) fitting.push_back(strategy);
  }
  if (!fitting.empty()) plan.strategies = std::move(fitting);
}

// The least and the most it can be. Replicas that share network cards are in lockstep on paper only: of n
// flows that share a card evenly, one that starts before the others is done (n - 1) times as long before
// them. With 0.1 % of noise on all durations the replay of AMP's plan of 4 x 4 stages and replicas takes 1.48
// s, with 1 % 1.41; in lockstep 1.62, without the other replicas' messages 1.32 s.
std::vector<Seconds> iterations_of(const PriceBook& book, const ParallelStrategy& strategy, bool replayed) {
  const Topology topology(book.cluster(), strategy.nodes);
  PricedPlan priced = book.price(strategy, topology);
  if (replayed) return {run_replay(priced, topology, {0, Folding::on}).iteration};
  const PlanPrograms programs = make_programs(priced);
  std::vector<Seconds> seconds{estimate_iteration(priced, programs, topology)};
  const NodeGroup& group = book.cluster().groups.front();
  if (group.nics_per_node < group.gpus_per_node && strategy.data > 1 && strategy.pipeline > 1) {
    priced.replicas_drift = true;
    seconds.push_back(estimate_iteration(priced, programs, topology));
  }
  return seconds;
}

// Over the strategies that a row leaves open, but for those that cost a tenth more than the fastest: what is
// published was tuned. The tenth was chosen when eleven runs of Megatron-LM's README were seen, of
// whose microbatches the largest take up to 2.6 times as long.
struct OpenTimes {
  double low, high;          // s
  std::size_t least_memory;  // of those worth running: the first, as possible_strategies orders them
};
OpenTimes times_on(const PriceBook& book, const std::vector<ParallelStrategy>& strategies, bool replayed) {
  constexpr double kWorthRunning = 1.1;
  std::vector<std::pair<double, double>> ranges;
  for (const ParallelStrategy& strategy : strategies) {
    const std::vector<Seconds> times = iterations_of(book, strategy, replayed);
    const auto [least, most] = std::minmax_element(times.begin(), times.end());
    ranges.emplace_back(least->value(), most->value());
  }
  const auto least = std::min_element(ranges.begin(), ranges.end());
  OpenTimes times{least->first, least->second, static_cast<std::size_t>(least - ranges.begin())};
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].first > kWorthRunning * times.low) continue;
    times.high = std::max(times.high, ranges[i].second);
    times.least_memory = std::min(times.least_memory, i);
  }
  return times;
}

// And over the networks that it leaves open, of which the first says what is worth running.
OpenTimes times_of(const MappedRun& mapped, bool replayed) {
  OpenTimes times = times_on(mapped.book(), mapped.plan.strategies, replayed);
  for (std::size_t i = 1; i < mapped.books.size(); ++i) {
    const OpenTimes other = times_on(*mapped.books[i], mapped.plan.strategies, replayed);
    times.low = std::min(times.low, other.low);
    times.high = std::max(times.high, other.high);
  }
  return times;
}

// Bytes of the fullest stage, and the verdict of the one that fits its card least.
void judge_memory(const MappedRun& mapped, const ParallelStrategy& strategy, ValidatedRun& result) {
  result.memory_figure = measured_figure(*mapped.run, mapped.plan.stack);
  StageFitter fitter(mapped.book());
  const std::vector<StageMemory> memory = fitter.memory_of(strategy);
  // Too much is what does not fit even so; what fits only so is not sure to.
  const ParallelStrategy least = leanest(*mapped.run, mapped.plan, strategy);
  const std::vector<StageMemory> least_memory = fitter.memory_of(least);
  result.memory = *std::max_element(memory.begin(), memory.end(), [&](const auto& a, const auto& b) {
    return counted(a, result.memory_figure) < counted(b, result.memory_figure);
  });
  result.predicted_memory = to_gibibytes(counted(result.memory, result.memory_figure));
  result.verdict = fitter.worst_verdict(least, least_memory);
  if (result.verdict == MemoryVerdict::fits && fitter.worst_verdict(strategy, memory) != MemoryVerdict::fits)
    result.verdict = MemoryVerdict::risky;
  result.fullness = fullness(mapped.book().cluster(), least, least_memory);
}

std::string set_of(const MappedRun& mapped) {
  std::string set = mapped.run->group();
  for (const char* column :
       {"framework", "gpu", "model", "layers", "hidden", "seq", "n_gpus", "gbs", "precision", "recompute"}) {
    set += "|" + mapped.run->text(column);
  }
  return set;
}

ValidatedRun validated(const MappedRun& mapped, bool replayed) {
  ValidatedRun result;
  const MeasuredRun& run = *mapped.run;
  result.id = run.id();
  result.group = run.group();
  result.trust = kind_of(mapped.book(), mapped.plan.strategies.front());
  result.kind = run.text("gpu") + (result.trust.experts ? " experts" : "");
  // What no other run of its GPU tells of: matrices in 4 bits, other kernels that were never measured,
  // other programs beside Megatron's in the same tables.
  if (result.trust.four_bits) {
    result.kind += " fp4";
  } else if (result.trust.new_kernels) {
    result.kind += " new kernels";
  }
  if (mapped.plan.stack.preset.starts_with("deepspeed-zero3")) result.kind += " ZeRO-3";
  if (mapped.plan.stack.preset.starts_with("oneflow")) result.kind += " OneFlow";
  std::vector<std::string> gpus;
  for (const NodeGroup& group : mapped.plan.cluster.groups) {
    if (std::find(gpus.begin(), gpus.end(), group.gpu.name) == gpus.end()) gpus.push_back(group.gpu.name);
  }
  for (const std::string& gpu : gpus) result.gpu += (result.gpu.empty() ? "" : " + ") + gpu;
  result.gpus = run.integer("n_gpus").value_or(0);
  result.set = set_of(mapped);
  result.assumptions = mapped.plan.assumptions;
  result.filled = mapped.plan.filled;
  if (!run.filled().empty())
    result.assumptions.push_back("as the classics say of the same run: " + comma_list(run.filled()));
  result.out_of_memory = run.status() == RunStatus::out_of_memory;
  result.failed = run.has_failed();
  if (!result.failed) result.measured = measured_seconds(run, mapped.plan);
  result.measured_memory = measured_gibibytes(run, mapped.plan);
  const OpenTimes times = times_of(mapped, replayed);
  result.low = times.low;
  result.high = times.high;
  result.predicted = std::sqrt(result.low * result.high);
  // Of a run that failed what needs the least: the first.
  const std::size_t judged = result.failed ? 0 : times.least_memory;
  judge_memory(mapped, mapped.plan.strategies[judged], result);
  return result;
}

// The prediction, from a child that replayed it: SimGrid's clock cannot be set back.
void replay_all(const std::vector<MappedRun>& mapped, int jobs, std::vector<ValidatedRun>& results) {
  std::vector<ChildTask> tasks;
  for (const MappedRun& one : mapped) {
    tasks.push_back([&one] {
      const ValidatedRun result = validated(one, true);
      char text[96];
      std::snprintf(text, sizeof text, "%.17g %.17g", result.low, result.high);
      return std::string(text);
    });
  }
  const std::vector<std::string> answers = run_in_children(tasks, jobs, [](std::size_t) {});
  for (std::size_t i = 0; i < answers.size(); ++i) {
    char* rest = nullptr;
    results[i].low = std::strtod(answers[i].c_str(), &rest);
    results[i].high = std::strtod(rest, nullptr);
    results[i].predicted = std::sqrt(results[i].low * results[i].high);
  }
}

// Rows of a group with a measured time.
template <class Visit>
void for_each_timed(const Validation& validation, const std::string& group, Visit visit) {
  for (const ValidatedRun& run : validation.runs) {
    if (run.measured && (group.empty() || run.group == group)) visit(run);
  }
}

// With what its books are to be asked for; else why it is left out.
std::variant<MappedRun, std::string> mapped_run(const MeasuredRun& run, const ValidationOptions& options,
                                                std::vector<SharedBook>& books) {
  auto plan = map_run(run, options.stack);
  if (const auto* trouble = std::get_if<Unmapped>(&plan)) return trouble->reason;
  MappedRun mapped{&run, std::get<MeasuredPlan>(std::move(plan)), {}};
  if (options.change) options.change(mapped.plan);
  if (mapped.plan.strategies.empty() ||
      (!measured_seconds(run, mapped.plan) && !run.number("peak_mem_gb") && !run.has_failed()))
    return "neither time nor memory was published";
  const auto layers = layers_for(options, run.group(), mapped.plan.cluster);
  if (const auto trouble = unmeasured(layers, mapped.plan)) return *trouble;
  for (const NodeNetwork& network : mapped.plan.networks)
    mapped.books.push_back(
        book_for(books, mapped.plan, on_network(mapped.plan.cluster, network), layers).book.get());
  recompute_what_must_have_been(run, mapped.book(), mapped.plan);
  drop_what_cannot_have_run(run, mapped.book(), mapped.plan);
  for (PriceBook* book : mapped.books)
    for (const ParallelStrategy& strategy : mapped.plan.strategies) book->need(strategy);
  return mapped;
}

}  // namespace

ErrorBand over_open_facts(ErrorBand band, const ValidatedRun& run) {
  band.low = std::min(band.low, run.low / run.predicted);
  band.high = std::max(band.high, run.high / run.predicted);
  return band;
}

Validation validate(const std::vector<MeasuredRun>& runs, const CostModels& models,
                    const ValidationOptions& options) {
  Validation validation;
  validation.computed = computed_times(runs);
  std::vector<MappedRun> mapped;
  std::vector<SharedBook> books;
  SeenRuns seen;
  for (const MeasuredRun& run : runs) {
    auto one = seen.is_again(run) ? std::variant<MappedRun, std::string>(kSecondRow)
                                  : mapped_run(run, options, books);
    if (const auto* reason = std::get_if<std::string>(&one))
      validation.skipped.push_back({run.id(), run.group(), *reason});
    else
      mapped.push_back(std::get<MappedRun>(std::move(one)));
  }
  for (const SharedBook& shared : books) {
    static_cast<void>(shared.book->predict(models));
    validation.own += shared.book->own_answers();
    validation.clusters.push_back(shared.cluster);
  }
  validation.runs.resize(mapped.size());
  on_threads(mapped.size(), options.jobs,
             [&](std::size_t i) { validation.runs[i] = validated(mapped[i], false); });
  for (std::size_t i = 0; i < mapped.size(); ++i) {
    ValidatedRun& run = validation.runs[i];
    const ErrorBand band = plan_band(mapped[i].book(), mapped[i].plan.strategies.front(), models);
    run.band = over_open_facts(band, run);
  }
  if (options.replay) replay_all(mapped, options.jobs, validation.runs);
  return validation;
}

GroupAccuracy accuracy(const Validation& validation, const RunFilter& takes) {
  PredictedAndMeasured all;
  std::map<std::string, PredictedAndMeasured> sets;
  std::set<std::string> groups;
  for_each_timed(validation, {}, [&](const ValidatedRun& run) {
    if (!takes(run)) return;
    groups.insert(run.group);
    for (PredictedAndMeasured* table : {&all, &sets[run.set]}) {
      table->predicted.push_back(run.predicted);
      table->measured.push_back(*run.measured);
    }
  });
  GroupAccuracy result;
  result.runs = all.measured.size();
  result.groups = groups.size();
  result.errors = summarize_errors(all);
  result.spearman = spearman(all);
  for (const auto& [name, set] : sets) {
    if (set.measured.size() < 2) continue;
    result.mean_regret += top1_regret(set);
    ++result.sets;
  }
  if (result.sets > 0) result.mean_regret /= static_cast<double>(result.sets);
  return result;
}

GroupAccuracy accuracy(const Validation& validation, const std::string& group, const std::string& kind) {
  GroupAccuracy result = accuracy(validation, [&](const ValidatedRun& run) {
    return (group.empty() || run.group == group) && (kind.empty() || run.kind == kind);
  });
  result.name = group;
  return result;
}

MemoryAccuracy memory_accuracy(const Validation& validation, const std::string& group) {
  return memory_accuracy(validation,
                         [&](const ValidatedRun& run) { return group.empty() || run.group == group; });
}

MemoryAccuracy memory_accuracy(const Validation& validation, const RunFilter& takes) {
  MemoryAccuracy result;
  PredictedAndMeasured peaks;
  for (const ValidatedRun& run : validation.runs) {
    if (!takes(run)) continue;
    const bool fits = run.verdict == MemoryVerdict::fits;
    result.true_positive += run.failed && !fits;
    result.false_positive += !run.failed && run.verdict == MemoryVerdict::too_big;
    result.false_negative += run.out_of_memory && fits;
    result.unexplained += run.failed && !run.out_of_memory && fits;
    result.risky += !run.failed && run.verdict == MemoryVerdict::risky;
    if (!run.measured_memory) continue;
    peaks.predicted.push_back(run.predicted_memory);
    peaks.measured.push_back(*run.measured_memory);
  }
  result.runs = peaks.measured.size();
  result.errors = summarize_errors(peaks);
  return result;
}

std::vector<std::string> kinds_of(const Validation& validation, const std::string& group) {
  std::vector<std::string> kinds;
  for_each_timed(validation, group, [&](const ValidatedRun& run) {
    if (std::find(kinds.begin(), kinds.end(), run.kind) == kinds.end()) kinds.push_back(run.kind);
  });
  std::sort(kinds.begin(), kinds.end());
  return kinds;
}

std::vector<std::string> groups_of(const Validation& validation) {
  std::vector<std::string> groups;
  for (const ValidatedRun& run : validation.runs) {
    if (std::find(groups.begin(), groups.end(), run.group) == groups.end()) groups.push_back(run.group);
  }
  return groups;
}

FilledCounts filled_counts(const Validation& validation) {
  FilledCounts counts;
  for (const ValidatedRun& run : validation.runs) {
    for (const FilledCell& cell : run.filled) ++counts[{cell.column, cell.value}][cell.from];
  }
  return counts;
}

}  // namespace orrery
