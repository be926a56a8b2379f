// libFuzzer's entry; ORRERY_FUZZ_TARGET names the reader. An exception that leaves it stops the fuzzer, which
// keeps the input.
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "tests/fuzz/entries.hpp"

namespace {

orrery::fuzz::Entry target() {
  for (const orrery::fuzz::Entry& entry : orrery::fuzz::entries()) {
    if (entry.name == ORRERY_FUZZ_TARGET) return entry;
  }
  throw std::logic_error("no entry " ORRERY_FUZZ_TARGET);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const orrery::fuzz::Entry entry = target();
  entry.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
