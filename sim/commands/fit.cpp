#include "costmodels/fit.hpp"

#include <iostream>

#include "sim/command_line.hpp"
#include "sim/commands/commands.hpp"

namespace orrery {

int run_fit(const Arguments& arguments) {
  CommandLine line(
      "fit",
      "Fits the efficiency models to measured operators and prints how wrong each is on what it did not see.",
      "orrery fit --profiles measured/ -o my-costs");
  line.values("profiles", "FOLDER", "measured operator tables (README of traces); may be repeated");
  line.flag("invented", "take the times that `orrery profile --dry-run` invented, for tests");
  if (!line.parse(arguments)) return 0;
  FitOptions options;
  options.profiles = line.list("profiles");
  if (options.profiles.empty())
    throw InputError("orrery fit", "no --profiles", "a folder of measured operator tables");
  options.output = line.required("output");
  options.seed = line.seed();
  if (line.has("invented")) options.invented = InventedTimes::taken;
  const FitReport report = fit(options);
  for (const FitInput& input : report.inputs)
    for (const std::string& doubt : input.doubts)
      std::cerr << "orrery: " << input.file << ": " << doubt << "\n";
  std::cout << (line.json() ? to_json(report) : to_table(report));
  if (!line.quiet()) std::cerr << "wrote " << report.models.size() << " models to " << options.output << "\n";
  return 0;
}

}  // namespace orrery
