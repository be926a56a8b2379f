// Prices of parts of a model: sums, recomputation, ends, tables.
#include "costmodels/plans/price_book.hpp"

#include "costmodels/estimate/traffic.hpp"
#include "costmodels/stacks/stack_file.hpp"
#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"
#include "tests/strategies/random_schedule.hpp"

namespace orrery {
namespace {

using test::between;

constexpr ShardKey kShard{.group = 0, .tensor = 2, .sequence_parallel = true};

// Llama-2 7B and every fourth layer with a wider MLP, so that layers differ.
ModelSpec uneven_model() {
  ModelSpec model = read_model("llama2-7b");
  LayerShape wide = model.shapes[0];
  wide.ffn *= 2;
  model.shapes.push_back(wide);
  for (std::size_t i = 0; i < model.layers.size(); i += 4) model.layers[i] = 1;
  return model;
}

const PriceBook& book() {
  static const PriceBook priced = [] {
    PriceBook fresh(uneven_model(), test::two_priced_kinds(), {DataType::bf16, true, 4096});
    fresh.need(kShard);
    fresh.predict(test::cost_models());
    return fresh;
  }();
  return priced;
}

PartTimes times_of(const LayerRange& range, const Recompute& recompute = {}) {
  return book().part_times(book().shard(kShard), range, recompute, 1);
}

int layer_count() {
  return book().model().layer_count();
}

constexpr Recompute kSelective{RecomputeGranularity::selective, RecomputeMethod::uniform, 1};
constexpr Recompute kFull{RecomputeGranularity::full, RecomputeMethod::uniform, 1};

Recompute block(int layers) {
  return {RecomputeGranularity::full, RecomputeMethod::block, layers};
}

}  // namespace

TEST_CASE("the parts of a model take together what the whole model takes") {
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    PartTimes sum;
    std::string cuts;
    std::vector<LayerRange> parts;
    if (between(random, 0, 1) == 1) parts.push_back({0, 0});  // the embedding alone
    for (int first = 0; first < layer_count(); first += parts.back().count)
      parts.push_back({first, between(random, 1, layer_count() - first)});
    if (between(random, 0, 1) == 1) parts.push_back({layer_count(), 0});  // norm, head and loss alone
    mark_ends(parts);
    for (const LayerRange& range : parts) {
      const PartTimes part = times_of(range);
      sum.forward += part.forward;
      sum.backward += part.backward;
      sum.forward_tensor += part.forward_tensor;
      sum.backward_tensor += part.backward_tensor;
      sum.forward_flops += part.forward_flops;
      sum.backward_flops += part.backward_flops;
      cuts += std::to_string(range.count) + " ";
    }
    INFO("layers " << cuts);
    const PartTimes whole = times_of({0, layer_count()});
    REQUIRE(sum.forward.value() == Approx(whole.forward.value()).epsilon(1e-9));
    REQUIRE(sum.backward.value() == Approx(whole.backward.value()).epsilon(1e-9));
    REQUIRE(sum.forward_tensor.value() == Approx(whole.forward_tensor.value()).epsilon(1e-9));
    REQUIRE(sum.backward_tensor.value() == Approx(whole.backward_tensor.value()).epsilon(1e-9));
    REQUIRE(sum.forward_flops.value() == Approx(whole.forward_flops.value()).epsilon(1e-9));
    REQUIRE(sum.backward_flops.value() == Approx(whole.backward_flops.value()).epsilon(1e-9));
  }
}

TEST_CASE("a layer takes time, some of it tensor-parallel communication; a wider one takes more") {
  const PartTimes wide = times_of({4, 1});
  const PartTimes narrow = times_of({5, 1});
  for (const PartTimes& layer : {wide, narrow}) {
    CHECK(layer.forward > Seconds(0));
    CHECK(layer.backward > layer.forward);
    CHECK(layer.forward_tensor > Seconds(0));
    CHECK(layer.forward_tensor < layer.forward);
    CHECK(layer.backward_tensor < layer.backward);
    CHECK(layer.weight_gradient == Seconds(0));
  }
  CHECK(wide.forward > narrow.forward);
  CHECK(wide.forward_flops > narrow.forward_flops);
}

TEST_CASE("input and weight gradients apart take together what the whole backward takes") {
  for (const Recompute& recompute : {Recompute{}, kSelective, kFull, block(2)}) {
    for (const LayerRange& range : {LayerRange{0, 3}, LayerRange{4, 1}, LayerRange{layer_count() - 2, 2}}) {
      const PartTimes whole = times_of(range, recompute);
      const PartTimes split = book().part_times(book().shard(kShard), range, recompute, 1, Backward::split);
      CHECK(split.forward == whole.forward);
      CHECK((split.backward + split.weight_gradient).value() ==
            Approx(whole.backward.value()).epsilon(1e-12));
      CHECK((split.backward_flops + split.weight_gradient_flops).value() ==
            Approx(whole.backward_flops.value()).epsilon(1e-12));
      CHECK(split.backward_tensor == whole.backward_tensor);  // nothing is sent for the weights
      // Recomputation belongs to the backward for the input.
      const PartTimes plain = book().part_times(book().shard(kShard), range, {}, 1, Backward::split);
      CHECK(split.weight_gradient == plain.weight_gradient);
    }
  }
}

TEST_CASE("plans with and without flash attention are priced by their own kernels in one book") {
  ShardKey unfused = kShard;
  unfused.flash_attention = false;
  PriceBook both(uneven_model(), test::two_priced_kinds(), {DataType::bf16, true, 4096});
  for (const ShardKey& key : {kShard, unfused}) both.need(key);
  both.predict(test::cost_models());
  const PartTimes flash = both.part_times(both.shard(kShard), {5, 1}, {}, 1);
  const PartTimes slow = both.part_times(both.shard(unfused), {5, 1}, {}, 1);
  CHECK(flash.forward == times_of({5, 1}).forward);
  CHECK(slow.forward > flash.forward);  // scores of 4096 x 4096 are written and read back
  CHECK(slow.forward_tensor == flash.forward_tensor);
  ParallelStrategy strategy;
  strategy.stages = {{0, 2}};
  strategy.sequence_parallel = true;
  CHECK(shard_key(strategy, 0) == kShard);
  strategy.flash_attention = false;
  CHECK(shard_key(strategy, 0) == unfused);
}

TEST_CASE("a plan with flash attention has it under a program that had none") {
  const auto forward = [](const char* stack, AttentionKernel kernel) {
    SoftwareStack own = read_stack(stack);
    own.attention = kernel;
    PriceBook priced(uneven_model(), test::two_priced_kinds(), {DataType::bf16, true, 4096, own});
    priced.need(kShard);
    priced.predict(test::cost_models());
    return priced.part_times(priced.shard(kShard), {5, 1}, {}, 1).forward;
  };
  CHECK(forward("megatron-lm-2021", AttentionKernel::unfused) ==
        forward("megatron-lm-2021", AttentionKernel::flash2));
}

// Each matrix has a gradient for its input and one for its weights of as many FLOPs; attention has no
// weights.
TEST_CASE("a GPU that was not measured is said to be one, with the error of GPUs left out of the fit") {
  const auto reason = [](const char* gpu, DataType type = DataType::bf16) {
    ClusterSpec cluster = test::two_priced_kinds();
    cluster.groups.front().gpu = find_gpu(gpu, "test");
    PriceBook priced(uneven_model(), cluster, {type, true, 4096});
    priced.need(kShard);
    priced.predict(test::cost_models());
    ParallelStrategy strategy;
    strategy.stages = {{0, 2}};
    strategy.sequence_parallel = true;
    const auto reasons = priced.extrapolations(strategy);
    return reasons.empty() ? std::string() : reasons.front();
  };
  // costmodels/fitted/provenance.json: gemm-any and gemm-fp32, held out by GPU, M >= 1024; A40 and RTX 3090,
  // A100-PCIe-40GB and L4 are the least and the most.
  CHECK(
      reason("L40S") ==
      "L40S: its GEMMs were not measured; those of GPUs left out of the fit are 7.7 % off (6 to 44 by GPU)");
  CHECK(
      reason("L40S", DataType::fp32) ==
      "L40S: its GEMMs were not measured; those of GPUs left out of the fit are 17.2 % off (9 to 40 by GPU)");
  CHECK(reason("H100").find("% off") == std::string::npos);
  CHECK(reason("RTX 3090").find("% off") == std::string::npos);  // 48 of them taught the model for any GPU
  CHECK(reason("T4", DataType::fp32).find("% off") == std::string::npos);
}

TEST_CASE("no stack makes kernels or links faster than can be") {
  const auto times = [](double compute, double inside) {
    SoftwareStack own = read_stack("megatron-core");
    own.compute_time = compute;
    own.network.inside = inside;
    own.host = {};
    PriceBook priced(uneven_model(), test::two_priced_kinds(), {DataType::bf16, true, 4096, own});
    priced.need(kShard);
    priced.predict(test::cost_models());
    return priced.part_times(priced.shard(kShard), {5, 1}, {}, 1);
  };
  const PartTimes stated = times(0.01, 100), expected = times(1, 1);
  const ClusterSpec cluster = test::two_priced_kinds();
  const NodeGroup& group = cluster.groups.front();
  // Cards run at up to 1.1 times the clock of their data sheet's peak (costmodels/models/physical_bound.cpp);
  // without attention a Llama layer has 2 x 4 h^2 + 2 x 3 h ffn FLOPs a token, here on each of two GPUs half
  // of them.
  const double flops = 4096 * (2.0 * 4 * 4096 * 4096 + 2.0 * 3 * 4096 * 11008) / 2;
  CHECK(stated.forward.value() > flops / (1.1 * group.gpu.bf16->value()));
  CHECK(stated.forward < expected.forward * 0.9);
  // With sequence parallelism two gathers and two scatters of b s h in 16 bits, half of which each of two
  // GPUs sends.
  CHECK(stated.forward_tensor.value() >= 4 * 2.0 * 4096 * 4096 / 2 / group.gpu_link.bandwidth.value());
  CHECK(stated.forward_tensor < expected.forward_tensor);
}

TEST_CASE("the weight gradients of a layer are the FLOPs of its forward matrices") {
  const PartTimes layer = book().part_times(book().shard(kShard), {5, 1}, {}, 1, Backward::split);
  const PartTimes selective = book().part_times(book().shard(kShard), {5, 1}, kSelective, 1, Backward::split);
  const Flops attention = selective.backward_flops - layer.backward_flops;  // the core once more
  CHECK(layer.weight_gradient_flops.value() ==
        Approx((layer.forward_flops - attention).value()).epsilon(1e-12));
}

TEST_CASE("only the first part has the embedding and only the last the head") {
  const ShardCost& cost = book().shard(kShard);
  const auto seconds = [](const PassCost& pass) { return (pass.compute + pass.communication).value(); };
  const int last = layer_count() - 1;
  const double plain = times_of({1, 1}).forward.value();  // layers 1, 2 and 31 have the same shape
  CHECK(times_of({2, 1}).forward.value() == Approx(plain));
  CHECK(times_of({last, 1}).forward.value() == Approx(plain + seconds(cost.head.forward)));
  const double wide = times_of({4, 1}).forward.value();
  CHECK(times_of({0, 1}).forward.value() == Approx(wide + seconds(cost.embedding.forward)));
  CHECK(seconds(cost.head.forward) > 0);
  CHECK(seconds(cost.embedding.forward) > 0);
}

TEST_CASE("full recomputation repeats the forward of the layers once, and not of embedding and head") {
  for (const LayerRange& range : {LayerRange{3, 7}, LayerRange{0, 5}, LayerRange{layer_count() - 4, 4}}) {
    const PartTimes none = times_of(range);
    const PartTimes full = times_of(range, kFull);
    const ShardCost& cost = book().shard(kShard);
    PassCost ends;
    if (range.first == 0) ends += cost.embedding.forward;
    if (range.first > 0 && range.first + range.count == layer_count()) ends += cost.head.forward;
    CHECK(full.forward == none.forward);
    CHECK((full.backward - none.backward).value() ==
          Approx((none.forward - ends.compute - ends.communication).value()));
    CHECK((full.backward_tensor - none.backward_tensor).value() ==
          Approx((none.forward_tensor - ends.communication).value()));
    CHECK((full.backward_flops - none.backward_flops).value() ==
          Approx((none.forward_flops - ends.flops).value()));
  }
}

TEST_CASE("block recomputation repeats the first layers of a part") {
  const LayerRange range{8, 6};
  const double none = times_of(range).backward.value();
  CHECK(times_of(range, block(2)).backward.value() - none == Approx(times_of({8, 2}).forward.value()));
  CHECK(times_of(range, block(6)).backward == times_of(range, kFull).backward);
  CHECK(times_of(range, block(99)).backward == times_of(range, kFull).backward);
}

TEST_CASE("no recomputation is fastest, full is slowest") {
  for (int first = 0; first < layer_count(); first += 3) {
    const LayerRange range{first, std::min(3, layer_count() - first)};
    CHECK(times_of(range).backward < times_of(range, kSelective).backward);
    CHECK(times_of(range, kSelective).backward < times_of(range, kFull).backward);
  }
}

TEST_CASE("asking for what was not announced is our mistake") {
  CHECK_THROWS_AS(book().shard({.group = 1}), Defect);
}

TEST_CASE("a size table is exact at its nodes, monotone between and constant outside") {
  const SizeTable table(10, {1.0, 4.0, 4.0, 0.5});  // at 2^10, 2^12, 2^14, 2^16
  CHECK(table.at(1 << 10) == Approx(1.0));
  CHECK(table.at(1 << 12) == Approx(4.0));
  CHECK(table.at(1 << 14) == Approx(4.0));
  CHECK(table.at(1 << 16) == Approx(0.5));
  CHECK(table.at(1 << 11) == Approx(2.0));  // half way in log-log between 1 and 4
  CHECK(table.at(0) == Approx(1.0));
  CHECK(table.at(1) == Approx(1.0));
  CHECK(table.at(1e15) == Approx(0.5));
  for (double size = 1024; size < 4096; size *= 1.05) CHECK(table.at(size * 1.05) >= table.at(size));
  for (double size = 16'384; size < 65'536; size *= 1.05) CHECK(table.at(size * 1.05) <= table.at(size));
}

TEST_CASE("an optimizer step takes longer on more parameters") {
  double before = 0;
  for (double parameters = 1e3; parameters < 1e11; parameters *= 3) {
    const double time = book().optimizer(0, parameters).value();
    CHECK(time >= before);
    before = time;
  }
  CHECK(book().optimizer(1, 1e10) > book().optimizer(0, 1e10));  // A100 memory is slower
  // Without moments 16 of Adam's 28 bytes are not moved.
  SoftwareStack stack;
  stack.states.moments = 0;
  PriceBook without(uneven_model(), test::two_priced_kinds(), {DataType::fp32, true, 4096, stack});
  PriceBook with(uneven_model(), test::two_priced_kinds(), {DataType::fp32, true, 4096});
  for (PriceBook* one : {&without, &with}) one->predict(test::cost_models());
  const double host = with.optimizer(0, 0).value();
  CHECK(without.optimizer(0, 1e10).value() - host ==
        Approx((with.optimizer(0, 1e10).value() - host) * 12 / 28).epsilon(1e-3));
}

TEST_CASE("a step from matrix to matrix moves less by what the L2 cache holds of six of the widest") {
  SoftwareStack stack;
  stack.optimizer = {.bytes_per_parameter = 140, .bandwidth_share = 0.8};
  ClusterSpec cluster = test::two_priced_kinds();
  const ModelSpec model = uneven_model();
  const auto bytes = [&](double uncached, double held, int element = 4) {
    const double widest = 4096.0 * 2 * 11'008 * element;  // bytes of it
    cluster.groups[0].gpu.l2_cache = Bytes(held * 6 * widest);
    stack.optimizer->uncached = uncached;
    PriceBook priced(model, cluster, {DataType::fp32, true, 4096, stack});
    priced.predict(test::cost_models());
    return priced.optimizer(0, 1e9).value() * 0.8 * cluster.groups[0].gpu.memory_bandwidth.value() / 1e9;
  };
  CHECK(bytes(0, 0.5) == Approx(140));
  CHECK(bytes(28, 0.0) == Approx(140));
  CHECK(bytes(28, 0.25) == Approx(28 + 0.75 * 112));
  CHECK(bytes(28, 3.0) == Approx(28));
  stack.states = {.weight = 2, .optimizer = 4};
  CHECK(bytes(28, 0.25, 2) == Approx(28 + 0.75 * 112));
}

// 1e9 parameters on a node whose 8 GPUs share 800 GB/s, of which Adam reaches 0.3, and have links of 32 GB/s,
// of which 0.8 are reached: 30 GB/s and 25.6 GB/s a GPU. 4 B down and 2 B up: 6 / 25.6 s; Adam 28 B and the
// cast to bf16 6 B: 34 / 30 s.
TEST_CASE("an offloaded optimizer steps at the pace of the host's links and memory") {
  ClusterSpec cluster = test::two_priced_kinds();
  NodeGroup& group = cluster.groups[0];
  group.host = {gibibytes(1024), gigabytes_per_second(800), gigabytes_per_second(32)};
  const auto step = [&](double offload, DataType type = DataType::bf16) {
    PriceBook priced(uneven_model(), cluster, {type, true, 4096});
    priced.need(kShard);
    priced.predict(test::cost_models());
    CHECK(priced.optimizer(0, 1e9, 0.0) == priced.optimizer(0, 1e9));
    CHECK(priced.optimizer(0, 1e9, 0.001) >=
          priced.optimizer(0, 0.999e9));  // the GPU steps the rest beside it
    return priced.optimizer(0, 1e9, offload).value();
  };
  const double whole = 6 / 25.6 + 34.0 / 30;
  CHECK(step(1) == Approx(whole));
  CHECK(step(0.5) == Approx(whole / 2));  // longer than the GPU's half
  // In fp32 nothing is cast and 4 B come back.
  CHECK(step(1, DataType::fp32) == Approx(8 / 25.6 + 28.0 / 30));
  // Two GPUs behind one PCIe switch share its uplink.
  group.pcie_switches = 4;
  group.pcie_uplink.bandwidth = gigabytes_per_second(32);
  CHECK(step(1) == Approx(6 / 12.8 + 34.0 / 30));
  // A link that is faster than a GPU's share of the memory leads to a CPU of its own (Grace), whose memory
  // both wait for.
  group.pcie_switches = 0;
  group.host.link = gigabytes_per_second(450);
  CHECK(step(1) == Approx(40.0 / 80));
}

}  // namespace orrery
