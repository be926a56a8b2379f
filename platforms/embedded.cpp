#include "platforms/embedded.hpp"

#include "platforms/errors.hpp"

namespace orrery {

std::vector<EmbeddedFile> embedded_files(const EmbeddedRow* table) {
  std::vector<EmbeddedFile> files;
  for (const EmbeddedRow* row = table; row->name != nullptr; ++row) {
    files.push_back(
        {row->name, std::string_view(row->begin, static_cast<std::size_t>(row->end - row->begin))});
  }
  return files;
}

std::string_view embedded_file(const EmbeddedRow* table, std::string_view name) {
  for (const EmbeddedFile& file : embedded_files(table)) {
    if (file.name == name) return file.content;
  }
  throw Defect("no embedded file " + std::string(name));
}

}  // namespace orrery
