// Measurements that several tables hold alike: a folder given twice, a table beside its gzip.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>

#include "traces/profile_reader.hpp"

namespace orrery {

class MeasuredOnce {
 public:
  // Drops from `table` what an earlier one measured alike in every field, and says how many that were.
  // What repeats inside one table is left to its reader, which sees the columns that are not learned from.
  std::int64_t drop_known(Profiles& table);

 private:
  std::unordered_set<std::string> known_;
};

}  // namespace orrery
