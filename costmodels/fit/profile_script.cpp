#include "costmodels/fit/profile_script.hpp"

#include <algorithm>

extern "C" const orrery::EmbeddedRow orrery_embedded_costmodels[];

namespace orrery {

std::vector<EmbeddedFile> profile_script() {
  std::vector<EmbeddedFile> files = embedded_files(orrery_embedded_costmodels);
  std::erase_if(files, [](const EmbeddedFile& file) { return !file.name.starts_with("profile/"); });
  return files;
}

}  // namespace orrery
