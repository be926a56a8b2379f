// Software stacks: their files, and what each of their values does to a price.
#include "costmodels/software_stack.hpp"

#include "costmodels/memory.hpp"
#include "costmodels/nvlink_mesh.hpp"
#include "costmodels/price_book.hpp"
#include "costmodels/stack_effects.hpp"
#include "costmodels/sustained_power.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"
#include "tests/platforms/input_error.hpp"

namespace orrery {
namespace {

const ModelSpec& model() {
  static const ModelSpec llama = read_model("llama2-7b");
  return llama;
}

// Times of a whole model under a stack, on the first GPU kind.
PartTimes times_of(const ModelSpec& of, const SoftwareStack& stack, const ShardKey& key = {},
                   const Recompute& recompute = {}) {
  PriceBook book(of, test::two_priced_kinds(), {DataType::bf16, true, 4096, stack});
  book.need(key);
  book.predict(test::cost_models());
  return book.part_times(book.shard(key), {0, of.layer_count()}, recompute);
}
PartTimes times_under(const SoftwareStack& stack, const ShardKey& key = {}, const Recompute& recompute = {}) {
  return times_of(model(), stack, key, recompute);
}

constexpr Recompute kFull{RecomputeGranularity::full, RecomputeMethod::uniform, 1};
constexpr Recompute kSelective{RecomputeGranularity::selective, RecomputeMethod::uniform, 1};

}  // namespace

TEST_CASE("every preset is read, and the default is among them") {
  const auto names = builtin_stack_names();
  CHECK(std::count(names.begin(), names.end(), kDefaultStack) == 1);
  for (const std::string& name : names) CHECK(read_stack(name).name == name);
}

TEST_CASE("a stack file changes what it names and nothing else") {
  SoftwareStack expected = read_stack("torchtitan");
  expected.name = "mine.yaml";
  expected.host.forward = milliseconds(3);
  expected.tensor_overlap = 0.25;
  expected.kernels.norm = Fusion::separate;
  CHECK(parse_stack("{like: torchtitan, host: {forward: 3ms}, tensor_overlap: 0.25, norm: separate}",
                    "mine.yaml") == expected);
}

TEST_CASE("a program of GPTs runs Llama's layers with kernels of their own, and others with its own") {
  const SoftwareStack stack = read_stack("megatron-lm-2023");
  REQUIRE(stack.llama_layers);
  CHECK(stack_for(read_model("gpt3-175b"), stack) == stack);
  const SoftwareStack llama = stack_for(model(), stack);
  CHECK(llama.kernels.elementwise_time == stack.llama_layers->elementwise_time);
  CHECK(llama.kernels.norm_time == stack.llama_layers->norm_time);
  CHECK(llama.kernels.kept_by_norm == stack.llama_layers->kept_by_norm);
  CHECK(llama.kernels.eager_kernels);
  CHECK(stack_for(model(), llama) == llama);
  CHECK(times_under(stack).forward == times_under(llama).forward);
  // InternEvo and Transformer Engine have kernels for them.
  for (const char* own : {"internevo", "megatron-core-2024", "megatron-core"})
    CHECK(stack_for(model(), read_stack(own)) == read_stack(own));

  const SoftwareStack mine = parse_stack("like: megatron-lm-2023\nllama_layers: {norm_time: 3}", "mine.yaml");
  CHECK(mine.llama_layers->norm_time == 3);
  CHECK(mine.llama_layers->elementwise_time == 1);
  const std::string wrong =
      input_error([] { parse_stack("like: megatron-core\nllama_layers: {norm_tim: 3}", "mine.yaml"); });
  CHECK(contains(wrong, "norm_time"));
}

TEST_CASE("a wrong stack says where and what was meant") {
  CHECK(contains(input_error([] { read_stack("nemo-24.7"); }), "did you mean 'nemo-24.07'"));
  CHECK(contains(input_error([] { parse_stack("like: torchtitan\nhots: {}", "s.yaml"); }), "s.yaml:2"));
  CHECK(contains(input_error([] { parse_stack("attention: flash3", "s.yaml"); }),
                 "one of flash, flash_2026, flash2, unfused"));
  CHECK(contains(input_error([] { parse_stack("host: {forward: 3}", "s.yaml"); }), "unit"));
}

TEST_CASE("what a calibration left open has a row and a column for each of its facts") {
  const auto refused = [](const std::string& key, const std::string& rows) {
    return input_error([&] {
      parse_stack("like: megatron-core\n" + key + ": {runs: 2, scatter: 0.1, covariance: " + rows + "}\n",
                  "mine.yaml");
    });
  };
  const std::string three = "[[1, 0, 0], [0, 1, 0], [0, 0, 1]]";
  CHECK(contains(refused("calibrated", three), "4 rows of 4 numbers"));
  CHECK(contains(refused("calibrated_memory", "[[1, 0, 0], [0, 1], [0, 0, 1]]"), "3 numbers"));
  const SoftwareStack stack = parse_stack(
      "like: megatron-core\ncalibrated_memory: {runs: 2, scatter: 0.1, covariance: " + three + "}\n",
      "mine.yaml");
  REQUIRE(stack.calibrated_memory);
  CHECK(stack.calibrated_memory->covariance[1][1] == 1);
  CHECK_FALSE(stack.calibrated);
}

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
  experts.forward = Seconds(1);  // 4 for all, beside 2 + 3
  experts.backward = Seconds(2);
  CHECK(compute(PassOrder::forward) == Approx(6));
  CHECK(compute(PassOrder::backward) == Approx(1 + 8));
  experts.forward_casts = Seconds(0.5);
  CHECK(compute(PassOrder::forward) == Approx(6));
  sharding.type = DataType::fp8;
  CHECK(compute(PassOrder::forward) == Approx(1 + 6));
  experts.layer_forward = Seconds(2);  // once, however many experts
  experts.layer_forward_casts = Seconds(1);
  experts.layer_backward = Seconds(3);
  CHECK(compute(PassOrder::forward) == Approx(1 + 6 + 3));
  CHECK(compute(PassOrder::backward) == Approx(1 + 8 + 3));
  pass.experts = {};
  CHECK(compute(PassOrder::forward) == Approx(1 + 2 + 3));
}

TEST_CASE("a share of the exchange with experts hides under another microbatch, as far as it computes") {
  PassOperators pass;
  pass.compute = {Gemm{}};
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
}

TEST_CASE("sustained clocks slow short matrix kernels, long ones not, and nothing that memory bounds") {
  GpuSpec gpu = find_gpu("H100", "test");
  gpu.sustained = 0.8;
  const Operator gemm = Gemm{.m = 1, .n = 1, .k = 1};
  CHECK(under_power(gemm, gpu, Seconds(1e-3)).value() == Approx(1e-3 / 0.8));
  CHECK(under_power(gemm, gpu, Seconds(2e-3)).value() == Approx(2e-3 / 0.9));  // half way in the logarithm
  CHECK(under_power(gemm, gpu, Seconds(5e-3)) == Seconds(5e-3));
  CHECK(under_power(MemoryBound{}, gpu, Seconds(1e-4)) == Seconds(1e-4));
  // Four times the rows that were measured: kernels of a quarter of the time were.
  const Operator tall = Gemm{.m = 4 * 4096, .n = 1, .k = 1};
  CHECK(under_power(tall, gpu, Seconds(4e-3)).value() == Approx(4e-3 / 0.8));
  Attention attention{.query_tokens = 4096, .kv_tokens = 4096, .head_dim = 128};
  CHECK(under_power(attention, gpu, Seconds(9e-3)).value() == Approx(9e-3 / 0.8));
  attention.kernel = AttentionKernel::flash2;
  CHECK(under_power(attention, gpu, Seconds(9e-3)) == Seconds(9e-3));
  gpu.power_limit = gpu.power * 6 / 7;  // 600 W of 700: 12 % longer
  CHECK(under_power(gemm, gpu, Seconds(5e-3)).value() == Approx(1.12 * 5e-3).epsilon(0.002));
}

TEST_CASE("the slowest of many GPUs at their power limit is as slow as the largest of as many normal draws") {
  std::mt19937 random(1);
  std::normal_distribution<double> clock(0.0, 0.08 / 5.4);
  for (const int gpus : {8, 64, 512}) {
    double sum = 0.0;
    const int draws = 200'000 / gpus;
    for (int i = 0; i < draws; ++i) {
      double slowest = -1.0;
      for (int gpu = 0; gpu < gpus; ++gpu) slowest = std::max(slowest, clock(random));
      sum += slowest;
    }
    // The largest of n normal draws deviates by less than the draws; four deviations of the mean.
    const double uncertain = 4 * 0.08 / 5.4 / std::sqrt(draws);
    CHECK(slowest_of(gpus) - 1.0 == Approx(sum / draws).margin(uncertain));
  }
  CHECK(slowest_of(1) == 1.0);
}

TEST_CASE("a run waits for its slowest GPU where kernels reach the power limit, and nowhere else") {
  GpuSpec gpu = find_gpu("H100", "test");
  const Seconds alone(1e-3);
  const auto slower = [&](const Operator& op) {
    return under_power(op, gpu, alone, slowest_of(64)) / under_power(op, gpu, alone);
  };
  const Operator gemm = Gemm{.m = 1, .n = 1, .k = 1};
  Attention attention{.query_tokens = 4096, .kv_tokens = 4096, .head_dim = 128};
  CHECK(slower(gemm) == Approx(slowest_of(64)));
  CHECK(slower(attention) == Approx(slowest_of(64)));
  CHECK(slower(MemoryBound{.bytes = Bytes(1)}) == 1.0);
  attention.kernel = AttentionKernel::flash2;
  CHECK(slower(attention) == 1.0);
  gpu = find_gpu("A100-SXM4-80GB", "test");  // holds its clock
  CHECK(slower(gemm) == 1.0);
  gpu.power_limit = gpu.power * 0.8;
  CHECK(slower(gemm) == Approx(slowest_of(64)));
}

TEST_CASE("clocks of a faster GPU fade by how long H100, whose kernels were measured, would run") {
  GpuSpec gpu = find_gpu("H100", "test");
  gpu.sustained = 0.8;
  const Operator gemm = Gemm{.m = 1, .n = 1, .k = 1};
  gpu.bf16 = FlopsPerSecond(2 * 989e12);
  CHECK(under_power(gemm, gpu, Seconds(1e-3)).value() == Approx(1e-3 / 0.9));  // as 2 ms above
  CHECK(under_power(gemm, gpu, Seconds(2e-3)) == Seconds(2e-3));
}

TEST_CASE("gaps between kernels add up over the kernels of a part") {
  SoftwareStack stack;
  const PartTimes bare = times_under(stack);
  stack.kernel_gap = microseconds(1);
  const PartTimes with_gaps = times_under(stack);
  // A forward layer: two norms, QKV, rope, attention, projection, two residuals, two MLP matrices and the
  // activation; then the embedding, the last norm, the head and the loss.
  CHECK((with_gaps.forward - bare.forward).value() == Approx(1e-6 * (32 * 11 + 4)));
}

TEST_CASE("compute beside gradient collectives slows as the stack says") {
  ClusterSpec cluster = test::two_priced_kinds();
  ParallelStrategy strategy;
  strategy.data = 2;
  strategy.global_batch = 2;
  strategy.sequence = 4096;
  strategy.stages = {{.group = 0, .tensor = 1}};
  strategy.parts = {{0, model().layer_count()}};
  strategy.nodes = {1, 0};
  strategy.overlap_grad_reduce = true;
  SoftwareStack stack;
  stack.overlap_slowdown = 1.5;
  PriceBook book(model(), cluster, {DataType::bf16, true, 4096, stack});
  book.need(strategy);
  book.predict(test::cost_models());
  CHECK(book.price(strategy, Topology(cluster, strategy.nodes)).overlap_slowdown == 1.5);
}

// What the host cannot hide: the head after a forward's layers, the embedding after a backward's.
struct LastTimes {
  double head, embedding;
};
LastTimes last_times(const SoftwareStack& stack, const ShardKey& key = {}) {
  PriceBook book(model(), test::two_priced_kinds(), {DataType::bf16, true, 4096, stack});
  book.need(key);
  book.predict(test::cost_models());
  const ShardCost& cost = book.shard(key);
  const auto total = [](const PassCost& pass) { return (pass.compute + pass.communication).value(); };
  return {total(cost.head.forward), total(cost.embedding.backward)};
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

TEST_CASE("the host pays for each collective of a layer") {
  SoftwareStack stack;
  stack.host.collective = Seconds(1);
  // Two all-reduces a layer, one of the embedding, which is not the layers', forward.
  const LastTimes last = last_times(stack, {.tensor = 2});
  CHECK(times_under(stack, {.tensor = 2}).forward.value() == Approx(32 * 2 * 1.0 + last.head));
}

TEST_CASE("sharded weights cost nothing while they hide, and their time on the links where they do not") {
  const SoftwareStack stack;
  const PartTimes bare = times_under(stack);
  const ShardKey sharded{.sharded = 16};
  const PartTimes gathered = times_under(stack, sharded);
  CHECK(gathered.forward > bare.forward);  // the first layer's gather has nothing to hide under
  // Every GPU receives the 15/16 of all weights that it lacks, in 16 bits, at no more than the NVLink speed.
  const double bytes = 2.0 * static_cast<double>(total_parameters(model())) * 15 / 16;
  const auto link = test::two_priced_kinds().groups[0].gpu_link.bandwidth.value();
  CHECK((gathered.forward - bare.forward).value() < bytes / link / 8);  // of 32 layers' most are hidden
  SoftwareStack slow = stack;
  slow.network.inside = slow.network.between = 0.01;
  const double least = bytes / (0.01 * link);
  REQUIRE(times_under(slow).backward.value() < least / 10);
  CHECK(times_under(slow, sharded).forward.value() > least);
  CHECK(times_under(slow, sharded).backward.value() > 2 * least);  // gathered again, and scattered
}

// Two nodes of 8 GPUs: weights are gathered within each, and of the gradients each GPU has an eighth to sum.
TEST_CASE("weights sharded within a node stay off the network, but for a share of the gradients") {
  Sharding sharding;
  sharding.sharded = 8;
  sharding.instances = 2;
  sharding.type = DataType::bf16;
  const WeightTraffic traffic = weight_traffic(sharding, 720, {});
  REQUIRE(traffic.gather.size() == 1);
  REQUIRE(traffic.reduce.size() == 2);
  const auto& gather = std::get<Collective>(traffic.gather[0]);
  const auto& within = std::get<Collective>(traffic.reduce[0]);
  const auto& across = std::get<Collective>(traffic.reduce[1]);
  CHECK((gather.ranks == 8 && gather.ranks_per_node == 8));
  CHECK((within.kind == CollectiveKind::reduce_scatter && within.ranks == 8 && within.ranks_per_node == 8));
  CHECK((across.kind == CollectiveKind::all_reduce && across.ranks == 2 && across.ranks_per_node == 1));
  CHECK(across.bytes.value() == within.bytes.value() / 8);
  const PartTimes over_all = times_under({}, {.sharded = 16});
  const PartTimes within_nodes = times_under({}, {.sharded = 8, .instances = 2});
  CHECK(within_nodes.forward < over_all.forward);
  CHECK(times_under({}, {.sharded = 8}).backward <= within_nodes.backward);
}

TEST_CASE("kernels of a stack scale what they name") {
  SoftwareStack stack;
  const PartTimes bare = times_under(stack);
  stack.backward_gemm = 0.5;
  const PartTimes faster = times_under(stack);
  CHECK(faster.forward == bare.forward);
  CHECK(faster.backward < bare.backward);
  CHECK(faster.backward > bare.backward * 0.5);
  stack.backward_gemm = 1;
  stack.attention_time = 2;
  CHECK(times_under(stack).forward > bare.forward);
  stack.attention_time = 1;
  stack.accumulation = 0;
  CHECK(times_under(stack).backward < bare.backward);
}

TEST_CASE("the backward of a scan takes its own time over GEMMs, and nothing else does") {
  const auto times = [](const ModelSpec& of, double over_gemms) {
    SoftwareStack stack;
    stack.scan_backward = over_gemms;
    return times_of(of, stack);
  };
  const ModelSpec hybrid = read_model("nemotron-h-8b");
  const PartTimes once = times(hybrid, 1), twice = times(hybrid, 2), fivefold = times(hybrid, 5);
  CHECK(twice.forward == once.forward);
  CHECK(twice.backward > once.backward);
  CHECK((fivefold.backward - once.backward).value() == Approx(4 * (twice.backward - once.backward).value()));
  CHECK(times(model(), 5).backward == times(model(), 1).backward);
}

TEST_CASE("Megatron-LM of 2021 adds bf16 gradients to fp32 sums by a kernel of its own") {
  const SoftwareStack stack = read_stack("megatron-lm-2021");
  const auto backward_of = [](const SoftwareStack& of) { return times_under(of).backward; };
  SoftwareStack bytes = stack;
  bytes.accumulation = 10;  // 2 of the new gradient, 4 + 4 of the sum
  CHECK(backward_of(stack) == backward_of(bytes));
  SoftwareStack in_gemm = stack;
  in_gemm.separate_accumulation = false;
  bytes.accumulation = 8;
  CHECK(backward_of(in_gemm) == backward_of(bytes));
  SoftwareStack short_sums = stack;
  short_sums.gradient = 2;
  bytes.accumulation = 6;
  CHECK(backward_of(short_sums) == backward_of(bytes));
  CHECK(backward_of(short_sums) < backward_of(in_gemm));
}

TEST_CASE("a stack's collectives between nodes have a share of their own") {
  const KernelFactors factors{.network = {.inside = 0.5, .between = 0.8, .collectives = 0.5}};
  Collective ring{.kind = CollectiveKind::all_reduce, .bytes = Bytes(1), .ranks = 16, .ranks_per_node = 8};
  CHECK(factors.of(ring) == Approx(1 / (0.8 * 0.5)));
  ring.ranks = 8;
  CHECK(factors.of(ring) == Approx(1 / 0.5));
  PointToPoint message;
  message.same_node = false;
  CHECK(factors.of(message) == Approx(1 / 0.8));
}

TEST_CASE(
    "repeating every second GEMM costs less than all and more than the attention core of short sequences") {
  SoftwareStack stack;
  const PartTimes attention = times_under(stack, {}, kSelective);
  stack.selective = SelectiveRecompute::every_second_gemm;
  const PartTimes half = times_under(stack, {}, kSelective);
  CHECK(half.backward > attention.backward);
  CHECK(half.backward < times_under(stack, {}, kFull).backward);
}

TEST_CASE(
    "fully sharded states are 16 bytes a parameter over the replicas, beside layers that are whole for now") {
  ParallelStrategy strategy;
  strategy.data = 8;
  strategy.global_batch = 8;
  strategy.sequence = 4096;
  strategy.distributed_optimizer = true;
  strategy.fully_sharded = true;
  strategy.stages = {{}};
  strategy.parts = {{0, 32}};
  strategy.nodes = {1, 0};
  const StageMemory memory = stage_memory(model(), strategy, 0, {1});
  const Bytes states = memory.weights + memory.gradients + memory.optimizer;
  // Beside the shards two layers are whole in 16 bits, and the gradients of one, as computed and as sent.
  const double all = part_parameters(model(), strategy, 0, 0).dense;
  strategy.parts = {{0, 31}};
  const double one = all - part_parameters(model(), strategy, 0, 0).dense;
  strategy.parts = {{0, 32}};
  const double beside = (2 * 2 + 2 + 2) * one;
  CHECK(states.value() == Approx(16.0 / 8 * stage_parameters(model(), strategy, 0) + beside));
  strategy.pipeline = 2;
  strategy.stages = {{}, {}};
  strategy.parts = {{0, 16}, {16, 16}};
  const StageMemory piped = stage_memory(model(), strategy, 0, {2});
  const Bytes whole = piped.weights + piped.gradients + piped.optimizer;
  CHECK(whole.value() == Approx((16.0 / 8 + 6) * stage_parameters(model(), strategy, 0)));
}

TEST_CASE("matrices gathered one by one hide under nothing, and cost the host a list of all ranks each") {
  Sharding sharding;
  sharding.sharded = 16;
  sharding.type = DataType::fp16;
  PassOperators forward;
  forward.compute = {Gemm{.m = 64, .n = 30, .k = 10}, MemoryBound{}, Gemm{.m = 64, .n = 10, .k = 40}};
  const PassCost layer{Seconds(3), Seconds(1), {}, 0, Seconds(2)};
  // As one, norms and biases too: 720 parameters of 2 bytes. Half of the time beside the layers before.
  const WeightTraffic whole = weight_traffic(sharding, 720, forward);
  REQUIRE(whole.gather.size() == 1);
  CHECK(std::get<Collective>(whole.gather[0]).bytes.value() == 1440);
  CHECK(gathering_host(sharding, 1) == Seconds(0));
  CHECK(time_under({layer, Seconds(0), {}, 2}, sharding.stack).time == Seconds(3 + 1 + 2 / 2));
  sharding.stack = parse_stack("matrix_gathers: {host: 100us, host_per_rank: 5us}", "s.yaml");
  const WeightTraffic each = weight_traffic(sharding, 720, forward);
  REQUIRE(each.gather.size() == 2);
  CHECK(std::get<Collective>(each.gather[0]).bytes.value() == 600);
  CHECK(std::get<Collective>(each.gather[1]).bytes.value() == 800);
  CHECK(each.reduce.size() == 2);
  CHECK(gathering_host(sharding, 2).value() == Approx(2 * (100e-6 + 16 * 5e-6)));
  CHECK(time_under({layer, Seconds(0), {}, 2}, sharding.stack).time == Seconds(3 + 1 + 2));
}

TEST_CASE("whole weights are not gathered in passes; gradients are reduced beside the backward or alone") {
  Sharding sharding;
  sharding.sharded = 16;
  sharding.type = DataType::bf16;
  sharding.stack = parse_stack("{whole_weights: true, reduced_gradient: 2}", "s.yaml");
  const auto reduce = [&] {
    const WeightTraffic traffic = weight_traffic(sharding, 720, {});
    CHECK(traffic.gather.empty());
    REQUIRE(traffic.reduce.size() == 1);
    return std::get<Collective>(traffic.reduce[0]);
  };
  CHECK(reduce().bytes.value() == 1440);
  CHECK(reduce().kind == CollectiveKind::reduce_scatter);
  sharding.stack.all_reduces_gradients = true;
  CHECK(reduce().kind == CollectiveKind::all_reduce);

  const PassCost backward{Seconds(3), Seconds(1), {}, 0, Seconds(2)};
  const auto time = [&] { return time_under({backward, Seconds(0), {}, 2}, sharding.stack).time; };
  sharding.stack.overlap_slowdown = 1;
  sharding.stack.overlap_grad_reduce = false;
  CHECK(time() == Seconds(3 + 1 + 2));
  sharding.stack.overlap_grad_reduce = true;
  CHECK(time() == Seconds(3 + 1 + 2 / 2));  // of the last of two layers nothing is left to hide under
}

TEST_CASE("neighbours in a mesh of V100s have some of each GPU's six links, behind a switch all of it") {
  NodeGroup group;
  group.gpu = find_gpu("V100-SXM2-16GB", "test");
  group.gpu_link = {group.gpu.link_bandwidth, microseconds(0.3)};
  const auto links = [&](int gpus_per_node, int ranks) {
    group.gpus_per_node = gpus_per_node;
    return link_of_neighbours(group, ranks).bandwidth / gigabytes_per_second(25);
  };
  CHECK(links(8, 2) == Approx(std::sqrt(3.0)).epsilon(1e-3));  // one to three
  CHECK(links(8, 4) == Approx(4));
  CHECK(links(8, 8) == Approx(6));
  CHECK(links(4, 2) == Approx(2));
  CHECK(links(4, 4) == Approx(6));
  group.gpu_link.bandwidth = gigabytes_per_second(100);  // not the wiring of the data sheet: as given
  CHECK(links(8, 2) == Approx(4));
  group.gpu = find_gpu("A100", "test");
  group.gpu_link.bandwidth = group.gpu.link_bandwidth;
  CHECK(link_of_neighbours(group, 2) == group.gpu_link);
}

}  // namespace orrery
