// What a GPU waits for under a stack: its host, and what of collectives does not hide.
#include "costmodels/layers/stack_effects.hpp"
#include "costmodels/plans/price_book.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/stack_times.hpp"

namespace orrery {
namespace {

using test::llama_7b, test::times_under;

constexpr Recompute kFull{RecomputeGranularity::full, RecomputeMethod::uniform, 1};

// What the host cannot hide: the head after a forward's layers, the embedding after a backward's.
struct LastTimes {
  double head, embedding;
};
LastTimes last_times(const SoftwareStack& stack, const ShardKey& key = {}) {
  PriceBook book(llama_7b(), test::two_priced_kinds(), {DataType::bf16, true, 4096, stack});
  book.need(key);
  book.predict(test::cost_models());
  const ShardCost& cost = book.shard(key);
  const auto total = [](const PassCost& pass) { return (pass.compute + pass.communication).value(); };
  return {total(cost.head.forward), total(cost.embedding.backward)};
}

}  // namespace

TEST_CASE("collectives split in chunks leave the first chunk, and what the GEMMs are too short for") {
  SoftwareStack stack;
  stack.overlap_slowdown = 1.25;
  const Seconds comm(8), gemms(100);
  CHECK(exposed_collectives(comm, gemms, 4, stack) == comm);  // no overlap
  stack.tensor_overlap = 1;
  // 8 / 4 comes first; the other 6 hide and slow the GEMMs by a quarter of 6.
  CHECK(exposed_collectives(comm, gemms, 4, stack).value() == Approx(2 + 0.25 * 6));
  // GEMMs of 3: 2 first, 6 - 3 after them, and 3 slowed by a quarter.
  CHECK(exposed_collectives(comm, Seconds(3), 4, stack).value() == Approx(2 + 3 + 0.25 * 3));
  CHECK(exposed_collectives(comm, gemms, 1, stack) == comm);
}

TEST_CASE("the GPU waits for the host between the kernels of experts where these are shorter") {
  PassOperators pass;
  pass.compute = {MemoryBound{}, Gemm{}, Gemm{}};
  pass.experts = {.first = 1, .end = 3, .count = 4};
  const PassTimes times{{Seconds(1), Seconds(2), Seconds(3)}, {}};
  Sharding sharding;
  ExpertCost& experts = sharding.stack.experts;
  const auto compute = [&](PassOrder order) {
    return cost_under(pass, times, order, sharding).compute.value();
  };
  experts.each.forward = Seconds(1);  // 4 for all, beside 2 + 3
  experts.each.backward = Seconds(2);
  CHECK(compute(PassOrder::forward) == Approx(6));
  CHECK(compute(PassOrder::backward) == Approx(1 + 8));
  experts.each.forward_casts = Seconds(0.5);
  CHECK(compute(PassOrder::forward) == Approx(6));
  sharding.type = DataType::fp8;
  CHECK(compute(PassOrder::forward) == Approx(1 + 6));
  experts.layer.forward = Seconds(2);  // once, however many experts
  experts.layer.forward_casts = Seconds(1);
  experts.layer.backward = Seconds(3);
  CHECK(compute(PassOrder::forward) == Approx(1 + 6 + 3));
  CHECK(compute(PassOrder::backward) == Approx(1 + 8 + 3));
  experts = at_pace(experts, 2);
  CHECK(compute(PassOrder::forward) == Approx(1 + 2 * (6 + 3)));
  CHECK(compute(PassOrder::backward) == Approx(1 + 2 * (8 + 3)));
  pass.experts = {};
  CHECK(compute(PassOrder::forward) == Approx(1 + 2 + 3));
}

TEST_CASE("a share of the exchange with experts hides under another microbatch, as far as it computes") {
  PassOperators pass;
  pass.compute = {Gemm{.m = 2, .n = 3, .k = 4}};
  pass.communication = {Collective{.kind = CollectiveKind::all_to_all, .ranks = 2}};
  pass.places = {{RankGroup::expert, 1}};
  Sharding sharding;
  sharding.stack.experts.overlap = 0.25;
  const auto exposed = [&](Seconds compute) {
    const PassTimes times{{compute}, {Seconds(8)}};
    const auto pieces = pieces_under(pass, times, PassOrder::forward, sharding);
    REQUIRE(pieces.size() == 1);
    const Seconds beside = pieces[0].beside.time;
    CHECK((pieces[0].compute.time + beside).value() == Approx(compute.value()));
    const Seconds left = cost_under(pass, times, PassOrder::forward, sharding).communication;
    CHECK((left + beside).value() == Approx(8));
    return left.value();
  };
  CHECK(exposed(Seconds(10)) == Approx(8 - 2));
  CHECK(exposed(Seconds(1)) == Approx(8 - 1));
  // Four seconds of waiting for the host, of the two that the experts' kernels take and the six of their
  // launch.
  pass.experts = {.first = 0, .end = 1, .count = 1};
  sharding.stack.experts.layer.forward = Seconds(6);
  const PassTimes times{{Seconds(2)}, {Seconds(8)}};
  const PassCost cost = cost_under(pass, times, PassOrder::forward, sharding);
  CHECK(cost.compute.value() == Approx(2 + 4));
  CHECK(cost.communication.value() == Approx(8 - 2 - 4));
  const auto pieces = pieces_under(pass, times, PassOrder::forward, sharding);
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].compute.time == Seconds(0));
  CHECK(pieces[0].beside.time.value() == Approx(2 + 4));
  Flops all;
  for (const PassPiece& piece : pieces) all += piece.compute.flops + piece.beside.flops;
  CHECK(all.value() == Approx(flops_of(pass.compute[0]).value()));
  sharding.stack.experts.overlap = 0;
  CHECK(cost_under(pass, times, PassOrder::forward, sharding).communication.value() == Approx(8));
}

TEST_CASE("compute beside gradient collectives slows as the stack says") {
  ClusterSpec cluster = test::two_priced_kinds();
  ParallelStrategy strategy;
  strategy.data = 2;
  strategy.global_batch = 2;
  strategy.sequence = 4096;
  strategy.stages = {{.group = 0, .tensor = 1}};
  strategy.parts = {{0, llama_7b().layer_count()}};
  strategy.nodes = {1, 0};
  strategy.overlap_grad_reduce = true;
  SoftwareStack stack;
  stack.overlap_slowdown = 1.5;
  PriceBook book(llama_7b(), cluster, {DataType::bf16, true, 4096, stack});
  book.need(strategy);
  book.predict(test::cost_models());
  CHECK(book.price(strategy, Topology(cluster, strategy.nodes)).overlap_slowdown == 1.5);
}

TEST_CASE("a part takes what its host takes where that is longer, and what comes last, and says so") {
  SoftwareStack stack;
  const LastTimes last = last_times(stack);
  const PartTimes bare = times_under(stack);
  CHECK_FALSE(bare.host_bound);
  stack.host = {milliseconds(1000), milliseconds(2000), Seconds(0)};
  const PartTimes bound = times_under(stack);
  CHECK(bound.host_bound);
  CHECK(bound.forward.value() == Approx(32 * 1.0 + last.head));  // 32 layers
  CHECK(bound.backward.value() == Approx(32 * 2.0 + last.embedding));
  // The forward is launched again.
  CHECK(times_under(stack, {}, kFull).backward.value() == Approx(32 * 3.0 + last.embedding));
  stack.host = {Seconds(1e-9), Seconds(1e-9), Seconds(0)};
  CHECK(times_under(stack).forward == bare.forward);
}

namespace {

Seconds optimizer_step(int replicas, DataType type, const SoftwareStack& stack) {
  ParallelStrategy strategy;
  strategy.sequence = 4096;
  strategy.type = type;
  strategy.data = replicas;
  strategy.global_batch = replicas;
  strategy.stages = {{.group = 0, .tensor = 1}};
  strategy.parts = {{0, llama_7b().layer_count()}};
  strategy.nodes = {1, 0};
  const ClusterSpec cluster = test::two_priced_kinds();
  return test::book_for(llama_7b(), cluster, strategy, stack)
      .price(strategy, Topology(cluster, strategy.nodes))
      .optimizer_step(0, 0);
}

// Of one of two_priced_kinds' first GPUs, at the share of its bandwidth that such kernels reach.
double memory_time(double bytes) {
  return bytes / (0.7 * test::two_priced_kinds().groups[0].gpu.memory_bandwidth.value());
}

}  // namespace

// 4 B of each of 6.5e9 parameters of the layers: read in 16 bits, written twice in 8.
TEST_CASE("casting weights once an iteration is part of the optimizer's step") {
  const auto step = [&](bool once) {
    SoftwareStack stack;
    stack.casts_weights_once = once;
    return optimizer_step(1, DataType::fp8, stack);
  };
  const double layers = static_cast<double>(total_parameters(llama_7b())) - (2 * 32000 + 1) * 4096.0;
  CHECK((step(true) - step(false)).value() == Approx(memory_time(4 * layers)));
}

// Gradients of 4 B, read and written to their buckets and back.
TEST_CASE("copies to buckets take time where there are replicas") {
  const auto step = [&](int replicas, bool copies) {
    SoftwareStack stack;
    stack.copies_to_buckets = copies;
    return optimizer_step(replicas, DataType::bf16, stack).value();
  };
  CHECK(step(1, true) == step(1, false));
  const auto all = static_cast<double>(total_parameters(llama_7b()));
  CHECK(step(2, true) - step(2, false) == Approx(memory_time(4 * 4 * all)));
}

TEST_CASE("the host pays for each collective of a layer") {
  SoftwareStack stack;
  stack.host.collective = Seconds(1);
  // Two all-reduces a layer, one of the embedding, which is not the layers', forward.
  const LastTimes last = last_times(stack, {.tensor = 2});
  CHECK(times_under(stack, {.tensor = 2}).forward.value() == Approx(32 * 2 * 1.0 + last.head));
}

TEST_CASE("the host launches a layer, half of one, its casts and each of its collectives") {
  LayerShape shape{.hidden = 64, .heads = 8, .kv_heads = 8, .head_dim = 8, .ffn = 256};
  Sharding sharding;
  sharding.sequence = 32;
  sharding.stack.host = {Seconds(1),  Seconds(2),   Seconds(0.25), Seconds(10),
                         Seconds(20), Seconds(100), Seconds(200)};
  const auto host = [&](PassOrder order) {
    const BlockOperators block = layer_operators(shape, true, sharding);
    const PassOperators& pass = order == PassOrder::forward ? block.forward : block.backward;
    const PassTimes times{std::vector<Seconds>(pass.compute.size()),
                          std::vector<Seconds>(pass.communication.size())};
    return cost_under(pass, times, order, sharding).host.value();
  };
  CHECK(host(PassOrder::forward) == 1);
  CHECK(host(PassOrder::backward) == 2);
  sharding.tensor =
      2;  // an all-reduce after attention and one after the MLP, and of the gradients before either
  CHECK(host(PassOrder::forward) == 1 + 2 * 0.25);
  CHECK(host(PassOrder::backward) == 2 + 2 * 0.25);
  sharding.tensor = 1;
  sharding.context = 4;  // a ring of three steps more, which sends keys and values, backward gradients too
  CHECK(host(PassOrder::forward) == 1 + 3 * 100 + 0.25);
  CHECK(host(PassOrder::backward) == 2 + 3 * 200 + 2 * 0.25);
  sharding.context = 1;
  sharding.type = DataType::fp8;
  CHECK(host(PassOrder::forward) == 1 + 10);
  CHECK(host(PassOrder::backward) == 2 + 20);
  sharding.stack.cuda_graphs = CudaGraphs::all;
  CHECK(host(PassOrder::forward) == 0);
  sharding.stack.cuda_graphs = CudaGraphs::experts;
  CHECK(host(PassOrder::forward) == 1 + 10);
  shape.experts = 4;
  CHECK(host(PassOrder::forward) == 0);
  shape.experts = 1;
  shape.sixteen_bit = true;
  sharding.type = outside_fp8(sharding.type);  // as a price book asks of such a layer
  CHECK(host(PassOrder::backward) == 2);
  shape.ffn = 0;  // attention alone, as the layers of hybrids are written
  CHECK(host(PassOrder::forward) == 0.5);
  shape.ffn = 256;
  shape.heads = 0;
  CHECK(host(PassOrder::backward) == 1);
  // Of Llama's layers more kernels than of others.
  sharding.stack.cuda_graphs = CudaGraphs::none;
  sharding.stack.kernels.host_time = 1.5;
  CHECK(host(PassOrder::backward) == 1.5);
  CHECK(at_pace(sharding.stack.host, 2) ==
        HostCost{Seconds(2), Seconds(4), Seconds(0.5), Seconds(20), Seconds(40), Seconds(200), Seconds(400)});
}

}  // namespace orrery
