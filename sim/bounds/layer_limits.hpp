// A quick necessary condition on memory: how many layers the stages of a plan could hold at most.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "costmodels/plans/price_book.hpp"
#include "strategies/enumerate.hpp"

namespace orrery {

// The bytes of a stage grow with its layers and with its microbatches alive, so the most layers of one shape
// that fit follow from three probes of the memory model; embedding and head are left out. Layers of a shape
// and of those that take no less in any way must find room, whatever the others take. Answers for 1f1b and
// gpipe, whose microbatches alive have closed forms; to other questions "perhaps".
class LayerLimits {
 public:
  LayerLimits(const PriceBook& book, int most_stages, std::int64_t global_batch);
  // False only for a plan that cannot fit.
  [[nodiscard]] bool may_fit(const Allocation&, const Setting&, std::int64_t microbatches);

 private:
  // Of layers that take no less than those of a shape.
  struct Limits {
    std::vector<char> shapes;       // which these are
    int layers = 0;                 // of the model
    std::vector<int> most;          // [microbatches alive] of a stage
    std::vector<std::int64_t> sum;  // [a]: of most[1] to most[a]
  };
  using Key = std::tuple<int, int, int, int, int, std::int64_t, bool, bool, int, bool, std::optional<bool>,
                         double, std::optional<int>, Recompute::OfLayer>;
  // Bytes of a stage of layers of one shape: of none, and what each layer adds by itself and by each
  // microbatch alive.
  struct Growth {
    double fixed = 0, state = 0, kept = 0;
  };
  const std::vector<Limits>& limits(const Allocation&, const Setting&, int group);  // [shape]
  [[nodiscard]] std::vector<Limits> probe(const Allocation&, const Setting&, int group) const;
  [[nodiscard]] Growth growth(const ModelSpec&, ParallelStrategy) const;

  const PriceBook& book_;
  int most_stages_;
  std::int64_t global_batch_;
  std::vector<ModelSpec> of_shape_;  // the model with all layers of one of its shapes
  std::map<Key, std::vector<Limits>> limits_;
};

}  // namespace orrery
