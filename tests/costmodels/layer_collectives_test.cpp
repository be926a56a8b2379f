// What the ranks of a layer exchange: which collectives, of how many bytes, beside which compute.
#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "costmodels/layers/layer_operators.hpp"
#include "platforms/gpu.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/layer_fixture.hpp"

namespace orrery {

using test::all_of, test::plain, test::times, test::gpt3_layer, test::llama70b_layer, test::mixtral_layer,
    test::ring_bytes;

TEST_CASE("a layer has two collectives forward and two backward, each of all its tokens") {
  Sharding sharding = plain(2, 2048);
  sharding.tensor = 4;
  const Bytes tokens(2.0 * 2048 * 12288 * 2);
  SECTION("all-reduce without sequence parallelism") {
    const BlockOperators layer = layer_operators(gpt3_layer(), true, sharding);
    for (const PassOperators* pass : {&layer.forward, &layer.backward}) {
      const auto collectives = all_of<Collective>(pass->communication);
      REQUIRE(collectives.size() == 2);
      for (const Collective& op : collectives) {
        CHECK(op.kind == CollectiveKind::all_reduce);
        CHECK(op.bytes == tokens);
        CHECK(op.ranks == 4);
        CHECK(op.ranks_per_node == 4);
      }
    }
  }
  SECTION("reduce-scatter and all-gather with it") {
    sharding.sequence_parallel = true;
    const BlockOperators layer = layer_operators(gpt3_layer(), true, sharding);
    for (const PassOperators* pass : {&layer.forward, &layer.backward}) {
      CHECK(times(pass->communication, CollectiveKind::all_gather) == 2);
      CHECK(times(pass->communication, CollectiveKind::reduce_scatter) == 2);
      CHECK(pass->communication.size() == 4);
    }
  }
  SECTION("none on one rank") {
    sharding.tensor = 1;
    const BlockOperators layer = layer_operators(gpt3_layer(), true, sharding);
    CHECK(layer.forward.communication.empty());
    CHECK(layer.backward.communication.empty());
  }
}

TEST_CASE(
    "gradients of inputs are reduced beside the weight gradients of the same matrix where the stack does "
    "so") {
  Sharding sharding = plain(2, 2048);
  sharding.tensor = 4;
  sharding.stack.async_tensor_gradients = true;
  sharding.sequence_parallel = GENERATE(false, true);
  const auto reduction =
      sharding.sequence_parallel ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
  const BlockOperators layer = layer_operators(gpt3_layer(), true, sharding);
  Sharding waiting = sharding;
  waiting.stack.async_tensor_gradients = false;
  const BlockOperators same = layer_operators(gpt3_layer(), true, waiting);
  CHECK(times(layer.backward.communication, reduction) == times(same.backward.communication, reduction));
  CHECK(layer.backward.compute.size() == same.backward.compute.size());
  std::vector<Gemm> beside;
  int gathers = 0;
  for (std::size_t i = 0; i < layer.backward.places.size(); ++i) {
    const CallPlace& place = layer.backward.places[i];
    if (place.beside == 0.0) continue;
    CHECK(place.beside == 1.0);
    const CollectiveKind kind = std::get<Collective>(layer.backward.communication[i]).kind;
    if (kind == CollectiveKind::all_gather) {  // what the weight gradient is of, beside the input's
      const Gemm& input = std::get<Gemm>(layer.backward.compute[place.after - 1]);
      const Gemm& weights = std::get<Gemm>(layer.backward.compute[place.after - 2]);
      CHECK((input.m == weights.k && input.k == weights.n && input.n == weights.m));
      ++gathers;
      continue;
    }
    CHECK(kind == reduction);
    beside.push_back(std::get<Gemm>(layer.backward.compute[place.after - 1]));
    // A backward runs from its end: the gradient that is reduced was computed just before.
    const Gemm& input = std::get<Gemm>(layer.backward.compute[place.after]);
    CHECK((input.m == beside.back().k && input.k == beside.back().n && input.n == beside.back().m));
  }
  // Of the QKV and the up projection: [h, width / 4, tokens].
  constexpr GemmPass kWeights = GemmPass::weight_gradient;
  CHECK(beside == std::vector<Gemm>{{.m = 12288, .n = 3 * 12288 / 4, .k = 4096, .pass = kWeights},
                                    {.m = 12288, .n = 12288, .k = 4096, .pass = kWeights}});
  CHECK(gathers == (sharding.sequence_parallel ? 2 : 0));
}

// [s b h] before the matrices QKV and up, and the gradients behind projection and down; their sums in 16
// bits.
TEST_CASE("sequence-parallel ranks gather in 8 or 4 bits what matrices read in them") {
  Sharding sharding = plain(2, 2048);
  sharding.tensor = 4;
  sharding.sequence_parallel = true;
  const double elements = 2.0 * 2048 * 12288;
  const auto each = [&](DataType type, Fp8Recipe recipe) {
    sharding.type = type;
    sharding.stack.fp8_recipe = recipe;
    const BlockOperators layer = layer_operators(gpt3_layer(), true, sharding);
    std::set<double> gathered, reduced;
    for (const PassOperators* pass : {&layer.forward, &layer.backward}) {
      for (const Collective& op : all_of<Collective>(pass->communication))
        (op.kind == CollectiveKind::all_gather ? gathered : reduced).insert(op.bytes.value() / elements);
    }
    CHECK(reduced == std::set<double>{2.0});
    REQUIRE(gathered.size() == 1);
    return *gathered.begin();
  };
  CHECK(each(DataType::bf16, Fp8Recipe::delayed) == 2.0);
  CHECK(each(DataType::fp8, Fp8Recipe::tensorwise) == 1.0);
  CHECK(each(DataType::fp8, Fp8Recipe::rowwise) == 2.0);
  CHECK(each(DataType::fp8, Fp8Recipe::mxfp8) == 1.0 + 1.0 / 32);
  CHECK(each(DataType::fp4, Fp8Recipe::mxfp8) == 0.5 + 1.0 / 16);
}

// [b s h] cut along s while a collective joins and cuts along b: each exchange reads and writes all of it
// once more, beside the collective and never under it.
TEST_CASE("tokens that are cut along their second dimension are copied after gathers and before scatters") {
  Sharding sharding = plain(2, 2048);
  sharding.tensor = 4;
  sharding.sequence_parallel = true;
  const double moved = 2 * 2.0 * 2048 * 12288 * 2;
  const auto copies = [&](SequenceCopies kind, std::int64_t micro_batch) {
    sharding.stack.sequence_copies = kind;
    sharding.micro_batch = micro_batch;
    const BlockOperators layer = layer_operators(gpt3_layer(), true, sharding);
    std::array<std::vector<std::size_t>, 2> places;  // of copies of all tokens, forward and backward
    for (const std::size_t pass : {0, 1}) {
      const auto& compute = (pass == 0 ? layer.forward : layer.backward).compute;
      for (std::size_t i = 0; i < compute.size(); ++i) {
        const auto* kernel = std::get_if<MemoryBound>(&compute[i]);
        const double all = moved / 2 * static_cast<double>(micro_batch);
        if (kernel && kernel->kernel == MemoryKernel::copy && kernel->bytes.value() == all)
          places.at(pass).push_back(i);
      }
    }
    return places;
  };
  for (const std::int64_t batch : {1, 2}) CHECK(copies(SequenceCopies::none, batch)[0].empty());
  const auto both = copies(SequenceCopies::all, 2);
  CHECK(both[0].size() == 4);
  CHECK(both[1].size() == 4);
  CHECK(copies(SequenceCopies::of_several, 2) == both);
  CHECK(copies(SequenceCopies::all, 1)[0].size() == 4);
  // What is gathered of one sequence lies in order.
  CHECK(copies(SequenceCopies::of_several, 1)[0].size() == 2);
  CHECK(copies(SequenceCopies::of_several, 1)[1].size() == 2);

  sharding.micro_batch = 2;
  sharding.stack.sequence_copies = SequenceCopies::all;
  const BlockOperators layer = layer_operators(gpt3_layer(), true, sharding);
  const auto kind = [](const PassOperators& pass, std::size_t call) {
    return std::get<Collective>(pass.communication[call]).kind;
  };
  for (std::size_t i = 0; i < 4; ++i) {
    // Forward the copy of a gather is the next kernel, that of a scatter the one before; a backward runs
    // from its end, so it is the other way round.
    const bool gathers = kind(layer.forward, i) == CollectiveKind::all_gather;
    const std::size_t after = layer.forward.places[i].after;
    CHECK(std::count(both[0].begin(), both[0].end(), gathers ? after : after - 1) == 1);
    const bool gathers_back = kind(layer.backward, i) == CollectiveKind::all_gather;
    const std::size_t back = layer.backward.places[i].after;
    CHECK(std::count(both[1].begin(), both[1].end(), gathers_back ? back - 1 : back) == 1);
  }
  sharding.sequence_parallel = false;
  CHECK(copies(SequenceCopies::all, 2)[0].empty());
}

TEST_CASE(
    "tensor ranks fill a node first, then context ranks; experts go over context ranks, then replicas") {
  Sharding sharding = plain(1, 8192);
  sharding.tensor = 2;
  sharding.context = 2;
  sharding.expert = 4;
  sharding.sequence_parallel = true;
  sharding.gpus_per_node = 8;
  const BlockOperators layer = layer_operators(mixtral_layer(), true, sharding);
  for (const Collective& op : all_of<Collective>(layer.forward.communication)) {
    // Expert ranks are two tensor ranks apart: the context ranks of two replicas, four in a node of eight.
    if (op.kind == CollectiveKind::all_to_all) CHECK((op.ranks == 4 && op.ranks_per_node == 4));
    if (op.kind == CollectiveKind::reduce_scatter) CHECK((op.ranks == 2 && op.ranks_per_node == 2));
  }
  // In a mesh of eight each group has the links of its own ranks.
  NodeGroup node;
  node.gpu = find_gpu("MI300X", "test");
  node.gpu_link = {node.gpu.link_bandwidth, {}};
  sharding.gpu_links = NodeLinks(node);
  for (const Collective& op :
       all_of<Collective>(layer_operators(mixtral_layer(), true, sharding).forward.communication))
    CHECK(op.gpu_link.bandwidth == node.gpu_link.bandwidth * ((op.ranks - 1) / 7.0));
  sharding.tensor = 8;
  sharding.expert = 1;
  const BlockOperators wide = layer_operators(llama70b_layer(), true, sharding);
  int rings = 0;
  for (const Collective& op : all_of<Collective>(wide.forward.communication)) {
    if (op.ranks != 2) continue;
    ++rings;
    CHECK(op.ranks_per_node == 1);
  }
  CHECK(rings == 1);
}

TEST_CASE(
    "context parallelism sends every key and value round once forward, and twice with gradients backward") {
  Sharding sharding = plain(1, 8192);
  sharding.context = 4;
  const BlockOperators layer = layer_operators(llama70b_layer(), true, sharding);
  // K and V of 8192 tokens, 8 heads of 128, 2 bytes.
  const double keys_values = 2.0 * 8192 * 8 * 128 * 2;
  CHECK(ring_bytes(layer.forward.communication) == Approx(keys_values * 3 / 4));
  CHECK(ring_bytes(layer.backward.communication) == Approx(2 * keys_values * 3 / 4));
  const std::vector<Attention> core = all_of<Attention>(layer.forward.compute);
  REQUIRE(core.size() == 1);
  CHECK(core[0].query_tokens == 2048);
  CHECK(core[0].kv_tokens == 8192);
}

TEST_CASE("a context exchange runs beside all steps of the attention but the last") {
  Sharding sharding = plain(1, 8192);
  sharding.context = 4;
  const BlockOperators layer = layer_operators(llama70b_layer(), true, sharding);
  for (const PassOperators* pass : {&layer.forward, &layer.backward}) {
    double beside = 0;
    for (const CallPlace& place : pass->places) {
      CHECK(place.group == RankGroup::context);
      CHECK(std::holds_alternative<Attention>(pass->compute[place.after - 1]));
      beside += place.beside;
    }
    CHECK(beside == 0.75);
  }
}

// Blocks wait for each other: the hop between nodes has the card of one GPU, four of which here share one.
TEST_CASE("a ring of blocks over nodes goes by one card of each, all that lie beside it by as many rings") {
  Sharding sharding = plain(1, 8192);
  sharding.context = 16;
  sharding.gpus_per_node = 8;
  sharding.gpus_per_nic = 4;
  sharding.network.bandwidth = gigabytes_per_second(12.5);
  const auto exchange = [&] {
    const BlockOperators layer = layer_operators(llama70b_layer(), true, sharding);
    const auto calls = all_of<Collective>(layer.forward.communication);
    std::size_t of_context = 0;
    while (layer.forward.places.at(of_context).group != RankGroup::context) ++of_context;
    return calls.at(of_context);
  };
  CHECK(exchange().one_channel);
  CHECK(exchange().ranks_per_node == 1);
  CHECK(exchange().network.bandwidth == gigabytes_per_second(50));
  sharding.tensor = 2;  // two rings cross, from one card
  CHECK(exchange().network.bandwidth == gigabytes_per_second(25));
  sharding.tensor = 8;  // a ring for each GPU
  CHECK(exchange().network.bandwidth == gigabytes_per_second(12.5));
  sharding.tensor = 1;
  sharding.context = 8;
  CHECK_FALSE(exchange().one_channel);
  CHECK(exchange().ranks_per_node == 8);
}

TEST_CASE("ranks that exchange heads attend with all tokens, with their share of the heads") {
  Sharding sharding = plain(1, 8192);
  const BlockOperators alone = layer_operators(llama70b_layer(), true, sharding);
  sharding.stack.context_exchange = ContextExchange::heads;
  const auto flops = [](const BlockOperators& layer) {
    return flops_of(all_of<Attention>(layer.backward.compute)[0]).value();
  };
  for (const int ranks : {4, 16}) {  // heads of keys for each, and half as many as ranks
    sharding.context = ranks;
    const BlockOperators layer = layer_operators(llama70b_layer(), true, sharding);
    const Attention core = all_of<Attention>(layer.forward.compute)[0];
    CHECK((core.query_tokens == 8192 && core.kv_tokens == 8192));
    CHECK((core.heads == 64 / ranks && core.kv_heads == std::max(1, 8 / ranks)));
    CHECK(flops(layer) == Approx(flops(alone) / ranks));
    // Queries, and keys and values as often as ranks need them; then what attention made of them.
    const double tokens = 8192.0 / ranks, keys = 2 * 8 * 128 * std::max(1, ranks / 8);
    for (const auto pass : {&BlockOperators::forward, &BlockOperators::backward}) {
      const auto sent = all_of<Collective>((layer.*pass).communication);
      REQUIRE(sent.size() == 2);
      CHECK((sent[0].kind == CollectiveKind::all_to_all && sent[0].ranks == ranks));
      CHECK(sent[0].bytes.value() == tokens * (8192 + keys) * 2);
      CHECK(sent[1].bytes.value() == tokens * 8192 * 2);
    }
    // Each element of both is transposed twice: read and written in 16 bits.
    CHECK(test::copied_bytes(layer.forward) - test::copied_bytes(alone.forward) ==
          Approx(8 * tokens * (8192 + keys + 8192)));
  }
}

// Rank by rank and step by step what AttnFuncWithCPAndKVP2P of Transformer Engine 2.8 copies and adds, in
// bytes for each element of 2 bytes; the mean of the ranks. Halves are of the rank's own tokens.
struct RingCopies {
  double keys = 0, queries = 0, outputs = 0;
  [[nodiscard]] double bytes(double key_elements, double query_elements, double output_elements) const {
    return keys * key_elements + queries * query_elements + outputs * output_elements;
  }
};

RingCopies forward_copies(int ranks) {
  RingCopies sum;
  for (int rank = 0; rank < ranks; ++rank) {
    sum.keys += 4;  // keys and values are joined
    for (int step = 0; step < ranks; ++step) {
      if (step == 0) {
        sum.outputs += 4;
      } else if (step <= rank) {
        sum.keys += 4 / 2.0;  // contiguous()
        sum.outputs += 6;     // flash_attn_fwd_out_correction: reads both, writes one
      } else {
        sum.queries += 4 / 2.0;
        sum.outputs += 6 / 2.0;
      }
    }
  }
  return {sum.keys / ranks, sum.queries / ranks, sum.outputs / ranks};
}

RingCopies backward_copies(int ranks) {
  RingCopies sum;
  // Whether somebody wrote the halves of the gradients of the keys of each rank, which travel with them.
  std::vector<std::array<bool, 2>> written(static_cast<std::size_t>(ranks));
  std::vector<std::array<bool, 2>> query_written(static_cast<std::size_t>(ranks));
  const auto put = [](std::array<bool, 2>& there, std::size_t half) {
    const double bytes = there[half] ? 6 / 2.0 : 4 / 2.0;  // add_ or copy_
    there[half] = true;
    return bytes;
  };
  sum.keys += 4.0 * ranks;  // p2p_comm_buffers[0][0].copy_(kv)
  for (int step = 0; step < ranks; ++step) {
    for (int rank = 0; rank < ranks; ++rank) {
      // The keys a rank ends with forward are those of its next, and they go back.
      const auto owner = static_cast<std::size_t>((rank + 1 + step) % ranks),
                 own = static_cast<std::size_t>(rank);
      const bool diagonal = step == ranks - 1, early_keys = step >= ranks - rank - 1;
      if (!diagonal && early_keys) sum.keys += 4 / 2.0;
      if (!early_keys) {
        sum.queries += 4 / 2.0;
        sum.outputs += 2 * 4 / 2.0;  // out and dout
      }
      if (early_keys) sum.queries += put(query_written[own], 0);
      sum.queries += put(query_written[own], 1);
      sum.keys += put(written[owner], 0);
      if (diagonal || !early_keys) sum.keys += put(written[owner], 1);
    }
  }
  return {sum.keys / ranks, sum.queries / ranks, sum.outputs / ranks};
}

TEST_CASE("a ring copies the halves it attends with, and adds up outputs and gradients step by step") {
  const int ranks = GENERATE(2, 3, 4, 8);
  const LayerShape shape = llama70b_layer();
  Sharding sharding = plain(1, 8192 * 3);
  const BlockOperators alone = layer_operators(shape, true, sharding);
  sharding.context = ranks;
  const BlockOperators layer = layer_operators(shape, true, sharding);
  const double tokens = 8192.0 * 3 / ranks, queries = tokens * 64 * 128, keys = 2 * tokens * 8 * 128;
  // Gradients of weights are copied whatever the ranks.
  const auto ring = [&](PassOperators BlockOperators::*pass) {
    return test::copied_bytes(layer.*pass) - test::copied_bytes(alone.*pass);
  };
  CHECK(ring(&BlockOperators::forward) == Approx(forward_copies(ranks).bytes(keys, queries, queries)));
  CHECK(ring(&BlockOperators::backward) == Approx(backward_copies(ranks).bytes(keys, queries, queries)));
}

TEST_CASE("gathered keys hide under the first step alone, their fp32 gradients under the others") {
  Sharding sharding = plain(1, 8192);
  sharding.context = 4;
  sharding.stack.context_exchange = ContextExchange::gathered;
  sharding.stack.repeated_keys = true;
  const BlockOperators layer = layer_operators(llama70b_layer(), true, sharding);
  // K and V of 8192 tokens, repeated for 64 heads of 128.
  const double elements = 2.0 * 8192 * 64 * 128;
  CHECK(ring_bytes(layer.forward.communication) == Approx(2 * elements * 3 / 4));
  // Gradients of one rank's quarter are passed on after each of the four steps.
  CHECK(ring_bytes(layer.backward.communication) == Approx(2 * elements * 3 / 4 + 4 * elements / 4 * 4));
  REQUIRE(layer.forward.places.size() == 1);
  CHECK(layer.forward.places[0].beside == 0.25);
  REQUIRE(layer.backward.places.size() == 2);
  CHECK(layer.backward.places[0].beside == 0.25);
  CHECK(layer.backward.places[1].beside == 0.75);
}

}  // namespace orrery
