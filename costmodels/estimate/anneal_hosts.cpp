#include "costmodels/estimate/anneal_hosts.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace orrery {
namespace {

using Swaps = std::vector<std::pair<int, int>>;

// Of what changes from one numbering to the next, so much is rounding.
constexpr double kRounding = 1e-9;
// Nodes whose pairs are all tried at the end: their number grows with the square.
constexpr int kMostDescent = 96;

// std::uniform_int_distribution differs from library to library; the engine does not.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  int below(int count) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(count)); }
  double share() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }

 private:
  std::mt19937_64 engine_;
};

// Whether no two hosts of a group differ: one switch joins all, and nothing is said of single links.
bool hosts_alike(const ClusterSpec& cluster) {
  return !cluster.network && cluster.links.empty() && cluster.fabric.nodes_per_leaf == 0;
}

struct NodeRange {
  int first = 0, count = 0;
};

class Annealer {
 public:
  Annealer(const std::vector<TrafficClass>& classes, const Topology& topology, const Annealing& how)
      : how_(how), traffic_(classes, topology), draw_(how.seed) {
    int first = 0;
    for (const int count : topology.nodes()) {
      bool any = false;
      for (int node = first; node < first + count; ++node) any |= traffic_.sends(node);
      if (count > 1 && any) ranges_.push_back({first, count});
      if (any) nodes_ += count;
      first += count;
    }
    result_.before = result_.after = now_ = traffic_.cost();
    double hops = 1;
    for (const TrafficClass& flows : classes) hops += static_cast<double>(flows.hops.size());
    most_steps_ = std::min(how.most_hops / hops, 1e9);
  }

  NumberedHosts run() {
    if (ranges_.empty()) return result_;
    best_ = traffic_.hosts();
    for (int round = 0; round < how_.rounds; ++round) {
      cool_down();
      go_to(best_);
    }
    descend();
    if (result_.after.communication < result_.before.communication * (1 - kRounding)) result_.hosts = best_;
    return result_;
  }

 private:
  // Tries every pair until none helps.
  void descend() {
    for (bool helped = nodes_ <= kMostDescent; helped && result_.looked_at < 2 * most_steps_;) {
      helped = false;
      for (const NodeRange& range : ranges_) {
        for (int a = range.first; a < range.first + range.count; ++a) {
          for (int b = range.first; b < a; ++b) {
            const TrafficCost before = now_;
            try_swaps({{a, b}});
            const bool better = now_.communication < before.communication * (1 - kRounding) && may_stay();
            if (!better) undo(before);
            helped |= better;
          }
        }
      }
      note();
    }
  }

  void cool_down() {
    const int steps = static_cast<int>(
        std::min(static_cast<double>(how_.steps_of_round) * nodes_, most_steps_ / how_.rounds));
    const double hot = usual_change();
    if (hot <= 0) return;
    constexpr double kColdest = 1e-3;  // of the first temperature
    for (int step = 0; step < steps; ++step) {
      const double temperature = hot * std::pow(kColdest, static_cast<double>(step) / steps);
      const Swaps swaps = draw_swaps();
      const TrafficCost before = now_;
      try_swaps(swaps);
      const double loss = (now_.communication - before.communication).value();
      const bool taken = loss <= 0 || draw_.share() < std::exp(-loss / temperature);
      if (!taken)
        undo(before);
      else
        note();
    }
  }

  // Mean loss or gain of a few moves.
  double usual_change() {
    constexpr int kMoves = 16;
    double sum = 0;
    for (int i = 0; i < kMoves; ++i) {
      const Swaps swaps = draw_swaps();
      const TrafficCost before = now_;
      try_swaps(swaps);
      sum += std::abs((now_.communication - before.communication).value()) / kMoves;
      undo(before);
    }
    return sum;
  }

  // Two nodes or, one time in four, two runs of the same length that do not overlap.
  Swaps draw_swaps() {
    const NodeRange& range = ranges_[static_cast<std::size_t>(draw_.below(static_cast<int>(ranges_.size())))];
    int a = draw_.below(range.count), b = draw_.below(range.count - 1);
    if (b >= a) ++b;
    if (a > b) std::swap(a, b);
    const int most = std::min(b - a, range.count - b);
    const int length = draw_.below(4) == 0 ? 1 + draw_.below(most) : 1;
    Swaps swaps;
    for (int i = 0; i < length; ++i) swaps.emplace_back(range.first + a + i, range.first + b + i);
    return swaps;
  }

  void try_swaps(const Swaps& swaps) {
    traffic_.swap(swaps);
    now_ = traffic_.cost();
    ++result_.looked_at;
  }

  void undo(const TrafficCost& before) {
    traffic_.take_back();
    now_ = before;
  }

  bool may_stay() const { return now_.crossing <= result_.before.crossing * (1 + kRounding); }

  // Keeps the numbering if it is the best so far.
  void note() {
    if (!may_stay() || now_.communication >= result_.after.communication * (1 - kRounding)) return;
    best_ = traffic_.hosts();
    result_.after = now_;
  }

  void go_to(const std::vector<int>& hosts) {
    for (std::size_t node = 0; node < hosts.size(); ++node) {
      const auto& now = traffic_.hosts();
      const auto from = std::find(now.begin(), now.end(), hosts[node]) - now.begin();
      if (static_cast<std::size_t>(from) != node)
        traffic_.swap(static_cast<int>(node), static_cast<int>(from));
    }
    now_ = traffic_.cost();
  }

  const Annealing& how_;
  HostTraffic traffic_;
  Draw draw_;
  std::vector<NodeRange> ranges_;  // of groups whose nodes can trade hosts
  int nodes_ = 0;
  double most_steps_ = 0;
  TrafficCost now_;
  std::vector<int> best_;
  NumberedHosts result_;
};

}  // namespace

NumberedHosts anneal_hosts(const std::vector<TrafficClass>& classes, const Topology& topology,
                           const Annealing& how) {
  if (hosts_alike(topology.cluster()) || topology.has_cut()) return {};
  return Annealer(classes, topology, how).run();
}

}  // namespace orrery
