#include "traces/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "platforms/errors.hpp"
#include "traces/clean_up.hpp"

namespace orrery {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;
constexpr mode_t kMode = 0666;  // the user's umask takes away what it wants

[[noreturn]] void refuse(const std::string& path, int error) {
  throw InputError(path, std::strerror(error), "a file name that can be written");
}

// Renaming would replace a link by a file; the file behind it is meant.
std::string behind_links(const std::string& path) {
  std::error_code ignored;
  const auto target = std::filesystem::weakly_canonical(path, ignored);
  return ignored ? path : target.string();
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)), target_(behind_links(path_)) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path_, ignored);
  if (path_.empty()) refuse("output file", ENOENT);
  refuse_folder(path_);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    if (std::filesystem::exists(status) && ::access(target_.c_str(), W_OK) != 0) refuse(path_, errno);
    temporary_ = target_ + ".partial-" + std::to_string(::getpid());
    add_temporary(temporary_);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode);
  }
  if (descriptor_ >= 0) return;
  const int error = errno;
  drop_temporary(temporary_);
  refuse(path_, error);
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (temporary_.empty()) return;
  ::unlink(temporary_.c_str());
  drop_temporary(temporary_);
}

void OutputFile::fail() {
  const int error = errno;
  refuse(path_, error);  // the destructor removes the temporary
}

void OutputFile::flush() {
  std::size_t written = 0;
  while (written < buffer_.size()) {
    const ssize_t count = ::write(descriptor_, buffer_.data() + written, buffer_.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail();
    written += static_cast<std::size_t>(count);
  }
  buffer_.clear();
}

void OutputFile::write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) flush();
}

void OutputFile::commit() {
  ORRERY_ENSURE(descriptor_ >= 0);
  flush();
  if (!temporary_.empty()) {
    if (::fsync(descriptor_) != 0) fail();
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail();
  }
  drop_temporary(temporary_);
  temporary_.clear();  // it has its final name now
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0) fail();
}

void refuse_folder(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) refuse(path, EISDIR);
}

void write_file(const std::string& path, std::string_view content) {
  OutputFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace orrery
