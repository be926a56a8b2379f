// Every seed, and every input that once brought a reader down, goes through its reader for ever.
#include <algorithm>
#include <filesystem>

#include "platforms/yaml.hpp"
#include "tests/catch.hpp"
#include "tests/fuzz/entries.hpp"

using namespace orrery;

namespace {

// The files of corpus/<name>/ and those in found/ that the fuzzer of <name> left there, in order.
std::vector<std::filesystem::path> inputs(const std::string& name) {
  const std::filesystem::path here = std::filesystem::path(ORRERY_SOURCE_DIR) / "tests/fuzz";
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(here / "corpus" / name))
    files.push_back(file.path());
  for (const auto& file : std::filesystem::directory_iterator(here / "found")) {
    if (file.path().filename().string().rfind(name + "-", 0) == 0) files.push_back(file.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("every kept input is read or refused as wrong input, never worse") {
  for (const fuzz::Entry& entry : fuzz::entries()) {
    const auto files = inputs(std::string(entry.name));
    CHECK(!files.empty());
    for (const auto& file : files) {
      INFO(file.string());
      CHECK_NOTHROW(entry.run(read_text_file(file)));
    }
  }
}
