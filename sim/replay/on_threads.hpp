// Work that shares nothing it changes, on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace orrery {

// Calls work(0) to work(count - 1), each once, on so many threads or as many as there are to be had. Returns
// when all is done; what the first of them threw, by number, is thrown here.
void on_threads(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace orrery
