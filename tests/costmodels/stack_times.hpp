// What a whole Llama 2 7B takes under a stack, on the first of two priced GPU kinds.
#pragma once

#include "costmodels/plans/price_book.hpp"
#include "tests/costmodels/priced_clusters.hpp"

namespace orrery::test {

inline const ModelSpec& llama_7b() {
  static const ModelSpec model = read_model("llama2-7b");
  return model;
}

inline PartTimes times_of(const ModelSpec& of, const SoftwareStack& stack, const ShardKey& key = {},
                          const Recompute& recompute = {}) {
  PriceBook book(of, two_priced_kinds(), {DataType::bf16, true, 4096, stack});
  book.need(key);
  book.predict(cost_models());
  return book.part_times(book.shard(key), {0, of.layer_count()}, recompute, 1);
}

inline PartTimes times_under(const SoftwareStack& stack, const ShardKey& key = {},
                             const Recompute& recompute = {}) {
  return times_of(llama_7b(), stack, key, recompute);
}

}  // namespace orrery::test
