// Random clusters of every form a cluster file can say, for the property tests of collectives and replays.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "platforms/cluster.hpp"

namespace orrery::test {

// The same numbers on every machine: the engine's output is, that of the library's distributions is not.
class Draw {
 public:
  explicit Draw(std::uint32_t seed) : engine_(seed) {}
  int whole(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<std::uint32_t>(high - low + 1));
  }
  bool coin() { return whole(0, 1) == 1; }
  double real(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_()) / static_cast<double>(std::mt19937::max());
  }
  template <class Value>
  void shuffle(std::vector<Value>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[engine_() % i]);
  }

 private:
  std::mt19937 engine_;
};

// A power of two, at most `most`, which is one too.
int draw_power_of_two(Draw&, int most);

// Two node groups "a" and "b" of 0 to 64 nodes with so many GPUs a node (0: drawn, 1 to 8). Each: one switch
// inside the node or PCIe switches, NICs of their own or shared. Between: one switch, a fat tree or rails,
// perhaps below pods, oversubscribed; one region or two.
ClusterSpec random_cluster(Draw&, Contention, int gpus_per_node = 0);

}  // namespace orrery::test
