// A file as it is, or unpacked where it is gzipped: one member or several, one after another.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace orrery {

class GzipFile {
 public:
  // `name` stands in messages. Throws InputError where the file cannot be read.
  GzipFile(const std::string& path, std::string name);
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;
  ~GzipFile();

  // Reads up to `most` bytes; 0 at the end. Throws InputError for a truncated or corrupt gzip, and for one
  // that anything but more gzip follows, which unpacking would drop. Zeros, with which tapes pad, may follow.
  std::size_t read(char* to, std::size_t most);

 private:
  struct State;

  [[nodiscard]] bool begins_member();
  std::size_t unpack(char* to, std::size_t most);
  [[noreturn]] void fail_corrupt() const;

  std::string name_;
  std::unique_ptr<State> state_;
};

}  // namespace orrery
