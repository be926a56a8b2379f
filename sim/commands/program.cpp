#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>

#include "platforms/errors.hpp"
#include "sim/commands/commands.hpp"
#include "sim/version.hpp"
#include "traces/clean_up.hpp"

namespace orrery {
namespace {

constexpr int kWrongInput = 2, kDefect = 3;

void print_help() {
  std::cout << "Example:\n  orrery search --model llama2-70b --cluster demo-a100-h100 --sequence 4096 "
               "--global-batch 1024 --tokens 1T\n\nCommands (orrery COMMAND --help says more):\n";
  for (const Command& command : commands()) {
    std::printf("  %-9s %s\n", command.name, command.summary);
  }
}

int dispatch(int count, char** arguments) {
  const std::string name = count > 1 ? arguments[1] : "--help";
  if (name == "--help" || name == "-h" || name == "help") {
    print_help();
    return 0;
  }
  if (name == "--version") {
    std::printf("orrery %s\n", kVersion);
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (name == command.name) return command.run(Arguments(arguments + 2, arguments + count));
    names.emplace_back(command.name);
  }
  throw InputError("orrery", "no command " + quote_for_message(name),
                   "a command that `orrery --help` lists" + did_you_mean(name, names));
}

// A file opened later would take the number of a closed standard stream, and what is printed would go into
// it. Writing to what stands there instead fails, as writing to a closed one does.
void fill_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", O_RDONLY));  // the lowest free number
  }
}

// One line, whatever the input was: some libraries break theirs.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return escape_for_message(text);
}

}  // namespace

int run_program(int count, char** arguments) {
  try {
    fill_standard_streams();
    clean_up_on_signals();
    const int code = dispatch(count, arguments);
    std::cout.flush();
    if (!std::cout) throw InputError("standard output", "no room to write", "a place to write to");
    return code;
  } catch (const InputError& error) {
    std::cerr << "orrery: " << one_line(error.what()) << "\n";
    return kWrongInput;
  } catch (const std::exception& error) {
    std::cerr << "orrery: a defect of ours, please report it: " << one_line(error.what()) << "\n";
    return kDefect;
  }
}

}  // namespace orrery
