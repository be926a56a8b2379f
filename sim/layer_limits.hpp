// A quick necessary condition on memory: how many layers the stages of a plan could hold at most.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "costmodels/price_book.hpp"
#include "strategies/enumerate.hpp"

namespace orrery {

// Where all layers are alike, the bytes of a stage grow with its layers and with its microbatches alive, so
// the most layers that fit follow from three probes of the memory model; embedding and head are left out.
// Answers for 1f1b and gpipe, whose microbatches alive have closed forms; to other questions "perhaps".
class LayerLimits {
 public:
  LayerLimits(const PriceBook& book, int most_stages, std::int64_t global_batch);
  // False only for a plan that cannot fit.
  [[nodiscard]] bool may_fit(const Allocation&, const Setting&, std::int64_t microbatches);

 private:
  struct Limits {
    std::vector<int> most;          // [microbatches alive] layers
    std::vector<std::int64_t> sum;  // [a]: of most[1] to most[a]
  };
  using Key = std::tuple<int, int, int, int, int, std::int64_t, bool, bool, int, bool, std::optional<bool>,
                         double, std::optional<int>, Recompute::OfLayer>;
  const Limits& limits(const Allocation&, const Setting&, int group);
  [[nodiscard]] Limits probe(const Allocation&, const Setting&, int group) const;

  const PriceBook& book_;
  int most_stages_;
  std::int64_t global_batch_;
  bool layers_alike_;
  std::map<Key, Limits> limits_;
};

}  // namespace orrery
