// `orrery replay --collective`: one collective alone, as nccl-tests measures it: played, and predicted.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "analysis/table.hpp"
#include "costmodels/collectives/collective_choice.hpp"
#include "costmodels/layers/achieved.hpp"
#include "costmodels/models/cost_models.hpp"
#include "costmodels/operators/node_links.hpp"
#include "costmodels/plans/group_calls.hpp"
#include "sim/commands/inputs.hpp"
#include "sim/commands/replay_collective.hpp"
#include "sim/replay/collective_run.hpp"
#include "traces/json_text.hpp"
#include "traces/output_file.hpp"

namespace orrery {
namespace {

std::string number(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::vector<Bytes> read_sizes(const CommandLine& line) {
  std::vector<Bytes> sizes;
  for (const std::string& text : line.list("message")) {
    sizes.push_back(parse_quantity<Bytes>(text, line.place("message")));
  }
  if (sizes.empty()) throw InputError("--collective", "no --message", "--message SIZE, once or more");
  return sizes;
}

// The first GPUs of the cluster at its largest.
std::vector<int> read_gpus(const CommandLine& line, const Topology& topology) {
  if (topology.gpus() < 2) throw InputError(line.place("cluster"), "one GPU", "a cluster of two or more");
  std::vector<int> gpus(static_cast<std::size_t>(line.integer("gpus", 2, topology.gpus(), topology.gpus())));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

std::optional<CollectiveAlgorithm> read_algorithm(const CommandLine& line,
                                                  const NamedCollective& collective) {
  const auto name = line.text("algorithm");
  if (!name) return std::nullopt;
  const CollectiveAlgorithm algorithm = parse_collective_algorithm(*name, line.place("algorithm"));
  if (can_run(algorithm, collective)) return algorithm;
  throw InputError(line.place("algorithm"), "'" + *name + "'",
                   "an algorithm that can run " + std::string(collective.name));
}

double bus_bandwidth(const PlayedAlgorithm& played, Seconds time) {
  return played.bytes.value() * played.bus_factor / time.value();
}

// Of a collective that takes `measured` on one big switch with links as the node groups say: its flows on the
// links that there are.
Seconds over_fabric(const Topology& topology, CollectiveCall call, Seconds measured) {
  const Collective op = as_operator(topology, call);
  const Achieved speed = achieved(op, nccl_choice(op), measured);
  call.efficiency = speed.efficiency;
  return time_alone(topology, collective_flows(topology, call)) + speed.more;
}

// What plans pay for each size: the models of measured collectives. Empty of a broadcast,
// which no plan sends.
std::vector<Prediction> predicted(const Topology& topology, const CollectiveQuestion& question,
                                  const CostModels& costs) {
  if (!question.collective.kind) return {};
  const NodeGroup& group = topology.group_of(question.gpus.front());
  std::vector<CollectiveCall> calls;
  std::vector<OperatorQuery> queries;
  for (const Bytes bytes : question.sizes) {
    calls.push_back({*question.collective.kind, {}, bytes, {}, question.gpus});
    Collective op = as_operator(topology, calls.back());
    op.gpu_link = NodeLinks(group).among(op.ranks_per_node);
    queries.push_back({0, op});
  }
  auto answers = costs.predict({{group.gpu}}, queries);
  if (!must_play(topology, question.gpus)) return answers;
  for (std::size_t i = 0; i < answers.size(); ++i)
    answers[i].time = over_fabric(topology, calls[i], answers[i].time);
  return answers;
}

std::string table_text(const std::vector<PlayedAlgorithm>& all, const std::vector<Prediction>& plans_pay) {
  Table table;
  table.columns = {{"size"},
                   {"algorithm"},
                   {"time us", Align::right},
                   {"bus GB/s", Align::right},
                   {"over the bound", Align::right},
                   {""}};
  const auto add = [&](const PlayedAlgorithm& played, Seconds time, std::string_view name,
                       const char* remark) {
    table.rows.push_back({to_text(played.bytes), std::string(name), number("%.2f", time.value() * 1e6),
                          number("%.2f", bus_bandwidth(played, time) / 1e9),
                          number("%.3f", time / played.least), remark});
  };
  auto pays = plans_pay.begin();
  for (std::size_t i = 0; i < all.size(); ++i) {
    add(all[i], all[i].time, to_text(all[i].algorithm), all[i].nccl_choice ? "NCCL's choice" : "");
    const bool last_of_size = i + 1 == all.size() || all[i + 1].bytes != all[i].bytes;
    if (last_of_size && pays != plans_pay.end()) {
      add(all[i], pays->time, "as measured", pays->extrapolated ? "extrapolated" : "");
      ++pays;
    }
  }
  return to_text(table);
}

std::string json_text(const CollectiveQuestion& question, const std::string& cluster,
                      const std::vector<PlayedAlgorithm>& all, const std::vector<Prediction>& plans_pay) {
  nlohmann::ordered_json json{
      {"cluster", cluster}, {"collective", question.collective.name}, {"gpus", question.gpus.size()}};
  for (const PlayedAlgorithm& played : all) {
    json["results"].push_back({{"bytes", played.bytes.value()},
                               {"algorithm", to_text(played.algorithm)},
                               {"nccl_choice", played.nccl_choice},
                               {"time_s", played.time.value()},
                               {"least_s", played.least.value()},
                               {"bus_bytes_per_s", bus_bandwidth(played, played.time)}});
  }
  json["predicted"] = nullptr;
  for (std::size_t i = 0; i < plans_pay.size(); ++i) {
    json["predicted"].push_back({{"bytes", question.sizes[i].value()},
                                 {"time_s", plans_pay[i].time.value()},
                                 {"extrapolated", plans_pay[i].extrapolated}});
  }
  return json_document(json);
}

}  // namespace

void declare_collective(CommandLine& line) {
  line.value("collective", "KIND",
             "plays one collective alone: all_reduce, reduce_scatter, all_gather, all_to_all or broadcast")
      .value("cluster", "NAME|FILE", "with --collective: where")
      .value("gpus", "N", "with --collective: the first N GPUs of the cluster (all)")
      .values("message", "SIZE", "with --collective: bytes of one rank, such as 64MiB; may be repeated");
}

void refuse_collective_options(const CommandLine& line) {
  for (const char* option : {"cluster", "gpus", "message"}) {
    if (line.has(option)) throw InputError(line.place(option), "no --collective", "--collective beside it");
  }
}

int replay_collective(const CommandLine& line) {
  for (const char* option : {"tokens", "stack", "layer-profile", "no-fold", "iterations", "slow", "jitter",
                             "runs", "schedule-file", "pricing"}) {
    if (line.has(option))
      throw InputError(line.place(option), "beside --collective", "it only with --plan or --durations");
  }
  if (const auto path = line.text("output")) require_writable(*path);
  std::vector<std::string> names;
  for (const NamedCollective& each : named_collectives()) names.emplace_back(each.name);
  const NamedCollective& collective = named_collectives()[*line.choice("collective", names)];
  const ClusterSpec cluster = read_cluster_option(line, line.required("cluster"));
  std::vector<int> nodes;
  for (const NodeGroup& group : cluster.groups) nodes.push_back(group.count.maximum);
  const Topology topology(cluster, nodes);
  const CollectiveQuestion question{collective, read_gpus(line, topology), read_sizes(line),
                                    read_algorithm(line, collective)};
  const auto played = play_alone(topology, question, line.jobs());
  const CostModels costs = read_costs(line);
  const auto plans_pay = predicted(topology, question, costs);
  OwnModels of_exchange = costs.own();
  of_exchange.compute = false;  // nothing else is asked for
  OwnAnswers own;
  for (const Prediction& answer : plans_pay) own.add(of_exchange, Collective{}, answer);
  warn_of_silent_costs(line, costs, own, {&cluster});
  const std::string json = json_text(question, cluster.name, played, plans_pay);
  if (const auto path = line.text("output")) write_file(*path, json);
  if (line.json()) {
    std::cout << json;
    return 0;
  }
  std::cout << collective.name << " over " << question.gpus.size() << " GPUs of " << cluster.name
            << ", links at the cluster's bandwidth\n\n"
            << table_text(played, plans_pay)
            << "\nthe bound: no algorithm takes less, but for bytes that flows round; "
            << (plans_pay.empty()
                    ? "no prediction as measured is known:\nno plan sends a " + std::string(collective.name) +
                          ", and no model of measured collectives has it\n"
                    : "as measured: what a plan pays, by the models of\nmeasured collectives, over the links "
                      "of this cluster\n");
  return 0;
}

}  // namespace orrery
