#include "traces/profile_tables.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iterator>
#include <utility>

#include "platforms/errors.hpp"

namespace orrery {

namespace {

// Names that sources use and that are not aliases of the catalog (profiles' own notes; vidur's A100 is the 80
// GB SXM card, its H100 a DGX; sailor's RTX-2080 does not say Ti, and its times fit no smaller card).
constexpr std::array<std::pair<std::string_view, std::string_view>, 26> kSourceNames{{
    {"A100-40", "A100-SXM4-40GB"},
    {"A100-80", "A100-SXM4-80GB"},
    {"GH-96", "GH200-96GB"},
    {"V100-16", "V100-SXM2-16GB"},
    {"V100-32", "V100-SXM2-32GB"},
    {"RTX-2080", "RTX 2080 Ti"},
    {"NV_V100", "V100-SXM2-16GB"},
    {"NV_T4", "T4"},
    {"Tesla T4", "T4"},
    {"Tesla V100-PCIE-32GB", "V100-PCIe-32GB"},
    {"NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"},
    {"NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"},
    {"NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"},
    {"NVIDIA L4", "L4"},
    // As drivers name them. Not here: the driver's two devices of an MI250 or MI250X, each half of the
    // catalog's card; H200 NVL and V100-SXM3, whose clocks and power the catalog's cards do not have.
    {"NVIDIA H100 PCIe", "H100-PCIe-80GB"},
    {"NVIDIA H100 NVL", "H100-NVL-94GB"},
    {"NVIDIA H200", "H200-SXM-141GB"},
    {"NVIDIA GH200 480GB", "GH200-96GB"},  // 480 and 120 GB are the CPU's memory
    {"NVIDIA GH200 120GB", "GH200-96GB"},
    {"NVIDIA B200", "B200-SXM"},
    {"NVIDIA H20", "H20-96GB"},
    {"NVIDIA B300 SXM6 AC", "B300-SXM"},
    {"NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"},
    {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"},
    {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000"},
    {"AMD Instinct MI300X VF", "MI300X"},  // a virtual function of the whole card
}};

bool same_text(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

constexpr std::array<std::string_view, 4> kMakers{"NVIDIA ", "GeForce ", "Tesla ", "AMD Instinct "};

std::string_view without_makers(std::string_view name) {
  for (const std::string_view maker : kMakers) {
    if (name.starts_with(maker)) name.remove_prefix(maker.size());
  }
  return name;
}

const GpuSpec* gpu_called(std::string_view name, const std::vector<GpuSpec>& gpus) {
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const GpuSpec& gpu) {
    return same_text(gpu.name, name) ||
           std::any_of(gpu.aliases.begin(), gpu.aliases.end(),
                       [&](const std::string& alias) { return same_text(alias, name); });
  });
  return found == gpus.end() ? nullptr : &*found;
}

const GpuSpec* catalog_gpu(std::string_view name) {
  for (const auto& [source, catalog] : kSourceNames) {
    if (source == name) name = catalog;
  }
  return gpu_called(without_makers(name), gpu_catalog());
}

}  // namespace

KnownGpuNames known_gpu_names() {
  KnownGpuNames names{.catalog = {}, .makers = {kMakers.begin(), kMakers.end()}, .sources = {}};
  for (const auto& gpu : gpu_catalog()) {
    names.catalog.push_back({gpu.name, gpu.name});
    for (const auto& alias : gpu.aliases) names.catalog.push_back({alias, gpu.name});
  }
  for (const auto& [source, catalog] : kSourceNames)
    names.sources.push_back({std::string(source), std::string(catalog)});
  return names;
}

// The data types of GEMM tables. DeepBench's "Mixed math" multiplies fp16 on the tensor cores.
std::optional<DataType> data_type(std::string_view text) {
  if (text == "fp16" || text == "FP16_ip_Mixed_math") return DataType::fp16;
  if (text == "bf16") return DataType::bf16;
  if (text == "tf32") return DataType::tf32;
  if (text == "fp8") return DataType::fp8;
  if (text == "fp32" || text == "FP32") return DataType::fp32;
  return std::nullopt;
}

void append(Profiles& all, Profiles&& more) {
  const auto move = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  const auto move_rows = [&](auto& to, auto& from) {
    for (auto& row : from) row.at.file += all.files.size();
    move(to, from);
  };
  move_rows(all.gemms, more.gemms);
  move_rows(all.kernels, more.kernels);
  move_rows(all.attentions, more.attentions);
  move_rows(all.collectives, more.collectives);
  move(all.files, more.files);
  move(all.not_read, more.not_read);
}

void append_line(Profiles& profiles, Profiles&& measured, std::size_t line) {
  const auto set_line = [&](auto& rows) {
    for (auto& row : rows) row.at.line = line;
  };
  set_line(measured.gemms);
  set_line(measured.kernels);
  set_line(measured.attentions);
  set_line(measured.collectives);
  append(profiles, std::move(measured));
}

bool Duplicates::seen(const CsvStream& rows) {
  std::string whole;
  for (const auto field : rows.fields()) whole.append(field).push_back('\0');
  return !rows_.insert(std::move(whole)).second;
}

namespace {

struct GemmColumns {
  explicit GemmColumns(const CsvStream& rows)
      : source(rows.column("source")),
        gpu(rows.column("gpu")),
        type(rows.column("dtype")),
        model(rows.column("model")),
        batch(rows.column("batch")),
        m(rows.column("M")),
        n(rows.column("N")),
        k(rows.column("K")),
        time(rows.column("time_us")),
        direction(rows.find_column("direction")) {}
  std::size_t source, gpu, type, model, batch, m, n, k, time;
  std::optional<std::size_t> direction;
};

// Why a row taught nothing; empty when it was taken.
Fault take_gemm(const CsvStream& rows, const GemmColumns& at, GpuNames& gpus, Profiles& profiles) {
  if (Fault fault = extent_fault(rows, {at.batch, at.m, at.n, at.k}); !fault.empty()) return fault;
  const auto time = positive_field(rows, at.time);
  if (!time) return unreadable(rows, at.time);
  const auto type = data_type(text_field(rows, at.type));
  if (!type) return "data type " + std::string(text_field(rows, at.type));
  const GpuSpec* gpu = gpus.find(text_field(rows, at.gpu));
  if (gpu == nullptr) return "GPU not in the catalog";
  // Whose extents those of a gradient would be, its own or its layer's, sources do not agree on.
  const std::string_view direction = at.direction ? text_field(rows, *at.direction) : std::string_view{};
  if (!direction.empty() && direction != "fwd" && direction != "forward")
    return "direction " + quote_for_message(direction) + ", where fwd alone is read";
  MeasuredGemm gemm{.source = std::string(text_field(rows, at.source)),
                    .model = std::string(text_field(rows, at.model)),
                    .gpu = gpu->name,
                    .type = *type,
                    .m = *extent(rows, at.m),
                    .n = *extent(rows, at.n),
                    .k = *extent(rows, at.k),
                    .batch = *extent(rows, at.batch),
                    .timed = TimedAs::kernel,
                    .time = microseconds(*time)};
  // DeepBench gives no model; its matrices count as one, NeuSight's likewise.
  if (gemm.model.empty()) gemm.model = gemm.source;
  profiles.gemms.push_back(std::move(gemm));
  return {};
}

}  // namespace

const GpuSpec* GpuNames::find(std::string_view source_name) {
  if (const auto known = known_.find(source_name); known != known_.end()) return known->second;
  const GpuSpec* gpu = gpu_called(source_name, *own_);
  if (gpu == nullptr) gpu = gpu_called(without_makers(source_name), *own_);
  if (gpu == nullptr) gpu = catalog_gpu(source_name);
  known_.emplace(std::string(source_name), gpu);
  return gpu;
}

Fault unreadable(const CsvStream& rows, std::size_t column, const std::string& reason) {
  return {reason, quote_for_message(text_field(rows, column)) + " in column " +
                      quote_for_message(rows.titles()[column])};
}

void skip(ProfileFile& file, const Fault& fault, std::size_t line) {
  ++file.skipped[fault.reason];
  const bool first = file.first_line.try_emplace(fault.reason, line).second;
  if (first && !fault.found.empty()) file.first_found.emplace(fault.reason, fault.found);
}

void count(ProfileFile& file, const Fault& fault, std::size_t line) {
  if (fault.empty()) {
    ++file.used;
  } else {
    skip(file, fault, line);
  }
}

bool next_row(CsvStream& rows, ProfileFile& file) {
  while (rows.next()) {
    ++file.rows;
    if (rows.fields().size() == rows.columns()) return true;
    const std::string found =
        std::to_string(rows.fields().size()) + " fields, not " + std::to_string(rows.columns());
    skip(file, {kOtherFields, found}, rows.line());
  }
  return false;
}

std::string_view text_field(const CsvStream& rows, std::size_t column) {
  return column < rows.fields().size() ? rows.fields()[column] : std::string_view{};
}

std::optional<double> positive_field(const CsvStream& rows, std::size_t column) {
  const auto number = parse_number(text_field(rows, column));
  return number && *number > 0 ? number : std::nullopt;
}

std::optional<std::int64_t> extent(const CsvStream& rows, std::size_t column) {
  const auto value = positive_field(rows, column);
  if (!value || *value > kMostExtent || *value != std::floor(*value)) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

Fault bytes_fault(const CsvStream& rows, std::size_t column) {
  const auto value = positive_field(rows, column);
  if (!value) return unreadable(rows, column);
  return *value == std::floor(*value) ? Fault() : unreadable(rows, column, kNoWholeBytes);
}

Fault extent_fault(const CsvStream& rows, std::initializer_list<std::size_t> columns) {
  for (const std::size_t column : columns) {
    if (!positive_field(rows, column)) return unreadable(rows, column);
    if (!extent(rows, column)) return unreadable(rows, column, kNoWholeSize);
  }
  return {};
}

void read_rows(CsvStream& rows, const std::function<Fault(Profiles&)>& take, Profiles& profiles,
               ProfileFile& file) {
  Duplicates duplicates;
  while (next_row(rows, file)) {
    Profiles row;
    Fault fault = take(row);
    if (fault.empty() && duplicates.seen(rows)) fault = kDuplicate;
    if (fault.empty()) append_line(profiles, std::move(row), rows.line());
    count(file, fault, rows.line());
  }
}

void read_gemm_table(CsvStream& rows, const std::string&, Profiles& profiles, ProfileFile& file) {
  const GemmColumns at(rows);
  GpuNames gpus(profiles.own_gpus);
  read_rows(
      rows, [&](Profiles& row) { return take_gemm(rows, at, gpus, row); }, profiles, file);
}

void read_kernel_table(CsvStream& rows, const std::string&, Profiles& profiles, ProfileFile& file) {
  const std::size_t source = rows.column("source"), gpu = rows.column("gpu"), model = rows.column("model"),
                    op = rows.column("op"), bytes = rows.column("bytes"), time = rows.column("time_us");
  GpuNames gpus(profiles.own_gpus);
  const auto take = [&](Profiles& row) -> Fault {
    if (Fault fault = bytes_fault(rows, bytes); !fault.empty()) return fault;
    const auto duration = positive_field(rows, time);
    const GpuSpec* spec = gpus.find(text_field(rows, gpu));
    if (!duration) return unreadable(rows, time);
    if (spec == nullptr) return "GPU not in the catalog";
    row.kernels.push_back({.source = std::string(text_field(rows, source)),
                           .model = std::string(text_field(rows, model)),
                           .gpu = spec->name,
                           .op = std::string(text_field(rows, op)),
                           .bytes = Bytes(*positive_field(rows, bytes)),
                           .timed = TimedAs::kernel,
                           .time = microseconds(*duration)});
    return {};
  };
  read_rows(rows, take, profiles, file);
}

}  // namespace orrery
