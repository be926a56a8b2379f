// What a price book asks of the cost models, all in one batch, and where the answers go.
#pragma once

#include <vector>

#include "costmodels/layers/block_cost.hpp"
#include "costmodels/layers/layer_operators.hpp"
#include "costmodels/layers/pass_pieces.hpp"
#include "costmodels/layers/stack_effects.hpp"
#include "costmodels/models/cost_models.hpp"
#include "platforms/cluster.hpp"

namespace orrery {

// What one GPU gets of the NICs of its node.
LinkSpec nic_share(const NodeGroup&);

// Operators of a block, and their times once predicted.
struct AskedBlock {
  BlockOperators operators;
  Sharding sharding;
  WeightTraffic weights;
  bool stays_whole = false;  // from its forward to its backward, where weights are sharded
  PassTimes forward = {}, backward = {};
  Seconds gather = {}, reduce = {}, unpack = {}, pack = {};

  [[nodiscard]] BlockCost cost() const;
  [[nodiscard]] BlockPieces pieces() const;
  [[nodiscard]] PassCost weight_gradient() const;
};

// Of one shard: of every layer shape, then of embedding and head.
struct AskedShard {
  std::vector<AskedBlock> shapes;
  AskedBlock embedding, head;
};

// Collects the operators of all tables, asks once, and hands every answer to whoever asked.
class PriceBatch {
 public:
  // Adds the time of an operator on a group's GPU to `*seconds` once predicted.
  void add(int group, const Operator&, Seconds* seconds, bool* extrapolated = nullptr, double factor = 1.0);
  void add_block(int group, AskedBlock*, bool* extrapolated);

  // Returns the number of operator shapes priced.
  std::size_t predict(const CostModels&, const ClusterSpec&);
  [[nodiscard]] const OwnAnswers& own_answers() const { return own_answers_; }  // once predicted

 private:
  [[nodiscard]] std::vector<Seconds> unaligned_times(const std::vector<GpuSpec>&) const;
  void ask_forwards_for_gradients(const CostModels&, const std::vector<GpuSpec>&);
  void add_pass(int group, const PassOperators&, PassTimes*, bool* extrapolated, const KernelFactors&);

  struct Sink {
    Seconds* seconds;
    bool* extrapolated;
    double factor;
  };
  std::vector<OperatorQuery> queries_;
  std::vector<Sink> sinks_;
  OwnAnswers own_answers_;
};

// Times of one kind of operation over sizes, turned into efficiencies once they are predicted.
struct SizeSeries {
  std::vector<Seconds> times;
  std::vector<double> ideal;     // s at full bandwidth
  std::vector<double> overhead;  // s of latency, which the flows pay on their own

  void add(Seconds ideal_time, Seconds latency);
  [[nodiscard]] SizeTable efficiencies() const;
};

}  // namespace orrery
