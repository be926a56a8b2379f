// What one GPU is: data-sheet numbers from the catalog.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platforms/units.hpp"

namespace orrery {

// fp4: NVFP4, 16 elements of 4 bits with a scale of 8 (arXiv 2509.25149, section 2).
enum class DataType { fp32, tf32, fp16, bf16, fp8, fp4 };
std::string_view to_text(DataType);
Bytes size_of(DataType);  // of one element: 4, 4, 2, 2, 1, 0.5625

// Memory outside the GPUs, the way to it, and the processors that launch their kernels.
struct HostSpec {
  Bytes memory = gibibytes(128);
  BytesPerSecond memory_bandwidth = gigabytes_per_second(51.2);
  BytesPerSecond link = gigabytes_per_second(32);  // of each GPU, one direction: PCIe, or NVLink-C2C
  double pace = 1;         // how long a program takes to launch a layer's kernels, over x86 servers
  double python_pace = 1;  // the same of programs whose layers are wrapped in Python (FSDP's hooks)
  bool operator==(const HostSpec&) const = default;
};
inline constexpr double kLeastPace = 0.1, kMostPace = 10;

struct GpuSpec {
  std::string name;                  // catalog name: "H100-SXM5-80GB"
  std::vector<std::string> aliases;  // "H100", "h100-sxm"
  std::string architecture;          // "Hopper"
  Bytes memory;                      // as sold; 80 GB cards hold 80 GiB, as nvidia-smi shows
  BytesPerSecond memory_bandwidth;
  // Dense peak of the matrix units; absent where the GPU has no such type.
  std::optional<FlopsPerSecond> fp32, tf32, fp16, bf16, fp8, fp4;
  BytesPerSecond link_bandwidth;  // GPU to GPU inside a node, one direction; PCIe where there is no NVLink
  std::string link;               // "NVLink4", "PCIe 4.0 x16"
  bool peer_access = true;        // over PCIe, from card to card without the memory of the host
  // Of a card without it, one direction; absent: as measured in hosts of PCIe 3.0 and 4.0 (usual_gpu_link).
  std::optional<BytesPerSecond> through_host;
  bool inline_ecc = false;  // check bits lie among the data and are read and written with them
  int multiprocessors = 0;  // streaming multiprocessors (compute units): decides wave quantisation
  Bytes l2_cache;
  Watts power;  // thermal design power
  // Speed of matrix units that lasts under power, over that of short kernels in a benchmark; of a chip whose
  // GEMMs were not measured one by one, over what is predicted of them from others' (H100's), which may be
  // below what lasts.
  double sustained = 1.0;
  // The same of kernels that run for over 4 ms: 1 where its own were measured, which throttles them; absent:
  // over H100's, where the models learned of such kernels (costmodels/stacks/sustained_power.hpp).
  std::optional<double> sustained_long;
  // Of matrices in fp32, which no matrix unit multiplies: over what is predicted of them from other GPUs';
  // absent: as `sustained`, but not above 1.
  std::optional<double> sustained_fp32;
  // Share of the peak that 8-bit GEMMs reach over the share that 16-bit ones reach: H100's (MAMF tables of
  // stas00/ml-engineering: 0.709 / 0.803) where nothing else is known.
  double fp8_share = 0.883;
  double fp4_share = 0.88;           // likewise of 4-bit GEMMs: B200's, platforms/catalog/gpus.yaml
  std::optional<Watts> power_limit;  // set by the owner, at most `power`
  std::optional<Watts>
      idle_power;      // while it waits in a run; absent: a share of `power` (costmodels/money/energy.hpp)
  HostSpec host = {};  // of the nodes it is usually sold in: one GPU's share of their memory
  std::string source;
  bool operator==(const GpuSpec&) const = default;
};

// Dense peak for a data type; absent where the GPU has no matrix units for it.
std::optional<FlopsPerSecond> peak(const GpuSpec&, DataType);

// Not NVIDIA's, whose kernels taught the models.
bool of_other_maker(const GpuSpec&);

// NVIDIA's GA100 (A100, A800, A30), of which Ampere's other chips differ in what a multiprocessor holds: told
// by its matrix units, eight times as fast in tf32 as its fp32 lanes are, twice or less in GA10x (white
// papers).
bool is_ga100(const GpuSpec&);

// Of a node with so many of these GPUs.
HostSpec usual_host(const GpuSpec&, int gpus);

class YamlValue;
// `host_pace`, of both kinds of programs where `host_python_pace` does not say the other. Throws InputError.
void read_host_paces(const YamlValue& map, HostSpec&);
// Reads one GPU, a row of the catalog or the `gpu:` map of a cluster file. Throws InputError.
GpuSpec parse_gpu(const YamlValue&);

// All GPUs of the catalog, in its order.
const std::vector<GpuSpec>& gpu_catalog();
// By name or alias, case ignored. Throws InputError{place, ...} with the nearest name.
const GpuSpec& find_gpu(std::string_view name, const std::string& place);

}  // namespace orrery
