// A folder of made-up tables, removed at the end.
#pragma once

#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace orrery::test {

class ProfileFolder {
 public:
  ProfileFolder() : path_(std::filesystem::temp_directory_path() / "orrery_profile_reader_test") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~ProfileFolder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  void write_gzip(const std::string& name, const std::string& text) const {
    const gzFile file = gzopen((path_ / name).c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
  }
  [[nodiscard]] std::filesystem::path at(const std::string& name) const { return path_ / name; }
  [[nodiscard]] std::string name() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace orrery::test
