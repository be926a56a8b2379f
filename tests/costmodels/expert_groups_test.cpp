// Who exchanges tokens for experts, and who reduces their gradients, against Megatron-LM's numbering of
// ranks.
#include <map>
#include <set>
#include <tuple>

#include "costmodels/plans/folding.hpp"
#include "costmodels/plans/group_calls.hpp"
#include "strategies/strategy.hpp"
#include "tests/catch.hpp"

namespace orrery {
namespace {

using Groups = std::set<std::vector<int>>;

struct Degrees {
  int tensor, context, data, pipeline, expert, expert_tensor;
};

// Its default order, tp-cp-ep-dp-pp: global ranks count up over tensor ranks first, pipeline ranks last.
PricedPlan plan_of(const Degrees& d) {
  ParallelStrategy strategy;
  strategy.pipeline = d.pipeline;
  strategy.data = d.data;
  strategy.context = d.context;
  strategy.expert = d.expert;
  strategy.expert_tensor = d.expert_tensor;
  strategy.stages.assign(static_cast<std::size_t>(d.pipeline), {.group = 0, .tensor = d.tensor});
  PricedPlan plan;
  plan.schedule.ranks = d.pipeline;
  plan.replicas = d.data;
  plan.context = d.context;
  plan.expert = strategy.replicas_sharing_experts();
  plan.expert_context = strategy.contexts_sharing_experts();
  plan.expert_tensor = d.tensor / d.expert_tensor;
  const int lanes = d.tensor * d.context;
  for (int replica = 0; replica < d.data; ++replica) {
    for (int stage = 0; stage < d.pipeline; ++stage) {
      std::vector<int>& gpus = plan.gpus.emplace_back();
      for (int lane = 0; lane < lanes; ++lane) gpus.push_back((stage * d.data + replica) * lanes + lane);
    }
  }
  return plan;
}

// Ranks by what `key` says of their place in their pipeline rank and of that rank.
template <class Key>
Groups ranks_alike(const Degrees& d, const Key& key) {
  const int of_stage = d.tensor * d.context * d.data;
  std::map<std::tuple<int, int, int>, std::vector<int>> groups;
  for (int rank = 0; rank < of_stage * d.pipeline; ++rank) {
    const auto [a, b] = key(rank % of_stage);
    groups[{rank / of_stage, a, b}].push_back(rank);
  }
  Groups all;
  for (auto& [where, ranks] : groups) all.insert(std::move(ranks));
  return all;
}

// core/parallel_state.py, RankGenerator of the expert ranks: the same order without a context axis, expert
// tensor ranks first, then expert ranks, then their data ranks.
Groups expert_groups(const Degrees& d) {
  return ranks_alike(
      d, [&](int place) { return std::pair(place % d.expert_tensor, place / (d.expert_tensor * d.expert)); });
}
Groups expert_data_groups(const Degrees& d) {
  return ranks_alike(d, [&](int place) { return std::pair(place % (d.expert_tensor * d.expert), 0); });
}

Groups groups_of(const PricedPlan& plan) {
  Groups all;
  for (int replica = 0; replica < plan.replicas; ++replica) {
    for (int stage = 0; stage < plan.stages(); ++stage) {
      for (std::vector<int>& group : group_members(plan, replica, stage, RankGroup::expert)) {
        CHECK(static_cast<int>(group.size()) == group_size(plan, stage, RankGroup::expert));
        all.insert(std::move(group));
      }
    }
  }
  return all;
}

Groups rings_of(const PricedPlan& plan, int tensor) {
  Groups all;
  for (int stage = 0; stage < plan.stages(); ++stage) {
    for (int lane = 0; lane < tensor; ++lane) {
      for (std::vector<int>& ring : expert_reduction_rings(plan, stage, lane)) all.insert(std::move(ring));
    }
  }
  return all;
}

TEST_CASE("expert ways go over the ranks that Megatron-LM gives them") {
  int cases = 0;
  for (const int tensor : {1, 2, 4}) {
    for (const int context : {1, 2, 3, 4}) {
      for (const int data : {1, 2, 6, 8}) {
        for (int expert = 1; expert <= tensor * context * data; ++expert) {
          for (const int expert_tensor : {1, tensor}) {
            const int own = tensor / expert_tensor;
            if (expert % own != 0 || !experts_spread_evenly(expert / own, context, data)) continue;
            const Degrees d{tensor, context, data, 2, expert, expert_tensor};
            INFO("tensor " << tensor << " context " << context << " data " << data << " expert " << expert
                           << " expert tensor " << expert_tensor);
            const PricedPlan plan = plan_of(d);
            CHECK(groups_of(plan) == expert_groups(d));
            CHECK(rings_of(plan, tensor) == expert_data_groups(d));
            ++cases;
          }
        }
      }
    }
  }
  CHECK(cases > 300);
}

TEST_CASE("experts are spread evenly over whole replicas or parts of one") {
  CHECK(experts_spread_evenly(1, 4, 3));
  CHECK(experts_spread_evenly(2, 4, 3));        // half a replica
  CHECK(experts_spread_evenly(4, 4, 3));        // a replica
  CHECK(experts_spread_evenly(12, 4, 3));       // all
  CHECK_FALSE(experts_spread_evenly(6, 4, 3));  // one and a half
  CHECK_FALSE(experts_spread_evenly(8, 4, 3));  // two of three
  CHECK_FALSE(experts_spread_evenly(3, 4, 3));
}

}  // namespace
}  // namespace orrery
