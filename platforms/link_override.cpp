#include "platforms/link_override.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "platforms/errors.hpp"

namespace orrery {

namespace {

constexpr double kLargestFactor = 1e6;

// "0.5x"; nothing where the text is no number followed by x.
std::optional<double> parse_factor(std::string_view text) {
  if (text.empty() || text.back() != 'x') return std::nullopt;
  double value = 0;
  const char* last = text.data() + text.size() - 1;
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

void read_bandwidth(const YamlValue& value, LinkOverride& change) {
  const std::optional<double> factor = parse_factor(value.text());
  if (!factor) {
    change.bandwidth = value.positive_quantity<BytesPerSecond>();
    return;
  }
  if (!(*factor >= 1 / kLargestFactor && *factor <= kLargestFactor)) {
    value.fail("a factor from 1e-06x to 1e+06x, or state: down");
  }
  change.factor = *factor;
}

LinkState read_state(const YamlValue& value) {
  const std::string text = value.text();
  if (text == "up") return LinkState::up;
  if (text == "down") return LinkState::down;
  value.fail("up or down");
}

LinkOverride read_override(const YamlValue& map) {
  map.allow_keys({"name", "bandwidth", "latency", "state"});
  LinkOverride change;
  change.name = map.at("name").text();
  if (const auto bandwidth = map.find("bandwidth")) read_bandwidth(*bandwidth, change);
  if (const auto latency = map.find("latency")) change.latency = latency->quantity<Seconds>();
  if (const auto state = map.find("state")) change.state = read_state(*state);
  if (change.bandwidth || change.factor || change.latency || change.state) return change;
  throw InputError(map.place(), "a link that nothing is said about",
                   "bandwidth: 10Gbps or 0.5x, latency: 50us or state: down");
}

// Names for a message. A pattern is near to names with the same parts starred: "a.node*.nic0.up".
std::vector<std::string> names_like(const std::string& pattern, const std::vector<TopologyLink>& links) {
  constexpr std::size_t kMost = 20'000;
  std::vector<std::string> names;
  const bool starred = pattern.find('*') != std::string::npos;
  for (const TopologyLink& link : links) {
    if (names.size() >= kMost) break;
    names.push_back(link.name);
    if (!starred) continue;
    const std::size_t node = link.name.find(".node");
    if (node == std::string::npos) continue;
    const std::size_t rest = link.name.find('.', node + 1);
    const std::string any_node = link.name.substr(0, node) + ".node*";
    names.push_back(any_node + link.name.substr(rest));
    names.push_back(any_node + link.name.substr(rest, link.name.rfind('.') - rest) + ".*");
  }
  return names;
}

void require_match(const LinkOverride& change, const YamlValue& name,
                   const std::vector<TopologyLink>& links) {
  const bool found = std::any_of(links.begin(), links.end(), [&](const TopologyLink& link) {
    return matches_pattern(change.name, link.name);
  });
  if (found) return;
  std::string expected = "the name of a link, with * for any part";
  if (!links.empty()) expected += ", such as " + quote_for_message(links.front().name);
  name.fail(expected + did_you_mean(change.name, names_like(change.name, links)));
}

}  // namespace

std::vector<LinkOverride> parse_link_overrides(const YamlValue& list, const ClusterSpec& cluster) {
  std::vector<LinkOverride> changes;
  const std::vector<YamlValue> items = list.items();
  if (items.empty()) return changes;
  const Topology largest(cluster, largest_counts(cluster));
  for (const YamlValue& item : items) {
    changes.push_back(read_override(item));
    require_match(changes.back(), item.at("name"), largest.links());
  }
  return changes;
}

bool matches_pattern(std::string_view pattern, std::string_view name) {
  std::size_t p = 0;
  std::size_t n = 0;
  std::optional<std::size_t> star;  // in the pattern; what it stands for ends before `resume`
  std::size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star) {
      p = *star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

void apply_overrides(const std::vector<LinkOverride>& changes, std::vector<TopologyLink>& links) {
  for (const LinkOverride& change : changes) {
    for (TopologyLink& link : links) {
      if (!matches_pattern(change.name, link.name)) continue;
      if (change.bandwidth) link.spec.bandwidth = *change.bandwidth;
      if (change.factor) link.spec.bandwidth *= *change.factor;
      if (change.latency) link.spec.latency = *change.latency;
      if (change.state) link.state = *change.state;
    }
  }
}

std::string factor_text(double factor) {
  return shortest_text(factor) + "x";
}

}  // namespace orrery
