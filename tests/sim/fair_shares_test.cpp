// Fair rates against an oracle that raises all together; and flows that get them against SimGrid's.
#include "sim/replay/fair_shares.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "platforms/cluster.hpp"
#include "sim/replay/children.hpp"
#include "sim/replay/network.hpp"
#include "tests/catch.hpp"
#include "tests/strategies/random_schedule.hpp"

namespace orrery {
namespace {

using test::between;

ClusterSpec cluster_of(int nodes, int nics, double nic_gigabits, int nodes_per_leaf) {
  std::string yaml =
      "name: c\ngroups:\n  - {name: g, gpu: H100, gpus_per_node: 4, count: " + std::to_string(nodes) +
      ", nics_per_node: " + std::to_string(nics) + ", nic_bandwidth: " + std::to_string(nic_gigabits) +
      "Gbps, nic_latency: 2us}\n";
  if (nodes_per_leaf > 0)
    yaml += "fabric: {nodes_per_leaf: " + std::to_string(nodes_per_leaf) + ", oversubscription: 2}\n";
  return parse_cluster(yaml, "test");
}

// Raises all rates together; flows stop where a link is full (Bertsekas and Gallager, section 6.5.2).
std::vector<double> progressive_filling(const Topology& topology, const std::vector<Route>& routes) {
  std::vector<double> rates(routes.size(), 0.0);
  std::vector<bool> fixed(routes.size(), false);
  while (std::count(fixed.begin(), fixed.end(), false) > 0) {
    std::map<int, double> left;
    std::map<int, int> growing;
    for (std::size_t f = 0; f < routes.size(); ++f) {
      for (int i = 0; i < routes[f].count; ++i) {
        const int link = routes[f].links[static_cast<std::size_t>(i)];
        left.try_emplace(link, topology.links()[static_cast<std::size_t>(link)].spec.bandwidth.value());
        left[link] -= rates[f];
        growing[link] += fixed[f] ? 0 : 1;
      }
    }
    double step = 1e30;
    for (const auto& [link, flows] : growing)
      if (flows > 0) step = std::min(step, left[link] / flows);
    for (std::size_t f = 0; f < routes.size(); ++f) {
      if (fixed[f]) continue;
      rates[f] += step;
      for (int i = 0; i < routes[f].count; ++i) {
        const int link = routes[f].links[static_cast<std::size_t>(i)];
        if (left[link] - step * growing[link] < 1e-9 * left[link] + 1) fixed[f] = true;
      }
    }
  }
  return rates;
}

struct Sent {
  double at = 0;  // s
  int from = 0, to = 0;
  double bytes = 0;
};

// Ends of flows, in the order of `sent`.
class Sender : public EventSink {
 public:
  Sender(const Topology& topology, std::vector<Sent> sent, std::size_t many)
      : topology_(topology), network_(topology, many), sent_(std::move(sent)), ends_(sent_.size(), -1.0) {}

  std::vector<double> run() {
    for (std::uint32_t i = 0; i < sent_.size(); ++i) network_.after(sent_[i].at, i);
    network_.run(*this);
    return ends_;
  }

  void on_event(std::uint32_t tag) override {
    const auto count = static_cast<std::uint32_t>(sent_.size());
    if (tag >= count) {
      ends_[tag - count] = network_.now();
      return;
    }
    const Sent& flow = sent_[tag];
    network_.start_flow(make_flow(topology_, flow.from, flow.to, Bytes(flow.bytes), {}), tag + count);
  }

 private:
  const Topology& topology_;
  Network network_;
  std::vector<Sent> sent_;
  std::vector<double> ends_;  // s
};

// Exchanges among some of the GPUs, each at one of two dates, and other messages at any.
std::vector<Sent> random_traffic(std::mt19937& random, int gpus) {
  std::vector<Sent> sent;
  for (int exchange = between(random, 1, 3); exchange > 0; --exchange) {
    const double at = 1e-3 * between(random, 0, 1), bytes = 1e6 * between(random, 1, 9);
    const int unequal = between(random, 0, 1);  // the odd ones send twice as much
    const int members = between(random, gpus / 2, gpus);
    for (int from = 0; from < members; ++from) {
      for (int to = 0; to < members; ++to) {
        if (from != to) sent.push_back({at, from, to, bytes * (1 + unequal * (from % 2))});
      }
    }
  }
  for (int more = between(random, 0, 40); more > 0; --more) {
    const int from = between(random, 0, gpus - 1), to = (from + between(random, 1, gpus - 1)) % gpus;
    sent.push_back({1e-4 * between(random, 0, 80), from, to, 1e5 * between(random, 1, 200)});
  }
  return sent;
}

}  // namespace

TEST_CASE("rates are those of progressive filling, flow by flow") {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const Topology topology(
        cluster_of(4, 1 << between(random, 0, 2), 100.0 * between(random, 1, 8), between(random, 0, 2)), {4});
    std::vector<Route> routes;
    for (int flow = between(random, 1, 60); flow > 0; --flow) {
      const int from = between(random, 0, 15), to = (from + between(random, 1, 15)) % 16;
      routes.push_back(topology.route(from, to));
    }
    FairShares shares(topology);
    shares.set_flows({topology.route(0, 1)});  // of which nothing is left
    shares.set_flows(routes);
    const std::vector<double> rates = shares.rates(), expected = progressive_filling(topology, routes);
    for (std::size_t f = 0; f < routes.size(); ++f) REQUIRE(rates[f] == Approx(expected[f]).epsilon(1e-9));
    const auto flows_on = [&](int link) {
      return static_cast<int>(std::count_if(routes.begin(), routes.end(), [&](const Route& route) {
        return std::count(route.links.begin(), route.links.begin() + route.count, link) > 0;
      }));
    };
    CHECK(shares.are_all(flows_on));
    const int crossed = routes.front().links.front();
    CHECK_FALSE(shares.are_all([&](int link) { return flows_on(link) + (link == crossed ? 1 : 0); }));
  }
}

TEST_CASE("batches of flows end when SimGrid would have them end") {
  std::mt19937 random(7);
  for (int i = 0; i < 30; ++i) {
    const int nodes = between(random, 2, 4);
    const Topology topology(cluster_of(nodes, 1 << between(random, 0, 2), 200, between(random, 0, 1) * 2),
                            {nodes});
    const std::vector<Sent> sent = random_traffic(random, 4 * nodes);
    const auto ends = [&](std::size_t many) {
      const ChildTask task = [&] {
        const std::vector<double> all = Sender(topology, sent, many).run();
        return std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(double));
      };
      const std::string bytes = run_in_children({task}, 1).front();
      std::vector<double> all(bytes.size() / sizeof(double));
      std::memcpy(all.data(), bytes.data(), bytes.size());
      return all;
    };
    const std::vector<double> ours = ends(i % 2 == 0 ? 2 : 40), simgrid = ends(1'000'000'000);
    REQUIRE(ours.size() == sent.size());
    REQUIRE(simgrid.size() == sent.size());
    for (std::size_t f = 0; f < ours.size(); ++f) {
      INFO("flow " << f << " of " << sent.size() << ", of traffic " << i);
      REQUIRE(ours[f] == Approx(simgrid[f]).epsilon(1e-9));
    }
  }
}

}  // namespace orrery
