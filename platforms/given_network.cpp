#include "platforms/given_network.hpp"

#include <charconv>
#include <set>

#include "platforms/errors.hpp"

namespace orrery {

namespace {

int count_gpus(const std::vector<NodeGroup>& groups, const YamlValue& network) {
  std::int64_t gpus = 0;
  for (const NodeGroup& group : groups) {
    if (group.count.minimum != group.count.maximum) {
      throw InputError(network.place(),
                       "a network beside the group " + group.name + ", whose count is a range",
                       "a fixed count");
    }
    gpus += largest_gpus(group);
  }
  if (gpus <= kMostGivenGpus) return static_cast<int>(gpus);
  throw InputError(network.place(), "a network of " + std::to_string(gpus) + " GPUs",
                   "at most " + std::to_string(kMostGivenGpus) + ", because it has a route for each pair");
}

TopologyLink read_link(const YamlValue& map) {
  map.allow_keys({"name", "bandwidth", "latency"});
  return {map.at("name").text(),
          {map.at("bandwidth").positive_quantity<BytesPerSecond>(), map.at("latency").quantity<Seconds>()},
          LinkState::up};
}

// "|0 2|0 4": the routes of one GPU.
void read_row(const YamlValue& row, NetworkTable& table) {
  const std::string text = row.text();
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (*at == '|') table.first.push_back(static_cast<int>(table.crossed.size()));
    if (*at == '|' || *at == ' ') {
      ++at;
      continue;
    }
    int link = 0;
    const auto [rest, error] = std::from_chars(at, end, link);
    if (error != std::errc()) row.fail("numbers of links, a space between them and a | between routes");
    table.crossed.push_back(link);
    at = rest;
  }
  table.first.push_back(static_cast<int>(table.crossed.size()));
}

}  // namespace

GivenNetwork parse_given_network(const YamlValue& map, const std::vector<NodeGroup>& groups) {
  map.allow_keys({"links", "routes"});
  const int gpus = count_gpus(groups, map);
  NetworkTable table;
  for (const YamlValue& link : map.at("links").items()) table.links.push_back(read_link(link));
  table.first.push_back(0);
  const std::vector<YamlValue> rows = map.at("routes").items();
  if (rows.size() != static_cast<std::size_t>(gpus)) {
    throw InputError(map.at("routes").place(), std::to_string(rows.size()) + " rows",
                     std::to_string(gpus) + ", one for each GPU");
  }
  for (const YamlValue& row : rows) {
    const std::size_t before = table.first.size();
    read_row(row, table);
    if (table.first.size() - before == static_cast<std::size_t>(gpus)) continue;
    throw InputError(row.place(), std::to_string(table.first.size() - before) + " routes",
                     std::to_string(gpus) + ", one to each GPU");
  }
  check_network(table, gpus, map.place());
  return {std::make_shared<const NetworkTable>(std::move(table))};
}

void check_network(const NetworkTable& table, int gpus, const std::string& place) {
  std::set<std::string> names;
  for (const TopologyLink& link : table.links) {
    if (!names.insert(link.name).second) {
      throw InputError(place, "two links " + quote_for_message(link.name), "a name that no other link has");
    }
  }
  const auto links = static_cast<int>(table.links.size());
  for (int from = 0; from < gpus; ++from) {
    for (int to = 0; to < gpus; ++to) {
      const auto pair = static_cast<std::size_t>(from * gpus + to);
      const int count = table.first[pair + 1] - table.first[pair];
      if (from == to ? count == 0 : (count >= 1 && count <= kMostLinksOfRoute)) continue;
      throw InputError(
          place,
          "a route of " + std::to_string(count) + " links from GPU " + std::to_string(from) + " to GPU " +
              std::to_string(to),
          from == to ? "none from a GPU to itself" : "1 to " + std::to_string(kMostLinksOfRoute));
    }
  }
  for (const int link : table.crossed) {
    if (link < 0 || link >= links) {
      throw InputError(place, "the number " + std::to_string(link) + " of a link",
                       "a number from 0 to " + std::to_string(links - 1));
    }
  }
}

}  // namespace orrery
