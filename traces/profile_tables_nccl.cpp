// What nccl-tests print (github NVIDIA/nccl-tests: all_reduce_perf and its sisters, and AMD's rccl-tests).
// Sizes are the whole vector of a rank, times microseconds, out of place first. A file may hold several runs,
// one after another. A line "# network_GBps 50" that the user adds says what one rank gets of its node's
// NICs, from there to the next such line.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>

#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"
#include "traces/profile_tables.hpp"

namespace orrery {

namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

struct NcclRun {
  std::string op;
  std::set<std::string> gpus{};  // of the ranks, as the driver names them
  int ranks = 0;
  std::map<std::string, int> hosts{};  // ranks of each
  double network = 0;                  // GB/s of one rank, 0: not said
  std::size_t time_column = 0;
  std::vector<std::size_t> wrong_columns{};  // out of place, in place
};

// Our name of the operation that a program's or a file's name contains.
std::string operation_in(const std::string& text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kNames{
      {{"all_reduce", "all_reduce"},
       {"reduce_scatter", "reduce_scatter"},
       {"all_gather", "all_gather"},
       {"alltoall", "all_to_all"},
       {"all_to_all", "all_to_all"},
       {"sendrecv", "send_recv"}}};
  for (const auto& [theirs, ours] : kNames) {
    if (text.find(theirs) != std::string::npos) return std::string(ours);
  }
  return {};
}

// "#  Rank  0 Group  0 Pid  123 on  node1 device  0 [0x07] NVIDIA H100 80GB HBM3"
void read_rank(const std::vector<std::string>& words, NcclRun& run) {
  ++run.ranks;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "on") ++run.hosts[words[i + 1]];
    if (words[i].front() == '[') {
      std::string gpu;
      for (std::size_t j = i + 1; j < words.size(); ++j) gpu += (gpu.empty() ? "" : " ") + words[j];
      run.gpus.insert(std::move(gpu));
    }
  }
}

// Whether this remark stands ahead of the ranks of a run, or is the first of them. Versions differ in which
// of these they print; a second one before any rank belongs to the same run.
bool begins_run(const std::string& line, const std::vector<std::string>& words, const NcclRun& run) {
  if (words[1] == "Rank") return run.time_column != 0 || (words.size() > 2 && words[2] == "0");
  return words[1] == "nThread" || line.find("test starting:") != std::string::npos ||
         line.find("Using devices") != std::string::npos || line.find("-tests version") != std::string::npos;
}

// "#       size         count      type   redop    root     time   algbw   busbw #wrong     time ..."
void read_titles(const std::vector<std::string>& words, NcclRun& run) {
  run.time_column = 0;
  run.wrong_columns.clear();
  for (std::size_t i = 1; i < words.size(); ++i) {  // the first word is '#', which rows do not have
    if (words[i] == "time" && run.time_column == 0) run.time_column = i - 1;
    if (words[i] == "#wrong") run.wrong_columns.push_back(i - 1);
  }
}

void read_remark(const std::string& line, const std::string& file_op, NcclRun& run) {
  const auto words = words_of(line);
  if (words.size() < 2) return;
  if (run.ranks > 0 && begins_run(line, words, run)) run = NcclRun{.op = file_op, .network = run.network};
  if (words[1] == "Rank") read_rank(words, run);
  if (line.find("test starting:") != std::string::npos) run.op = operation_in(line);
  if (words[1] == "network_GBps" && words.size() > 2) run.network = parse_number(words[2]).value_or(0);
  if (words[1] == "size") read_titles(words, run);
}

// "N/A" where the program was told not to check.
bool has_wrong_values(const std::vector<std::string>& words, const NcclRun& run) {
  return std::any_of(run.wrong_columns.begin(), run.wrong_columns.end(), [&](std::size_t column) {
    return column < words.size() && parse_number(words[column]).value_or(0) > 0;
  });
}

// Drivers have several names for a card; what the catalog has no card for is a kind of its own.
bool of_several_kinds(const NcclRun& run, GpuNames& names) {
  std::set<std::string> kinds;
  for (const auto& gpu : run.gpus) {
    const GpuSpec* known = names.find(gpu);
    kinds.insert(known == nullptr ? gpu : known->name);
  }
  return kinds.size() > 1;
}

std::string all_of(const std::set<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : " and ") + quote_for_message(name);
  return text;
}

Fault take_row(const std::vector<std::string>& words, const NcclRun& run, GpuNames& gpus,
               Profiles& profiles) {
  if (run.time_column == 0) return {kUnreadable, "a row without a line of titles before it"};
  if (words.size() <= run.time_column)
    return {kUnreadable, std::to_string(words.size()) + " words, none of them in column 'time'"};
  const auto bytes = parse_number(words[0]), time = parse_number(words[run.time_column]);
  if (!bytes || *bytes < 0) return {kUnreadable, quote_for_message(words[0]) + " in column 'size'"};
  if (!time || *time <= 0)
    return {kUnreadable, quote_for_message(words[run.time_column]) + " in column 'time'"};
  if (*bytes <= 0) return "empty message";
  if (has_wrong_values(words, run)) return "wrong values were received (#wrong)";
  if (run.op.empty()) return "operation not named, neither by the text nor by the file's name";
  if (of_several_kinds(run, gpus)) return "ranks on GPUs of several kinds, " + all_of(run.gpus);
  const GpuSpec* gpu = run.gpus.empty() ? nullptr : gpus.find(*run.gpus.begin());
  if (gpu == nullptr) return "GPU not in the catalog";
  const int hosts = static_cast<int>(run.hosts.size());
  const bool even = std::all_of(run.hosts.begin(), run.hosts.end(),
                                [&](const auto& host) { return host.second * hosts == run.ranks; });
  if (run.ranks < 2) return "a run of one rank (nccl-tests built without MPI?)";
  if (hosts < 1 || !even) return "ranks not spread evenly over their hosts";
  if (hosts > 1 && run.network <= 0) return "network not known: add a line '# network_GBps N'";
  if (std::string fault = hosts > 1 ? network_fault(run.network, run.ranks / hosts) : ""; !fault.empty())
    return fault;
  profiles.collectives.push_back({.source = "nccl-tests",
                                  .system = gpu->name,
                                  .op = run.op,
                                  .bytes = Bytes(*bytes),
                                  .ranks = run.ranks,
                                  .ranks_per_node = run.ranks / hosts,
                                  .gpu_link = gpu_link_of(gpu->link_bandwidth),
                                  .network = {gigabytes_per_second(run.network), kNicLatency},
                                  .time = microseconds(*time)});
  return {};
}

// A row with all that says what was measured: texts that hold a run twice, word for word, teach it once.
std::string key_of(const std::vector<std::string>& words, const NcclRun& run) {
  std::string key = run.op + '\n' + std::to_string(run.ranks) + '\n' + std::to_string(run.hosts.size()) +
                    '\n' + std::to_string(run.network);
  for (const auto& gpu : run.gpus) key += '\n' + gpu;
  for (const auto& word : words) key += '\n' + word;
  return key;
}

}  // namespace

bool is_nccl_text(const std::string& path) {
  if (!path.ends_with(".txt") && !path.ends_with(".log") && !path.ends_with(".out")) return false;
  const std::string text = read_text_file(path);
  return text.find("busbw") != std::string::npos && text.find("out-of-place") != std::string::npos;
}

void read_nccl_text(const std::string& path, const std::string& name, Profiles& profiles, ProfileFile& file) {
  const std::string file_op = operation_in(name);
  NcclRun run{.op = file_op};
  GpuNames gpus(profiles.own_gpus);
  std::istringstream stream(read_text_file(path));
  std::set<std::string> seen;
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const auto words = words_of(line);
    if (words.empty()) continue;
    if (words.front().front() == '#') {
      read_remark(line, file_op, run);
    } else if (parse_number(words.front())) {  // else a line of the launcher
      ++file.rows;
      Profiles row;
      Fault fault = take_row(words, run, gpus, row);
      if (fault.empty() && !seen.insert(key_of(words, run)).second) fault = kDuplicate;
      if (fault.empty()) append_line(profiles, std::move(row), number);
      count(file, fault, number);
    }
  }
  if (file.rows == 0)
    throw InputError(path, "no row of a size and its time", "the whole output of nccl-tests");
}

}  // namespace orrery
