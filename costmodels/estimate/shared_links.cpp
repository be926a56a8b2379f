#include "costmodels/estimate/shared_links.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace orrery {
namespace {

// A link as a kind sees it that uses it: links of which all kinds see the same do the same.
struct Sight {
  int kind = 0;
  double busy = 0, flows = 0, latency = 0;
  auto operator<=>(const Sight&) const = default;
};

// Whether all that a link carries takes at least as long on another: no fewer flows come to that at the same
// time, and each asks for no less of it.
bool outlasts(const std::vector<Sight>& other, const std::vector<Sight>& link) {
  std::size_t at = 0;
  for (const Sight& sight : link) {
    while (at < other.size() && other[at].kind < sight.kind) ++at;
    if (at == other.size() || other[at].kind != sight.kind) return false;
    const Sight& there = other[at];
    if (there.latency != sight.latency || there.flows < sight.flows ||
        there.busy / there.flows < sight.busy / sight.flows)
      return false;
  }
  return true;
}

// Links that say something of their own, each as its kinds see it.
std::vector<std::vector<Sight>> telling(const std::vector<TransferKind>& kinds) {
  std::map<int, std::vector<Sight>> sights;  // by link
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    for (const LinkDemand& use : kinds[kind].uses)
      sights[use.link].push_back({static_cast<int>(kind), use.busy, use.flows, use.latency});
  }
  std::set<std::vector<Sight>> distinct;
  for (const auto& [link, seen] : sights) {
    if (seen.size() > 1 || kinds[static_cast<std::size_t>(seen.front().kind)].meets_itself)
      distinct.insert(seen);
  }
  std::vector<std::vector<const std::vector<Sight>*>> of_kind(kinds.size());
  for (const std::vector<Sight>& seen : distinct) {
    for (const Sight& sight : seen) of_kind[static_cast<std::size_t>(sight.kind)].push_back(&seen);
  }
  std::vector<std::vector<Sight>> all;
  for (const std::vector<Sight>& seen : distinct) {
    const auto& others = of_kind[static_cast<std::size_t>(seen.front().kind)];
    // Of two that outlast each other, the first stays.
    const bool is_outlasted = std::any_of(others.begin(), others.end(), [&](const std::vector<Sight>* other) {
      return other != &seen && outlasts(*other, seen) && (*other < seen || !outlasts(seen, *other));
    });
    if (!is_outlasted) all.push_back(seen);
  }
  return all;
}

// When the last flow of a transfer has had what it needs of a link that no other uses meanwhile; rounded as
// progress on a link is.
double alone_until(double start, const LinkDemand& use) {
  return start + use.latency + use.busy / use.flows * use.flows;
}

}  // namespace

std::vector<LinkDemand> uses_of(const Topology& topology, const std::vector<Flow>& flows) {
  std::map<int, LinkDemand> uses;
  for (const Flow& flow : flows) {
    for (int i = 0; i < flow.route.count; ++i) {
      const int link = flow.route.links[static_cast<std::size_t>(i)];
      LinkDemand& use =
          uses.try_emplace(link, LinkDemand{link, 0, 0, flow.path.latency.value()}).first->second;
      use.busy += (flow.wire / topology.links()[static_cast<std::size_t>(link)].spec.bandwidth).value();
      use.flows += 1;
      use.latency = std::min(use.latency, flow.path.latency.value());
    }
  }
  std::vector<LinkDemand> all;
  for (const auto& [link, use] : uses) all.push_back(use);
  return all;
}

SharedLinks::SharedLinks(const std::vector<TransferKind>& kinds) : kinds_(kinds) {
  for (TransferKind& kind : kinds_) kind.uses.clear();
  const std::vector<std::vector<Sight>> links = telling(kinds);
  for (std::size_t link = 0; link < links.size(); ++link) {
    for (const Sight& sight : links[link]) {
      kinds_[static_cast<std::size_t>(sight.kind)].uses.push_back(
          {static_cast<int>(link), sight.busy, sight.flows, sight.latency});
    }
  }
  links_.resize(links.size());
  for (TransferKind& kind : kinds_) {
    std::stable_sort(kind.uses.begin(), kind.uses.end(),
                     [](const LinkDemand& a, const LinkDemand& b) { return a.latency < b.latency; });
  }
}

void SharedLinks::start(double time, int kind, std::uint64_t tag) {
  std::size_t index = transfers_.size();
  if (free_.empty()) {
    transfers_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  const auto& uses = kinds_[static_cast<std::size_t>(kind)].uses;
  transfers_[index] = {kind, tag, time, 0, uses.size(), 0, transfers_[index].version};
  add(time + uses.front().latency, What::arrival, static_cast<std::uint32_t>(index), 0);
}

std::optional<SharedLinks::End> SharedLinks::next() {
  while (!events_.empty()) {
    const double time = events_.next();
    const Event event = events_.take();
    if (event.what == What::link && links_[event.subject].version != event.version) continue;
    if (event.what == What::undisturbed && transfers_[event.subject].version != event.version) continue;
    now_ = std::max(now_, time);
    switch (event.what) {
      case What::reminder:
        return End{now_, event.subject + (std::uint64_t{event.version} << 32)};
      case What::arrival:
        arrive(event.subject);
        break;
      case What::link:
        if (const auto end = leave(event.subject)) return end;
        break;
      case What::undisturbed:
        let_go(event.subject);
        return over(event.subject);
    }
  }
  return std::nullopt;
}

// Reaches the links of its next latency.
void SharedLinks::arrive(std::size_t index) {
  if (transfers_[index].arrived == 0 && hold(index)) return;
  const std::vector<LinkDemand>& uses = asked_by(transfers_[index]);
  std::size_t& arrived = transfers_[index].arrived;
  const double latency = uses[arrived].latency;
  for (; arrived < uses.size() && uses[arrived].latency == latency; ++arrived) {
    const Link& link = link_of(uses[arrived]);
    if (is_held(link)) disturb(link.holder);
    join(index, uses[arrived], now_);
  }
  if (arrived < uses.size())
    add(transfers_[index].start + uses[arrived].latency, What::arrival, static_cast<std::uint32_t>(index), 0);
}

bool SharedLinks::hold(std::size_t index) {
  Transfer& transfer = transfers_[index];
  const std::vector<LinkDemand>& uses = asked_by(transfer);
  for (const LinkDemand& use : uses) {
    const Link& link = link_of(use);
    if (!link.under_way.empty() || is_held(link)) return false;
  }
  transfer.undisturbed = now_;
  for (const LinkDemand& use : uses) {
    link_of(use).holder = index;
    transfer.undisturbed = std::max(transfer.undisturbed, alone_until(transfer.start, use));
  }
  add(transfer.undisturbed, What::undisturbed, static_cast<std::uint32_t>(index), ++transfer.version);
  return true;
}

void SharedLinks::let_go(std::size_t index) {
  for (const LinkDemand& use : asked_by(transfers_[index])) {
    Link& link = link_of(use);
    if (link.holder == index) link.holder = kNone;
  }
  ++transfers_[index].version;
}

void SharedLinks::disturb(std::size_t index) {
  let_go(index);
  Transfer& transfer = transfers_[index];
  const std::vector<LinkDemand>& uses = asked_by(transfer);
  for (; transfer.arrived < uses.size(); ++transfer.arrived) {
    const LinkDemand& use = uses[transfer.arrived];
    const double since = transfer.start + use.latency;
    if (since > now_) return add(since, What::arrival, static_cast<std::uint32_t>(index), 0);
    if (alone_until(transfer.start, use) <= now_) {
      --transfer.left;
      continue;
    }
    join(index, use, since);
  }
}

void SharedLinks::join(std::size_t transfer, const LinkDemand& use, double time) {
  Link& link = link_of(use);
  if (link.under_way.empty()) {
    link.flows = link.progress = 0;  // no rounding is kept
  } else {
    link.progress += (time - link.since) / link.flows;
  }
  link.since = time;
  link.flows += use.flows;
  link.under_way.push({link.progress + use.busy / use.flows, transfer, use.flows});
  expect_end(static_cast<std::size_t>(use.link));
}

void SharedLinks::expect_end(std::size_t number) {
  Link& link = links_[number];
  ++link.version;
  if (link.under_way.empty()) return;
  const double ahead = std::max(0.0, link.under_way.top().progress - link.progress);
  add(link.since + ahead * link.flows, What::link, static_cast<std::uint32_t>(number), link.version);
}

// The first on the link has had its share; the end of that transfer, if this was the last of its links.
std::optional<SharedLinks::End> SharedLinks::leave(std::size_t number) {
  Link& link = links_[number];
  const Link::Done done = link.under_way.top();
  link.under_way.pop();
  link.progress = done.progress;
  link.since = now_;
  link.flows -= done.flows;
  expect_end(number);
  if (--transfers_[done.transfer].left > 0) return std::nullopt;
  return over(done.transfer);
}

SharedLinks::End SharedLinks::over(std::size_t index) {
  free_.push_back(index);
  const Transfer& transfer = transfers_[index];
  const double alone = kinds_[static_cast<std::size_t>(transfer.kind)].alone;
  return {std::max(now_, transfer.start + alone), transfer.tag};
}

}  // namespace orrery
