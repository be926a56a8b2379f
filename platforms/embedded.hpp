// Data files compiled into the binary, so that an installed or copied `orrery` needs no folder beside it.
#pragma once

#include <string_view>
#include <vector>

namespace orrery {

struct EmbeddedFile {
  std::string_view name;  // path relative to the folder it comes from, e.g. "catalog/gpus.yaml"
  std::string_view content;
};

// One row of the table that orrery_embed in CMakeLists.txt writes; the last row is all null.
struct EmbeddedRow {
  const char* name;
  const char* begin;
  const char* end;
};

std::vector<EmbeddedFile> embedded_files(const EmbeddedRow* table);

// The content of one file of the table; the file must be there.
std::string_view embedded_file(const EmbeddedRow* table, std::string_view name);

}  // namespace orrery
