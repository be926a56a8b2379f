#include "traces/clean_up.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

namespace orrery {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};

// The one state of the program that a signal handler needs; changed only while signals are blocked.
struct Pending {
  std::vector<std::string> files;
  std::vector<pid_t> children;
};

Pending& pending() {
  static Pending* const state = new Pending;  // never destroyed: a signal may come at the very end
  return *state;
}

// Calls only what may be called in a handler. The system may give the signal to a thread of a library, which
// does not block it while the main thread changes the state, and beside which the main thread would go on: it
// is passed on.
void clean_up(int signal) {
  if (::gettid() != ::getpid()) {
    ::tgkill(::getpid(), ::getpid(), signal);
    return;
  }
  for (const pid_t child : pending().children) ::kill(child, SIGTERM);
  for (const pid_t child : pending().children) ::waitpid(child, nullptr, 0);
  for (const std::string& file : pending().files) ::unlink(file.c_str());
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // comes when this handler has returned
}

template <class T>
void drop(std::vector<T>& all, const T& one) {
  all.erase(std::remove(all.begin(), all.end(), one), all.end());
}

}  // namespace

SignalsBlocked::SignalsBlocked() {
  sigset_t all;
  sigemptyset(&all);
  for (const int signal : kSignals) sigaddset(&all, signal);
  ::pthread_sigmask(SIG_BLOCK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

HandlersKept::HandlersKept() {
  for (std::size_t i = 0; i < kKept.size(); ++i) ::sigaction(kKept[i], nullptr, &before_[i]);
}

HandlersKept::~HandlersKept() {
  for (std::size_t i = 0; i < kKept.size(); ++i) ::sigaction(kKept[i], &before_[i], nullptr);
}

void clean_up_on_signals() {
  static_cast<void>(pending());
  for (const int signal : kSignals) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;  // as under nohup
    struct sigaction action {};
    action.sa_handler = clean_up;
    for (const int other : kSignals) sigaddset(&action.sa_mask, other);
    ::sigaction(signal, &action, nullptr);
  }
}

void add_temporary(const std::string& path) {
  const SignalsBlocked blocked;
  pending().files.push_back(path);
}

void drop_temporary(const std::string& path) {
  const SignalsBlocked blocked;
  drop(pending().files, path);
}

pid_t noted_fork() {
  const SignalsBlocked blocked;
  const pid_t child = ::fork();
  if (child == 0) pending() = {};
  if (child > 0) pending().children.push_back(child);
  return child;
}

void drop_child(pid_t child) {
  const SignalsBlocked blocked;
  drop(pending().children, child);
}

}  // namespace orrery
