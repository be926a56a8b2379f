#include "traces/profile_reader.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include "platforms/errors.hpp"
#include "traces/csv_stream.hpp"
#include "traces/profile_tables.hpp"

namespace orrery {

namespace {

namespace fs = std::filesystem;

struct Reader {
  std::string_view file_name;
  void (*read)(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
};

constexpr std::array kReaders{
    Reader{"gemm_long.csv", read_gemm_table},
    Reader{"kernels_long.csv", read_kernel_table},
    Reader{"collectives_long.csv", read_collective_table},
    Reader{"flash_attention_fwd_bwd.csv", read_attention_table},
    Reader{"transformer_ops_fwd_bwd_long.csv", read_aceso_table},
    Reader{"mlp.csv", read_vidur_table},
    Reader{"nic_ratio.csv", read_simai_ring_table},
    Reader{"ata_ratio.csv", read_simai_all_to_all_table},
};

// Whether the file of this path has that name, plain or gzipped.
bool has_name(const std::string& path, std::string_view wanted) {
  std::string file = fs::path(path).filename().string();
  if (file.ends_with(".gz")) file.resize(file.size() - 3);
  return file == wanted;
}

const Reader* reader_of(const std::string& name) {
  const auto* found = std::find_if(kReaders.begin(), kReaders.end(),
                                   [&](const Reader& reader) { return has_name(name, reader.file_name); });
  return found == kReaders.end() ? nullptr : found;
}

void refuse_unreadable(const ProfileFile& file) {
  std::int64_t unreadable = 0, all = file.used;
  for (const auto& [reason, count] : file.skipped) {
    all += count;
    if (reason.starts_with(kUnreadable)) unreadable += count;
  }
  if (static_cast<double>(unreadable) > kWorstUnreadableShare * static_cast<double>(all)) {
    throw InputError(file.name,
                     std::to_string(unreadable) + " unreadable of " + std::to_string(all) + " measurements",
                     "at most 5 % of them; repair the table or leave it out");
  }
}

}  // namespace

bool read_profile_file(const std::string& folder, const std::string& name, Profiles& profiles,
                       InventedTimes invented) {
  const std::string path = (fs::path(folder) / name).string();
  ProfileFile file{.name = name};
  if (const Reader* reader = reader_of(name)) {
    CsvStream stream(path, name);
    reader->read(stream, name, profiles, file);
  } else if (has_name(name, "orrery_profile.csv")) {
    CsvStream stream(path, name);
    read_own_table(stream, name, invented, profiles, file);
  } else if (is_nccl_text(path)) {
    read_nccl_text(path, name, profiles, file);
  } else {
    return false;
  }
  refuse_unreadable(file);
  profiles.files.push_back(std::move(file));
  return true;
}

Profiles read_profiles(const std::string& folder, InventedTimes invented) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::recursive_directory_iterator it(folder, error), end; it != end && !error; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) names.push_back(fs::relative(it->path(), folder).generic_string());
  }
  if (error) throw InputError(folder, "no readable folder", "a folder of measured operator tables");
  std::sort(names.begin(), names.end());
  Profiles profiles;
  for (const auto& name : names) read_profile_file(folder, name, profiles, invented);
  if (profiles.files.empty()) {
    throw InputError(folder, "no known table",
                     "orrery_profile.csv, gemm_long.csv, kernels_long.csv, collectives_long.csv, mlp.csv or "
                     "nccl-tests' output");
  }
  return profiles;
}

}  // namespace orrery
