#include "sim/measured/measured_stages.hpp"

#include <algorithm>
#include <vector>

namespace orrery {
namespace {

std::vector<std::string> pieces(const std::string& text, char separator) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    found.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return found;
}

std::optional<int> group_called(const std::string& name, const ClusterSpec& cluster) {
  const auto group = std::find_if(cluster.groups.begin(), cluster.groups.end(),
                                  [&](const NodeGroup& known) { return known.name == name; });
  if (group == cluster.groups.end()) return std::nullopt;
  return static_cast<int>(group - cluster.groups.begin());
}

// Neighbours that are alike become one kind.
std::vector<ReplicaKind> kinds_of(const std::vector<std::vector<int>>& groups_of_replicas) {
  std::vector<ReplicaKind> kinds;
  for (const std::vector<int>& groups : groups_of_replicas) {
    if (!kinds.empty() && kinds.back().groups == groups)
      ++kinds.back().count;
    else
      kinds.push_back({.count = 1, .groups = groups});
  }
  return kinds;
}

}  // namespace

std::optional<std::string> place_stages(const std::string& cell, const ClusterSpec& cluster,
                                        ParallelStrategy& strategy) {
  const std::vector<std::string> stages = pieces(cell, ';');
  if (static_cast<int>(stages.size()) != strategy.pipeline)
    return std::to_string(stages.size()) + " stages placed, of " + std::to_string(strategy.pipeline);
  std::vector<std::vector<int>> groups_of_replicas(static_cast<std::size_t>(strategy.data));
  for (const std::string& stage : stages) {
    const std::vector<std::string> replicas = pieces(stage, '+');
    if (replicas.size() != 1 && static_cast<int>(replicas.size()) != strategy.data)
      return std::to_string(replicas.size()) + " replicas placed, of " + std::to_string(strategy.data);
    for (std::size_t i = 0; i < groups_of_replicas.size(); ++i) {
      const std::string& name = replicas[replicas.size() == 1 ? 0 : i];
      const auto group = group_called(name, cluster);
      if (!group) return "no node group " + name + " in its cluster";
      groups_of_replicas[i].push_back(*group);
    }
  }
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    strategy.stages[stage].group = groups_of_replicas.front()[stage];
  strategy.replicas = kinds_of(groups_of_replicas);
  if (strategy.replicas.size() == 1) strategy.replicas.clear();
  return std::nullopt;
}

}  // namespace orrery
