#include "analysis/report.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "sim/commands/command_line.hpp"
#include "sim/commands/commands.hpp"
#include "sim/search/json_output.hpp"

namespace orrery {

namespace {

std::vector<std::string> traces_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code trouble;
  for (std::filesystem::directory_iterator entry(folder, trouble), end; !trouble && entry != end;
       entry.increment(trouble)) {
    if (entry->path().extension() == ".h5") paths.push_back(entry->path().string());
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty())
    throw InputError(folder, "a folder without traces", "a folder of `orrery search`, or trace files (.h5)");
  return paths;
}

}  // namespace

int run_report(const Arguments& arguments) {
  CommandLine line("report", "Draws traces on one self-contained HTML page.",
                   "orrery report out/trace-01.h5 out/trace-02.h5 -o report.html");
  line.positional("trace", "The arguments are trace files, or folders of them as `orrery search` leaves.");
  if (!line.parse(arguments)) return 0;
  std::vector<std::string> traces;
  for (const std::string& path : line.list("trace")) {
    std::error_code ignored;
    const std::vector<std::string> all =
        std::filesystem::is_directory(path, ignored) ? traces_in(path) : std::vector{path};
    traces.insert(traces.end(), all.begin(), all.end());
  }
  if (traces.empty()) throw InputError("orrery report", "no trace", "one trace file (.h5) or several");
  const std::string path = line.text("output").value_or("report.html");
  ReportInput input;
  input.title = traces.size() == 1 ? traces.front() : std::to_string(traces.size()) + " runs";
  for (const std::string& trace : traces) input.traces.push_back({trace, read_trace(trace)});
  write_report(path, input);
  if (line.json()) std::cout << files_json({path});
  if (!line.quiet()) std::cerr << "wrote " << path << "\n";
  return 0;
}

}  // namespace orrery
