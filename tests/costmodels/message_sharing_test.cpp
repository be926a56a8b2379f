#include "costmodels/message_sharing.hpp"

#include <limits>
#include <random>

#include "tests/catch.hpp"

namespace orrery {
namespace {

LinkUse use(double busy, double flows = 1, double latency = 0) {
  return {7, busy, flows, latency};
}

// Ends of messages on one link, from event to event with what is left of each.
std::vector<double> played(const std::vector<LinkUse>& kinds, const std::vector<SentMessage>& messages) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<double> left, arrival, end(messages.size(), kNever);
  for (const SentMessage& message : messages) {
    left.push_back(kinds[static_cast<std::size_t>(message.kind)].busy);
    arrival.push_back(message.start + kinds[static_cast<std::size_t>(message.kind)].latency);
  }
  double now = 0;
  while (true) {
    double flows = 0, next = kNever;
    const auto flows_of = [&](std::size_t i) {
      return kinds[static_cast<std::size_t>(messages[i].kind)].flows;
    };
    const auto is_there = [&](std::size_t i) { return arrival[i] <= now && end[i] == kNever; };
    for (std::size_t i = 0; i < messages.size(); ++i) flows += is_there(i) ? flows_of(i) : 0;
    std::size_t done = messages.size();
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (arrival[i] > now) next = std::min(next, arrival[i]);
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (!is_there(i)) continue;
      const double then = now + left[i] * flows / flows_of(i);
      if (then < next) {
        next = then;
        done = i;
      }
    }
    if (next == kNever) return end;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (is_there(i)) left[i] -= (next - now) * flows_of(i) / flows;
    }
    now = next;
    if (done < messages.size()) end[done] = now;
  }
}

}  // namespace

TEST_CASE("two messages on one link each have half of it while both are there") {
  // The first is alone for 0.5 s and has half of its 1 s left, which takes 1 s beside the second; that one
  // then has 0.5 s left for itself.
  const auto times = durations_beside_others({{use(1)}, {use(1)}}, {{0, 0}, {0.5, 1}});
  CHECK(times[0] == Approx(1.5));
  CHECK(times[1] == Approx(1.5));
}

TEST_CASE("a message that meets no other takes its latency and its bytes over the bandwidth") {
  const auto times = durations_beside_others({{use(1, 3, 0.25)}}, {{0, 0}, {10, 0}});
  CHECK(times[0] == Approx(1.25).epsilon(1e-12));
  CHECK(times[1] == Approx(1.25).epsilon(1e-12));
}

TEST_CASE("a message over two links takes as long as the slower one says") {
  const LinkUse first{1, 1, 1, 0}, second{2, 2, 1, 0};
  const auto times = durations_beside_others({{first, second}, {second}}, {{0, 0}, {0, 1}});
  CHECK(times[0] == Approx(4));
  CHECK(times[1] == Approx(4));
}

TEST_CASE("messages do not queue behind each other for longer than one of every kind takes") {
  // Ten messages a second of a kind that takes a second each, beside one that takes two.
  std::vector<SentMessage> messages{{0, 1}};
  for (int i = 0; i < 10; ++i) messages.push_back({0.1 * i, 0});
  for (const double time : durations_beside_others({{use(1)}, {use(2)}}, messages)) CHECK(time < 3 + 1e-9);
}

TEST_CASE("messages on one link end as an event by event account of what is left says") {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> start(0, 20), busy(0.1, 2);
  for (int round = 0; round < 50; ++round) {
    std::vector<LinkUse> kinds;
    std::vector<SentMessage> messages;
    for (int kind = 0; kind < 30; ++kind) {
      kinds.push_back(use(busy(random), 1.0 + kind % 3, 0.01 * kind));
      messages.push_back({start(random), kind});
    }
    std::vector<std::vector<LinkUse>> uses;
    for (const LinkUse& kind : kinds) uses.push_back({kind});
    const auto durations = durations_beside_others(uses, messages);
    const auto ends = played(kinds, messages);
    for (std::size_t i = 0; i < messages.size(); ++i) {
      CAPTURE(round, i);
      CHECK(messages[i].start + durations[i] == Approx(ends[i]).epsilon(1e-9));
    }
  }
}

}  // namespace orrery
