// What a run must not leave behind when a signal ends it: temporary files and child processes.
#pragma once

#include <sys/types.h>

#include <array>
#include <csignal>
#include <string>

namespace orrery {

// From here on SIGINT, SIGTERM and SIGHUP first end the children and remove the files named below, then end
// the program as they would have.
void clean_up_on_signals();

void add_temporary(const std::string& path);
void drop_temporary(const std::string& path);
// Forks; who ends the parent ends the child as well. What the parent had to clean up is still the parent's.
// -1: not possible (errno).
pid_t noted_fork();
void drop_child(pid_t);

// No signal is handled in its lifetime: for a fork and the note of it.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// At its end SIGINT, SIGSEGV and SIGBUS are handled as at its beginning, whatever a library made of them.
class HandlersKept {
 public:
  HandlersKept();
  ~HandlersKept();
  HandlersKept(const HandlersKept&) = delete;
  HandlersKept& operator=(const HandlersKept&) = delete;

 private:
  static constexpr std::array kKept{SIGINT, SIGSEGV, SIGBUS};
  SignalsBlocked blocked_;  // until they are put back
  std::array<struct sigaction, kKept.size()> before_{};
};

}  // namespace orrery
