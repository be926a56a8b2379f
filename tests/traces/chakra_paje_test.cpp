// The exports for other tools are parsed back, and their spans add up to the accounting.
#include <map>
#include <set>
#include <sstream>

#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"
#include "tests/catch.hpp"
#include "tests/traces/sample_trace.hpp"
#include "tests/traces/scratch_folder.hpp"
#include "traces/chakra.hpp"
#include "traces/paje.hpp"

namespace orrery {
namespace {

using Sums = std::map<std::pair<std::string, std::string>, double>;  // (container or rank, kind) -> s

// A reader of the few events that are written; checks their order, and that states nest and are all closed.
Sums read_paje(const std::string& path) {
  std::istringstream file(read_text_file(path));
  Sums sums;
  std::map<std::string, std::vector<std::pair<std::string, double>>> open;
  std::set<std::string> containers;
  double now = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '%') continue;
    std::istringstream words(line);
    std::string time, type, container, value;
    int event = 0;
    words >> event >> time >> type >> container >> value;
    if (event == 3) containers.insert(type);  // its second word is the alias
    if (event != 5 && event != 6) continue;
    REQUIRE(std::stod(time) >= now);
    now = std::stod(time);
    REQUIRE(containers.count(container) == 1);
    if (event == 5) {
      open[container].emplace_back(value, now);
      REQUIRE(open[container].size() == 1);
      continue;
    }
    REQUIRE_FALSE(open[container].empty());
    const auto [kind, start] = open[container].back();
    open[container].pop_back();
    sums[{container, kind}] += now - start;
  }
  for (const auto& [container, states] : open) CHECK(states.empty());
  return sums;
}

double attribute(const YamlValue& node, const std::string& name) {
  for (const YamlValue& attr : node.at("attr").items()) {
    if (attr.at("name").text() == name) return attr.at("double_val").number(0, 1e9);
  }
  FAIL("no attribute " << name);
  return 0;
}

void check_compute(const Accounting& account, Sums& sums, const std::string& owner) {
  const auto of = [&](const char* kind) { return sums[{owner, kind}]; };
  CHECK(of("forward") + of("backward") + of("weight_gradient") ==
        Approx((account.compute + account.exposed_tp).value()).epsilon(1e-12));
  CHECK(of("optimizer") == Approx(account.optimizer.value()).epsilon(1e-12));
}

}  // namespace

TEST_CASE("states of a Paje trace add up to the accounting, idle time and all") {
  const ScratchFolder folder;
  Trace trace = sample_trace();
  SpanRow second = compute_span(SpanKind::all_reduce, 0, -1, 1.1, 1.2);  // while the message is on its way
  second.stream = Stream::network;
  add_span(trace.timeline, second);
  export_paje(folder.file("a.paje"), trace);
  Sums sums = read_paje(folder.file("a.paje"));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string owner = "r" + std::to_string(rank);
    const Accounting& account = trace.accounting.ranks[rank];
    check_compute(account, sums, owner);
    CHECK(sums[{owner, "exposed_p2p"}] == Approx(account.exposed_p2p.value()));
    CHECK(sums[{owner, "exposed_dp"}] == Approx(account.exposed_dp.value()));
    CHECK(sums[{owner, "bubble_warmup"}] == Approx(account.bubble_warmup.value()));
    CHECK(sums[{owner, "bubble_steady"}] == Approx(account.bubble_steady.value()));
    CHECK(sums[{owner, "bubble_drain"}] == Approx(account.bubble_drain.value()));
  }
  CHECK(sums[{"r0n1", "send"}] == Approx(0.25));
  CHECK(sums[{"r0n2", "all_reduce"}] == Approx(0.1));
}

TEST_CASE("nodes of a Chakra trace add up to the accounting and depend only on what is over") {
  const ScratchFolder folder;
  Trace trace = sample_trace();
  SpanRow gradient = compute_span(SpanKind::send, 1, 0, 4.25, 4.5);
  gradient.stream = Stream::network;
  gradient.bytes = 4e6;
  add_span(trace.timeline, gradient);
  for (int rank = 0; rank < 2; ++rank) {
    SpanRow reduce = compute_span(SpanKind::all_reduce, rank, -1, 8.0, 8.75);
    reduce.stream = Stream::network;
    if (rank == 1) add_span(trace.timeline, reduce);
  }
  const std::vector<std::string> paths = export_chakra(folder.file("a.json"), trace);
  CHECK(paths == std::vector<std::string>{folder.file("a.0.json"), folder.file("a.1.json")});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto nodes = YamlValue::read_file(paths[rank]).at("workload_graph").items();
    Sums sums;
    std::map<std::string, std::vector<std::string>> needs;  // names by name
    std::map<std::string, std::pair<std::int64_t, std::int64_t>> ends;
    for (std::size_t id = 0; id < nodes.size(); ++id) {
      const YamlValue& node = nodes[id];
      CHECK(node.at("Id").integer(0, 1000) == static_cast<std::int64_t>(id));
      const std::string name = node.at("Name").text();
      const double start = attribute(node, "start_s"), end = attribute(node, "end_s");
      CHECK(node.at("duration_micros").number(0, 1e9) == Approx((end - start) * 1e6));
      sums[{"", name.substr(0, name.find_last_of('_') == std::string::npos || name == "all_reduce"
                                   ? std::string::npos
                                   : name.find_last_of('_'))}] += end - start;
      for (const YamlValue& need : node.at("data_deps").items()) {
        const YamlValue& before = nodes[static_cast<std::size_t>(need.integer(0, 1000))];
        CHECK(attribute(before, "end_s") <= start);
        needs[name].push_back(before.at("Name").text());
      }
      if (const auto source = node.find("comm_src")) {
        ends[name] = {source->integer(0, 9), node.at("comm_dst").integer(0, 9)};
      }
    }
    check_compute(trace.accounting.ranks[rank], sums, "");
    const auto pair = [](std::int64_t a, std::int64_t b) { return std::pair(a, b); };
    if (rank == 0) {
      CHECK(ends["send_0"] == pair(0, 1));
      CHECK(ends["receive_0"] == pair(1, 0));
      CHECK(needs["send_0"] == std::vector<std::string>{"forward_0"});
      CHECK(needs["backward_0"] == std::vector<std::string>{"forward_1", "receive_0"});
    } else {
      CHECK(ends["receive_0"] == pair(0, 1));
      CHECK(needs["forward_0"] == std::vector<std::string>{"receive_0"});
      CHECK(needs["optimizer"] == std::vector<std::string>{"backward_1", "all_reduce"});
    }
  }
}

TEST_CASE("the next piece of a forward depends on the collective inside it in a Chakra trace") {
  const ScratchFolder folder;
  Trace trace;
  trace.timeline.ranks.resize(1);
  SpanRow exchange = compute_span(SpanKind::expert_exchange, 0, 0, 1.0, 2.0);
  exchange.stream = Stream::network;
  add_span(trace.timeline, compute_span(SpanKind::forward, 0, 0, 0.0, 1.0));
  add_span(trace.timeline, exchange);
  add_span(trace.timeline, compute_span(SpanKind::forward, 0, 0, 2.0, 3.0));
  const auto nodes =
      YamlValue::read_file(export_chakra(folder.file("a.json"), trace)[0]).at("workload_graph").items();
  REQUIRE(nodes.size() == 3);
  CHECK(nodes[1].at("comm_type").integer(0, 9) == 6);  // ALL_TO_ALL
  const auto needs = nodes[2].at("data_deps").items();
  REQUIRE(needs.size() == 2);
  CHECK(needs[0].integer(0, 9) == 0);
  CHECK(needs[1].integer(0, 9) == 1);
}

TEST_CASE("exports for other tools that cannot be written are wrong input") {
  CHECK_THROWS_AS(export_paje("/none/a.paje", sample_trace()), InputError);
  CHECK_THROWS_AS(export_chakra("/none/a.json", sample_trace()), InputError);
}

}  // namespace orrery
