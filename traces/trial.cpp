#include "traces/trial.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "platforms/errors.hpp"
#include "traces/clean_up.hpp"

namespace orrery {
namespace {

[[noreturn]] void try_out(const std::function<void()>& work, unsigned seconds) {
  const rlimit processor{seconds, seconds}, no_dump{0, 0};
  ::setrlimit(RLIMIT_CPU, &processor);
  ::setrlimit(RLIMIT_CORE, &no_dump);
  try {
    work();
  } catch (const std::exception&) {  // is thrown again where the work is done in earnest
  }
  ::_exit(0);
}

}  // namespace

bool ends_within(unsigned seconds, const std::function<void()>& work) {
  std::fflush(nullptr);
  const pid_t child = noted_fork();
  if (child < 0) throw Defect(std::string("fork: ") + std::strerror(errno));
  if (child == 0) try_out(work, seconds);
  siginfo_t ended{};
  while (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) continue;
  drop_child(child);  // while its number is still its own
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace orrery
