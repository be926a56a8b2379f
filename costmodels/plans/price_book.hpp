// Seconds for every block of every sharding a search may use, predicted in one batch, and plans priced from
// them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "costmodels/layers/block_cost.hpp"
#include "costmodels/layers/layer_operators.hpp"
#include "costmodels/layers/pass_pieces.hpp"
#include "costmodels/models/cost_models.hpp"
#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"
#include "strategies/model.hpp"
#include "strategies/shares.hpp"
#include "strategies/strategy.hpp"
#include "traces/layer_profile.hpp"

namespace orrery {

// What decides the time of a layer on a GPU: one key, one set of operators.
struct ShardKey {
  int group = 0;  // of the cluster
  int tensor = 1;
  int context = 1;
  int expert = 1;
  std::optional<int> expert_tensor = {};  // as in ParallelStrategy
  std::int64_t micro_batch = 1;
  bool sequence_parallel = false;
  int sharded = 0;     // copies over which weights are sharded and gathered in every pass; 0: they are not
  int instances = 1;   // sets of so many copies, over which gradients are summed in every backward
  bool whole = false;  // the copies have all weights, and sum the gradients of every backward
  bool flash_attention = true;
  std::optional<bool> tensor_overlap = {};  // as in ParallelStrategy
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

// Whether the gradients of the weights are a task of their own.
enum class Backward { whole, split };
Backward backward_of(ScheduleKind);

struct JobPrecision {
  DataType type = DataType::bf16;
  bool flash_attention = true;  // false: in no plan
  std::int64_t sequence = 0;    // tokens
  SoftwareStack stack = {};     // bare kernels: no host, no overlap of tensor collectives
  bool operator==(const JobPrecision&) const = default;
};

class PriceBatch;
struct AskedShard;
struct BlockSums;
struct SizeSeries;

class PriceBook {
 public:
  PriceBook(const ModelSpec&, const ClusterSpec&, const JobPrecision&);

  // First say what will be asked for; then predict, once; then ask.
  void need(const ShardKey&);
  // Gradient collectives of a stage on `group`: rings of `data` members, `lanes` of them side by side, and
  // those of experts that `expert` replicas share; in each of the optimizer's `instances`, and from one to
  // the next. None where there cannot be so many.
  void need_rings(int group, int lanes, int data, int expert = 1, int instances = 1);
  // The same for stages in any rank order, however many others stand between their replicas.
  void need_spread_rings(int group, int lanes, int data, int expert = 1, int instances = 1);
  void need(const ParallelStrategy&);  // all that `price` asks for one plan
  // Layers as measured in place of predicted ones, on one node group (layer_pricing.hpp). Before `predict`,
  // which then throws InputError for shards that were not measured.
  void use_layers(int group, LayerProfile);
  // Returns the number of operator shapes priced.
  std::size_t predict(const CostModels&);

  [[nodiscard]] const ShardCost& shard(const ShardKey&) const;
  // Times of a part: layers `range` of the model, with the embedding before its first and the head after its
  // last layer, on the slowest of so many GPUs.
  [[nodiscard]] PartTimes part_times(const ShardCost&, const LayerRange&, const Recompute&, int gpus,
                                     Backward = Backward::whole, double delay_of_weights = 1.0) const;
  [[nodiscard]] Seconds optimizer(int group, double parameters) const;  // of one step, over one GPU's shard
  // The same where the share `offload` of them is stepped by the host, while the GPU steps the rest.
  [[nodiscard]] Seconds optimizer(int group, double parameters, double offload) const;
  // Reading weights in 16 bits and writing `copies` of them.
  [[nodiscard]] Seconds casting_weights(int group, Bytes copies) const;
  // Copying gradients to their buckets and back, once a step.
  [[nodiscard]] Seconds copying_buckets(int group, Bytes buckets) const;
  [[nodiscard]] TransferEfficiency ring_efficiency(int group, int lanes, int data, CollectiveKind,
                                                   Bytes) const;

  // What the whole plan is priced from: the message over a boundary, and the traffic of a part of a plan that
  // spreads no experts.
  [[nodiscard]] BoundaryMessage boundary(const ParallelStrategy&, int boundary) const;
  [[nodiscard]] PartReduction reduction(const ParallelStrategy&, int part) const;
  // The whole plan on the topology that has the strategy's nodes.
  [[nodiscard]] PricedPlan price(const ParallelStrategy&, const Topology&) const;
  // With the microbatches of unlike replicas that make the slowest fastest (shares.hpp), by replica_paces.
  [[nodiscard]] ParallelStrategy with_chosen_shares(const ParallelStrategy&) const;
  // Seconds a replica of each kind takes for its microbatches, as far as its GPUs decide them.
  [[nodiscard]] std::vector<ReplicaPace> replica_paces(const ParallelStrategy&) const;
  // Why the prices of a strategy are less sure: "H100: shapes outside the measured range"; empty when they
  // are not.
  [[nodiscard]] std::vector<std::string> extrapolations(const ParallelStrategy&) const;
  // Whether GEMMs of the chip of a group's GPUs were measured, by these or another card's name.
  [[nodiscard]] bool measured_gpu(int group) const;

  // Of all that was priced: what the models of the user's folder answered.
  [[nodiscard]] const OwnAnswers& own_answers() const { return own_answers_; }

  [[nodiscard]] const ModelSpec& model() const { return model_; }
  [[nodiscard]] const ClusterSpec& cluster() const { return cluster_; }
  [[nodiscard]] const JobPrecision& precision() const { return precision_; }
  [[nodiscard]] const SoftwareStack& stack() const { return precision_.stack; }

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
  // Each puts its questions to the batch and returns where the answers will be.
  std::vector<AskedShard> ask_layers(PriceBatch&);  // [shard]
  std::map<RingKey, SizeSeries> ask_rings(PriceBatch&) const;
  std::map<PathKey, SizeSeries> ask_paths(PriceBatch&) const;
  std::vector<std::vector<Seconds>> ask_optimizers(PriceBatch&) const;  // [group][size]
  [[nodiscard]] std::optional<LayerTable> measured_table(const ShardKey&) const;
  void need_measured();  // shards as they were measured, beside those that are asked for
  void sum_layers(const std::vector<AskedShard>&);
  void take_measured(const ShardKey&, const LayerTable&, const std::map<ShardKey, BlockSums>&);

  [[nodiscard]] LinkSpec path_of(const PathKey&) const;
  [[nodiscard]] Seconds moving(int group, Bytes) const;  // in the GPU's memory
  [[nodiscard]] Sharding sharding(const ShardKey&) const;
  // `delay`: of sharded weights on their way (fabric_delay.hpp).
  [[nodiscard]] KindPrices kind_prices(const ParallelStrategy&, double delay) const;
  void price_kinds(const ParallelStrategy&, PricedPlan&, double delay) const;
  [[nodiscard]] double delay_of_weights(const PricedPlan&, const ParallelStrategy&, const Topology&) const;
  [[nodiscard]] PartReduction part_reduction(const ParallelStrategy&, int part, double parameters,
                                             int apart) const;
  [[nodiscard]] PartReduction slowest_reduction(const ParallelStrategy&, int part, double parameters,
                                                int apart) const;
  void add_reductions(PricedPlan&, const ParallelStrategy&) const;
  // Cuts the parts of stages whose groups must be played into pieces around their collectives.
  void play_groups(PricedPlan&, const ParallelStrategy&, const Topology&) const;
  [[nodiscard]] double path_efficiency(const PathKey&, Bytes) const;

  ModelSpec model_;
  ClusterSpec cluster_;
  JobPrecision precision_;
  std::map<ShardKey, ShardCost> shards_;
  std::map<int, LayerProfile> measured_;                      // by group
  std::map<ShardKey, LayerTable> measured_tables_;            // of the shards that were asked for
  std::map<RingKey, SizeTable> rings_;                        // efficiency by bytes
  std::map<PathKey, SizeTable> paths_;                        // efficiency by bytes
  std::vector<SizeTable> optimizers_;                         // [group] seconds by parameters
  std::vector<bool> measured_gpus_;                           // [group]
  std::vector<std::optional<UnseenGpuError>> unseen_errors_;  // [group] CostModels
  OwnAnswers own_answers_;
};

}  // namespace orrery
