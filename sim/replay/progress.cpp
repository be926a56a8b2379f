#include "sim/replay/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

namespace orrery {

std::optional<int> terminal_columns() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return std::nullopt;
  }
  return size.ws_col;
}

Progress::Progress(bool quiet) : silent_(quiet || ::isatty(STDERR_FILENO) == 0) {}

Progress::~Progress() {
  clear();
}

void Progress::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

void Progress::update(const std::string& phase, std::size_t done, std::size_t total) {
  if (silent_) return;
  const auto now = Clock::now();
  if (phase != phase_) {
    phase_ = phase;
    phase_start_ = last_shown_ = now;
    clear();
    return;
  }
  const double elapsed = std::chrono::duration<double>(now - phase_start_).count();
  if (elapsed < 1.0 || std::chrono::duration<double>(now - last_shown_).count() < 0.1) return;
  last_shown_ = now;
  shown_ = true;
  constexpr int kWidth = 30;
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0.0;
  const std::string bar(static_cast<std::size_t>(share * kWidth), '#');
  std::fprintf(stderr, "\r\033[K%s [%-*s] %zu of %zu", phase.c_str(), kWidth, bar.c_str(), done, total);
  if (share > 0) std::fprintf(stderr, ", %.0f s left", elapsed * (1 - share) / share);
  std::fflush(stderr);
}

}  // namespace orrery
