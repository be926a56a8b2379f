#include <iostream>
#include <nlohmann/json.hpp>

#include "sim/commands/command_line.hpp"
#include "sim/commands/commands.hpp"
#include "sim/commands/inputs.hpp"
#include "sim/commands/plan_file.hpp"
#include "strategies/megatron.hpp"
#include "strategies/plan.hpp"
#include "traces/json_text.hpp"
#include "traces/output_file.hpp"

namespace orrery {
namespace {

int cannot_run(const CommandLine& line, const std::vector<std::string>& gaps) {
  if (line.json()) std::cout << json_document(nlohmann::ordered_json{{"gaps", gaps}});
  std::ostream& out = line.json() ? std::cerr : std::cout;
  out << "Megatron-LM cannot run this plan:\n";
  for (const std::string& gap : gaps) out << "  " << gap << "\n";
  return 1;
}

}  // namespace

int run_launch(const Arguments& arguments) {
  CommandLine line("launch", "Writes Megatron-LM arguments, a torchrun script and the map of ranks to nodes.",
                   "orrery launch --plan out/plan-01.yaml -o launch");
  line.value("plan", "FILE", "a plan, as `orrery search` writes it (YAML)");
  if (!line.parse(arguments)) return 0;
  const std::string path = line.required("plan");
  const Plan plan = read_plan(path);
  const ModelSpec model = read_named(path, "model", [&] { return read_model(plan.model); });
  const ClusterSpec cluster = read_named(path, "cluster", [&] { return read_any_cluster(plan.cluster); });
  if (const auto trouble = check_shape(model, plan.strategy, cluster)) {
    throw InputError(path, trouble->reason, "a plan that fits its model and cluster");
  }
  const auto launch = launch_files(model, plan.strategy, cluster);
  if (const auto* gaps = std::get_if<std::vector<std::string>>(&launch)) return cannot_run(line, *gaps);
  const auto& files = std::get<LaunchFiles>(launch);
  if (line.json()) {
    const nlohmann::ordered_json json{
        {"arguments", files.arguments}, {"script", files.script}, {"rank_map", files.rank_map}};
    std::cout << json_document(json);
  }
  const auto stem = line.text("output");
  if (!stem) {
    if (!line.json()) std::cout << files.script;
    return 0;
  }
  write_file(*stem + ".args", files.arguments);
  write_file(*stem + ".sh", files.script);
  write_file(*stem + ".ranks", files.rank_map);
  if (!line.quiet())
    std::cerr << "wrote " << *stem << ".args, " << *stem << ".sh and " << *stem << ".ranks\n";
  return 0;
}

}  // namespace orrery
