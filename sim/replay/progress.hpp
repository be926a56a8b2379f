// A line on the terminal that says what is being done, how far it is and how long it will still take.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace orrery {

// Columns of the terminal that standard output is; absent where it is none.
std::optional<int> terminal_columns();

class Progress {
 public:
  // Silent when `quiet`, and where standard error is no terminal.
  explicit Progress(bool quiet);
  ~Progress();  // leaves a clean line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shown after the first second of a phase, at most ten times a second.
  void update(const std::string& phase, std::size_t done, std::size_t total);
  // Wipes the line, before anything else is written to the terminal.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool silent_;
  bool shown_ = false;
  std::string phase_;
  Clock::time_point phase_start_, last_shown_;
};

}  // namespace orrery
