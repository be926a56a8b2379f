#include "costmodels/message_sharing.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>

namespace orrery {
namespace {

// A message on one link.
struct Job {
  double arrival = 0;  // s
  double busy = 0;     // s at full bandwidth
  double flows = 0;
  std::size_t message = 0;
  double end = 0;  // s
};

// Flows that share a link evenly progress alike: each job is done once every flow on the link has had as much
// of it (`progress`, seconds at full bandwidth) as one of its own needs, counted from its arrival.
void share_link(std::vector<Job>& jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) {
    return std::pair(a.arrival, a.message) < std::pair(b.arrival, b.message);
  });
  using Done = std::pair<double, std::size_t>;  // progress at which a job is done
  std::priority_queue<Done, std::vector<Done>, std::greater<>> under_way;
  double now = 0, progress = 0, flows = 0;
  const auto finish_until = [&](double time) {
    while (!under_way.empty()) {
      const auto [done, job] = under_way.top();
      const double end = now + (done - progress) * flows;
      if (end > time) break;
      now = jobs[job].end = end;
      progress = done;
      flows -= jobs[job].flows;
      under_way.pop();
    }
    if (!under_way.empty()) progress += (time - now) / flows;
    if (under_way.empty()) flows = 0;  // no rounding is kept
    now = time;
  };
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    finish_until(jobs[i].arrival);
    flows += jobs[i].flows;
    under_way.emplace(progress + jobs[i].busy / jobs[i].flows, i);
  }
  while (!under_way.empty()) {
    const auto [done, job] = under_way.top();
    now = jobs[job].end = now + (done - progress) * flows;
    progress = done;
    flows -= jobs[job].flows;
    under_way.pop();
  }
}

}  // namespace

std::vector<LinkUse> uses_of(const Topology& topology, const std::vector<const std::vector<Flow>*>& sets) {
  std::map<int, LinkUse> uses;
  for (const std::vector<Flow>* set : sets) {
    for (const Flow& flow : *set) {
      for (int i = 0; i < flow.route.count; ++i) {
        const int link = flow.route.links[static_cast<std::size_t>(i)];
        LinkUse& use = uses.try_emplace(link, LinkUse{link, 0, 0, flow.path.latency.value()}).first->second;
        use.busy += (flow.wire / topology.links()[static_cast<std::size_t>(link)].spec.bandwidth).value();
        use.flows += 1;
        use.latency = std::min(use.latency, flow.path.latency.value());
      }
    }
  }
  std::vector<LinkUse> all;
  for (const auto& [link, use] : uses) all.push_back(use);
  return all;
}

std::vector<double> durations_beside_others(const std::vector<std::vector<LinkUse>>& kinds,
                                            const std::vector<SentMessage>& messages) {
  std::map<int, std::vector<Job>> links;
  std::map<int, double> all_kinds;  // s, of one message of each that is sent
  std::vector<bool> is_known(kinds.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto kind = static_cast<std::size_t>(messages[i].kind);
    for (const LinkUse& use : kinds[kind]) {
      links[use.link].push_back({messages[i].start + use.latency, use.busy, use.flows, i, 0});
      if (!is_known[kind]) all_kinds[use.link] += use.busy;
    }
    is_known[kind] = true;
  }
  std::vector<double> durations(messages.size());
  for (auto& [link, jobs] : links) {
    share_link(jobs);
    for (const Job& job : jobs) {
      const double latency = job.arrival - messages[job.message].start;
      const double beside = std::min(job.end - job.arrival, all_kinds[link]);
      durations[job.message] = std::max(durations[job.message], latency + beside);
    }
  }
  return durations;
}

}  // namespace orrery
