// One function a table format of profile_reader.hpp; included by its sources only.
#pragma once

#include <functional>
#include <initializer_list>
#include <set>
#include <string>

#include "traces/csv_stream.hpp"
#include "traces/profile_reader.hpp"

namespace orrery {

// Rows that cannot be read: every reason begins with the first of these, and all count towards
// kWorstUnreadableShare.
inline const std::string kUnreadable = "unreadable";  // not a number, or not above zero
inline const std::string kOtherFields = "unreadable: more or fewer fields than the header";  // `1,024`
inline const std::string kNoWholeSize = "unreadable: a size that is no whole number up to 1e9";
inline const std::string kNoWholeBytes = "unreadable: a size that is no whole number of bytes";
inline const std::string kSlowLink = "unreadable: a link below 0.01 GB/s";  // in bytes per second, or MB

inline const std::string kOneRank = "a collective of one rank, which moves nothing";
inline const std::string kDuplicate = "duplicate of an earlier row";
inline const std::string kInEarlierTable = "measured alike in an earlier table";

void read_gemm_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_kernel_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_attention_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_collective_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_aceso_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_vidur_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_simai_ring_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);
void read_simai_all_to_all_table(CsvStream&, const std::string& name, Profiles&, ProfileFile&);

void read_own_table(CsvStream&, InventedTimes, Profiles&, ProfileFile&);
bool is_nccl_text(const std::string& path);
void read_nccl_text(const std::string& path, const std::string& name, Profiles&, ProfileFile&);

// A GPU's link with the latency that a cluster file gives one of that bandwidth: what is fitted is asked with
// the same. Up to 64 GB/s, PCIe 5.0's, it is PCIe.
LinkSpec gpu_link_of(BytesPerSecond bandwidth);

// Why nothing has such a link or network, as it would be in Gb/s; empty where something may. In GB/s of one
// GPU, one direction. `gpu`: none where it is not known.
std::string link_fault(double gigabytes, const GpuSpec* gpu);
std::string network_fault(double gigabytes, int ranks_per_node);

// The data type that a table names; absent for others.
std::optional<DataType> data_type(std::string_view);

// Rows of one table that repeat an earlier one in every field.
class Duplicates {
 public:
  bool seen(const CsvStream&);

 private:
  std::set<std::string> rows_;
};

// The GPU that a source calls by a name: one's own, else of the catalog; none when neither has it.
class GpuNames {
 public:
  explicit GpuNames(const std::vector<GpuSpec>& own_gpus) : own_(&own_gpus) {}

  const GpuSpec* find(std::string_view source_name);

 private:
  const std::vector<GpuSpec>* own_;  // outlives this
  std::map<std::string, const GpuSpec*, std::less<>> known_;
};

// Why a measurement is left out; empty where it is taken.
struct Fault {
  std::string reason;   // measurements are counted by it
  std::string found{};  // what cannot be read, and in which column; empty where the reason says all

  Fault() = default;
  Fault(const char* why) : reason(why) {}
  Fault(std::string why, std::string what = {}) : reason(std::move(why)), found(std::move(what)) {}
  [[nodiscard]] bool empty() const { return reason.empty(); }
};

// Of a cell that cannot be read.
Fault unreadable(const CsvStream&, std::size_t column, const std::string& reason = kUnreadable);

// Counts a measurement of this line as skipped.
void skip(ProfileFile&, const Fault&, std::size_t line);
// As skipped for a reason; as used where there is none.
void count(ProfileFile&, const Fault&, std::size_t line);

// Moves to the next row with as many fields as the header, for in others the columns are shifted; counts all
// of them.
bool next_row(CsvStream&, ProfileFile&);

// Adds what one line measured.
void append_line(Profiles&, Profiles&& measured, std::size_t line);

// Takes each row that `take` can read and that repeats no earlier one. `take` adds what the row at hand
// measured, or says why it teaches nothing.
void read_rows(CsvStream&, const std::function<Fault(Profiles&)>& take, Profiles&, ProfileFile&);

// The number of a field that must be above zero; absent when it is not.
std::optional<double> positive_field(const CsvStream&, std::size_t column);
std::string_view text_field(const CsvStream&, std::size_t column);

// More is a mistake; products of two stay whole numbers.
inline constexpr double kMostExtent = 1e9;
inline constexpr std::int64_t kMostRanks = 1'000'000;

// A count of rows, heads, tokens, ranks, ...: whole, above zero and at most kMostExtent.
std::optional<std::int64_t> extent(const CsvStream&, std::size_t column);
// Why a field is no size in bytes: sizes in KB or MB show by their fractions. Empty when it is one.
Fault bytes_fault(const CsvStream&, std::size_t column);
// Why one of these fields is no such count; empty when all are.
Fault extent_fault(const CsvStream&, std::initializer_list<std::size_t> columns);

}  // namespace orrery
