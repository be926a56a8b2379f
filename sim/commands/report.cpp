#include "analysis/report.hpp"

#include <iostream>

#include "sim/command_line.hpp"
#include "sim/commands/commands.hpp"
#include "sim/json_output.hpp"

namespace orrery {

int run_report(const Arguments& arguments) {
  CommandLine line("report", "Draws traces on one self-contained HTML page.",
                   "orrery report orrery-out/trace-01.h5 orrery-out/trace-02.h5 -o report.html");
  line.positional("trace", "The arguments are trace files.");
  if (!line.parse(arguments)) return 0;
  const std::vector<std::string> traces = line.list("trace");
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
