// The three kinds of trouble: wrong input (InputError), a plan that cannot run (Infeasible), our mistake
// (ENSURE).
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// Wrong input. Thrown by readers and option parsing, caught once in main, which prints one line and exits
// with 2.
struct InputError : std::runtime_error {
  // `place`: file and line or key, or the option. `found`: what stands there. `expected`: what should stand
  // there and what to do about it.
  InputError(std::string place, std::string found, std::string expected);

  std::string place;
  std::string found;
  std::string expected;
};

// Why a plan cannot run; a value, not an exception. The kind is the counter it goes to (DESIGN 2.6
// `space.rejected`).
enum class InfeasibleKind { shape, rule, memory, budget };
struct Infeasible {
  InfeasibleKind kind;
  std::string reason;
  bool operator==(const Infeasible&) const = default;
};

// A broken promise inside Orrery. Caught once in main, exit 3.
struct Defect : std::logic_error {
  using std::logic_error::logic_error;
};
[[noreturn]] void fail_ensure(const char* condition, const char* file, int line);
#define ORRERY_ENSURE(condition) \
  ((condition) ? static_cast<void>(0) : ::orrery::fail_ensure(#condition, __FILE__, __LINE__))

// The candidate nearest to `name` by edit distance, as ", did you mean 'x'?"; where more than a third of its
// letters, or two, would change in all, the shortest that begins with it; else empty.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

// The names with ", " between them.
std::string comma_list(const std::vector<std::string>& names);

// Whether two names are equal when upper and lower case are the same.
bool same_name(std::string_view a, std::string_view b);

// `text` on one line in UTF-8 without control characters: those, and bytes that are no UTF-8, as \n or \x1b.
std::string escape_for_message(std::string_view text);

// `text` in single quotes for a message: escaped, and cut after 60 bytes.
std::string quote_for_message(std::string_view text);

}  // namespace orrery
