// A scratch folder for made-up tables of operators.
#pragma once

#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/traces/scratch_folder.hpp"

namespace orrery::test {

class ProfileFolder : public ScratchFolder {
 public:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(at(name).parent_path());
    std::ofstream(at(name), std::ios::binary) << text;
  }
  void write_gzip(const std::string& name, const std::string& text) const {
    const gzFile file = gzopen(this->file(name).c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
  }
  [[nodiscard]] std::filesystem::path at(const std::string& name) const { return file(name); }
};

}  // namespace orrery::test
