#include "costmodels/plans/plan_kind.hpp"

#include <algorithm>

#include "costmodels/memory/memory.hpp"

namespace orrery {

RunKind kind_of(const PriceBook& book, const ParallelStrategy& strategy) {
  RunKind kind;
  kind.family = book.stack().family;
  const auto& shapes = book.model().shapes;
  kind.experts = book.model().has_experts();
  kind.new_kernels = std::any_of(shapes.begin(), shapes.end(), [](const LayerShape& one) {
    return one.has_state_space() || one.latent.kv_rank > 0;
  });
  kind.four_bits = strategy.type == DataType::fp4;
  kind.sharded_weights = shards_weights(strategy, book.stack());
  int host_bound = 0, parts = 0;
  for (int replica = 0; replica < strategy.kinds(); ++replica) {
    const ParallelStrategy alike = strategy.of_kind(replica);
    for (int part = 0; part < alike.part_count(); ++part, ++parts) {
      const ShardKey key = shard_key(alike, alike.rank_of_part(part));
      kind.measured_gpu = kind.measured_gpu && book.measured_gpu(key.group);
      kind.other_maker =
          kind.other_maker || of_other_maker(book.cluster().groups[static_cast<std::size_t>(key.group)].gpu);
      const PartTimes times = book.part_times(book.shard(key), alike.parts[static_cast<std::size_t>(part)],
                                              alike.recompute, alike.gpus(), backward_of(alike.schedule));
      host_bound += times.host_bound;
    }
  }
  kind.host_bound = 2 * host_bound > parts;
  return kind;
}

}  // namespace orrery
