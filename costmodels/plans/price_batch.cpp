#include "costmodels/plans/price_batch.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "costmodels/models/physical_bound.hpp"
#include "costmodels/models/unaligned_gemm.hpp"
#include "costmodels/stacks/sustained_power.hpp"

namespace orrery {

// Backward gathers the weights again, but those that stay whole.
BlockCost AskedBlock::cost() const {
  BlockCost cost{cost_under(operators.forward, forward, PassOrder::forward, sharding),
                 cost_under(operators.backward, backward, PassOrder::backward, sharding), weight_gradient(),
                 module_costs(operators, forward, sharding)};
  if (operators.unrepeated > 0) {
    const Pass repeated = repeated_pass(operators, forward);
    cost.unrepeated =
        cost.forward - cost_under(repeated.operators, repeated.times, PassOrder::forward, sharding);
  }
  const bool alone = (sharding.lone_experts && operators.forward.experts.count > 0) ||
                     sharding.stack.root_unit == RootUnit::all;
  const auto on_their_way = [&](PassCost& pass) -> Seconds& {
    return alone ? pass.lone_weights : pass.weights;
  };
  on_their_way(cost.forward) = gather + gathering_host(sharding, weights.gather.size());
  const bool beside = sharding.stack.shard_copies.beside;
  (beside ? cost.forward.weights : cost.forward.copies) += unpack;
  on_their_way(cost.backward) = reduce + gathering_host(sharding, weights.reduce.size());
  (beside ? cost.backward.weights : cost.backward.copies) += pack;
  if (stays_whole) return cost;
  cost.backward.weights += cost.forward.weights;
  cost.backward.lone_weights += cost.forward.lone_weights;
  cost.backward.copies += cost.forward.copies;
  return cost;
}

PassCost AskedBlock::weight_gradient() const {
  PassCost cost;
  for (const std::size_t index : operators.weight_gradient) {
    cost.compute += backward.compute[index];
    const Operator& op = operators.backward.compute[index];
    add_kinds(cost, op, backward.compute[index], sharding);
    cost.flops += flops_of(op);
  }
  const Pass rest = without({operators.backward, backward}, operators.weight_gradient);
  cost.communication = cost_under(rest.operators, rest.times, PassOrder::backward, sharding).communication -
                       cost_under(operators.backward, backward, PassOrder::backward, sharding).communication;
  return cost;
}

BlockPieces AskedBlock::pieces() const {
  const Pass rest = without({operators.backward, backward}, operators.weight_gradient);
  BlockPieces pieces{pieces_under(operators.forward, forward, PassOrder::forward, sharding),
                     pieces_under(operators.backward, backward, PassOrder::backward, sharding),
                     pieces_under(rest.operators, rest.times, PassOrder::backward, sharding),
                     {},
                     {},
                     {}};
  pieces.repeated = pieces.forward;
  if (operators.unrepeated > 0) {
    const Pass repeated = repeated_pass(operators, forward);
    pieces.repeated = pieces_under(repeated.operators, repeated.times, PassOrder::forward, sharding);
  }
  const PassCost core = module_costs(operators, forward, sharding)[index_of(RecomputeModule::core_attn)];
  pieces.attention_core = {core.compute, core.flops};
  for (const RecomputeModule module : kRecomputeModules) {
    if (module == RecomputeModule::core_attn) continue;
    const Pass pass = module_pass(operators, forward, module);
    pieces.modules[index_of(module)] = pieces_under(pass.operators, pass.times, PassOrder::forward, sharding);
  }
  return pieces;
}

void PriceBatch::add(int group, const Operator& op, Seconds* seconds, bool* extrapolated, double factor) {
  queries_.push_back({group, op});
  sinks_.push_back({seconds, extrapolated, factor});
}

void PriceBatch::add_pass(int group, const PassOperators& operators, PassTimes* times, bool* extrapolated,
                          const KernelFactors& factors) {
  const auto ask = [&](const std::vector<Operator>& asked, std::vector<Seconds>* seconds) {
    seconds->resize(asked.size());
    for (std::size_t i = 0; i < asked.size(); ++i)
      add(group, asked[i], &(*seconds)[i], extrapolated, factors.of(asked[i]));
  };
  ask(operators.compute, &times->compute);
  ask(operators.communication, &times->communication);
}

// PyTorch's kernel for products scaled by row and column over cuBLAS's with one scale: fitted to titan-pr808
// (Llama 8B, 1.27 s a step, 1.14 with one scale; torchao-h100-96 alone would have 1.15).
constexpr double kRowwise = 1.3;

void PriceBatch::add_block(int group, AskedBlock* block, bool* extrapolated) {
  const SoftwareStack& stack = block->sharding.stack;
  const KernelFactors forward{
      .scan_gradient = stack.scan_backward,
      .attention = stack.attention_time,
      .elementwise = stack.kernels.elementwise_time,
      .norm = stack.kernels.norm_time.value_or(stack.kernels.elementwise_time),
      .residual = stack.kernels.residual_time.value_or(stack.kernels.elementwise_time),
      .narrow = stack.fp8_recipe == Fp8Recipe::rowwise ? kRowwise : 1.0,
      .compute = stack.compute_time,
      .network = stack.network};
  KernelFactors backward = forward;
  backward.gemm = stack.backward_gemm;
  add_pass(group, block->operators.forward, &block->forward, extrapolated, forward);
  add_pass(group, block->operators.backward, &block->backward, extrapolated, backward);
  const WeightTraffic& weights = block->weights;
  const auto ask = [&](const std::vector<Operator>& asked, Seconds* seconds) {
    for (const Operator& op : asked) add(group, op, seconds, extrapolated, forward.of(op));
  };
  ask(weights.gather, &block->gather);
  ask(weights.reduce, &block->reduce);
  ask(weights.unpack, &block->unpack);
  ask(weights.pack, &block->pack);
}

// Gradients of GEMMs that nobody measured take what a forward GEMM of their shape takes: with the factors of
// PassFactors more published runs are worse predicted than better (MODELS.md).
void PriceBatch::ask_forwards_for_gradients(const CostModels& models, const std::vector<GpuSpec>& gpus) {
  std::map<std::pair<int, DataType>, bool> measured;
  for (OperatorQuery& query : queries_) {
    auto* gemm = std::get_if<Gemm>(&query.op);
    if (gemm == nullptr || gemm->pass == GemmPass::forward) continue;
    const auto [known, added] = measured.try_emplace({query.gpu, gemm->type});
    if (added)
      known->second = models.measured_gradients(gpus[static_cast<std::size_t>(query.gpu)], gemm->type);
    if (!known->second) gemm->pass = GemmPass::forward;
  }
}

// Of the GEMMs among them as they are read, in whichever pass.
std::vector<Seconds> PriceBatch::unaligned_times(const std::vector<GpuSpec>& gpus) const {
  std::vector<Seconds> times;
  times.reserve(queries_.size());
  for (const OperatorQuery& query : queries_) {
    const auto* gemm = std::get_if<Gemm>(&query.op);
    times.push_back(gemm ? unaligned_time(*gemm, gpus[static_cast<std::size_t>(query.gpu)]) : Seconds());
  }
  return times;
}

std::size_t PriceBatch::predict(const CostModels& models, const ClusterSpec& cluster) {
  std::vector<GpuSpec> gpus;
  for (const NodeGroup& group : cluster.groups) gpus.push_back(group.gpu);
  const std::vector<Seconds> unaligned = unaligned_times(gpus);
  ask_forwards_for_gradients(models, gpus);
  const std::vector<Prediction> answers = models.predict(gpus, queries_);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Sink& sink = sinks_[i];
    const OperatorQuery& query = queries_[i];
    const auto group = static_cast<std::size_t>(query.gpu);
    // A card and a stack may say that kernels and links are faster than expected, not that they are faster
    // than can be.
    const auto no_faster_than_can_be = [&](Seconds said, Seconds expected) {
      return said < expected ? std::max(said, std::min(expected, least_time(query.op, gpus[group]))) : said;
    };
    const Seconds alone = answers[i].time;
    const Seconds aligned = no_faster_than_can_be(under_power(query.op, gpus[group], alone), alone);
    const Seconds predicted = std::max(aligned, unaligned[i]);
    *sink.seconds += no_faster_than_can_be(predicted * sink.factor, predicted);
    own_answers_.add(models.own(), query.op, answers[i]);
    if (sink.extrapolated != nullptr) *sink.extrapolated |= answers[i].extrapolated;
  }
  return queries_.size();
}

void SizeSeries::add(Seconds ideal_time, Seconds latency) {
  ideal.push_back(ideal_time.value());
  overhead.push_back(latency.value());
}

SizeTable SizeSeries::efficiencies() const {
  std::vector<double> values;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const double moving = times[i].value() - overhead[i];
    // A measured time below the bound means the catalog's link is slower than the measured one: play the
    // link.
    values.push_back(moving > ideal[i] ? ideal[i] / moving : 1.0);
  }
  return SizeTable(kFirstExponent, std::move(values));
}

}  // namespace orrery
