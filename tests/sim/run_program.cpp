#include "tests/sim/run_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "platforms/yaml.hpp"
#include "sim/commands/commands.hpp"
#include "traces/output_file.hpp"

namespace orrery {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  return {ends[0], ends[1]};
}

// Catch2 handles signals of its own in this process.
void reset_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGSEGV, SIGABRT, SIGFPE, SIGILL}) ::signal(signal, SIG_DFL);
}

[[noreturn]] void become_orrery(const std::vector<std::string>& arguments, const ProgramOptions& options,
                                int out, int err) {
  std::vector<std::string> words{ORRERY_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const int input = ::open("/dev/null", O_RDONLY);
  if (!options.out_file.empty()) out = ::open(options.out_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  ::dup2(input, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(126);
  if (options.start == ProgramStart::binary) {
    ::execv(ORRERY_BINARY, pointers.data());
    ::_exit(127);
  }
  reset_signals();
  const int code = run_program(static_cast<int>(words.size()), pointers.data());
  std::fflush(nullptr);
  ::_exit(code);  // not exit: the objects of the test are not this child's to destroy
}

// Reads both pipes to their ends; false when the time is up first.
bool read_both(std::array<pollfd, 2>& pipes, std::array<std::string*, 2> texts, const ProgramOptions& options,
               pid_t process) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.limit_s);
  bool interrupted = !options.interrupt_when;
  for (int open = 2; open > 0;) {
    if (std::chrono::steady_clock::now() > end) return false;
    if (!interrupted && options.interrupt_when()) interrupted = ::kill(process, options.signal) == 0;
    if (::poll(pipes.data(), pipes.size(), 10) <= 0) continue;
    for (std::size_t i = 0; i < pipes.size(); ++i) {
      if (pipes[i].fd < 0 || pipes[i].revents == 0) continue;
      std::array<char, 65536> buffer{};
      const ssize_t count = ::read(pipes[i].fd, buffer.data(), buffer.size());
      if (count > 0) {
        texts[i]->append(buffer.data(), static_cast<std::size_t>(count));
        continue;
      }
      pipes[i].fd = -1;  // poll passes it over
      --open;
    }
  }
  return true;
}

}  // namespace

ProgramResult run_orrery(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  const Pipe out = make_pipe(), err = make_pipe();
  std::fflush(nullptr);  // what the test has said is not the child's to say again
  const pid_t process = ::fork();
  if (process < 0) throw std::runtime_error("no process");
  if (process == 0) become_orrery(arguments, options, out.write_end, err.write_end);
  ::close(out.write_end);
  ::close(err.write_end);
  ProgramResult result;
  std::array<pollfd, 2> pipes{pollfd{out.read_end, POLLIN, 0}, pollfd{err.read_end, POLLIN, 0}};
  const bool ended = read_both(pipes, {&result.out, &result.err}, options, process);
  if (!ended) ::kill(process, SIGKILL);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
  ::close(out.read_end);
  ::close(err.read_end);
  result.code = !ended ? 124 : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

Workplace::Workplace() {
  write("two.yaml", kTwoNodes);
  write(
      "space.yaml",
      "tensor_model_parallel_size: [1, 2]\ncontext_parallel_size: 1\n"
      "num_virtual_stages_per_pipeline_rank: [1, 2]\nmicro_batch_size: [1, 2]\nrecompute_granularity: none\n"
      "sequence_parallel: false\nuse_distributed_optimizer: true\n");
}

std::string Workplace::write(const std::string& name, const std::string& content) const {
  write_file(file(name), content);
  return name;
}

std::string Workplace::read(const std::string& name) const {
  return read_text_file(file(name));
}

ProgramResult Workplace::run(const std::vector<std::string>& arguments, const std::string& out_file) const {
  return run_orrery(arguments, {.folder = file(""), .out_file = out_file});
}

nlohmann::json run_json(const Workplace& place, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--json", "--quiet"});
  const ProgramResult result = place.run(arguments);
  CAPTURE(result.err, arguments);
  REQUIRE(result.code == 0);
  return nlohmann::json::parse(result.out);
}

std::vector<std::string> small_search(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"search"};
  const std::vector<std::pair<std::string, std::string>> usual{{"--model", "gpt2-345m"},
                                                               {"--cluster", "two.yaml"},
                                                               {"--sequence", "1024"},
                                                               {"--global-batch", "16"},
                                                               {"--space", "space.yaml"},
                                                               {"--top", "2"},
                                                               {"-o", "out"}};
  for (const auto& [option, value] : usual) {
    if (std::find(more.begin(), more.end(), option) == more.end())
      arguments.insert(arguments.end(), {option, value});
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

void check_refused(const ProgramResult& result, const std::vector<std::string>& parts) {
  CAPTURE(result.err);
  CHECK(result.code == 2);
  CHECK(result.out.empty());
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  CHECK(result.err.find("expected ") != std::string::npos);
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(result.err.find(part) != std::string::npos);
  }
}

}  // namespace orrery
