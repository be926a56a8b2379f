#include <iostream>

#include "sim/commands/command_line.hpp"
#include "sim/commands/commands.hpp"
#include "sim/search/json_output.hpp"
#include "traces/chakra.hpp"
#include "traces/paje.hpp"
#include "traces/perfetto.hpp"
#include "traces/trace.hpp"

namespace orrery {

int run_export(const Arguments& arguments) {
  CommandLine line("export", "Turns a trace into a file that another tool opens.",
                   "orrery export --format perfetto out/trace-01.h5 -o trace.json");
  line.value("format", "FORMAT",
             "perfetto (the default: https://ui.perfetto.dev, chrome://tracing), chakra (execution traces in "
             "JSON, one file a rank: PATH with the rank before its extension), paje (ViTE, pj_dump) or csv "
             "(one row a span)")
      .positional("trace", "The argument is a trace file.");
  if (!line.parse(arguments)) return 0;
  const std::vector<std::string> traces = line.list("trace");
  if (traces.size() != 1) {
    throw InputError("orrery export", std::to_string(traces.size()) + " traces", "one trace file (.h5)");
  }
  const std::size_t format = line.choice("format", {"perfetto", "chakra", "paje", "csv"}).value_or(0);
  const std::string path = line.required("output");
  const Trace trace = read_trace(traces.front());
  std::vector<std::string> written{path};
  switch (format) {
    case 0:
      export_perfetto(path, trace);
      break;
    case 1:
      written = export_chakra(path, trace);
      break;
    case 2:
      export_paje(path, trace);
      break;
    default:
      export_csv(path, trace);
  }
  if (line.json()) std::cout << files_json(written);
  if (!line.quiet()) {
    std::cerr << "wrote " << written.front() << (written.size() > 1 ? " ... " + written.back() : "") << "\n";
  }
  return 0;
}

}  // namespace orrery
