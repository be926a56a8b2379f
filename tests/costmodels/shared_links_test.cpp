#include "costmodels/estimate/shared_links.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "tests/catch.hpp"

namespace orrery {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

LinkDemand use(double busy, double flows = 1, double latency = 0, int link = 7) {
  return {link, busy, flows, latency};
}

struct Sent {
  double start = 0;  // s
  int kind = 0;
};

// Seconds from the start of each to its end. Each is started when it is time, as an estimate does.
std::vector<double> durations(const std::vector<TransferKind>& kinds, const std::vector<Sent>& sent) {
  SharedLinks links(kinds);
  std::vector<double> times(sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    times[i] = kinds[static_cast<std::size_t>(sent[i].kind)].alone;
    if (links.shares(sent[i].kind)) links.remind(sent[i].start, sent.size() + i);
  }
  while (const auto event = links.next()) {
    const std::size_t i = event->tag % sent.size();
    if (event->tag >= sent.size()) {
      links.start(sent[i].start, sent[i].kind, i);
    } else {
      times[i] = event->time - sent[i].start;
    }
  }
  return times;
}

// When each is over on one link, from event to event with what is left of each.
std::vector<double> played(const std::vector<LinkDemand>& uses, const std::vector<double>& starts) {
  std::vector<double> left, arrival, end(uses.size(), kNever);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    left.push_back(uses[i].busy);
    arrival.push_back(starts[i] + uses[i].latency);
  }
  double now = 0;
  while (true) {
    double flows = 0, next = kNever;
    const auto is_there = [&](std::size_t i) { return arrival[i] <= now && end[i] == kNever; };
    for (std::size_t i = 0; i < uses.size(); ++i) flows += is_there(i) ? uses[i].flows : 0;
    std::size_t done = uses.size();
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (arrival[i] > now) next = std::min(next, arrival[i]);
    }
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (!is_there(i)) continue;
      const double then = now + left[i] * flows / uses[i].flows;
      if (then < next) {
        next = then;
        done = i;
      }
    }
    if (next == kNever) return end;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (is_there(i)) left[i] -= (next - now) * uses[i].flows / flows;
    }
    now = next;
    if (done < uses.size()) end[done] = now;
  }
}

}  // namespace

TEST_CASE("two transfers on one link each have half of it while both are there") {
  // The first is alone for 0.5 s and has half of its 1 s left, which takes 1 s beside the second; that one
  // then has 0.5 s left for itself.
  const auto times = durations({{{use(1)}, 1}, {{use(1)}, 1}}, {{0, 0}, {0.5, 1}});
  CHECK(times[0] == Approx(1.5));
  CHECK(times[1] == Approx(1.5));
}

TEST_CASE("a transfer that is disturbed had its links to itself until then") {
  const LinkDemand first = use(1, 1, 0, 1), second = use(4, 1, 0, 2), third = use(1, 1, 3, 3);
  const std::vector<TransferKind> kinds{
      {{first, second, third}, 4, true}, {{second}, 4}, {{use(1, 1, 0, 3)}, 1}};
  // Alone for 2 s: 2 s of its work on the second link are left beside the other's 4, and take 4. The other
  // then has its last 2 s to itself.
  const auto times = durations(kinds, {{0, 0}, {2, 1}});
  CHECK(times[0] == Approx(6));
  CHECK(times[1] == Approx(6));
  // Half of the other is over when the transfer reaches the third link at 3 s; the other half takes 1 s
  // beside it, and leaves half of the transfer.
  const auto late = durations(kinds, {{0, 0}, {2.5, 2}});
  CHECK(late[0] == Approx(4.5));
  CHECK(late[1] == Approx(1.5));
}

TEST_CASE("transfers of one kind share where they may meet, and only there") {
  const auto meeting = durations({{{use(1)}, 1, true}}, {{0, 0}, {0.5, 0}});
  CHECK(meeting[0] == Approx(1.5));
  CHECK(meeting[1] == Approx(1.5));
  CHECK_FALSE(SharedLinks({{{use(1)}, 1}}).shares(0));
}

TEST_CASE("a transfer that meets no other takes its latency and its bytes over the bandwidth") {
  const auto times = durations({{{use(1, 3, 0.25)}, 1.25, true}}, {{0, 0}, {10, 0}});
  CHECK(times[0] == Approx(1.25).epsilon(1e-12));
  CHECK(times[1] == Approx(1.25).epsilon(1e-12));
}

TEST_CASE("no transfer is faster than alone, on links where it meets none") {
  const auto times = durations({{{use(1), use(5, 1, 0, 8)}, 5}, {{use(1)}, 1}}, {{0, 0}, {0, 1}});
  CHECK(times[0] == Approx(5));
  CHECK(times[1] == Approx(2));
}

TEST_CASE("a transfer over two links takes as long as the slower one says") {
  const LinkDemand first = use(1, 1, 0, 1), second = use(2, 1, 0, 2);
  const auto times = durations({{{first, second}, 2, true}, {{second}, 2}}, {{0, 0}, {0, 1}});
  CHECK(times[0] == Approx(4));
  CHECK(times[1] == Approx(4));
}

TEST_CASE("what a caller wants to be reminded of comes in the order of time, with the ends") {
  SharedLinks links({{{use(1)}, 1, true}});
  links.remind(2, 22);
  links.start(0.5, 0, 11);
  links.remind(1, 33);
  for (const auto& [time, tag] : {std::pair(1.0, 33u), std::pair(1.5, 11u), std::pair(2.0, 22u)}) {
    const auto event = links.next();
    REQUIRE(event);
    CHECK(event->time == Approx(time));
    CHECK(links.now() == Approx(time));
    CHECK(event->tag == tag);
  }
  CHECK_FALSE(links.next());
}

TEST_CASE("transfers end as an event by event account of what is left on each link says") {
  const double crowded = 20, sparse = 200, alone = 2000;  // s, in which 30 transfers of up to 4 s start
  const double span = GENERATE_COPY(crowded, sparse, alone);
  std::mt19937 random(1);
  std::uniform_real_distribution<double> start(0, span), busy(0.1, 2), latency(0, 0.5);
  std::uniform_int_distribution<int> flows(1, 4), link(0, 3), count(1, 3);
  for (int round = 0; round < 50; ++round) {
    std::vector<TransferKind> kinds;
    std::vector<Sent> sent;
    std::map<int, std::pair<std::vector<LinkDemand>, std::vector<double>>> on_link;
    std::map<int, std::vector<std::size_t>> who;
    for (int kind = 0; kind < 30; ++kind) {
      std::map<int, LinkDemand> uses;
      for (int i = count(random); i > 0; --i) {
        const int at = link(random);
        uses[at] = use(busy(random), flows(random), latency(random), at);
      }
      // One that says nothing new, since another carries all of it and takes longer.
      if (const auto slow = uses.find(0); slow != uses.end())
        uses[9] = use(slow->second.busy / 2, slow->second.flows, slow->second.latency, 9);
      kinds.emplace_back();
      sent.push_back({start(random), kind});
      for (const auto& [at, asked] : uses) {
        kinds.back().uses.push_back(asked);
        on_link[at].first.push_back(asked);
        on_link[at].second.push_back(sent.back().start);
        who[at].push_back(sent.size() - 1);
      }
    }
    std::vector<double> expected(sent.size());
    for (const auto& [at, asked] : on_link) {
      const std::vector<double> ends = played(asked.first, asked.second);
      for (std::size_t i = 0; i < ends.size(); ++i) {
        double& end = expected[who[at][i]];
        end = std::max(end, ends[i]);
      }
    }
    const auto times = durations(kinds, sent);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      CAPTURE(round, i);
      CHECK(sent[i].start + times[i] == Approx(expected[i]).epsilon(1e-9));
    }
  }
}

}  // namespace orrery
