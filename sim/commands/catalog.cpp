#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "analysis/table.hpp"
#include "costmodels/estimators/estimators.hpp"
#include "costmodels/stacks/stack_file.hpp"
#include "platforms/cluster.hpp"
#include "platforms/instance.hpp"
#include "sim/commands/command_line.hpp"
#include "sim/commands/commands.hpp"
#include "strategies/model.hpp"
#include "strategies/task_order.hpp"
#include "traces/json_text.hpp"
#include "traces/output_file.hpp"

namespace orrery {
namespace {

constexpr const char* kLists = "gpus, instances, models, clusters, stacks, estimators, schedules";

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string number(const std::optional<FlopsPerSecond>& peak) {
  return peak ? number(peak->value() / kTera) : "";
}
std::string number(const std::optional<DollarsPerHour>& price) {
  return price ? number(price->value()) : "";
}

Table gpus_table() {
  Table table;
  table.columns = {{"gpu"},
                   {"architecture"},
                   {"memory GiB", Align::right},
                   {"memory GB/s", Align::right},
                   {"fp16 TFLOPS", Align::right},
                   {"bf16 TFLOPS", Align::right},
                   {"fp8 TFLOPS", Align::right},
                   {"link"},
                   {"link GB/s", Align::right},
                   {"SMs", Align::right},
                   {"W", Align::right},
                   {"source"}};
  for (const GpuSpec& gpu : gpu_catalog()) {
    table.rows.push_back({gpu.name, gpu.architecture, number(to_gibibytes(gpu.memory)),
                          number(gpu.memory_bandwidth.value() / kGiga), number(gpu.fp16), number(gpu.bf16),
                          number(gpu.fp8), gpu.link, number(gpu.link_bandwidth.value() / kGiga),
                          std::to_string(gpu.multiprocessors), number(gpu.power.value()), gpu.source});
  }
  return table;
}

Table instances_table() {
  Table table;
  table.columns = {{"instance"},
                   {"provider"},
                   {"gpu"},
                   {"gpus", Align::right},
                   {"network Gbps", Align::right},
                   {"region"},
                   {"on demand USD/h", Align::right},
                   {"reserved 1y USD/h", Align::right},
                   {"spot USD/h", Align::right},
                   {"date"},
                   {"source"}};
  for (const InstanceSpec& instance : instance_catalog()) {
    for (const InstancePrice& price : instance.prices) {
      table.rows.push_back({instance.name, instance.provider, instance.gpu, std::to_string(instance.gpus),
                            instance.network ? number(instance.network->value() * 8 / kGiga) : "",
                            price.region, number(price.on_demand), number(price.reserved_1y),
                            number(price.spot), price.date, price.source});
    }
  }
  return table;
}

Table models_table() {
  Table table;
  table.columns = {{"model"},
                   {"parameters", Align::right},
                   {"layers", Align::right},
                   {"hidden", Align::right},
                   {"sequence", Align::right}};
  for (const std::string& name : builtin_model_names()) {
    const ModelSpec model = read_model(name);
    table.rows.push_back({name, std::to_string(total_parameters(model)), std::to_string(model.layer_count()),
                          std::to_string(model.hidden), std::to_string(model.default_sequence)});
  }
  return table;
}

Table clusters_table() {
  Table table;
  table.columns = {{"cluster"}, {"nodes"}};
  for (const std::string& name : builtin_cluster_names()) {
    std::string nodes;
    for (const NodeGroup& group : read_cluster(name).groups) {
      const std::string least = std::to_string(group.count.minimum),
                        most = std::to_string(group.count.maximum);
      nodes += (nodes.empty() ? "" : " + ") + (least == most ? most : least + ".." + most) + " of " +
               std::to_string(group.gpus_per_node) + " " + group.gpu.name;
    }
    table.rows.push_back({name, nodes});
  }
  return table;
}

// Whatever comes before it in this list is sharded too: optimizer, gradients, weights.
const char* sharded_by(const SoftwareStack& stack) {
  if (stack.fully_sharded) return stack.whole_weights ? "gradients" : "weights";
  return stack.distributed_optimizer ? "optimizer" : "";
}

Table stacks_table() {
  Table table;
  table.columns = {{"stack"},
                   {"attention"},
                   {"elementwise"},
                   {"loss"},
                   {"host forward ms", Align::right},
                   {"host backward ms", Align::right},
                   {"tensor overlap", Align::right},
                   {"sharded"}};
  for (const std::string& name : builtin_stack_names()) {
    const SoftwareStack stack = read_stack(name);
    const AttentionKernel attention = stack.flash_attention ? stack.attention : AttentionKernel::unfused;
    table.rows.push_back(
        {name, std::string(to_text(attention)), stack.elementwise == Fusion::fused ? "fused" : "separate",
         std::string(to_text(stack.cross_entropy)), number(stack.host.forward.value() * 1e3),
         number(stack.host.backward.value() * 1e3), number(stack.tensor_overlap), sharded_by(stack)});
  }
  return table;
}

Table names_table(const std::string& title, const std::vector<std::pair<std::string, std::string>>& rows) {
  Table table;
  table.columns = {{title}, {"what it is"}};
  for (const auto& [name, what] : rows) table.rows.push_back({name, what});
  return table;
}

Table schedules_table() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const ScheduleRow& row : schedule_table()) rows.emplace_back(to_text(row.kind), row.what);
  return names_table("schedule", rows);
}

Table estimators_table() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Estimator& row : estimators()) rows.emplace_back(row.name, row.what);
  return names_table("estimator", rows);
}

// Columns of numbers are aligned right; what is not known of them is null.
nlohmann::ordered_json json_cell(const TableColumn& column, const std::string& text) {
  if (column.align != Align::right) return text;
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json::parse(text);
}

std::string to_json(const Table& table) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& cells : table.rows) {
    nlohmann::ordered_json row;
    for (std::size_t i = 0; i < cells.size(); ++i)
      row[table.columns[i].title] = json_cell(table.columns[i], cells[i]);
    rows.push_back(std::move(row));
  }
  return json_document(rows);
}

}  // namespace

int run_catalog(const Arguments& arguments) {
  CommandLine line("catalog", "Lists what is built in.", "orrery catalog gpus");
  line.positional("what", std::string("The argument is one of ") + kLists + ".");
  if (!line.parse(arguments)) return 0;
  const std::vector<std::pair<std::string, Table (*)()>> lists{
      {"gpus", gpus_table},          {"instances", instances_table}, {"models", models_table},
      {"clusters", clusters_table},  {"stacks", stacks_table},       {"estimators", estimators_table},
      {"schedules", schedules_table}};
  const std::vector<std::string> wanted = line.list("what");
  if (wanted.size() != 1) {
    throw InputError("orrery catalog",
                     wanted.empty() ? "nothing" : std::to_string(wanted.size()) + " arguments",
                     std::string("one of ") + kLists);
  }
  std::vector<std::string> names;
  for (const auto& [name, table] : lists) {
    names.push_back(name);
    if (wanted.front() != name) continue;
    const std::string text = line.json() ? to_json(table()) : to_text(table());
    if (const auto path = line.text("output")) {
      write_file(*path, text);
    } else {
      std::cout << text;
    }
    return 0;
  }
  throw InputError("orrery catalog", quote_for_message(wanted.front()),
                   std::string("one of ") + kLists + did_you_mean(wanted.front(), names));
}

}  // namespace orrery
