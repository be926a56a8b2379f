// Flows alone on their links, flows that share them, and those that go from one to the other.
#include "sim/replay/network.hpp"

#include <array>
#include <cmath>
#include <map>

#include "platforms/cluster.hpp"
#include "sim/replay/link_recorder.hpp"
#include "tests/catch.hpp"
#include "tests/sim/played.hpp"

namespace orrery {
namespace {

using Times = std::array<double, 3>;  // s, the ends of three flows

constexpr std::uint32_t kFirst = 1, kSecond = 2, kThird = 3, kStart = 4;

// Four GPUs below one switch, 900 GB/s and 2.5 us each.
ClusterSpec one_node(Contention contention) {
  ClusterSpec cluster = parse_cluster(
      "name: one\ngroups:\n  - {name: g, gpu: H100, gpus_per_node: 4, count: 1, nics_per_node: 4, "
      "nic_bandwidth: 400Gbps, nic_latency: 2us}\n",
      "test");
  cluster.groups.front().gpu_link = {BytesPerSecond(900e9), microseconds(2.5)};
  cluster.contention = contention;
  return cluster;
}

// GPU 0 sends 9 GB to GPU 1; 5 ms later 4.5 GB to GPU 2; and when the first is there 9 GB to GPU 3.
class Sender : public EventSink {
 public:
  explicit Sender(const Topology& topology) : topology_(topology), network_(topology) {}

  void say_links() {
    std::vector<bool> crossed(topology_.links().size());
    for (const int to : {1, 2, 3}) {
      const Route route = topology_.route(0, to);
      for (int i = 0; i < route.count; ++i)
        crossed[static_cast<std::size_t>(route.links[static_cast<std::size_t>(i)])] = true;
    }
    network_.only_links(std::move(crossed));
  }

  Times run(LinkRecorder* recorder) {
    if (recorder != nullptr) network_.watch(*recorder);
    send(1, 9e9, kFirst);
    network_.after(5e-3, kStart);
    network_.run(*this);
    return {heard_[kFirst], heard_[kSecond], heard_[kThird]};
  }

  void on_event(std::uint32_t tag) override {
    heard_[tag] = network_.now();
    if (tag == kStart) send(2, 4.5e9, kSecond);
    if (tag == kFirst) send(3, 9e9, kThird);
  }

 private:
  void send(int to, double bytes, std::uint32_t tag) {
    network_.start_flow(make_flow(topology_, 0, to, Bytes(bytes), {}), tag);
  }

  const Topology& topology_;
  Network network_;
  std::map<std::uint32_t, double> heard_;  // s
};

Times ends(Contention contention) {
  return test::in_child<Times>([&] {
    const Topology topology(one_node(contention), {1});
    return Sender(topology).run(nullptr);
  });
}

}  // namespace

// All wait 5 us first. After 5 ms the first has 4.5 GB left, as much as the second: at 450 GB/s each both
// take 10 ms more. Then the third has the link to itself for 10 ms.
TEST_CASE("a flow goes at full speed until another joins it, and both at half of it from then on") {
  const Times times = ends(Contention::shared);
  CHECK(times[0] == Approx(15.005e-3).epsilon(1e-9));
  CHECK(times[1] == Approx(15.005e-3).epsilon(1e-9));
  CHECK(times[2] == Approx(25.010e-3).epsilon(1e-9));
}

TEST_CASE("a network that is told which links flows cross plays them as one that is not") {
  const Times all = ends(Contention::shared);
  const Times told = test::in_child<Times>([&] {
    const Topology topology(one_node(Contention::shared), {1});
    Sender sender(topology);
    sender.say_links();
    return sender.run(nullptr);
  });
  CHECK(told == all);
}

TEST_CASE("on ideal links no flow feels another") {
  const Times times = ends(Contention::ideal);
  CHECK(times[0] == Approx(10.005e-3).epsilon(1e-9));
  CHECK(times[1] == Approx(10.005e-3).epsilon(1e-9));
  CHECK(times[2] == Approx(20.010e-3).epsilon(1e-9));
}

// Bins of 5.0025 ms: GPU 0 sends 4.5 GB in each of the first five, of 22.5 GB in all.
TEST_CASE("the bytes that flows moved alone and together are in the time bins they moved in") {
  const auto task = [] {
    const Topology topology(one_node(Contention::shared), {1});
    LinkRecorder recorder(topology, 5, Seconds(25.0125e-3));
    static_cast<void>(Sender(topology).run(&recorder));
    Timeline timeline;
    recorder.write(timeline);
    std::string problems;
    for (const LinkUse& link : timeline.links) {
      double sum = 0;
      for (const double bytes : link.bin_bytes) {
        sum += bytes;
        if (bytes > 900e9 * 5.0025e-3 * (1 + 1e-9)) problems += link.name + " is above its bandwidth\n";
        if (link.name == "g.node0.gpu0.up" && bytes < 900e9 * 4.99e-3)
          problems += "a gap at " + link.name + "\n";
      }
      if (link.name == "g.node0.gpu0.up" && std::abs(sum - 22.5e9) > 1) problems += "not all bytes\n";
    }
    return timeline.links.size() == 4 ? problems : "other links than those of four GPUs";
  };
  CHECK(run_in_children({task}, 1).front() == "");
}

}  // namespace orrery
