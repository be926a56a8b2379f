// One function a table format of profile_reader.hpp; included by its sources only.
#pragma once

#include <string>

#include "traces/csv_stream.hpp"
#include "traces/profile_reader.hpp"

namespace orrery {

inline const std::string kUnreadable = "unreadable";  // not a number, not above zero, or too few fields

void read_gemm_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_kernel_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_collective_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_aceso_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_vidur_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_simai_ring_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_simai_all_to_all_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);

// Catalog name of the GPU that a source calls `name`; absent when the catalog has no such GPU.
class GpuNames {
 public:
  const std::string* find(std::string_view source_name);

 private:
  std::map<std::string, std::string, std::less<>> known_;  // empty: not in the catalog
};

// The number of a field that must be above zero; absent when it is not, or when the row is too short.
std::optional<double> positive_field(const CsvStream&, std::size_t column);
std::string_view text_field(const CsvStream&, std::size_t column);  // empty when the row is too short

}  // namespace orrery
