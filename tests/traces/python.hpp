// Runs Python with the packages that ./run test installs.
#pragma once

#include <array>
#include <cstdio>
#include <string>

#include "tests/catch.hpp"

namespace orrery {

struct CommandResult {
  int status = 0;
  std::string output;  // of stdout and stderr
};

inline CommandResult run_command(const std::string& command) {
  CommandResult result;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {.status = -1, .output = "cannot start a shell"};
  std::array<char, 4096> buffer{};
  std::size_t count = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0)
    result.output.append(buffer.data(), count);
  result.status = ::pclose(pipe);
  return result;
}

// A Python that can import `modules`: the first on the path, or that of the distribution where another
// shadows it. Fails the test, saying what to install, where there is none.
inline std::string python_with(const std::string& modules) {
  for (const std::string candidate : {"python3", "/usr/bin/python3"}) {
    if (run_command(candidate + " -c 'import " + modules + "'").status == 0) return candidate;
  }
  FAIL("no python3 can import " << modules << ": apt-get install python3 python3-h5py python3-pandas");
  return {};
}

}  // namespace orrery
