#include "sim/commands/inputs.hpp"

#include <unistd.h>

#include <filesystem>

#include "costmodels/sha256.hpp"
#include "platforms/yaml.hpp"

namespace orrery {

CostModels read_costs(const CommandLine& line) {
  const auto folder = line.text("costs");
  return folder ? CostModels::from_folder(*folder) : CostModels::built_in();
}

ClusterSpec read_cluster_option(const CommandLine& line, const std::string& name) {
  ClusterSpec cluster = read_cluster(name);
  if (line.has("no-contention")) cluster.contention = Contention::ideal;
  return cluster;
}

RunOrigin origin_of(const CommandLine& line, const std::string& command, const std::vector<std::string>& arguments,
                    const std::string& model, const std::string& cluster, const CostModels& costs) {
  RunOrigin origin;
  origin.command_line = "orrery " + command;
  for (const std::string& argument : arguments) origin.command_line += " " + argument;
  origin.seed = line.seed();
  origin.model = model;
  origin.cluster = cluster;
  const bool is_file = std::filesystem::exists(model);
  origin.model_digest = sha256_hex(is_file ? read_text_file(model) : model);
  origin.cost_models = costs.digest();
  return origin;
}

void make_output_folder(const std::string& path) {
  std::error_code trouble;
  std::filesystem::create_directories(path, trouble);
  if (trouble || !std::filesystem::is_directory(path)) {
    throw InputError(path, trouble ? trouble.message() : "a file", "a folder that can be made or written to (-o)");
  }
  if (::access(path.c_str(), W_OK) != 0) throw InputError(path, "no leave to write", "a folder that can be written to (-o)");
}

}  // namespace orrery
