#include "sim/replay/children.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "platforms/errors.hpp"
#include "traces/clean_up.hpp"

namespace orrery {
namespace {

// First byte of what a child sends: how its task ended. An InputError sends its three texts, zero bytes
// between.
enum class Outcome : char { result = 'r', input_error = 'i', defect = 'd' };

struct Child {
  pid_t process = 0;
  int pipe = 0;
  std::size_t task = 0;
  std::string bytes;
};

std::string perform(const ChildTask& task) {
  try {
    return static_cast<char>(Outcome::result) + task();
  } catch (const InputError& error) {
    const std::string zero(1, '\0');
    return static_cast<char>(Outcome::input_error) + error.place + zero + error.found + zero + error.expected;
  } catch (const std::exception& error) {
    return static_cast<char>(Outcome::defect) + std::string(error.what());
  }
}

void write_all(int pipe, const std::string& bytes) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = ::write(pipe, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) _exit(4);
    written += static_cast<std::size_t>(count);
  }
}

Child start(const ChildTask& task, std::size_t index) {
  int ends[2];
  if (::pipe(ends) != 0) throw Defect(std::string("pipe: ") + std::strerror(errno));
  std::fflush(nullptr);
  const pid_t process = noted_fork();
  if (process < 0) throw Defect(std::string("fork: ") + std::strerror(errno));
  if (process == 0) {
    ::close(ends[0]);
    write_all(ends[1], perform(task));
    std::fflush(nullptr);
    _exit(0);  // not exit: the parent's objects are not this child's to destroy
  }
  ::close(ends[1]);
  return {process, ends[0], index, {}};
}

// Reads what is there; false at the end of the pipe.
bool read_some(Child& child) {
  char buffer[1 << 16];
  const ssize_t count = ::read(child.pipe, buffer, sizeof buffer);
  if (count < 0) return errno == EINTR;
  child.bytes.append(buffer, static_cast<std::size_t>(count));
  return count > 0;
}

void wait_for(Child& child) {
  ::close(child.pipe);
  drop_child(child.process);  // it has said all it had to say
  int status = 0;
  while (::waitpid(child.process, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFSIGNALED(status)) {
    child.bytes = static_cast<char>(Outcome::defect) + std::string("a child process was ended by signal ") +
                  std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  } else if (child.bytes.empty()) {
    child.bytes = static_cast<char>(Outcome::defect) + std::string("a child process ended without an answer");
  }
}

[[noreturn]] void throw_again(const std::string& bytes) {
  const std::string text = bytes.substr(1);
  if (bytes[0] != static_cast<char>(Outcome::input_error)) throw Defect(text);
  const std::size_t first = text.find('\0');
  const std::size_t second = text.find('\0', first + 1);
  throw InputError(text.substr(0, first), text.substr(first + 1, second - first - 1),
                   text.substr(second + 1));
}

}  // namespace

std::vector<std::string> run_in_children(const std::vector<ChildTask>& tasks, int jobs,
                                         const std::function<void(std::size_t)>& done) {
  std::vector<std::string> answers(tasks.size());
  std::vector<Child> running;
  std::size_t next = 0;
  std::size_t ended = 0;
  while (ended < tasks.size()) {
    while (next < tasks.size() && running.size() < static_cast<std::size_t>(jobs)) {
      running.push_back(start(tasks[next], next));
      ++next;
    }
    std::vector<pollfd> polled;
    for (const Child& child : running) polled.push_back({child.pipe, POLLIN, 0});
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) throw Defect("poll failed");
    for (std::size_t i = polled.size(); i-- > 0;) {
      if (polled[i].revents == 0 || read_some(running[i])) continue;
      wait_for(running[i]);
      answers[running[i].task] = std::move(running[i].bytes);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      if (done)
        done(++ended);
      else
        ++ended;
    }
  }
  for (std::string& answer : answers) {
    if (answer[0] != static_cast<char>(Outcome::result)) throw_again(answer);
    answer.erase(0, 1);
  }
  return answers;
}

}  // namespace orrery
