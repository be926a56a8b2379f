// What a GPU waits for where weights are sharded: gathers, reductions, copies, hooks of the host.
#include "costmodels/layers/stack_effects.hpp"
#include "costmodels/plans/price_book.hpp"
#include "costmodels/stacks/stack_file.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/stack_times.hpp"

namespace orrery {
namespace {

using test::llama_7b, test::times_under;

constexpr Recompute kFull{RecomputeGranularity::full, RecomputeMethod::uniform, 1};

}  // namespace

TEST_CASE("sharded weights cost nothing while they hide, and their time on the links where they do not") {
  const SoftwareStack stack;
  const PartTimes bare = times_under(stack);
  const ShardKey sharded{.sharded = 16};
  const PartTimes gathered = times_under(stack, sharded);
  CHECK(gathered.forward > bare.forward);  // the first layer's gather has nothing to hide under
  // Every GPU receives the 15/16 of all weights that it lacks, in 16 bits, at no more than the NVLink speed.
  const double bytes = 2.0 * static_cast<double>(total_parameters(llama_7b())) * 15 / 16;
  const auto link = test::two_priced_kinds().groups[0].gpu_link.bandwidth.value();
  CHECK((gathered.forward - bare.forward).value() < bytes / link / 8);  // of 32 layers' most are hidden
  SoftwareStack slow = stack;
  slow.network.inside = slow.network.between = 0.01;
  const double least = bytes / (0.01 * link);
  REQUIRE(times_under(slow).backward.value() < least / 10);
  CHECK(times_under(slow, sharded).forward.value() > least);
  CHECK(times_under(slow, sharded).backward.value() > 2 * least);  // gathered again, and scattered
}

TEST_CASE("a recomputed layer gathers its weights once more where the checkpoint is around its unit") {
  SoftwareStack stack;
  stack.network.inside = stack.network.between = 0.01;  // nothing hides them
  const Recompute full{RecomputeGranularity::full, RecomputeMethod::uniform, 1};
  const ShardKey sharded{.sharded = 16};
  const auto backward = [&](bool again, const Recompute& recompute) {
    stack.regathers_recomputed = again;
    return times_under(stack, sharded, recompute).backward.value();
  };
  CHECK(backward(true, {}) == backward(false, {}));
  const double bytes = 2.0 * static_cast<double>(total_parameters(llama_7b())) * 15 / 16;
  const double gather = bytes / (0.01 * test::two_priced_kinds().groups[0].gpu_link.bandwidth.value());
  const double more = backward(true, full) - backward(false, full);
  CHECK(more > 0.9 * gather);  // embedding and head are not repeated
  CHECK(backward(false, full) < backward(true, full));
}

TEST_CASE("nothing runs beside gathers that come alone") {
  LaunchedPass pass;
  pass.layers = 4;
  pass.cost.compute = Seconds(10);
  pass.cost.weights = Seconds(8);
  SoftwareStack stack;
  CHECK(time_under(pass, stack).time.value() == Approx(10 + 2));  // the first layer's
  pass.cost.lone_weights = Seconds(8);
  CHECK(time_under(pass, stack).time.value() == Approx(10 + 2 + 8));
  stack.matrix_gathers.emplace();
  CHECK(time_under(pass, stack).time.value() == Approx(10 + 8 + 8));
}

TEST_CASE("gathers and reductions of layers with experts come alone where a stack says so, of others never") {
  SoftwareStack stack;
  ClusterSpec cluster = test::two_priced_kinds();
  const auto layers = [&](std::int64_t experts, int ways = 1) {
    ModelSpec model = llama_7b();
    for (LayerShape& shape : model.shapes) shape.experts = experts;
    PriceBook book(model, cluster, {DataType::bf16, true, 4096, stack});
    const ShardKey key{.expert = ways, .sharded = 16};
    book.need(key);
    book.predict(test::cost_models());
    return book.shard(key).before.back();
  };
  const BlockCost hidden = layers(2), dense = layers(1);
  stack.experts.gathers_alone = LoneGathers::always;
  const BlockCost alone = layers(2);
  for (const auto pass : {&BlockCost::forward, &BlockCost::backward}) {
    CHECK((hidden.*pass).lone_weights == Seconds(0));
    CHECK((hidden.*pass).weights > Seconds(0));
    CHECK((alone.*pass).lone_weights.value() == Approx((hidden.*pass).weights.value()));
    CHECK((alone.*pass).weights == Seconds(0));
  }
  CHECK(layers(1) == dense);
  CHECK(layers(2, 2).forward.lone_weights > Seconds(0));
  // Of Blackwell alone, and there of experts that all ranks have.
  stack.experts.gathers_alone = LoneGathers::on_blackwell;
  CHECK(layers(2) == hidden);
  cluster.groups.front().gpu.architecture = "Blackwell Ultra";
  CHECK(layers(2).forward.lone_weights.value() == Approx(alone.forward.lone_weights.value()));
  CHECK(layers(2, 2).forward.lone_weights == Seconds(0));
  stack.whole_weights = true;
  CHECK(layers(2).forward.lone_weights == Seconds(0));
}

TEST_CASE("hooks of sharded weights take the host for each matrix, longer where other ranks have shares") {
  SoftwareStack stack;
  stack.host = {};
  stack.host.matrix_forward = milliseconds(1);
  stack.host.matrix_backward = milliseconds(2);
  stack.host.gather_forward = milliseconds(10);
  stack.host.gather_backward = milliseconds(20);
  const auto host = [&](const ModelSpec& model, int sharded) {
    PriceBook book(model, test::two_priced_kinds(), {DataType::bf16, true, 1024, stack});
    const ShardKey key{.sharded = sharded};
    book.need(key);
    book.predict(test::cost_models());
    const BlockCost& layers = book.shard(key).before.back();
    return std::pair(layers.forward.host.value() * 1000, layers.backward.host.value() * 1000);
  };
  const double gated = 32 * 7;  // queries, keys, values, output, gate, up and down in each of 32 layers
  CHECK(host(llama_7b(), 1).first == Approx(gated * 1));
  CHECK(host(llama_7b(), 8).first == Approx(gated * 11));
  CHECK(host(llama_7b(), 8).second == Approx(gated * 22));
  const double plain = 24 * 4;  // GPT-2's
  CHECK(host(read_model("gpt2-345m"), 8).second == Approx(plain * 22));
}

// Two nodes of 8 GPUs: weights are gathered within each, and of the gradients each GPU has an eighth to sum.
TEST_CASE("weights sharded within a node stay off the network, but for a share of the gradients") {
  Sharding sharding;
  sharding.sharded = 8;
  sharding.instances = 2;
  sharding.type = DataType::bf16;
  const WeightTraffic traffic = weight_traffic(sharding, {720}, {});
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

TEST_CASE("a model that is one unit is gathered before the forward and reduced after the backward, alone") {
  SoftwareStack one_unit;
  one_unit.root_unit = RootUnit::all;
  one_unit.reduced_gradient = 2;  // as many bytes as are gathered
  const PartTimes whole = times_under({}, {.sharded = 1}), hidden = times_under({}, {.sharded = 16}),
                  alone = times_under(one_unit, {.sharded = 16});
  CHECK(alone.forward > hidden.forward);
  const double gathered = (alone.forward - whole.forward).value();
  CHECK((alone.backward - whole.backward).value() == Approx(gathered).epsilon(0.1));
}

TEST_CASE("sharded weights are copied out of what was gathered, gradients into what is scattered") {
  Sharding sharding;
  sharding.type = DataType::bf16;
  sharding.stack = parse_stack(
      "{reduced_gradient: 4, shard_copies: {own: 10, gathered: 4, scattering_time: 1.5}}", "s.yaml");
  const auto bytes = [](const std::vector<Operator>& kernels) {
    double sum = 0;
    for (const Operator& op : kernels) sum += std::get<MemoryBound>(op).bytes.value();
    return sum;
  };
  const auto traffic = [&] { return weight_traffic(sharding, {720}, {}); };
  CHECK(bytes(traffic().unpack) == 0);  // nothing is sharded
  sharding.sharded = 8;
  CHECK(bytes(traffic().unpack) == 720 * (4 + 10.0 / 8));
  CHECK(bytes(traffic().pack) == 720 * 1.5 * (2 + 4));
  sharding.sharded = 1;  // over one GPU: nothing is sent, all is copied
  CHECK(traffic().gather.empty());
  CHECK(bytes(traffic().unpack) == 720 * 14);
  sharding.stack.whole_weights = true;
  CHECK(bytes(traffic().unpack) == 0);
  sharding.stack.adds_up_whole = true;
  CHECK(bytes(traffic().pack) == 0);
}

TEST_CASE(
    "copies of sharded weights take their time in every pass, of the root unit's in the forward alone") {
  SoftwareStack stack, copying;
  copying.shard_copies = {.own = 0, .gathered = 400, .scattering_time = 0};  // longer than any collective
  const ShardKey sharded{.sharded = 16};
  const auto more = [&](Recompute recompute = {}) {
    const PartTimes with = times_under(copying, sharded, recompute);
    const PartTimes without = times_under(stack, sharded, recompute);
    return std::pair((with.forward - without.forward).value(), (with.backward - without.backward).value());
  };
  // At no more than the bandwidth of the data sheet, and no less than half of it.
  const double bandwidth = test::two_priced_kinds().groups[0].gpu.memory_bandwidth.value();
  const ModelSpec model = llama_7b();
  const double all = 400.0 * static_cast<double>(total_parameters(model));
  const double tables = 400.0 * 2 * static_cast<double>(model.vocabulary * model.hidden);
  const auto [forward, backward] = more();
  CHECK(forward > all / bandwidth);
  CHECK(forward < 2 * all / bandwidth);
  CHECK(backward == Approx(forward * (all - tables) / all).epsilon(0.01));
  CHECK(more(kFull).second == Approx(backward));  // a recomputed layer is gathered once
  stack.root_unit = copying.root_unit = RootUnit::none;
  CHECK(more().second == Approx(forward));
  // With the collectives beside the pass they hide, as far as they are no longer than it.
  copying.shard_copies.beside = true;
  CHECK(more().first < forward);
  copying.shard_copies.gathered = 4;
  CHECK(more().first < forward / 100 / 10);
}

// Eight nodes of 8 GPUs: of the experts, spread over each node, there is one copy a node.
TEST_CASE("sharded experts are gathered from their own copies alone, and not where each has one") {
  Sharding sharding;
  sharding.sharded = 64;
  sharding.expert = 8;
  sharding.type = DataType::bf16;
  const auto traffic = [&] { return weight_traffic(sharding, {.dense = 100, .expert = 7000}, {}); };
  REQUIRE(traffic().gather.size() == 2);
  REQUIRE(traffic().reduce.size() == 2);
  const Collective dense = std::get<Collective>(traffic().gather[0]);
  CHECK((dense.ranks == 64 && dense.ranks_per_node == 8 && dense.bytes == Bytes(200)));
  const Collective experts = std::get<Collective>(traffic().gather[1]);
  CHECK((experts.ranks == 8 && experts.ranks_per_node == 1 && experts.bytes == Bytes(14000)));
  CHECK(std::get<Collective>(traffic().reduce[1]).ranks == 8);
  sharding.expert = 64;
  CHECK(traffic().gather.size() == 1);
  CHECK(traffic().reduce.size() == 1);
  sharding.expert = 1;
  REQUIRE(traffic().gather.size() == 1);
  CHECK(std::get<Collective>(traffic().gather[0]).bytes == Bytes(14200));
  sharding.expert = 4;  // over the four tensor ranks, each with experts of its own
  sharding.tensor = 4;
  sharding.expert_tensor = 1;
  CHECK(traffic().gather.size() == 1);
}

TEST_CASE("matrices gathered one by one hide under nothing, and cost the host a list of all ranks each") {
  Sharding sharding;
  sharding.sharded = 16;
  sharding.type = DataType::fp16;
  PassOperators forward;
  forward.compute = {Gemm{.m = 64, .n = 30, .k = 10}, MemoryBound{}, Gemm{.m = 64, .n = 10, .k = 40}};
  const PassCost layer{Seconds(3), Seconds(1), {}, 0, {}, Seconds(2)};
  // As one, norms and biases too: 720 parameters of 2 bytes. Half of the time beside the layers before.
  const WeightTraffic whole = weight_traffic(sharding, {720}, forward);
  REQUIRE(whole.gather.size() == 1);
  CHECK(std::get<Collective>(whole.gather[0]).bytes.value() == 1440);
  CHECK(gathering_host(sharding, 1) == Seconds(0));
  CHECK(time_under({layer, {}, 2}, sharding.stack).time == Seconds(3 + 1 + 2 / 2));
  sharding.stack = parse_stack("matrix_gathers: {host: 100us, host_per_rank: 5us}", "s.yaml");
  const WeightTraffic each = weight_traffic(sharding, {720}, forward);
  REQUIRE(each.gather.size() == 2);
  CHECK(std::get<Collective>(each.gather[0]).bytes.value() == 600);
  CHECK(std::get<Collective>(each.gather[1]).bytes.value() == 800);
  CHECK(each.reduce.size() == 2);
  CHECK(gathering_host(sharding, 2).value() == Approx(2 * (100e-6 + 16 * 5e-6)));
  CHECK(time_under({layer, {}, 2}, sharding.stack).time == Seconds(3 + 1 + 2));
}

TEST_CASE("gathers that every submodule waits for hide under matrices alone") {
  Sharding sharding;
  sharding.sharded = 16;
  sharding.type = DataType::fp16;
  sharding.stack = parse_stack("{gathers_wait: true, reduced_gradient: 2}", "s.yaml");
  PassOperators forward;
  forward.compute = {Gemm{.m = 64, .n = 30, .k = 10}, MemoryBound{}, Gemm{.m = 64, .n = 10, .k = 40}};
  const WeightTraffic traffic = weight_traffic(sharding, {720}, forward);
  REQUIRE(traffic.gather.size() == 2);
  CHECK(std::get<Collective>(traffic.gather[1]).bytes.value() == 800);
  REQUIRE(traffic.reduce.size() == 1);  // by buckets, norms and biases among them
  CHECK(std::get<Collective>(traffic.reduce[0]).bytes.value() == 1440);
  // Of 3 s of compute 1.5 are matrices'; 1 s is exposed anyway, and of two layers the first gather.
  const auto time = [&](double gathers) {
    PassCost layer{Seconds(3), Seconds(1), {}, 0, {}, Seconds(gathers)};
    layer.matrices = Seconds(1.5);
    return time_under({layer, {}, 2}, sharding.stack).time.value();
  };
  sharding.stack.overlap_slowdown = 1;
  CHECK(time(1) == Approx(3 + 1 + 1 / 2.0));
  CHECK(time(2) == Approx(3 + 1 + 0.5 + 2 / 2.0));
  sharding.stack.gathers_wait = false;
  CHECK(time(2) == Approx(3 + 1 + 2 / 2.0));
}

TEST_CASE("whole weights are not gathered in passes; gradients are reduced beside the backward or alone") {
  Sharding sharding;
  sharding.sharded = 16;
  sharding.type = DataType::bf16;
  sharding.stack = parse_stack("{whole_weights: true, reduced_gradient: 2}", "s.yaml");
  const auto reduce = [&] {
    const WeightTraffic traffic = weight_traffic(sharding, {720}, {});
    CHECK(traffic.gather.empty());
    REQUIRE(traffic.reduce.size() == 1);
    return std::get<Collective>(traffic.reduce[0]);
  };
  CHECK(reduce().bytes.value() == 1440);
  CHECK(reduce().kind == CollectiveKind::reduce_scatter);
  sharding.stack.all_reduces_gradients = true;
  CHECK(reduce().kind == CollectiveKind::all_reduce);

  const PassCost backward{Seconds(3), Seconds(1), {}, 0, {}, Seconds(2)};
  const auto time = [&] { return time_under({backward, {}, 2}, sharding.stack).time; };
  sharding.stack.overlap_slowdown = 1;
  sharding.stack.overlap_grad_reduce = false;
  CHECK(time() == Seconds(3 + 1 + 2));
  sharding.stack.overlap_grad_reduce = true;
  CHECK(time() == Seconds(3 + 1 + 2 / 2));  // of the last of two layers nothing is left to hide under
}

}  // namespace orrery
