#include "platforms/embedded.hpp"

namespace orrery {

std::vector<EmbeddedFile> embedded_files(const EmbeddedRow* table) {
  std::vector<EmbeddedFile> files;
  for (const EmbeddedRow* row = table; row->name != nullptr; ++row) {
    files.push_back({row->name, std::string_view(row->begin, static_cast<std::size_t>(row->end - row->begin))});
  }
  return files;
}

}  // namespace orrery
