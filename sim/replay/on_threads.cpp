#include "sim/replay/on_threads.hpp"

#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace orrery {

void on_threads(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::exception_ptr> thrown(count);
  const auto take_work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  try {
    for (int i = 1; i < threads; ++i) others.emplace_back(take_work);
  } catch (const std::system_error&) {
    // The machine has no more threads to give: those that there are will do.
  }
  take_work();
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& trouble : thrown) {
    if (trouble) std::rethrow_exception(trouble);
  }
}

}  // namespace orrery
