// The program as a user runs it: arguments in; exit code, standard output and standard error out.
#pragma once

#include <csignal>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/traces/scratch_folder.hpp"

namespace orrery {

struct ProgramResult {
  int code = 0;  // 128 + the signal, where one ended it; 124 when it had to be stopped
  std::string out, err;
};

// A copy of the test that calls run_program(), or the built program. The copy saves the 50 ms that loading
// the libraries behind SimGrid and XGBoost takes, in hundreds of runs.
enum class ProgramStart { copy, binary };

struct ProgramOptions {
  std::string folder = {};                    // current folder of the program; the test's own when empty
  std::string out_file = {};                  // standard output goes there instead
  int limit_s = 120;                          // then it is stopped: a sanitizer takes ten times as long
  std::function<bool()> interrupt_when = {};  // then it gets the signal, once
  int signal = SIGTERM;
  ProgramStart start = ProgramStart::copy;
};

// No shell is involved: an argument holds any character but zero.
ProgramResult run_orrery(const std::vector<std::string>& arguments, const ProgramOptions& = {});

// A folder with what small searches need: two.yaml (2 nodes of 2 A100, 10 USD/h each), space.yaml (few
// choices).
class Workplace {
 public:
  Workplace();
  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }
  [[nodiscard]] std::vector<std::string> names() const { return folder_.names(); }
  // Writes a file and returns its name.
  std::string write(const std::string& name, const std::string& content) const;
  [[nodiscard]] std::string read(const std::string& name) const;
  // Runs the program in this folder.
  [[nodiscard]] ProgramResult run(const std::vector<std::string>& arguments,
                                  const std::string& out_file = {}) const;

 private:
  ScratchFolder folder_;
};

inline const std::string kTwoNodes =
    "name: two\ngroups:\n  - {name: a100, gpu: A100-SXM4-80GB, gpus_per_node: 2, count: 2, nics_per_node: "
    "2,\n"
    "     nic_bandwidth: 200Gbps, price: 10 USD/h}\n";

// What a command that must not fail prints with --json --quiet.
nlohmann::json run_json(const Workplace&, std::vector<std::string> arguments);

// "search" with the files of a Workplace and what else is given; later options are not repeated ones.
std::vector<std::string> small_search(const std::vector<std::string>& more = {});

// Exit code 2, one line on standard error that holds all of `parts`, nothing on standard output.
void check_refused(const ProgramResult&, const std::vector<std::string>& parts);

}  // namespace orrery
