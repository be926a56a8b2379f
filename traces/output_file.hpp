// A file that appears under its name complete or not at all.
#pragma once

#include <string>
#include <string_view>

namespace orrery {

// Collects text in a temporary file beside the final one; commit() flushes it to disk and renames it. Without
// commit() the temporary is removed. A device or pipe (/dev/stdout) is written directly. All members throw
// InputError naming the path when the system refuses: no such folder, no permission, full disk, a folder of
// that name.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text);
  void commit();

 private:
  void flush();
  [[noreturn]] void fail();

  std::string path_;       // as the user wrote it, for messages
  std::string target_;     // behind symbolic links
  std::string temporary_;  // empty when written directly
  std::string buffer_;
  int descriptor_ = -1;
};

// Throws InputError as OutputFile does where a folder has that name.
void refuse_folder(const std::string& path);

// The whole file at once.
void write_file(const std::string& path, std::string_view content);

}  // namespace orrery
