// Laws that hold on every replay, whatever the plan and the cluster.
#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "costmodels/collectives/collective_bound.hpp"
#include "costmodels/estimate/estimate.hpp"
#include "costmodels/plans/folding.hpp"
#include "costmodels/plans/group_calls.hpp"
#include "sim/replay/children.hpp"
#include "sim/replay/idle.hpp"
#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/sim/random_plan.hpp"
#include "traces/accounting.hpp"

using namespace orrery;

namespace {

constexpr double kTiny = 1e-9;  // s

// When each task ran, from the start of its first piece to the end of its last.
using Task = std::tuple<int, SpanKind, int, int>;  // rank, kind, chunk, microbatch

std::map<Task, Interval> tasks_of(const Timeline& timeline) {
  std::map<Task, Interval> tasks;
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const SpanRow span = row(timeline.spans, i);
    if (span.kind > SpanKind::weight_gradient) continue;
    const Interval fresh{span.start, span.end};
    Interval& when =
        tasks.try_emplace({span.rank, span.kind, span.chunk, span.microbatch}, fresh).first->second;
    when = {std::min(when.start, span.start), std::max(when.end, span.end)};
  }
  return tasks;
}

// Every task ran, after what it depends on: its input made by the neighbour part, and sent.
void check_dependencies(const RandomPlan& drawn, const Timeline& timeline, std::ostream& problems) {
  const std::map<Task, Interval> tasks = tasks_of(timeline);
  const PlanPrograms programs = make_programs(drawn.plan);
  for (int replica = 0; replica < drawn.plan.replicas; ++replica) {
    const Schedule& schedule = programs.of(replica);
    const auto when = [&](SpanKind kind, int part, int microbatch) {
      const auto at = static_cast<std::size_t>(part);
      const int rank = replica * drawn.plan.stages() + schedule.rank_of_part[at];
      const auto found = tasks.find({rank, kind, schedule.chunk_of_part[at], microbatch});
      if (found == tasks.end())
        problems << "part " << part << " microbatch " << microbatch << " did not run\n";
      return found == tasks.end() ? Interval{} : found->second;
    };
    for (int part = 0; part <= schedule.boundaries(); ++part) {
      for (int microbatch = 0; microbatch < schedule.all_microbatches(); ++microbatch) {
        const Interval forward = when(SpanKind::forward, part, microbatch);
        const Interval backward = when(SpanKind::backward, part, microbatch);
        if (backward.start < forward.end - kTiny) problems << "backward before forward\n";
        if (schedule.split_backward &&
            when(SpanKind::weight_gradient, part, microbatch).start < backward.end - kTiny) {
          problems << "weights before their input's gradient\n";
        }
        if (part == 0) continue;
        const Interval input = when(SpanKind::forward, part - 1, microbatch);
        const Interval gradient = when(SpanKind::backward, part - 1, microbatch);
        if (forward.start < input.end - kTiny) problems << "forward before its input was computed\n";
        if (gradient.start < backward.end - kTiny) problems << "backward before its gradient was computed\n";
      }
    }
  }
}

// Every message takes at least what its bytes and its own route need.
void check_transfers(const RandomPlan& drawn, const Timeline& timeline, std::ostream& problems) {
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const SpanRow span = row(timeline.spans, i);
    if (span.end < span.start) problems << "a span ends before it starts\n";
    if (span.kind != SpanKind::send) continue;
    double fastest = 0;
    for (const TopologyLink& link : drawn.topology.links())
      fastest = std::max(fastest, link.spec.bandwidth.value());
    const auto lanes = static_cast<double>(most_lanes(drawn.plan));
    if (span.end - span.start < span.bytes / lanes / fastest - kTiny)
      problems << "a message beats its links\n";
  }
}

// No collective of a part is faster than the least bound of its kind.
void check_calls(const RandomPlan& drawn, const Timeline& timeline, std::ostream& problems) {
  const PricedPlan& plan = drawn.plan;
  std::map<SpanKind, double> least;  // s
  for (const GroupCall& call : plan.calls) {
    const SpanKind kind = call.group == RankGroup::tensor    ? SpanKind::tensor_collective
                          : call.group == RankGroup::context ? SpanKind::context_exchange
                                                             : SpanKind::expert_exchange;
    for (int rank = 0; rank < plan.replicas * plan.stages(); ++rank) {
      const auto groups = group_members(plan, rank / plan.stages(), rank % plan.stages(), call.group);
      for (const std::vector<int>& gpus : groups) {
        const Seconds bound = least_time(drawn.topology, {call.kind, {}, call.bytes, {}, gpus}) * call.times;
        const auto [known, is_new] = least.try_emplace(kind, bound.value());
        if (!is_new) known->second = std::min(known->second, bound.value());
      }
    }
  }
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const SpanRow span = row(timeline.spans, i);
    const auto bound = least.find(span.kind);
    if (bound == least.end()) continue;
    if (span.end - span.start < bound->second * (1 - 1e-6) - kTiny) {
      problems << to_text(span.kind) << " takes " << span.end - span.start << " s, less than "
               << bound->second << "\n";
    }
  }
}

// What goes up comes down, on every level together; no link carries more than its bandwidth in any time bin.
void check_links(const Timeline& timeline, std::ostream& problems) {
  double up = 0, down = 0;
  for (const LinkUse& link : timeline.links) {
    double carried = 0;
    for (const double bytes : link.bin_bytes) {
      carried += bytes;
      if (bytes > link.bandwidth * timeline.link_bin * (1 + 1e-6) + 1)
        problems << link.name << " is above its bandwidth\n";
    }
    const bool is_both_ways = link.name.rfind("region", 0) == 0;
    if (is_both_ways) continue;
    (link.name.substr(link.name.size() - 3) == ".up" ? up : down) += carried;
  }
  if (std::abs(up - down) > 1e-6 * up + 1)
    problems << "bytes sent " << up << " but received " << down << "\n";
}

std::string broken_laws(const RandomPlan& drawn) {
  const PlanPrograms programs = make_programs(drawn.plan);
  const TrafficFlows flows(drawn.plan, programs, drawn.topology, Folding::off);
  const Seconds expected = estimate(drawn.plan, programs, drawn.topology, flows).makespan;
  const Timeline timeline = replay(drawn.plan, programs, drawn.topology, flows, {50, expected}).timeline;
  std::ostringstream problems;
  account(timeline);  // throws where the spans of a rank overlap, leave gaps or miss the makespan
  check_dependencies(drawn, timeline, problems);
  check_transfers(drawn, timeline, problems);
  check_calls(drawn, timeline, problems);
  if (drawn.topology.cluster().contention == Contention::shared) check_links(timeline, problems);
  return problems.str();
}

RandomPlan scaled(RandomPlan drawn, double factor) {
  for (PartTimes& part : drawn.plan.parts) {
    part.forward *= factor;
    part.backward *= factor;
    part.weight_gradient *= factor;
    part.forward_tensor *= factor;
    for (auto* pieces : {&part.forward_pieces, &part.backward_pieces}) {
      for (PlayedPiece& piece : *pieces) {
        piece.compute *= factor;
        piece.tensor *= factor;
        piece.beside *= factor;
      }
    }
  }
  for (GroupCall& call : drawn.plan.calls) {
    call.bytes *= factor;
    call.more *= factor;
  }
  for (BoundaryMessage& boundary : drawn.plan.boundaries) boundary.bytes *= factor;
  for (PartReduction& reduction : drawn.plan.reductions) {
    reduction.gradients *= factor;
    reduction.gathered *= factor;
  }
  for (PartReduction& reduction : drawn.plan.expert_reductions) {
    reduction.gradients *= factor;
    reduction.gathered *= factor;
  }
  for (Seconds& time : drawn.plan.optimizer) time *= factor;
  if (drawn.plan.embedding_gradient) *drawn.plan.embedding_gradient *= factor;
  drawn.plan.bucket *= factor;
  drawn.plan.algorithm = CollectiveAlgorithm::ring;  // NCCL's choice depends on the size
  drawn.plan.gradient_norm = false;                  // its 4 bytes do not grow
  return drawn;
}

double makespan(const RandomPlan& drawn) {
  const auto task = [&] {
    const PlanPrograms programs = make_programs(drawn.plan);
    const TrafficFlows flows(drawn.plan, programs, drawn.topology, Folding::off);
    std::ostringstream text;
    text.precision(17);
    text << replay(drawn.plan, programs, drawn.topology, flows, {}).timeline.makespan;
    return text.str();
  };
  return std::stod(run_in_children({task}, 1).front());
}

}  // namespace

TEST_CASE("no replay breaks a law: dependencies, exact accounting, bytes conserved, links within bandwidth") {
  for (std::uint32_t seed = 1; seed <= 150; ++seed) {
    const Contention contention = seed % 3 == 0 ? Contention::ideal : Contention::shared;
    RandomPlan drawn = with_overlaps(random_plan(seed, contention), seed);
    if (seed % 2 == 0) drawn = with_group_calls(std::move(drawn), seed);
    if (seed % 4 == 1) {
      drawn = with_unequal_tensor(std::move(drawn), seed);
      // Whole messages are unlike down and up the pipeline, and PCIe switches at one end alone count one way
      // more.
      for (BoundaryMessage& boundary : drawn.plan.boundaries) boundary.in_shards = true;
    }
    if (seed % 4 == 0) drawn = shuffled(std::move(drawn), seed);
    drawn = with_optimizer_sets(with_unequal_replicas(std::move(drawn), seed), seed);
    INFO(drawn.text);
    CHECK(run_in_children({[&] { return broken_laws(drawn); }}, 1).front() == "");
  }
}

TEST_CASE("times grow by k when durations and sizes do, at zero latency") {
  for (std::uint32_t seed = 300; seed <= 330; ++seed) {
    const RandomPlan drawn =
        without_latency(scaled(with_group_calls(random_plan(seed, Contention::shared), seed), 1.0));
    INFO(drawn.text);
    CHECK(makespan(scaled(drawn, 8.0)) == Approx(8.0 * makespan(drawn)).epsilon(1e-6));
  }
}

TEST_CASE("the same plan is replayed to the same bit") {
  for (std::uint32_t seed = 400; seed <= 410; ++seed) {
    const RandomPlan drawn = random_plan(seed, Contention::shared);
    CHECK(makespan(drawn) == makespan(drawn));
  }
}
