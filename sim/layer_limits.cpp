#include "sim/layer_limits.hpp"

#include <algorithm>

#include "costmodels/card_memory.hpp"

namespace orrery {

LayerLimits::LayerLimits(const PriceBook& book, int most_stages, std::int64_t global_batch)
    : book_(book),
      most_stages_(most_stages),
      global_batch_(global_batch),
      layers_alike_(book.model().layer_count() > 1 &&
                    std::all_of(book.model().layers.begin(), book.model().layers.end(),
                                [&](int shape) { return shape == book.model().layers.front(); })) {}

bool LayerLimits::may_fit(const Allocation& allocation, const Setting& setting, std::int64_t microbatches) {
  const bool gpipe = setting.schedule == ScheduleKind::gpipe;
  const bool closed = gpipe || setting.schedule == ScheduleKind::one_f_one_b;
  // `block` keeps no less than if it recomputed every layer on its own, as `uniform` by one does.
  const bool plain = setting.recompute.method == RecomputeMethod::block || setting.recompute.layers == 1;
  const int stages = allocation.stages();
  if (!layers_alike_ || !closed || !plain || stages < 2) return true;
  std::int64_t held = 0;
  int behind = stages;  // stages from the first of the run to the last of the pipeline
  for (const auto& [group, count] : allocation.runs) {
    const Limits& limits = this->limits(allocation, setting, group);
    // 1f1b: as many microbatches are alive as there are stages from here on, at most all.
    const auto all = static_cast<int>(std::min<std::int64_t>(microbatches, most_stages_));
    const int most_alive = gpipe ? all : std::min(all, behind);
    const int least_alive = gpipe ? all : std::min(all, behind - count + 1);
    const auto most = static_cast<std::size_t>(most_alive), least = static_cast<std::size_t>(least_alive);
    if (limits.most[most] < 1) return false;
    held += limits.sum[most] - limits.sum[least - 1];
    held += std::int64_t{count - (most_alive - least_alive + 1)} * limits.most[most];
    behind -= count;
  }
  return held >= book_.model().layer_count();
}

const LayerLimits::Limits& LayerLimits::limits(const Allocation& allocation, const Setting& setting,
                                               int group) {
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

LayerLimits::Limits LayerLimits::probe(const Allocation& allocation, const Setting& setting,
                                       int group) const {
  Allocation middle = allocation;
  middle.runs = {{group, 3}};
  ParallelStrategy strategy =
      strategy_of(middle, setting, global_batch_, book_.precision().sequence, book_.precision().type);
  strategy.recompute = {setting.recompute.granularity, RecomputeMethod::uniform, 1,
                        setting.recompute.modules};
  const auto bytes = [&](int layers, int alive) {
    strategy.parts.assign(3, {0, layers});
    return stage_memory(book_.model(), strategy, 1, {alive}, book_.stack()).total().value();
  };
  const double one = bytes(1, 1);
  const double kept = bytes(1, 2) - one;          // of one layer and one microbatch
  const double state = bytes(2, 1) - one - kept;  // of one layer
  const double fixed = one - kept - state;
  const NodeGroup& nodes = book_.cluster().groups[static_cast<std::size_t>(group)];
  const double free = usable_memory(nodes.gpu.memory).value() * (1 + 1e-9) - fixed;
  Limits limits{{book_.model().layer_count()}, {0}};
  for (int alive = 1; alive <= most_stages_; ++alive) {
    const double layers = std::max(0.0, free / (state + alive * kept));
    limits.most.push_back(static_cast<int>(std::min<double>(layers, book_.model().layer_count())));
    limits.sum.push_back(limits.sum.back() + limits.most.back());
  }
  return limits;
}

}  // namespace orrery
