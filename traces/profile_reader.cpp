#include "traces/profile_reader.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "platforms/errors.hpp"
#include "traces/csv_stream.hpp"
#include "traces/measured_once.hpp"
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

void refuse_unreadable(const ProfileFile& file, const std::string& path) {
  std::int64_t unreadable = 0, all = file.used;
  std::size_t first = std::numeric_limits<std::size_t>::max();
  std::string why;
  for (const auto& [reason, count] : file.skipped) {
    all += count;
    if (!reason.starts_with(kUnreadable)) continue;
    unreadable += count;
    if (file.first_line.at(reason) >= first) continue;
    first = file.first_line.at(reason);
    why = reason;
  }
  if (static_cast<double>(unreadable) > kWorstUnreadableShare * static_cast<double>(all)) {
    if (const auto found = file.first_found.find(why); found != file.first_found.end())
      why += (why == kUnreadable ? ": " : ", ") + found->second;
    throw InputError(path,
                     std::to_string(unreadable) + " unreadable of " + std::to_string(all) +
                         " measurements, the first in line " + std::to_string(first) +
                         why.substr(kUnreadable.size()),
                     "at most 5 % of them; repair the table or leave it out");
  }
}

// What `orrery profile` leaves beside its table.
bool belongs_to_profile(const std::string& name) {
  constexpr std::array<std::string_view, 4> kFiles{"machine.json", "orrery_gpus.json", "orrery_profile.py",
                                                   "orrery_timing.py"};
  const std::string file = fs::path(name).filename().string();
  return std::find(kFiles.begin(), kFiles.end(), file) != kFiles.end() || file.ends_with(".pyc");
}

std::vector<std::string> files_below(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::recursive_directory_iterator it(folder, error), end; it != end && !error; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) names.push_back(fs::relative(it->path(), folder).generic_string());
  }
  if (error) throw InputError(folder, "no readable folder", "a folder of measured operator tables");
  std::sort(names.begin(), names.end());
  return names;
}

// False for an unknown table. `table` holds what it measured, and the file.
bool read_table(const std::string& path, const std::string& name, InventedTimes invented, Profiles& table) {
  ProfileFile file{.name = name};
  if (const Reader* reader = reader_of(name)) {
    CsvStream stream(path, path);
    reader->read(stream, name, table, file);
  } else if (has_name(name, "orrery_profile.csv")) {
    CsvStream stream(path, path);
    read_own_table(stream, invented, table, file);
  } else if (is_nccl_text(path)) {
    read_nccl_text(path, name, table, file);
  } else {
    return false;
  }
  refuse_unreadable(file, path);
  table.files.push_back(std::move(file));
  return true;
}

}  // namespace

bool read_profile_file(const std::string& folder, const std::string& name, Profiles& profiles,
                       InventedTimes invented) {
  Profiles table;
  table.own_gpus = profiles.own_gpus;
  if (!read_table((fs::path(folder) / name).string(), name, invented, table)) return false;
  append(profiles, std::move(table));
  return true;
}

Profiles read_profiles(const std::string& folder, MeasuredOnce& known, InventedTimes invented,
                       const std::vector<GpuSpec>& own_gpus) {
  Profiles profiles;
  profiles.own_gpus = own_gpus;
  for (const auto& name : files_below(folder)) {
    Profiles table;
    table.own_gpus = own_gpus;
    if (!read_table((fs::path(folder) / name).string(), name, invented, table)) {
      if (!belongs_to_profile(name)) profiles.not_read.push_back(name);
      continue;
    }
    if (const std::int64_t repeated = known.drop_known(table); repeated > 0) {
      table.files.back().used -= repeated;
      table.files.back().skipped[kInEarlierTable] += repeated;
    }
    append(profiles, std::move(table));
  }
  if (profiles.files.empty()) {
    const std::string other = profiles.not_read.empty() ? "" : profiles.not_read.front();
    throw InputError(folder, "no known table" + (other.empty() ? "" : " beside " + quote_for_message(other)),
                     "orrery_profile.csv, gemm_long.csv, kernels_long.csv, collectives_long.csv, mlp.csv or "
                     "nccl-tests' output");
  }
  return profiles;
}

Profiles read_profiles(const std::string& folder, InventedTimes invented) {
  MeasuredOnce known;
  return read_profiles(folder, known, invented);
}

}  // namespace orrery
