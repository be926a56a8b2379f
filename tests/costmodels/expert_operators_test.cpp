// Experts: routing, exchange, casts, tensor ways of their own.
#include "costmodels/layers/layer_operators.hpp"
#include "costmodels/memory/memory.hpp"
#include "costmodels/operators/local_layer.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/layer_fixture.hpp"

namespace orrery {
namespace {

using test::all_of, test::bytes_of, test::gemm_flops, test::plain, test::times;
using test::llama70b_layer, test::mixtral_layer;

}  // namespace

TEST_CASE("a token goes once to each GPU of a node, or once to each node, that some of its experts are on") {
  Sharding sharding = plain(1, 4096);
  sharding.expert = 4;
  sharding.stack.experts.deduplicated = true;
  const auto sent = [&] {
    const BlockOperators layer = layer_operators(mixtral_layer(), true, sharding);
    return all_of<Collective>(layer.forward.communication)[0].bytes.value() / (4096.0 * 4096 * 2);
  };
  // Two of eight experts on four GPUs of two each: one GPU has none of them in (6 x 5) / (8 x 7) of all
  // pairs, one of two nodes in (4 x 3) / (8 x 7).
  CHECK(sent() == Approx(4 * (1 - 30.0 / 56)));
  sharding.gpus_per_node = 2;
  CHECK(sent() == Approx(2 * (1 - 12.0 / 56)));
  // Chosen from one of two groups, both are on one node.
  sharding.router.groups = 2;
  CHECK(sent() == Approx(1.0));
}

TEST_CASE("in 8 bits rows of experts are copied into padded ones and back where nobody aligned them") {
  Sharding sharding = plain(1, 4096);
  sharding.expert = 4;
  const auto copied = [&](DataType type, bool pads, PassOperators BlockOperators::*pass) {
    sharding.type = type;
    sharding.stack.experts.pads_rows = pads;
    return test::copied_bytes(layer_operators(mixtral_layer(), true, sharding).*pass);
  };
  // 8192 rows of 4096: read and written, in 16 bits, twice.
  const double rows = 2.0 * 4096 * 4096;
  for (const auto pass : {&BlockOperators::forward, &BlockOperators::backward}) {
    CHECK(copied(DataType::fp8, true, pass) - copied(DataType::fp8, false, pass) == Approx(2 * 4 * rows));
    CHECK(copied(DataType::bf16, true, pass) == copied(DataType::bf16, false, pass));
  }
}

TEST_CASE("kernels of a program's own around its experts move so many bytes of each row's elements") {
  Sharding sharding = plain(1, 4096);
  const auto copied = [&](PassOperators BlockOperators::*pass) {
    return test::copied_bytes(layer_operators(mixtral_layer(), true, sharding).*pass);
  };
  const double forward = copied(&BlockOperators::forward), backward = copied(&BlockOperators::backward);
  sharding.stack.experts.eager_forward = 80, sharding.stack.experts.eager_backward = 165;
  const double rows = 2.0 * 4096 * 4096;  // two experts a token, 4096 tokens of 4096
  CHECK(copied(&BlockOperators::forward) - forward == Approx(80 * rows));
  CHECK(copied(&BlockOperators::backward) - backward == Approx(165 * rows));
}

TEST_CASE("gradients of experts' biases that rows index are added up row by row") {
  Sharding sharding = plain(1, 4096);
  LayerShape shape = mixtral_layer();
  const auto copied = [&](PassOperators BlockOperators::*pass, double bytes) {
    sharding.stack.experts.indexed_biases = bytes;
    return test::copied_bytes(layer_operators(shape, true, sharding).*pass);
  };
  CHECK(copied(&BlockOperators::backward, 400) == copied(&BlockOperators::backward, 0));  // it has none
  shape.mlp_bias = true;
  CHECK(copied(&BlockOperators::forward, 400) == copied(&BlockOperators::forward, 0));
  const double rows = 2.0 * 4096, width = 2 * 14336 + 4096;  // gate and up, and what comes down
  CHECK(copied(&BlockOperators::backward, 400) - copied(&BlockOperators::backward, 0) ==
        Approx(400 * rows * width));
}

TEST_CASE("experts compute the tokens routed to them and exchange them twice each way") {
  Sharding sharding = plain(1, 4096);
  sharding.expert = 4;
  const BlockOperators layer = layer_operators(mixtral_layer(), true, sharding);
  const std::vector<Gemm> gemms = all_of<Gemm>(layer.forward.compute);
  REQUIRE(gemms.size() == 5);  // QKV, projection, router, up and gate, down
  CHECK(gemms[2] == Gemm{.m = 4096, .n = 8, .k = 4096});
  // Four microbatches of 4096 tokens, two experts a token, over eight experts; two of them here.
  CHECK(gemms[3] == Gemm{.m = 4 * 4096 * 2 / 8, .n = 2 * 14336, .k = 4096, .batch = 2});
  CHECK(gemms[4] == Gemm{.m = 4096, .n = 4096, .k = 14336, .batch = 2});
  for (const PassOperators* pass : {&layer.forward, &layer.backward}) {
    REQUIRE(times(pass->communication, CollectiveKind::all_to_all) == 2);
    CHECK(all_of<Collective>(pass->communication)[0].bytes == Bytes(4096.0 * 2 * 4096 * 2));
  }
}

// Megatron-LM's all-gather dispatcher. Four GPUs with 4096 tokens of 4096 each.
TEST_CASE("tokens may be gathered by all that share experts, and sums of what these give scattered") {
  Sharding sharding = plain(1, 4096);
  sharding.expert = 4;
  const BlockOperators exchanged = layer_operators(mixtral_layer(), true, sharding);
  const double sums = GENERATE(2.0, 4.0);
  sharding.stack.experts.gathered_sums = sums;
  const BlockOperators layer = layer_operators(mixtral_layer(), true, sharding);
  const double all = 4.0 * 4096 * 4096;
  const std::vector<Collective> forward = all_of<Collective>(layer.forward.communication),
                                backward = all_of<Collective>(layer.backward.communication);
  REQUIRE(forward.size() == 2);
  REQUIRE(backward.size() == 2);
  CHECK(forward[0].kind == CollectiveKind::all_gather);
  CHECK(forward[0].bytes == Bytes(2 * all));
  CHECK(forward[1].kind == CollectiveKind::reduce_scatter);
  CHECK(forward[1].bytes == Bytes(sums * all));
  // Of gradients the other way round; a pass lists its collectives in the order of the forward.
  CHECK(backward[0].kind == CollectiveKind::reduce_scatter);
  CHECK(backward[0].bytes == Bytes(2 * all));
  CHECK(backward[1].kind == CollectiveKind::all_gather);
  CHECK(backward[1].bytes == Bytes(sums * all));
  // The same matrices. Rows are in the order of experts at once, where an exchange brings two experts' from
  // four GPUs: a copy each way less, and one that starts from zeros, in 32 bits with casts (2 + 4, 4 + 2).
  CHECK(all_of<Gemm>(layer.forward.compute) == all_of<Gemm>(exchanged.forward.compute));
  const double rows = 2.0 * 4096 * 4096, cast = sums > 2 ? 2 + sums : 0;
  CHECK(test::copied_bytes(exchanged.forward) - test::copied_bytes(layer.forward) ==
        Approx(2 * 4 * rows - (2 + cast) * all));
  CHECK(test::copied_bytes(exchanged.backward) - test::copied_bytes(layer.backward) ==
        Approx(2 * 4 * rows - cast * all));
  // One GPU has nothing to gather.
  sharding.expert = 1;
  CHECK(layer_operators(mixtral_layer(), true, sharding).forward.communication.empty());
}

// Two sequences of 4096 tokens, two of eight experts a token: 1024 rows of each expert from each sequence,
// and a quarter more.
TEST_CASE("experts of a capacity get their rows, and give them back, by products with one-hot matrices") {
  Sharding sharding = plain(2, 4096);
  sharding.expert = 4;
  const BlockOperators copied = layer_operators(mixtral_layer(), true, sharding);
  ExpertCost& experts = sharding.stack.experts;
  experts.load = {.cv = 2, .capacity = 1.25, .one_hot = OneHotGroup::sequence};
  experts.one_hot_bytes = {.forward = 7, .backward = 3, .kept = 0};
  const BlockOperators layer = layer_operators(mixtral_layer(), true, sharding);
  constexpr std::int64_t kPlaces = 8 * 1280;
  const std::vector<Gemm> gemms = all_of<Gemm>(layer.forward.compute);
  REQUIRE(gemms.size() == 7);  // QKV, projection, router, to experts, up and gate, down, back
  CHECK(gemms[3] == Gemm{.m = kPlaces, .n = 4096, .k = 4096, .batch = 2});
  CHECK(gemms[4].m == 4 * 2 * 1280);  // of the four GPUs' sequences
  CHECK(gemms[6] == Gemm{.m = 4096, .n = 4096, .k = kPlaces, .batch = 2});
  // Zeros and ones have no gradient, weights have.
  const double product = 2.0 * 2 * kPlaces * 4096 * 4096;
  const double more = 0.25 * gemm_flops({.compute = {all_of<Gemm>(copied.forward.compute)[3],
                                                     all_of<Gemm>(copied.forward.compute)[4]}});
  CHECK(gemm_flops(layer.forward) == Approx(gemm_flops(copied.forward) + more + 2 * product));
  CHECK(gemm_flops(layer.backward) == Approx(gemm_flops(copied.backward) + 2 * more + 3 * product));
  CHECK(layer.weight_gradient.size() == copied.weight_gradient.size());
  for (const auto pass : {&BlockOperators::forward, &BlockOperators::backward}) {
    const auto sent = [&](const BlockOperators& block) {
      return all_of<Collective>((block.*pass).communication)[0].bytes.value();
    };
    CHECK(sent(layer) == Approx(1.25 * sent(copied)));
  }
  // No permutation, of two copies of each token there and back; what is sorted and activated is a quarter
  // more.
  const double way = 2 * 2 * 8192.0 * 4096 * 2;
  const double sorted = bytes_of(copied.forward, MemoryKernel::copy) - 2 * way;
  CHECK(bytes_of(layer.forward, MemoryKernel::copy) == Approx(1.25 * sorted + 7 * 2.0 * 4096 * kPlaces));
  CHECK(bytes_of(layer.backward, MemoryKernel::copy) ==
        Approx(bytes_of(copied.backward, MemoryKernel::copy) - 2 * way + 0.25 * sorted +
               3 * 2.0 * 4096 * kPlaces));
}

TEST_CASE("what an all-to-all brings to several experts is sorted by expert, and back") {
  Sharding sharding = plain(1, 4096);
  const auto layer = [&](int expert, bool library) {
    sharding.expert = expert;
    sharding.stack.experts.dispatch = library ? std::optional(StatedRate{}) : std::nullopt;
    return layer_operators(mixtral_layer(), true, sharding);
  };
  const auto forward = [&](int expert, bool library) {
    return bytes_of(layer(expert, library).forward, MemoryKernel::copy);
  };
  // Two copies of each token, of 4096 elements in 16 bits, are read and written on the way out and back.
  const double way = 2 * 2 * 4096.0 * 4096 * 2;
  CHECK(forward(1, false) == Approx(2 * way));  // eight experts, nothing comes from others
  CHECK(forward(4, false) == Approx(4 * way));  // two experts
  CHECK(forward(8, false) == Approx(2 * way));  // one: whatever comes is its own
  CHECK(forward(4, true) == Approx(2 * way));
  CHECK(bytes_of(layer(4, false).backward, MemoryKernel::copy) -
            bytes_of(layer(4, true).backward, MemoryKernel::copy) ==
        Approx(2 * way));
}

TEST_CASE("experts cast what arrives in 16 bits, and all the rest unless one kernel does it") {
  Sharding sharding = plain(1, 4096);
  sharding.expert = 4;
  const auto layer_of = [&](DataType type, bool fused) {
    sharding.type = type;
    sharding.stack.experts.fused = fused;
    return layer_operators(mixtral_layer(), true, sharding);
  };
  const BlockOperators bf16 = layer_of(DataType::bf16, false), fused = layer_of(DataType::fp8, true),
                       separate = layer_of(DataType::fp8, false);
  const double rows = 2 * 4096.0;  // of two experts, as above
  const auto copied = [](const PassOperators& pass) { return bytes_of(pass, MemoryKernel::copy); };
  // The projection's input and what arrives; backward the gradients of QKV, of the projection and of what
  // leaves: 4 B each.
  CHECK(copied(fused.forward) - copied(bf16.forward) == Approx(4 * (4096.0 * 4096 + rows * 4096)));
  CHECK(copied(fused.backward) - copied(bf16.backward) ==
        Approx(4 * (4096.0 * (4096 + 2 * 8 * 128) + 4096.0 * 4096 + rows * 4096)));
  CHECK(copied(separate.forward) - copied(fused.forward) == Approx(4 * rows * 14336));
  CHECK(copied(separate.backward) - copied(fused.backward) == Approx(4 * rows * 2 * 14336));
  CHECK(bytes_of(separate.forward, MemoryKernel::activation) == 6 * rows * 14336);
  CHECK(bytes_of(fused.forward, MemoryKernel::activation) == 0);
  CHECK(bytes_of(fused.backward, MemoryKernel::activation) == 0);
}

TEST_CASE("what experts activate by PyTorch's kernels is weighed by another") {
  Sharding sharding = plain(1, 4096);
  sharding.expert = 4;
  sharding.stack.kernels.eager_activation = true;
  const BlockOperators layer = layer_operators(mixtral_layer(), true, sharding);
  const double width = 2 * 4096.0 * 14336;  // of two experts, as above
  // As a dense layer's (10 and 26), times the probability (4); backward the gradient times it (4), and times
  // what was weighed (6), summed (2).
  CHECK(bytes_of(layer.forward, MemoryKernel::activation) == (10 + 4) * width);
  CHECK(bytes_of(layer.backward, MemoryKernel::activation) == (26 + 12) * width);
}

TEST_CASE("biases of experts pass through eager kernels, in fp32, unless one kernel adds them") {
  Sharding sharding = plain(1, 4096);
  sharding.expert = 4;
  sharding.type = DataType::fp8;
  sharding.stack.accumulation = 0;
  LayerShape shape = mixtral_layer();
  shape.mlp_bias = true;
  const auto layer_of = [&](bool fused) {
    sharding.stack.experts.fused = fused;
    return layer_operators(shape, true, sharding);
  };
  const BlockOperators fused = layer_of(true), separate = layer_of(false);
  const auto more = [](const PassOperators& one, const PassOperators& other) {
    return bytes_of(one, MemoryKernel::copy) - bytes_of(other, MemoryKernel::copy);
  };
  // Bytes counted from the code, at the third of a copy's rate that GPT-OSS's runs tell of.
  const double rows = 2 * 4096.0, slower = 3;
  // The casts of what is activated, and of its gradient, as above.
  const double casts = 4 * rows * 14336;
  CHECK(more(separate.forward, fused.forward) ==
        Approx(slower * rows * (28.0 * 4096 + 16.0 * 14336) + casts));
  CHECK(more(separate.backward, fused.backward) ==
        Approx(slower * rows * (40.0 * 4096 + 20.0 * 14336) + 2 * casts));
  sharding.type = DataType::bf16;  // of which nobody wrote such a kernel
  CHECK(more(layer_of(false).forward, layer_of(true).forward) == 0);
}

TEST_CASE("what the host launches for each expert lies between the exchanges") {
  Sharding sharding = plain(1, 4096);
  sharding.expert = 4;
  const BlockOperators layer = layer_operators(mixtral_layer(), true, sharding);
  CHECK(layer_operators(llama70b_layer(), true, sharding).forward.experts == ExpertSection{});
  for (const PassOperators* pass : {&layer.forward, &layer.backward}) {
    CHECK(pass->experts.count == 2);
    std::size_t grouped = 0;
    for (std::size_t i = 0; i < pass->compute.size(); ++i) {
      const Gemm* gemm = std::get_if<Gemm>(&pass->compute[i]);
      if (gemm == nullptr || gemm->batch == 1) continue;
      ++grouped;
      CHECK((i >= pass->experts.first && i < pass->experts.end));
    }
    CHECK(grouped == (pass == &layer.forward ? 2 : 4));
  }
}

TEST_CASE("tensor ranks with experts of their own exchange tokens and gather none") {
  Sharding sharding = plain(1, 4096);
  sharding.tensor = 2;
  sharding.sequence_parallel = true;
  sharding.expert = 4;
  const BlockOperators split = layer_operators(mixtral_layer(), true, sharding);
  sharding.expert_tensor = 1;
  const BlockOperators whole = layer_operators(mixtral_layer(), true, sharding);
  // Four replicas bring 4096 tokens each to two experts, of which a rank multiplies half the columns; or two
  // replicas, whose tensor ranks have other experts, bring 2 x 2048 each, and it multiplies all.
  CHECK(all_of<Gemm>(split.forward.compute)[3] ==
        Gemm{.m = 4 * 4096 * 2 / 8, .n = 14336, .k = 4096, .batch = 2});
  CHECK(all_of<Gemm>(whole.forward.compute)[3] ==
        Gemm{.m = 4 * 2048 * 2 / 8, .n = 2 * 14336, .k = 4096, .batch = 2});
  CHECK(gemm_flops(whole.forward) == gemm_flops(split.forward));
  for (const auto kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
    CHECK(times(split.forward.communication, kind) == 2);  // around attention, around experts
    CHECK(times(whole.forward.communication, kind) == 1);
  }
  CHECK(times(whole.forward.communication, CollectiveKind::all_to_all) == 2);
  const LocalLayer of_whole = local_layer(mixtral_layer(), split_of(sharding));
  sharding.expert_tensor = 2;
  CHECK(layer_operators(mixtral_layer(), true, sharding).forward.compute == split.forward.compute);
  const LocalLayer of_split = local_layer(mixtral_layer(), split_of(sharding));
  // Two whole experts a rank for two halves: twice the weights, over half as many replicas.
  const auto experts = [](const LocalLayer& local) {
    return local_parameters(mixtral_layer(), local).expert;
  };
  CHECK(experts(of_whole) == 2 * experts(of_split));
}

}  // namespace orrery
