// One entry for each reader: bytes in, wrong input or a value that keeps the reader's promises out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::fuzz {

struct Entry {
  std::string_view name;  // of the folder in corpus/ and of the program fuzz_<name>
  // Returns for input that is read and for input refused with an InputError; any other exception, or none
  // where a promise is broken (std::logic_error), is a finding.
  void (*run)(std::string_view bytes);
};

const std::vector<Entry>& entries();

}  // namespace orrery::fuzz
