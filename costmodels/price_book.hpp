// Seconds for every block of every sharding a search may use, predicted in one batch, and plans priced from
// them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "costmodels/block_cost.hpp"
#include "costmodels/cost_models.hpp"
#include "costmodels/layer_operators.hpp"
#include "costmodels/pass_pieces.hpp"
#include "costmodels/priced_plan.hpp"
#include "platforms/topology.hpp"
#include "strategies/model.hpp"
#include "strategies/strategy.hpp"
#include "traces/layer_profile.hpp"

namespace orrery {

// What decides the time of a layer on a GPU: one key, one set of operators.
struct ShardKey {
  int group = 0;  // of the cluster
  int tensor = 1;
  int context = 1;
  int expert = 1;
  std::int64_t micro_batch = 1;
  bool sequence_parallel = false;
  auto operator<=>(const ShardKey&) const = default;
};

ShardKey shard_key(const ParallelStrategy&, int stage);

struct ShardCost {
  std::vector<BlockCost> before;  // [i]: sum over layers 0 .. i - 1; size layers + 1
  BlockCost embedding;
  BlockCost head;
  std::vector<BlockPieces> shape_pieces;  // of one layer of each shape of the model
  BlockPieces embedding_pieces;
  BlockPieces head_pieces;
  bool extrapolated = false;  // some operator lies outside what was measured
};

struct JobPrecision {
  DataType type = DataType::bf16;
  bool flash_attention = true;
  std::int64_t sequence = 0;  // tokens
};

class PriceBook {
 public:
  PriceBook(const ModelSpec&, const ClusterSpec&, const JobPrecision&);

  // First say what will be asked for; then predict, once; then ask.
  void need(const ShardKey&);
  // Gradient collectives of a stage on `group`: rings of `data` members, `lanes` of them side by side, and
  // those of experts that `expert` replicas share.
  void need_rings(int group, int lanes, int data, int expert = 1);
  void need(const ParallelStrategy&);  // all that `price` asks for one plan
  // Layers as measured in place of predicted ones, on one node group (layer_pricing.hpp). Before `predict`,
  // which then throws InputError for shards that were not measured.
  void use_layers(int group, LayerProfile);
  // Returns the number of operator shapes priced.
  std::size_t predict(const CostModels&);

  [[nodiscard]] const ShardCost& shard(const ShardKey&) const;
  // Times of a part: layers `range` of the model, with the embedding before its first and the head after its
  // last layer.
  [[nodiscard]] PartTimes part_times(const ShardCost&, const LayerRange&, const Recompute&) const;
  [[nodiscard]] Seconds optimizer(int group, double parameters) const;  // of one step, over one GPU's shard
  [[nodiscard]] TransferEfficiency ring_efficiency(int group, int lanes, int data, CollectiveKind,
                                                   Bytes) const;

  // The whole plan on the topology that has the strategy's nodes.
  [[nodiscard]] PricedPlan price(const ParallelStrategy&, const Topology&) const;
  // Why the prices of a strategy are less sure: "H100: shapes outside the measured range"; empty when they
  // are not.
  [[nodiscard]] std::vector<std::string> extrapolations(const ParallelStrategy&) const;

  [[nodiscard]] const ModelSpec& model() const { return model_; }
  [[nodiscard]] const ClusterSpec& cluster() const { return cluster_; }

 private:
  struct RingKey {
    int group, lanes, data;
    CollectiveKind kind;
    auto operator<=>(const RingKey&) const = default;
  };
  struct PathKey {
    int from, to;  // groups
    bool inside;   // of one node
    auto operator<=>(const PathKey&) const = default;
  };
  class Batch;
  struct AskedBlock;
  struct AskedShard;
  struct SizeSeries;

  // Each puts its questions to the batch and returns where the answers will be.
  std::vector<AskedShard> ask_layers(Batch&);  // [shard]
  std::map<RingKey, SizeSeries> ask_rings(Batch&) const;
  std::map<PathKey, SizeSeries> ask_paths(Batch&) const;
  std::vector<std::vector<Seconds>> ask_optimizers(Batch&) const;  // [group][size]
  [[nodiscard]] std::optional<LayerTable> measured_table(const ShardKey&) const;
  void sum_layers(const std::vector<AskedShard>&);

  [[nodiscard]] LinkSpec path_of(const PathKey&) const;
  [[nodiscard]] Sharding sharding(const ShardKey&) const;
  [[nodiscard]] BoundaryMessage boundary(const ParallelStrategy&, int boundary) const;
  [[nodiscard]] PartReduction part_reduction(const ParallelStrategy&, int part, double parameters,
                                             int apart) const;
  void add_reductions(PricedPlan&, const ParallelStrategy&) const;
  // Cuts the parts of stages whose groups can contend into pieces around their collectives.
  void play_groups(PricedPlan&, const ParallelStrategy&, const Topology&) const;
  [[nodiscard]] double path_efficiency(const PathKey&, Bytes) const;

  ModelSpec model_;
  ClusterSpec cluster_;
  JobPrecision precision_;
  std::map<ShardKey, ShardCost> shards_;
  std::map<int, LayerProfile> measured_;  // by group
  std::map<RingKey, SizeTable> rings_;    // efficiency by bytes
  std::map<PathKey, SizeTable> paths_;    // efficiency by bytes
  std::vector<SizeTable> optimizers_;     // [group] seconds by parameters
};

}  // namespace orrery
