// The commands of `orrery`. Each returns the exit code: 0 done, 1 done and nothing feasible found.
#pragma once

#include <string>
#include <vector>

namespace orrery {

using Arguments = std::vector<std::string>;

int run_search(const Arguments&);
int run_replay_command(const Arguments&);
int run_report(const Arguments&);
int run_export(const Arguments&);
int run_fit(const Arguments&);
int run_compare(const Arguments&);
int run_profile(const Arguments&);
int run_launch(const Arguments&);
int run_catalog(const Arguments&);
int run_validate(const Arguments&);
int run_calibrate(const Arguments&);

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Arguments&);
};
const std::vector<Command>& commands();

// All of `orrery`, with arguments as main() gets them. Returns the exit code: a command's, 2 for wrong input,
// 3 for a defect of ours. Handles the signals that end a process from then on.
int run_program(int count, char** arguments);

}  // namespace orrery
