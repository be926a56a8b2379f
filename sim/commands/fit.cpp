#include "costmodels/fit/fit.hpp"

#include <algorithm>
#include <iostream>

#include "platforms/cluster.hpp"
#include "platforms/errors.hpp"
#include "sim/commands/command_line.hpp"
#include "sim/commands/commands.hpp"

namespace orrery {

namespace {

// Those of these clusters that the catalog does not have.
std::vector<GpuSpec> gpus_of_clusters(const std::vector<std::string>& clusters) {
  std::vector<GpuSpec> own;
  const auto called = [](const std::vector<GpuSpec>& gpus, const std::string& name) {
    return std::find_if(gpus.begin(), gpus.end(),
                        [&](const GpuSpec& gpu) { return same_name(gpu.name, name); });
  };
  for (const std::string& cluster : clusters) {
    for (const NodeGroup& group : read_cluster(cluster).groups) {
      const GpuSpec& gpu = group.gpu;
      if (called(gpu_catalog(), gpu.name) != gpu_catalog().end()) continue;
      const auto known = called(own, gpu.name);
      if (known == own.end())
        own.push_back(gpu);
      else if (*known != gpu)
        throw InputError(cluster,
                         "the GPU " + quote_for_message(gpu.name) + " with other numbers than before",
                         "each GPU described in one way");
    }
  }
  return own;
}

}  // namespace

int run_fit(const Arguments& arguments) {
  CommandLine line(
      "fit",
      "Fits the efficiency models to measured operators and prints how wrong each is on what it did not see.",
      "orrery fit --profiles measured/ -o my-costs");
  line.values("profiles", "FOLDER", "measured operator tables (traces/profile_reader.hpp); may be repeated");
  line.values(
      "cluster", "FILE",
      "a cluster file that describes GPUs which the catalog lacks (`gpu: {name: ...}`), so that tables "
      "may name them; may be repeated");
  line.flag("invented", "take the times that `orrery profile --dry-run` invented, for tests");
  if (!line.parse(arguments)) return 0;
  FitOptions options;
  options.profiles = line.list("profiles");
  if (options.profiles.empty())
    throw InputError("orrery fit", "no --profiles", "a folder of measured operator tables");
  options.output = line.required("output");
  options.seed = line.seed();
  options.own_gpus = gpus_of_clusters(line.list("cluster"));
  if (line.has("invented")) options.invented = InventedTimes::taken;
  const FitReport report = fit(options);
  for (const FitInput& input : report.inputs) {
    if (line.quiet()) break;
    for (const std::string& doubt : input.doubts)
      std::cerr << "orrery: " << input.file << ": " << doubt << "\n";
  }
  std::cout << (line.json() ? to_json(report) : to_table(report));
  if (!line.quiet()) std::cerr << "wrote " << report.models.size() << " models to " << options.output << "\n";
  return 0;
}

}  // namespace orrery
