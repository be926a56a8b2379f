#include "sim/search/explain.hpp"

#include <algorithm>
#include <variant>

#include "costmodels/estimate/estimate.hpp"
#include "costmodels/plans/folding.hpp"
#include "sim/bounds/feasibility.hpp"
#include "sim/replay/plan_run.hpp"
#include "sim/search/mix_fitter.hpp"
#include "sim/search/search_report.hpp"
#include "strategies/megatron.hpp"
#include "strategies/obstacles.hpp"
#include "strategies/plan.hpp"

namespace orrery {
namespace {

constexpr int kMostLookedAt = 1000;
constexpr std::size_t kMostShown = 5;

// What the search chooses, for plans that it could have chosen: equal tensor ways on GPUs of one group; equal
// replicas, or a mix of replicas that live on one group each.
struct Choice {
  Allocation allocation;
  Setting setting;
  std::optional<ReplicaMix> mix;  // in place of the allocation
};

std::optional<ReplicaMix> mix_of(const ParallelStrategy& plan) {
  ReplicaMix mix{{plan.tensor(0), plan.context, 1, plan.data, {}}, plan.pipeline, {}, plan.nodes};
  mix.replicas.resize(plan.nodes.size(), 0);
  if (plan.expert > 1) return std::nullopt;
  for (const StageDevices& stage : plan.stages) {
    if (stage.tensor != plan.tensor(0)) return std::nullopt;
  }
  for (const ReplicaKind& kind : plan.replicas) {
    const int group = kind.groups.front();
    if (std::count(kind.groups.begin(), kind.groups.end(), group) != plan.pipeline) return std::nullopt;
    mix.replicas[static_cast<std::size_t>(group)] += kind.count;
  }
  return mix;
}

std::optional<Choice> choice_of(const ParallelStrategy& plan) {
  if (plan.fully_sharded && !gathered_in_passes(plan)) return std::nullopt;
  const auto overlap = [&](bool on) { return plan.fully_sharded ? std::nullopt : std::optional(on); };
  Choice choice{
      {plan.tensor(0), plan.context, plan.expert, plan.data, {}, plan.nodes, {}},
      {plan.micro_batch, plan.chunks, plan.schedule, plan.recompute, plan.sequence_parallel,
       plan.distributed_optimizer, overlap(plan.overlap_grad_reduce), overlap(plan.overlap_param_gather),
       plan.order, plan.flash_attention, plan.tensor_overlap, plan.optimizer_offload, plan.expert_tensor,
       plan.transfers != TransferMode::blocking || plan.schedule != ScheduleKind::interleaved,
       plan.optimizer_instances, plan.fully_sharded},
      {}};
  if (!plan.replicas.empty()) {
    choice.mix = mix_of(plan);
    return choice.mix ? std::optional(choice) : std::nullopt;
  }
  std::vector<int> tensors(plan.nodes.size(), 0);
  for (const StageDevices& stage : plan.stages) {
    int& of_group = tensors[static_cast<std::size_t>(stage.group)];
    if (of_group != 0 && of_group != stage.tensor) return std::nullopt;
    of_group = stage.tensor;
    choice.allocation.tensor = std::max(choice.allocation.tensor, stage.tensor);
    auto& runs = choice.allocation.runs;
    if (runs.empty() || runs.back().first != stage.group) runs.emplace_back(stage.group, 0);
    ++runs.back().second;
  }
  std::replace(tensors.begin(), tensors.end(), 0, plan.tensor(0));
  const bool equal =
      std::all_of(tensors.begin(), tensors.end(), [&](int tensor) { return tensor == tensors.front(); });
  if (!equal) choice.allocation.tensors = tensors;
  return choice;
}

struct Change {
  std::string name;
  Choice choice;
};

// Of latent attention and experts: what costs little time and what frees most.
std::vector<RecomputeModules> worth_recomputing(const ModelSpec& model) {
  const bool latent = model.has_latent_attention();
  const bool experts = model.has_experts();
  std::vector<RecomputeModules> sets;
  RecomputeModules cheap({RecomputeModule::layernorm});
  if (latent) cheap.add(RecomputeModule::mla_up_proj);
  if (experts) cheap.add(RecomputeModule::moe_act);
  if (latent || experts) sets.push_back(cheap);
  if (experts) sets.push_back({RecomputeModule::layernorm, RecomputeModule::moe});
  return sets;
}

void add_switches(std::vector<Change>& changes, const Choice& from, const ModelSpec& model) {
  const auto add = [&](const std::string& name, auto edit) {
    Change change{name, from};
    edit(change.choice.setting);
    changes.push_back(std::move(change));
  };
  const Setting& now = from.setting;
  for (const auto granularity : {RecomputeGranularity::selective, RecomputeGranularity::full}) {
    if (now.recompute.granularity >= granularity) continue;
    add("recompute_granularity " + std::string(to_text(granularity)), [&](Setting& setting) {
      setting.recompute = {granularity, RecomputeMethod::uniform, 1};
    });
  }
  for (const RecomputeModules& modules : worth_recomputing(model)) {
    if (now.recompute.granularity == RecomputeGranularity::full || now.recompute.modules == modules) continue;
    add("recompute_modules " + to_text(modules), [&](Setting& setting) {
      setting.recompute = {RecomputeGranularity::selective, RecomputeMethod::uniform, 1, modules};
    });
  }
  if (!now.distributed_optimizer)
    add("use_distributed_optimizer", [](Setting& setting) { setting.distributed_optimizer = true; });
  if (now.distributed_optimizer && now.optimizer_offload < 1)
    add("optimizer_cpu_offload", [](Setting& setting) { setting.optimizer_offload = 1; });
  const bool has_copies = from.allocation.data * from.allocation.context > 1;
  if (has_copies && !now.fully_sharded && !from.mix && from.allocation.stages() == 1) {
    add("use_megatron_fsdp", [](Setting& setting) {
      setting.distributed_optimizer = setting.fully_sharded = true;
      setting.overlap_grad_reduce = setting.overlap_param_gather = std::nullopt;
    });
  }
  const bool reduces_once = has_copies && !now.fully_sharded;
  if (reduces_once && now.overlap_grad_reduce != true)
    add("overlap_grad_reduce", [](Setting& setting) { setting.overlap_grad_reduce = true; });
  if (reduces_once && now.distributed_optimizer && now.overlap_param_gather != true) {
    add("overlap_grad_reduce and overlap_param_gather",
        [](Setting& setting) { setting.overlap_grad_reduce = setting.overlap_param_gather = true; });
  }
  if (!now.sequence_parallel && from.allocation.tensor > 1)
    add("sequence_parallel", [](Setting& setting) { setting.sequence_parallel = true; });
  for (std::int64_t size = now.micro_batch / 2; size >= 1; size /= 2)
    add("micro_batch_size " + std::to_string(size), [&](Setting& setting) { setting.micro_batch = size; });
  const bool plain = now.chunks == 1 && now.schedule == ScheduleKind::one_f_one_b;
  if (!plain) {
    add("the 1f1b schedule without virtual stages", [](Setting& setting) {
      setting.chunks = 1;
      setting.schedule = ScheduleKind::one_f_one_b;
    });
  }
}

// More ways of a kind for fewer replicas, on the same GPUs.
void add_ways(std::vector<Change>& changes, const Choice& from) {
  for (int factor = 2; from.allocation.data % factor == 0; factor *= 2) {
    const auto add = [&](const std::string& name, auto edit) {
      Change change{name, from};
      change.choice.allocation.data /= factor;
      edit(change.choice.allocation);
      changes.push_back(std::move(change));
    };
    const Allocation& now = from.allocation;
    add("tensor_model_parallel_size " + std::to_string(now.tensor * factor), [&](Allocation& allocation) {
      allocation.tensor *= factor;
      for (int& tensor : allocation.tensors) tensor *= factor;
    });
    add("pipeline_model_parallel_size " + std::to_string(now.stages() * factor), [&](Allocation& allocation) {
      for (auto& [group, stages] : allocation.runs) stages *= factor;
    });
    add("context_parallel_size " + std::to_string(now.context * factor),
        [&](Allocation& allocation) { allocation.context *= factor; });
  }
}

std::vector<Change> changes_of(const Choice& from, const ModelSpec& model) {
  std::vector<Change> changes;
  add_switches(changes, from, model);
  if (!from.mix) add_ways(changes, from);
  return changes;
}

// A pair may change one thing twice: the second change then stands beside the first in its name.
std::vector<Change> pairs_of(const std::vector<Change>& singles, const ModelSpec& model) {
  std::vector<Change> pairs;
  for (std::size_t i = 0; i < singles.size(); ++i) {
    const std::vector<Change> next = changes_of(singles[i].choice, model);
    for (const Change& second : next) {
      const auto known = std::find_if(singles.begin(), singles.end(),
                                      [&](const Change& single) { return single.name == second.name; });
      if (known == singles.end() || known - singles.begin() <= static_cast<std::ptrdiff_t>(i)) continue;
      pairs.push_back({singles[i].name + " and " + second.name, second.choice});
    }
  }
  return pairs;
}

class Judge {
 public:
  Judge(const SearchJob& job, std::vector<Rule>& rules, PriceBook& book)
      : job_(job), rules_(rules), book_(book), fitter_(book) {}

  std::optional<PlanVerdict> without_shape(const Choice& choice) const {
    const auto obstacle = choice.mix ? mix_obstacle(job_.model, job_.cluster, *choice.mix, choice.setting,
                                                    job_.global_batch, job_.sequence)
                                     : shape_obstacle(job_.model, job_.cluster, choice.allocation,
                                                      choice.setting, job_.global_batch, job_.sequence);
    if (!obstacle) return std::nullopt;
    return PlanVerdict{strategy_of(choice), {}, InfeasibleKind::shape, std::string(*obstacle), {}};
  }

  ParallelStrategy strategy_of(const Choice& choice) const {
    if (choice.mix)
      return orrery::strategy_of(*choice.mix, choice.setting, job_.global_batch, job_.sequence, job_.type);
    return orrery::strategy_of(choice.allocation, choice.setting, job_.global_batch, job_.sequence,
                               job_.type);
  }

  PlanVerdict judge_choice(const Choice& choice) {
    if (auto verdict = without_shape(choice)) return *verdict;
    ParallelStrategy strategy = strategy_of(choice);
    if (choice.mix) {
      auto mixed = MixFitter(book_, fitter_).fit(*choice.mix, choice.setting, job_.global_batch);
      if (const auto* trouble = std::get_if<Infeasible>(&mixed))
        return {strategy, {}, trouble->kind, trouble->reason, {}};
      return judge(std::get<FittedMix>(std::move(mixed)).strategy);
    }
    const auto fitted = fitter_.fit(strategy);
    const auto* trouble = std::get_if<Infeasible>(&fitted);
    if (trouble && strategy.parts.empty()) return {strategy, {}, trouble->kind, trouble->reason, {}};
    return judge(std::move(strategy));
  }

  // Of a plan with a shape and its layers.
  PlanVerdict judge(ParallelStrategy strategy) {
    PlanVerdict verdict;
    verdict.strategy = std::move(strategy);
    const ParallelStrategy& plan = verdict.strategy;
    const auto refuse = [&](InfeasibleKind kind, const std::string& reason) {
      verdict.infeasible = kind;
      verdict.reason = reason;
      return verdict;
    };
    const Topology topology(job_.cluster, plan.nodes);
    const PricedPlan priced = book_.price(plan, topology);
    if (const auto cut = cut_route(priced, topology)) return refuse(InfeasibleKind::shape, *cut);
    const PlanPrograms programs = make_programs(priced);
    verdict.memory = fitter_.memory_of(plan, programs);
    verdict.iteration = estimate_iteration(priced, programs, topology);
    if (const auto full = fitter_.too_full(plan, verdict.memory)) return refuse(full->kind, full->reason);
    const ArgumentTable arguments = megatron_arguments(job_.model, plan);
    for (const Rule& rule : rules_) {
      if (rule.matches(arguments)) return refuse(InfeasibleKind::rule, "rule: " + rule.text());
    }
    const Totals run = totals(book_, plan, *verdict.iteration, job_.total_tokens);
    if (const auto obstacle = limit_obstacle(job_, run.total_time.value_or(run.iteration), run.cost))
      return refuse(InfeasibleKind::budget, *obstacle);
    return verdict;
  }

 private:
  const SearchJob& job_;
  std::vector<Rule>& rules_;
  PriceBook& book_;
  StageFitter fitter_;
};

// Those that can run first, fastest first; the others by how they are named.
void sort_by_time(std::vector<TriedChange>& tried) {
  std::stable_sort(tried.begin(), tried.end(), [](const TriedChange& a, const TriedChange& b) {
    if (a.verdict.infeasible || b.verdict.infeasible) return !a.verdict.infeasible && b.verdict.infeasible;
    return *a.verdict.iteration < *b.verdict.iteration;
  });
}

std::string argument_text(const Argument& argument) {
  if (const auto* truth = std::get_if<bool>(&argument)) return *truth ? "true" : "false";
  if (const auto* text = std::get_if<std::string>(&argument)) return *text;
  if (const auto* number = std::get_if<double>(&argument)) {
    std::string text = std::to_string(*number);
    text.erase(text.find_last_not_of('0') + 1);
    return text.back() == '.' ? text.substr(0, text.size() - 1) : text;
  }
  return "none";
}

std::vector<std::string> differences(const SearchJob& job, const ParallelStrategy& better,
                                     const ParallelStrategy& plan) {
  std::vector<std::string> found;
  const auto compare = [&](const std::string& name, const std::string& theirs, const std::string& ours) {
    if (theirs != ours) found.push_back(name + " " + theirs + " instead of " + ours);
  };
  compare("stages", stages_text(job.cluster, better), stages_text(job.cluster, plan));
  compare("layers", layers_text(better), layers_text(plan));
  compare("schedule", std::string(to_text(better.schedule)), std::string(to_text(plan.schedule)));
  const ArgumentTable theirs = megatron_arguments(job.model, better),
                      ours = megatron_arguments(job.model, plan);
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    if (!job.model.has_experts() && theirs[i].first.starts_with("expert_")) continue;
    compare(theirs[i].first, argument_text(theirs[i].second), argument_text(ours[i].second));
  }
  return found;
}

void add_rank(Explanation& result, SearchJob job, std::vector<Rule>& rules, const CostModels& models,
              PriceBook book, const SearchProgress& progress) {
  job.top = kMostLookedAt;
  SearchResult found = search(job, rules, models, book, progress);
  result.feasible = found.counts.evaluated;
  const Seconds own = *result.plan.iteration * (1 - 1e-9);  // the plan itself is not faster than itself
  std::size_t looked_at = 0;
  for (RatedPlan& plan : found.plans) {
    if (!plan.among_fastest) continue;
    ++looked_at;
    if (plan.iteration >= own) continue;
    ++result.faster;
    if (result.better.size() >= kMostShown) continue;
    std::vector<std::string> differs = differences(job, plan.strategy, result.plan.strategy);
    result.better.push_back({std::move(plan), std::move(differs)});
  }
  result.at_least = result.faster == static_cast<std::size_t>(kMostLookedAt) && looked_at == result.faster;
}

}  // namespace

Explanation explain(const SearchJob& job, std::vector<Rule>& rules, const CostModels& models, PriceBook& book,
                    const ParallelStrategy& plan, const SearchProgress& progress) {
  const PriceBook fresh = book;
  Explanation result;
  const bool has_places = !check_places(job.model, plan, job.cluster);
  const std::optional<Choice> choice = has_places ? choice_of(plan) : std::nullopt;
  std::vector<Change> singles, pairs;
  if (choice) {
    singles = changes_of(*choice, job.model);
    pairs = pairs_of(singles, job.model);
  }
  Judge judge(job, rules, book);
  const auto shape = check_shape(job.model, plan, job.cluster);
  if (!shape) book.need(plan);
  for (const auto* list : {&singles, &pairs}) {
    for (const Change& change : *list) {
      if (!judge.without_shape(change.choice)) book.need(judge.strategy_of(change.choice));
    }
  }
  static_cast<void>(book.predict(models));
  result.plan = shape ? PlanVerdict{plan, {}, shape->kind, shape->reason, {}} : judge.judge(plan);
  if (!result.plan.infeasible) {
    add_rank(result, job, rules, models, fresh, progress);
    return result;
  }
  for (const Change& change : singles)
    result.tried.push_back({change.name, judge.judge_choice(change.choice)});
  const bool helps = std::any_of(result.tried.begin(), result.tried.end(),
                                 [](const TriedChange& tried) { return !tried.verdict.infeasible; });
  if (!helps) {
    for (const Change& change : pairs) {
      PlanVerdict verdict = judge.judge_choice(change.choice);
      if (!verdict.infeasible) result.tried.push_back({change.name, std::move(verdict)});
    }
  }
  sort_by_time(result.tried);
  return result;
}

}  // namespace orrery
