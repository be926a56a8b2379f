#include "platforms/gpu.hpp"

#include <array>

#include "platforms/embedded.hpp"
#include "platforms/yaml.hpp"

extern "C" const orrery::EmbeddedRow orrery_embedded_platforms[];

namespace orrery {

namespace {

constexpr int kMostMultiprocessors = 100'000;

std::string text_or(const YamlValue& map, const std::string& key, const std::string& otherwise) {
  const std::optional<YamlValue> value = map.find(key);
  return value ? value->text() : otherwise;
}

std::optional<FlopsPerSecond> optional_peak(const YamlValue& map, const std::string& key) {
  const std::optional<YamlValue> value = map.find(key);
  if (!value) return std::nullopt;
  return value->positive_quantity<FlopsPerSecond>();
}

void read_peaks(const YamlValue& map, GpuSpec& gpu) {
  gpu.fp32 = optional_peak(map, "fp32");
  gpu.tf32 = optional_peak(map, "tf32");
  gpu.fp16 = optional_peak(map, "fp16");
  gpu.bf16 = optional_peak(map, "bf16");
  gpu.fp8 = optional_peak(map, "fp8");
  gpu.fp4 = optional_peak(map, "fp4");
  if (!gpu.fp32 && !gpu.tf32 && !gpu.fp16 && !gpu.bf16 && !gpu.fp8) {
    throw InputError(map.place(), "a GPU without any speed", "at least one of fp32, tf32, fp16, bf16, fp8");
  }
}

// Of one of eight GPUs in a node with two processors of the time. Links: x16, one direction. Memory: DGX-1
// (512 GB), DGX A100 (1 TB), DGX H100 and DGX B300 (2 TB). Bandwidth: two sockets of 6 channels of DDR4-2933,
// 8 of DDR4-3200, of DDR5-4800 and of DDR5-6400. All from data sheets, recalled.
HostSpec host_of_pcie(const std::optional<YamlValue>& pcie) {
  const std::vector<std::string> names{"3.0 x16", "4.0 x16", "5.0 x16", "6.0 x16"};
  constexpr std::size_t kUsual = 1;
  const std::array hosts{
      HostSpec{gibibytes(64), gigabytes_per_second(281.6 / 8), gigabytes_per_second(16)},
      HostSpec{gibibytes(128), gigabytes_per_second(409.6 / 8), gigabytes_per_second(32)},
      HostSpec{gibibytes(256), gigabytes_per_second(614.4 / 8), gigabytes_per_second(64)},
      HostSpec{gibibytes(256), gigabytes_per_second(819.2 / 8), gigabytes_per_second(128)}};
  return hosts.at(pcie ? pcie->one_of(names) : kUsual);
}

HostSpec read_host(const YamlValue& map) {
  HostSpec host = host_of_pcie(map.find("pcie"));
  if (const auto memory = map.find("host_memory")) host.memory = memory->positive_quantity<Bytes>();
  if (const auto bandwidth = map.find("host_memory_bandwidth"))
    host.memory_bandwidth = bandwidth->positive_quantity<BytesPerSecond>();
  if (const auto link = map.find("host_link_bandwidth"))
    host.link = link->positive_quantity<BytesPerSecond>();
  read_host_paces(map, host);
  return host;
}

std::vector<GpuSpec> read_catalog() {
  const std::string name = "catalog/gpus.yaml";
  std::vector<GpuSpec> gpus;
  for (const YamlValue& row :
       YamlValue::parse(embedded_file(orrery_embedded_platforms, name), name).items()) {
    gpus.push_back(parse_gpu(row));
    gpus.back().source += " (" + row.at("evidence").text() + ")";
  }
  return gpus;
}

// What is drawn is at most `power`.
Watts up_to_power(const YamlValue& value, Watts drawn, const GpuSpec& gpu) {
  if (drawn > gpu.power) value.fail("at most the `power` of the GPU, " + to_exact_text(gpu.power));
  return drawn;
}

}  // namespace

std::string_view to_text(DataType type) {
  switch (type) {
    case DataType::fp32:
      return "fp32";
    case DataType::tf32:
      return "tf32";
    case DataType::fp16:
      return "fp16";
    case DataType::bf16:
      return "bf16";
    case DataType::fp8:
      return "fp8";
    case DataType::fp4:
      return "fp4";
  }
  fail_ensure("a data type", __FILE__, __LINE__);
}

void read_host_paces(const YamlValue& map, HostSpec& host) {
  if (const auto pace = map.find("host_pace"))
    host.pace = host.python_pace = pace->number(kLeastPace, kMostPace);
  if (const auto pace = map.find("host_python_pace")) host.python_pace = pace->number(kLeastPace, kMostPace);
}

bool of_other_maker(const GpuSpec& gpu) {
  return gpu.architecture.starts_with("CDNA");
}

bool is_ga100(const GpuSpec& gpu) {
  return gpu.architecture == "Ampere" && gpu.fp32 && gpu.tf32 && *gpu.tf32 > *gpu.fp32 * 4;
}

Bytes size_of(DataType type) {
  switch (type) {
    case DataType::fp32:
    case DataType::tf32:
      return Bytes(4);
    case DataType::fp16:
    case DataType::bf16:
      return Bytes(2);
    case DataType::fp8:
      return Bytes(1);
    case DataType::fp4:
      return Bytes(0.5 + 1.0 / 16);
  }
  fail_ensure("a data type", __FILE__, __LINE__);
}

std::optional<FlopsPerSecond> peak(const GpuSpec& gpu, DataType type) {
  switch (type) {
    case DataType::fp32:
      return gpu.fp32;
    case DataType::tf32:
      return gpu.tf32;
    case DataType::fp16:
      return gpu.fp16;
    case DataType::bf16:
      return gpu.bf16;
    case DataType::fp8:
      return gpu.fp8;
    case DataType::fp4:
      return gpu.fp4;
  }
  fail_ensure("a data type", __FILE__, __LINE__);
}

GpuSpec parse_gpu(const YamlValue& map) {
  map.allow_keys({"name", "aliases", "architecture", "memory", "memory_bandwidth", "fp32", "tf32", "fp16",
                  "bf16", "fp8", "fp4", "link", "link_bandwidth", "multiprocessors", "l2_cache", "power",
                  "sustained", "sustained_long", "sustained_fp32", "fp8_share", "fp4_share", "power_limit",
                  "idle_power", "source", "pcie", "peer_access", "through_host", "inline_ecc", "host_memory",
                  "host_memory_bandwidth", "host_link_bandwidth", "host_pace", "host_python_pace",
                  // What the catalog keeps for people.
                  "vendor", "form_factor", "memory_type", "int8", "evidence", "note"});
  GpuSpec gpu;
  gpu.name = map.at("name").text();
  if (const auto aliases = map.find("aliases")) {
    for (const YamlValue& alias : aliases->items()) gpu.aliases.push_back(alias.text());
  }
  gpu.architecture = text_or(map, "architecture", "unknown");
  gpu.memory = map.at("memory").positive_quantity<Bytes>();
  gpu.memory_bandwidth = map.at("memory_bandwidth").positive_quantity<BytesPerSecond>();
  read_peaks(map, gpu);
  gpu.link = text_or(map, "link", "unknown");
  gpu.link_bandwidth = map.at("link_bandwidth").positive_quantity<BytesPerSecond>();
  if (const auto peers = map.find("peer_access")) gpu.peer_access = peers->boolean();
  if (const auto rate = map.find("through_host")) {
    if (gpu.peer_access)
      throw InputError(rate->place(), "the key through_host", "peer_access: false beside it");
    gpu.through_host = rate->positive_quantity<BytesPerSecond>();
  }
  if (const auto ecc = map.find("inline_ecc")) gpu.inline_ecc = ecc->boolean();
  gpu.multiprocessors = static_cast<int>(map.at("multiprocessors").integer(1, kMostMultiprocessors));
  gpu.l2_cache = map.at("l2_cache").positive_quantity<Bytes>();
  if (const auto power = map.find("power")) gpu.power = power->quantity<Watts>();
  if (const auto sustained = map.find("sustained")) gpu.sustained = sustained->number(0.1, 1.5);
  if (const auto sustained = map.find("sustained_long")) gpu.sustained_long = sustained->number(0.1, 1.5);
  if (const auto sustained = map.find("sustained_fp32")) gpu.sustained_fp32 = sustained->number(0.1, 3);
  if (const auto share = map.find("fp8_share")) gpu.fp8_share = share->number(0.1, 1.0);
  if (const auto share = map.find("fp4_share")) gpu.fp4_share = share->number(0.1, 1.0);
  if (const auto idle = map.find("idle_power"))
    gpu.idle_power = up_to_power(*idle, idle->quantity<Watts>(), gpu);
  if (const auto limit = map.find("power_limit"))
    gpu.power_limit = up_to_power(*limit, limit->positive_quantity<Watts>(), gpu);
  gpu.host = read_host(map);
  gpu.source = text_or(map, "source", "given by the user");
  return gpu;
}

HostSpec usual_host(const GpuSpec& gpu, int gpus) {
  const double count = gpus;
  return {gpu.host.memory * count, gpu.host.memory_bandwidth * count, gpu.host.link, gpu.host.pace,
          gpu.host.python_pace};
}

const std::vector<GpuSpec>& gpu_catalog() {
  static const std::vector<GpuSpec> catalog = read_catalog();
  return catalog;
}

const GpuSpec& find_gpu(std::string_view name, const std::string& place) {
  std::vector<std::string> names;
  for (const GpuSpec& gpu : gpu_catalog()) {
    if (same_name(gpu.name, name)) return gpu;
    names.push_back(gpu.name);
    for (const std::string& alias : gpu.aliases) {
      if (same_name(alias, name)) return gpu;
      names.push_back(alias);
    }
  }
  throw InputError(place, "the unknown GPU " + quote_for_message(name) + did_you_mean(name, names),
                   "a name of `orrery catalog gpus`, or a map with the GPU's numbers");
}

}  // namespace orrery
