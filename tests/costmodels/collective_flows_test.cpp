#include "costmodels/collectives/collective_flows.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "costmodels/collectives/collective_tree.hpp"
#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/collective_fixture.hpp"

using namespace orrery;

namespace {

constexpr std::uint32_t kSeeds = 300;

// Payload in and out of each GPU, and in all, in shares of the vector.
struct Moved {
  std::map<int, double> in, out;
  double all = 0;
};

Moved moved(const std::vector<FlowPhase>& phases, Bytes bytes) {
  Moved sum;
  for (const FlowPhase& phase : phases) {
    for (const Flow& flow : phase.flows) {
      const double share = flow.payload / bytes;
      sum.out[flow.from] += share;
      sum.in[flow.to] += share;
      sum.all += share;
    }
  }
  return sum;
}

// How much less than `least` some member gets or sends; 0 where nobody does.
double shortfall(const std::map<int, double>& shares, const std::vector<int>& gpus, double least) {
  double worst = 0;
  for (const int gpu : gpus) {
    const auto share = shares.find(gpu);
    worst = std::max(worst, least - (share == shares.end() ? 0.0 : share->second));
  }
  return worst < 1e-9 ? 0.0 : worst;
}

void check_flows(const std::vector<FlowPhase>& phases, const std::vector<int>& gpus) {
  const std::set<int> members(gpus.begin(), gpus.end());
  for (const FlowPhase& phase : phases) {
    CHECK_FALSE(phase.flows.empty());
    CHECK(phase.tail >= Seconds(0));
    std::set<std::pair<int, int>> pairs;
    for (const Flow& flow : phase.flows) {
      CHECK(members.count(flow.from) + members.count(flow.to) == 2);
      CHECK(flow.from != flow.to);
      CHECK(flow.payload > Bytes(0));
      CHECK(flow.wire >= Bytes(1));
      CHECK(pairs.insert({flow.from, flow.to}).second);
    }
  }
}

int node_count(const RandomGroup& group) {
  std::set<int> nodes;
  for (const int gpu : group.gpus) nodes.insert(group.topology.device(gpu).node);
  return static_cast<int>(nodes.size());
}

int smallest_node(const RandomGroup& group) {
  std::map<int, int> members;
  for (const int gpu : group.gpus) ++members[group.topology.device(gpu).node];
  return std::min_element(members.begin(), members.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->second;
}

int depth_of(const TreeParents& parents, int vertex) {
  int depth = 0;
  for (; parents[static_cast<std::size_t>(vertex)]; ++depth) {
    REQUIRE(depth < static_cast<int>(parents.size()));  // no circle
    vertex = *parents[static_cast<std::size_t>(vertex)];
  }
  return depth;
}

}  // namespace

TEST_CASE("algorithms are read as they are written") {
  for (const auto algorithm : {CollectiveAlgorithm::ring, CollectiveAlgorithm::double_binary_tree,
                               CollectiveAlgorithm::hierarchical, CollectiveAlgorithm::direct}) {
    CHECK(parse_collective_algorithm(to_text(algorithm), "--collective") == algorithm);
  }
  CHECK_THROWS_AS(parse_collective_algorithm("rings", "--collective"), InputError);
  CHECK_THROWS_AS(parse_collective_algorithm("", "--collective"), InputError);
}

TEST_CASE("flows connect distinct members, one flow a pair and phase") {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    const RandomGroup group = random_group(seed, Spread::any, Contention::shared);
    INFO(group.text);
    for (const CollectiveCall& call : every_call(group)) {
      INFO(name_of(call));
      const auto phases = collective_flows(group.topology, call);
      CHECK(phases.empty() == (group.gpus.size() == 1));
      check_flows(phases, group.gpus);
    }
    for (const BroadcastCall& call : every_broadcast(group)) {
      INFO("broadcast " << to_text(*call.algorithm));
      check_flows(broadcast_flows(group.topology, call), group.gpus);
    }
  }
}

TEST_CASE("on one channel every hop of a ring carries all, between nodes from the last GPU to the first") {
  const Topology topology = equal_nodes({.nodes = 2, .gpus = 4, .nics = 4});
  CollectiveCall call{
      CollectiveKind::all_gather, CollectiveAlgorithm::ring, Bytes(8000), {}, gpus_from(0, 8)};
  const auto largest = [&](int from, int to) {
    const std::vector<FlowPhase> phases = collective_flows(topology, call);
    for (const Flow& flow : phases.front().flows)
      if (flow.from == from && flow.to == to) return flow.payload.value();
    return 0.0;
  };
  for (const int from : gpus_from(0, 4)) CHECK(largest(from, from + 4) == 7000 / 4.0);
  call.one_channel = true;
  for (const int from : gpus_from(0, 8)) CHECK(largest(from, (from + 1) % 8) == 7000);
  CHECK(collective_flows(topology, call).front().flows.size() == 8);
}

TEST_CASE("flows that leave some members are those of all that do, with the tails of all") {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    const RandomGroup group = random_group(seed, Spread::any, Contention::shared);
    INFO(group.text);
    std::vector<int> images(static_cast<std::size_t>(group.topology.gpus()), -1);
    for (std::size_t i = 0; i < group.gpus.size(); ++i)
      images[static_cast<std::size_t>(group.gpus[i])] = group.gpus[i % ((group.gpus.size() + 1) / 2)];
    for (const CollectiveCall& call : every_call(group)) {
      if (call.algorithm == CollectiveAlgorithm::hierarchical) continue;  // leaves out what has no flows
      INFO(name_of(call));
      const auto all = collective_flows(group.topology, call);
      const auto some = collective_flows(group.topology, call, &images);
      REQUIRE(some.size() == all.size());
      for (std::size_t phase = 0; phase < all.size(); ++phase) {
        CHECK(some[phase].tail == all[phase].tail);
        std::vector<Flow> left;
        for (const Flow& flow : all[phase].flows) {
          if (images[static_cast<std::size_t>(flow.from)] == flow.from) left.push_back(flow);
        }
        REQUIRE(some[phase].flows.size() == left.size());
        for (std::size_t i = 0; i < left.size(); ++i) {
          CHECK(some[phase].flows[i].from == left[i].from);
          CHECK(some[phase].flows[i].to == left[i].to);
          CHECK(some[phase].flows[i].wire == left[i].wire);
        }
      }
    }
  }
}

// Each result byte of a reduction needs n-1 messages, each gathered byte n-1 more; every algorithm here gets
// by with that, but for what the hierarchy of unequal nodes hands from its heads to the n - nodes * heads
// others: 1/n each.
TEST_CASE("no byte is sent twice: what is sent in all is the least there is") {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    const RandomGroup group = random_group(seed, Spread::any, Contention::shared);
    INFO(group.text);
    const auto n = static_cast<double>(group.gpus.size());
    const double others = n - node_count(group) * smallest_node(group);
    for (const CollectiveCall& call : every_call(group)) {
      INFO(name_of(call));
      const bool twice = call.kind == CollectiveKind::all_reduce;
      const double extra = !twice && call.algorithm == CollectiveAlgorithm::hierarchical ? others / n : 0.0;
      const Moved sum = moved(collective_flows(group.topology, call), call.bytes);
      CHECK(sum.all == Approx((twice ? 2 : 1) * (n - 1) + extra).epsilon(1e-9));
    }
    for (const BroadcastCall& call : every_broadcast(group)) {
      INFO("broadcast " << to_text(*call.algorithm));
      const Moved sum = moved(broadcast_flows(group.topology, call), call.bytes);
      CHECK(sum.all == Approx(n - 1).epsilon(1e-9));
      CHECK(shortfall(sum.in, {group.gpus.begin() + 1, group.gpus.end()}, 1.0) == 0);
      CHECK(sum.in.count(group.gpus.front()) == 0);  // the root needs nothing
    }
  }
}

// Of an all-reduce a member must send its whole vector, or what it is part of, and get the whole result. Of
// the others it must get (all-gather) or send (reduce-scatter) all but its own part, and send or get that.
TEST_CASE("every member gets and sends what the kind demands") {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Spread spread = seed % 2 == 0 ? Spread::any : Spread::even;
    const RandomGroup group = random_group(seed, spread, Contention::shared);
    INFO(group.text);
    const auto n = static_cast<double>(group.gpus.size());
    if (n < 2) continue;
    for (const CollectiveCall& call : every_call(group)) {
      INFO(name_of(call));
      const Moved sum = moved(collective_flows(group.topology, call), call.bytes);
      const bool reduces = call.kind == CollectiveKind::all_reduce;
      const bool one_way =
          call.kind == CollectiveKind::reduce_scatter || call.kind == CollectiveKind::all_gather;
      const bool gathers = call.kind == CollectiveKind::all_gather;
      const double most = (n - 1) / n;
      CHECK(shortfall(sum.in, group.gpus, reduces ? 1.0 : one_way && !gathers ? 1 / n : most) == 0);
      CHECK(shortfall(sum.out, group.gpus, reduces ? 1.0 : gathers ? 1 / n : most) == 0);
    }
  }
}

TEST_CASE("with equal nodes every member but a tree's gets and sends the same") {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    const RandomGroup group = random_group(seed, Spread::even, Contention::shared);
    INFO(group.text);
    const auto n = static_cast<double>(group.gpus.size());
    if (n < 2) continue;
    for (const CollectiveCall& call : every_call(group)) {
      INFO(name_of(call));
      Moved sum = moved(collective_flows(group.topology, call), call.bytes);
      const double share = (call.kind == CollectiveKind::all_reduce ? 2 : 1) * (n - 1) / n;
      for (const int gpu : group.gpus) {
        CHECK(sum.in[gpu] == Approx(sum.out[gpu]).epsilon(1e-9));
        if (call.algorithm == CollectiveAlgorithm::double_binary_tree) continue;
        CHECK(sum.in[gpu] == Approx(share).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("both trees span and no vertex is an inner node of both") {
  for (int count = 1; count <= 260; ++count) {
    INFO(count);
    const DoubleBinaryTree trees = double_binary_tree(count);
    std::vector<int> inner_of(static_cast<std::size_t>(count), 0);
    for (const TreeParents* parents : {&trees.first, &trees.second}) {
      REQUIRE(parents->size() == static_cast<std::size_t>(count));
      CHECK(std::count(parents->begin(), parents->end(), std::nullopt) == 1);
      std::vector<int> children(static_cast<std::size_t>(count), 0);
      for (int vertex = 0; vertex < count; ++vertex) {
        CHECK(depth_of(*parents, vertex) <= std::ceil(std::log2(count)));  // reaches the root: it spans
        const std::optional<int> parent = (*parents)[static_cast<std::size_t>(vertex)];
        if (parent) ++children[static_cast<std::size_t>(*parent)];
      }
      for (std::size_t vertex = 0; vertex < children.size(); ++vertex) {
        CHECK(children[vertex] <= 2);
        if (children[vertex] > 0) ++inner_of[vertex];
      }
    }
    CHECK(*std::max_element(inner_of.begin(), inner_of.end()) <= 1);
  }
}

TEST_CASE("four vertices have the trees of NCCL") {
  // src/graph/trees.cc: 0 over 2, 2 over 1 and 3; mirrored: 3 over 1, 1 over 0 and 2.
  const DoubleBinaryTree trees = double_binary_tree(4);
  CHECK(trees.first == TreeParents{std::nullopt, 2, 0, 2});
  CHECK(trees.second == TreeParents{1, 3, 1, std::nullopt});
}

TEST_CASE("two members exchange halves or wholes, and nothing else") {
  const Topology topology = equal_nodes({.nodes = 2, .gpus = 1});
  for (const auto algorithm : {CollectiveAlgorithm::ring, CollectiveAlgorithm::double_binary_tree,
                               CollectiveAlgorithm::hierarchical, CollectiveAlgorithm::direct}) {
    INFO(to_text(algorithm));
    const auto phases =
        collective_flows(topology, {CollectiveKind::all_reduce, algorithm, Bytes(1000), {}, {0, 1}});
    Moved sum = moved(phases, Bytes(1000));
    CHECK(sum.in[0] == Approx(1.0));  // 2 (n-1)/n
    CHECK(sum.in[1] == Approx(1.0));
  }
}

TEST_CASE("a collective without bytes still takes its latency, of one byte a flow") {
  const Topology topology = equal_nodes({.nodes = 3, .gpus = 4, .nics = 2});
  RandomGroup group{topology, {0, 1, 4, 5, 6, 8}, Bytes(0), ""};
  for (const CollectiveCall& call : every_call(group)) {
    INFO(name_of(call));
    const auto phases = collective_flows(topology, call);
    REQUIRE_FALSE(phases.empty());
    for (const FlowPhase& phase : phases) {
      for (const Flow& flow : phase.flows) {
        CHECK(flow.payload == Bytes(0));
        CHECK(flow.wire == Bytes(1));
      }
    }
  }
}

TEST_CASE("wires carry payload over efficiency, inside and between nodes") {
  const Topology topology = equal_nodes({.nodes = 2, .gpus = 2});
  for (const auto algorithm : {CollectiveAlgorithm::double_binary_tree, CollectiveAlgorithm::hierarchical,
                               CollectiveAlgorithm::direct}) {
    for (const FlowPhase& phase : collective_flows(
             topology, {CollectiveKind::all_reduce, algorithm, Bytes(8000), {0.5, 0.25}, {0, 1, 2, 3}})) {
      for (const Flow& flow : phase.flows) {
        const double efficiency = topology.same_node(flow.from, flow.to) ? 0.5 : 0.25;
        CHECK(flow.wire.value() == Approx(flow.payload.value() / efficiency));
      }
    }
  }
}

TEST_CASE("heads of a node sit on NICs of their own") {
  // Nodes of four GPUs and two NICs; members 0 1 2 of the first (NICs 0 0 1), 4 and 6 of the second (NICs 0
  // and 1): two heads, 0 and 2, not 0 and 1.
  const Topology topology = equal_nodes({.nodes = 2, .gpus = 4, .nics = 2});
  const auto phases = collective_flows(
      topology,
      {CollectiveKind::all_reduce, CollectiveAlgorithm::hierarchical, Bytes(1000), {}, {0, 1, 2, 4, 6}});
  REQUIRE(phases.size() == 3);
  std::set<std::pair<int, int>> between;
  for (const Flow& flow : phases[1].flows) between.insert({flow.from, flow.to});
  CHECK(between == std::set<std::pair<int, int>>{{0, 4}, {4, 0}, {2, 6}, {6, 2}});
}

TEST_CASE("an algorithm refuses a kind it is not defined for") {
  const Topology topology = equal_nodes({});
  for (const auto algorithm : {CollectiveAlgorithm::ring, CollectiveAlgorithm::double_binary_tree,
                               CollectiveAlgorithm::hierarchical}) {
    CHECK_THROWS_AS(collective_flows(topology, {CollectiveKind::all_to_all, algorithm, Bytes(8), {}, {0, 1}}),
                    Defect);
  }
}
