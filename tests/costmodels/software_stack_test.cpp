// Software stacks: their files, and what each of their values does to a price.
#include "costmodels/stacks/stack_file.hpp"

#include "costmodels/layers/stack_effects.hpp"
#include "costmodels/memory/memory.hpp"
#include "costmodels/operators/node_links.hpp"
#include "costmodels/plans/price_book.hpp"
#include "costmodels/stacks/sustained_power.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/stack_times.hpp"
#include "tests/platforms/input_error.hpp"

namespace orrery {
namespace {

using test::llama_7b, test::times_of, test::times_under;

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
  const SoftwareStack llama = stack_for(llama_7b(), stack);
  CHECK(llama.kernels.elementwise_time == stack.llama_layers->elementwise_time);
  CHECK(llama.kernels.norm_time == stack.llama_layers->norm_time);
  CHECK(llama.kernels.kept_by_norm == stack.llama_layers->kept_by_norm);
  CHECK((llama.kernels.keeps_activated && llama.kernels.keeps_unrotated));
  CHECK(stack_for(llama_7b(), llama) == llama);
  // Their softmax where the row says one, which Hugging Face's takes in 32 bits; else the stack's.
  CHECK(stack_for(llama_7b(), read_stack("hf-trainer")).softmax == SoftmaxKernel::stepwise_wide);
  CHECK(stack_for(read_model("gpt2-345m"), read_stack("hf-trainer")).softmax == SoftmaxKernel::stepwise);
  CHECK(stack_for(llama_7b(), read_stack("pytorch-eager")).softmax == read_stack("pytorch-eager").softmax);
  CHECK(times_under(stack).forward == times_under(llama).forward);
  // Transformer Engine has kernels for them.
  for (const char* own : {"megatron-core-2024", "megatron-core"})
    CHECK(stack_for(llama_7b(), read_stack(own)) == read_stack(own));

  const SoftwareStack mine = parse_stack("like: megatron-lm-2023\nllama_layers: {norm_time: 3}", "mine.yaml");
  CHECK(mine.llama_layers->norm_time == 3);
  CHECK(mine.llama_layers->elementwise_time == 1);
  const std::string wrong =
      input_error([] { parse_stack("like: megatron-core\nllama_layers: {norm_tim: 3}", "mine.yaml"); });
  CHECK(contains(wrong, "norm_time"));
}

TEST_CASE(
    "the library's recipes of Megatron-Bridge keep gradients in fp32, those of its performance scripts in "
    "bf16") {
  for (const char* name : {"megatron-bridge-library", "megatron-bridge-library-deepep"}) {
    CHECK(read_stack(name).gradient == 4);
    CHECK(read_stack(name).reduced_gradient == 4);
    CHECK(read_stack(name).tensor_overlap == 0);
  }
  CHECK(read_stack("megatron-bridge").gradient == 2);
  CHECK(read_stack("megatron-bridge").tensor_overlap == 1);
}

TEST_CASE("a stack says how its softmax without flash attention goes") {
  CHECK(read_stack("megatron-core").softmax == SoftmaxKernel::fused);
  CHECK(read_stack("aleph-alpha").softmax == SoftmaxKernel::eager);
  CHECK(read_stack("fast-llm").softmax == SoftmaxKernel::wide);
  CHECK(read_stack("llm.c").softmax == SoftmaxKernel::triangular);
}

TEST_CASE("a wrong stack says where and what was meant") {
  CHECK(contains(input_error([] { read_stack("nemo-24.7"); }), "did you mean 'nemo-24.07'"));
  CHECK(contains(input_error([] { parse_stack("like: torchtitan\nhots: {}", "s.yaml"); }), "s.yaml:2"));
  // Each key is told once, however many fields it sets.
  const std::string told = input_error([] { parse_stack("hots: {}", "s.yaml"); });
  CHECK(told.find("eager_kernels") != std::string::npos);
  CHECK(told.find("eager_kernels") == told.rfind("eager_kernels"));
  CHECK(contains(input_error([] { parse_stack("like: other.yaml", "s.yaml"); }),
                 "expected a name of `orrery catalog stacks`"));
  CHECK_FALSE(contains(input_error([] { parse_stack("like: other.yaml", "s.yaml"); }), "or a YAML file"));
  CHECK(contains(input_error([] { parse_stack("attention: flash3", "s.yaml"); }),
                 "one of flash, flash_2026, flash2, sdpa_2025, unfused"));
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
  // A variance is not negative: an interval of no width would follow.
  CHECK(contains(refused("calibrated_memory", "[[1, 0, 0], [0, -1, 0], [0, 0, 1]]"), "from 0 to 100"));
  const SoftwareStack stack = parse_stack(
      "like: megatron-core\ncalibrated_memory: {runs: 2, scatter: 0.1, covariance: " + three + "}\n",
      "mine.yaml");
  REQUIRE(stack.calibrated_memory);
  CHECK(stack.calibrated_memory->covariance[1][1] == 1);
  CHECK_FALSE(stack.calibrated);
}

TEST_CASE("sustained clocks slow matrix kernels, long ones by what H100 is not slowed, and nothing else") {
  GpuSpec gpu = find_gpu("H100", "test");
  const double h100 = gpu.sustained;
  REQUIRE(h100 < 1);
  const Operator gemm = Gemm{.m = 1, .n = 1, .k = 1};
  CHECK(under_power(gemm, gpu, Seconds(1e-3)).value() == Approx(1e-3 / h100));
  CHECK(under_power(gemm, gpu, Seconds(5e-3)).value() == Approx(5e-3));
  gpu.sustained = 0.8;
  CHECK(under_power(gemm, gpu, Seconds(1e-3)).value() == Approx(1e-3 / 0.8));
  // Half way in the logarithm; beyond, of a measurement that H100's limit slows too.
  CHECK(under_power(gemm, gpu, Seconds(2e-3)).value() == Approx(2e-3 / (0.8 + 0.8 / h100) * 2));
  CHECK(under_power(gemm, gpu, Seconds(5e-3)).value() == Approx(5e-3 * h100 / 0.8));
  GpuSpec measured = gpu;  // whose own long kernels throttled it
  measured.sustained_long = 1.0;
  CHECK(under_power(gemm, measured, Seconds(5e-3)).value() == Approx(5e-3));
  CHECK(under_power(MemoryBound{}, gpu, Seconds(1e-4)) == Seconds(1e-4));
  // Four times the rows that were measured: kernels of a quarter of the time were.
  const Operator tall = Gemm{.m = 4 * 4096, .n = 1, .k = 1};
  CHECK(under_power(tall, gpu, Seconds(4e-3)).value() == Approx(4e-3 / 0.8));
  Attention attention{.query_tokens = 4096, .kv_tokens = 4096, .head_dim = 128};
  CHECK(under_power(attention, gpu, Seconds(9e-3)).value() == Approx(9e-3 / 0.8));
  attention.kernel = AttentionKernel::flash2;
  CHECK(under_power(attention, gpu, Seconds(9e-3)) == Seconds(9e-3));
  gpu.power_limit = gpu.power * 6 / 7;  // 600 W of 700: 12 % longer
  CHECK(under_power(gemm, gpu, Seconds(1e-3)).value() == Approx(1.12 * 1e-3 / 0.8).epsilon(0.002));
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
  CHECK(at_power_limit(gpu));
  gpu = find_gpu("A100-SXM4-80GB", "test");  // holds its clock
  CHECK_FALSE(at_power_limit(gpu));
  gpu.power_limit = gpu.power * 0.8;
  CHECK(at_power_limit(gpu));
  const Operator gemm = Gemm{.m = 1, .n = 1, .k = 1};
  Attention attention{.query_tokens = 4096, .kv_tokens = 4096, .head_dim = 128};
  CHECK(draws_full_power(gemm));
  CHECK(draws_full_power(attention));
  attention.kernel = AttentionKernel::flash2;
  CHECK_FALSE(draws_full_power(attention));
  CHECK_FALSE(draws_full_power(MemoryBound{.bytes = Bytes(1)}));

  // Of a layer, matrices and attention of two thirds of its compute.
  const PassCost pass{.compute = Seconds(3), .communication = Seconds(1), .at_limit = Seconds(2)};
  CHECK(on_slowest(pass, 1.25).compute == Seconds(3 + 2 * 0.25));
  CHECK(on_slowest(pass, 1.25).communication == Seconds(1));
  CHECK(on_slowest(on_slowest(pass, 1.25), 2).compute == on_slowest(pass, 2.5).compute);
}

TEST_CASE("matrices in fp32 have a share of their own where a GPU gains on predictions learned from others") {
  GpuSpec gpu = find_gpu("H20", "test");
  REQUIRE((gpu.sustained > 1 && gpu.sustained_fp32));
  const auto times_as_long = [&](DataType type) {
    return under_power(Gemm{.m = 1, .n = 1, .k = 1, .type = type}, gpu, Seconds(1)).value();
  };
  CHECK(times_as_long(DataType::bf16) == Approx(1 / gpu.sustained));
  CHECK(times_as_long(DataType::tf32) == Approx(1 / gpu.sustained));
  CHECK(times_as_long(DataType::fp32) == Approx(1 / *gpu.sustained_fp32));
  gpu.tf32.reset();  // then tf32 is multiplied as fp32 is
  CHECK(times_as_long(DataType::tf32) == Approx(1 / *gpu.sustained_fp32));
  gpu.sustained_fp32.reset();
  CHECK(times_as_long(DataType::fp32) == 1);
  gpu.sustained = 0.8;
  CHECK(times_as_long(DataType::fp32) > 1);
}

TEST_CASE("clocks of a faster GPU fade by how long H100, whose kernels were measured, would run") {
  GpuSpec gpu = find_gpu("H100", "test");
  const double h100 = gpu.sustained;
  const Operator gemm = Gemm{.m = 1, .n = 1, .k = 1};
  gpu.bf16 = FlopsPerSecond(2 * 989e12);
  CHECK(under_power(gemm, gpu, Seconds(1e-3)).value() == Approx(1e-3 / (h100 + 1) * 2));  // as of 2 ms
  CHECK(under_power(gemm, gpu, Seconds(2e-3)).value() == Approx(2e-3));
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
  CHECK(times(llama_7b(), 5).backward == times(llama_7b(), 1).backward);
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
  // Modules that somebody names are repeated as they are, whatever the program's own policy.
  const Recompute mlp{.granularity = RecomputeGranularity::selective, .modules = {RecomputeModule::mlp}};
  CHECK(times_under(stack, {}, mlp).backward == times_under(SoftwareStack(), {}, mlp).backward);
  CHECK(times_under(stack, {}, mlp).backward > times_under(stack, {}, {}).backward);
  CHECK(half.backward < times_under(stack, {}, kFull).backward);
  // Of Llama 2 7B's seven matrices the second, fourth and sixth: keys, projection and up. Sequence-parallel
  // ranks gather what they read again.
  Sharding sharding{.sequence = 4096};
  sharding.stack = stack;
  const auto repeated = [&](int tensor) {
    sharding.tensor = tensor;
    sharding.sequence_parallel = tensor > 1;
    const BlockOperators layer = layer_operators(llama_7b().layer(0), true, sharding);
    PassTimes times;
    times.compute.assign(layer.forward.compute.size(), Seconds(0));
    times.communication.assign(layer.forward.communication.size(), Seconds(1));
    return module_costs(layer, times, sharding)[index_of(RecomputeModule::core_attn)];
  };
  CHECK(repeated(1).flops.value() == Approx(2.0 * 4096 * 4096 * (2 * 4096 + 11008)));
  CHECK(repeated(1).compute == Seconds(0));
  CHECK(repeated(2).compute == Seconds(2));
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
  const StageMemory memory = stage_memory(llama_7b(), strategy, 0, {1});
  const Bytes states = memory.weights + memory.gradients + memory.optimizer;
  // Beside the shards two layers, embedding and head are whole in 16 bits, and the gradients of one layer, as
  // computed and as sent.
  const double all = part_parameters(llama_7b(), strategy, 0, 0).dense;
  strategy.parts = {{0, 31}};
  const double one = all - part_parameters(llama_7b(), strategy, 0, 0).dense;
  strategy.parts = {{0, 32}};
  const double parameters = stage_parameters(llama_7b(), strategy, 0);
  const double beside = (2 * 2 + 2 + 2) * one + 2 * (parameters - 32 * one);
  CHECK(states.value() == Approx(16.0 / 8 * parameters + beside));
  strategy.pipeline = 2;
  strategy.stages = {{}, {}};
  strategy.parts = {{0, 16}, {16, 16}};
  const StageMemory piped = stage_memory(llama_7b(), strategy, 0, {2});
  const Bytes whole = piped.weights + piped.gradients + piped.optimizer;
  CHECK(whole.value() == Approx((16.0 / 8 + 6) * stage_parameters(llama_7b(), strategy, 0)));
}

TEST_CASE("neighbours in a mesh of V100s have some of each GPU's six links, behind a switch all of it") {
  NodeGroup group;
  group.gpu = find_gpu("V100-SXM2-16GB", "test");
  group.gpu_link = {group.gpu.link_bandwidth, microseconds(0.3)};
  const auto links = [&](int gpus_per_node, int ranks) {
    group.gpus_per_node = gpus_per_node;
    return NodeLinks(group).among(ranks).bandwidth / gigabytes_per_second(25);
  };
  CHECK(links(8, 2) == Approx(std::sqrt(3.0)).epsilon(1e-3));  // one to three
  CHECK(links(8, 4) == Approx(4));
  CHECK(links(8, 8) == Approx(6));
  CHECK(links(4, 2) == Approx(2));
  CHECK(links(4, 4) == Approx(6));
  // Another rate than the data sheet's: as given, but no more than the wiring has.
  group.gpu_link.bandwidth = gigabytes_per_second(100);
  CHECK(links(8, 2) == Approx(std::sqrt(3.0)).epsilon(1e-3));
  CHECK(links(8, 4) == Approx(4));
  group.gpu_link.bandwidth = gigabytes_per_second(25);
  CHECK(links(8, 2) == Approx(1));
  group.gpu_link.bandwidth = gigabytes_per_second(300);
  CHECK(links(8, 2) == Approx(2 * std::sqrt(3.0)).epsilon(1e-3));
}

TEST_CASE("in a mesh of eight each GPU has a link to each of the others, in nodes of any size") {
  NodeGroup group;
  group.gpu = find_gpu(GENERATE("MI300X", "MI325X", "MI355X"), "test");
  group.gpu_link = {group.gpu.link_bandwidth, microseconds(0.3)};
  group.gpus_per_node = GENERATE(4, 8);
  const auto share = [&](int ranks) {
    return NodeLinks(group).among(ranks).bandwidth / group.gpu.link_bandwidth;
  };
  for (const int ranks : {2, 3, 4}) {
    CHECK(share(ranks) == Approx((ranks - 1) / 7.0));
    CHECK(whole_over_part(group.gpu, NodeLinks(group).among(ranks), ranks) == Approx(7.0 / (ranks - 1)));
  }
  for (const int ranks : {5, 6, 7}) CHECK(share(ranks) < share(2));  // as RCCL's rings were measured
  CHECK(share(8) == 1);
  CHECK(share(1) == 1);
}

TEST_CASE("a pair on a board of four has a third of each GPU's links, a ring of all four all of them") {
  NodeGroup group;
  const auto share = [&](const char* gpu, int gpus_per_node, int ranks) {
    group.gpu = find_gpu(gpu, "test");
    group.gpu_link = {group.gpu.link_bandwidth, microseconds(0.3)};
    group.gpus_per_node = gpus_per_node;
    return NodeLinks(group).among(ranks).bandwidth / group.gpu.link_bandwidth;
  };
  for (const char* gpu : {"A100", "GH200-96GB-quad"}) {
    CHECK(share(gpu, 4, 2) == Approx(1.0 / 3));
    CHECK(share(gpu, 4, 3) == Approx(2.0 / 3));
    CHECK(share(gpu, 4, 4) == 1);
    CHECK(share(gpu, 8, 2) == 1);  // behind a switch
    CHECK(whole_over_part(group.gpu, NodeLinks(group).among(2), 2) == 1);
    group.gpus_per_node = 4;
    CHECK(whole_over_part(group.gpu, NodeLinks(group).among(2), 2) == Approx(3));
  }
  CHECK(share("H100", 4, 2) == 1);
  group.gpu = find_gpu("A100", "test");  // of another rate than the data sheet's
  group.gpu_link.bandwidth = group.gpu.link_bandwidth / 2;
  CHECK(NodeLinks(group).among(2).bandwidth == group.gpu.link_bandwidth / 3);
  CHECK(NodeLinks(group).among(4) == group.gpu_link);
  group.gpu_link.bandwidth = group.gpu.link_bandwidth / 4;
  CHECK(NodeLinks(group).among(2) == group.gpu_link);
  CHECK(whole_over_part(group.gpu, group.gpu_link, 2) == 1);
}

}  // namespace orrery
