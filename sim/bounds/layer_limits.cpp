#include "sim/bounds/layer_limits.hpp"

#include <algorithm>

#include "costmodels/memory/card_memory.hpp"

namespace orrery {

LayerLimits::LayerLimits(const PriceBook& book, int most_stages, std::int64_t global_batch)
    : book_(book), most_stages_(most_stages), global_batch_(global_batch) {
  for (int shape = 0; shape < static_cast<int>(book.model().shapes.size()); ++shape) {
    of_shape_.push_back(book.model());
    std::fill(of_shape_.back().layers.begin(), of_shape_.back().layers.end(), shape);
  }
}

bool LayerLimits::may_fit(const Allocation& allocation, const Setting& setting, std::int64_t microbatches) {
  const bool gpipe = setting.schedule == ScheduleKind::gpipe;
  const bool closed = gpipe || setting.schedule == ScheduleKind::one_f_one_b;
  // `block` keeps no less than if it recomputed every layer on its own, as `uniform` by one does.
  const bool plain = setting.recompute.method == RecomputeMethod::block || setting.recompute.layers == 1;
  const int stages = allocation.stages(), layers = book_.model().layer_count();
  if (layers < 2 || !closed || !plain || stages < 2) return true;
  const std::vector<Limits>& first = limits(allocation, setting, allocation.runs.front().first);
  std::vector<std::int64_t> held(of_shape_.size());
  int behind = stages;  // stages from the first of the run to the last of the pipeline
  for (const auto& [group, count] : allocation.runs) {
    // 1f1b: as many microbatches are alive as there are stages from here on, at most all.
    const auto all = static_cast<int>(std::min<std::int64_t>(microbatches, most_stages_));
    const int most_alive = gpipe ? all : std::min(all, behind);
    const int least_alive = gpipe ? all : std::min(all, behind - count + 1);
    const auto most = static_cast<std::size_t>(most_alive), least = static_cast<std::size_t>(least_alive);
    const std::vector<Limits>& of_group = limits(allocation, setting, group);
    for (std::size_t shape = 0; shape < of_group.size(); ++shape) {
      const Limits& limits = of_group[shape];
      if (limits.layers == layers && limits.most[most] < 1) return false;
      held[shape] += limits.sum[most] - limits.sum[least - 1];
      held[shape] += std::int64_t{count - (most_alive - least_alive + 1)} * limits.most[most];
      // On GPUs with other tensor ways other layers may take less.
      if (limits.shapes != first[shape].shapes) held[shape] += layers;
    }
    behind -= count;
  }
  for (std::size_t shape = 0; shape < held.size(); ++shape) {
    if (held[shape] < first[shape].layers) return false;
  }
  return true;
}

const std::vector<LayerLimits::Limits>& LayerLimits::limits(const Allocation& allocation,
                                                            const Setting& setting, int group) {
  const Key key{group,
                allocation.ways().tensor_of(group),
                allocation.context,
                allocation.expert,
                setting.distributed_optimizer ? allocation.data : 1,
                setting.micro_batch,
                setting.sequence_parallel,
                setting.distributed_optimizer,
                setting.optimizer_instances,
                setting.flash_attention,
                setting.tensor_overlap,
                setting.optimizer_offload,
                setting.expert_tensor,
                setting.recompute.of_layer()};
  const auto found = limits_.find(key);
  if (found != limits_.end()) return found->second;
  return limits_.emplace(key, probe(allocation, setting, group)).first->second;
}

LayerLimits::Growth LayerLimits::growth(const ModelSpec& model, ParallelStrategy strategy) const {
  const auto bytes = [&](int layers, int alive) {
    strategy.parts.assign(3, {0, layers});
    return stage_memory(model, strategy, 1, {alive}, book_.stack()).total().value();
  };
  const double one = bytes(1, 1);
  Growth growth;
  growth.kept = bytes(1, 2) - one;
  growth.state = bytes(2, 1) - one - growth.kept;
  growth.fixed = one - growth.kept - growth.state;
  return growth;
}

std::vector<LayerLimits::Limits> LayerLimits::probe(const Allocation& allocation, const Setting& setting,
                                                    int group) const {
  Allocation middle = allocation;
  middle.runs = {{group, 3}};
  ParallelStrategy strategy =
      strategy_of(middle, setting, global_batch_, book_.precision().sequence, book_.precision().type);
  strategy.recompute = {setting.recompute.granularity, RecomputeMethod::uniform, 1,
                        setting.recompute.modules};
  std::vector<Growth> growths;
  for (const ModelSpec& model : of_shape_) growths.push_back(growth(model, strategy));
  const NodeGroup& nodes = book_.cluster().groups[static_cast<std::size_t>(group)];
  const double usable = usable_memory(nodes).value() * (1 + 1e-9);
  const std::vector<int>& shapes = book_.model().layers;
  std::vector<Limits> all;
  for (const Growth& one : growths) {
    std::vector<char> no_less;
    for (const Growth& other : growths)
      no_less.push_back(other.fixed >= one.fixed && other.state >= one.state && other.kept >= one.kept);
    const auto count = static_cast<int>(std::count_if(
        shapes.begin(), shapes.end(), [&](int shape) { return no_less[static_cast<std::size_t>(shape)]; }));
    Limits limits{std::move(no_less), count, {count}, {0}};
    for (int alive = 1; alive <= most_stages_; ++alive) {
      const double layers = std::max(0.0, (usable - one.fixed) / (one.state + alive * one.kept));
      limits.most.push_back(static_cast<int>(std::min<double>(layers, count)));
      limits.sum.push_back(limits.sum.back() + limits.most.back());
    }
    all.push_back(std::move(limits));
  }
  return all;
}

}  // namespace orrery
