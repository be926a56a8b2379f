#include "costmodels/models/features.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "costmodels/models/attention_table.hpp"
#include "costmodels/models/kernel_pace.hpp"
#include "platforms/errors.hpp"

namespace orrery {

namespace {

// A launch of one kernel, and of one NCCL collective (FIDELITY: 1.2-2.8 us and some 10 us at the smallest
// sizes).
constexpr Seconds kKernelLaunch = Seconds(2e-6);
constexpr Seconds kCollectiveLaunch = Seconds(8e-6);
// What NCCL adds to the latency of a link in each step.
constexpr Seconds kStepOverhead = Seconds(1e-6);
// Latencies of a NIC that a step over nodes takes, wherever in the ring it goes. NCCL's constants for the
// protocol of large messages (src/graph/tuning.cc, Simple: 14 us for a hop of the network, 3.4 inside a node,
// 1.4 times that on the plateau) give a ring of eight GPUs a node 6.6 us a step; SimAI's table has 6.2.
constexpr double kHopLatencies = 4;

double log2_of(std::int64_t value) {
  return std::log2(static_cast<double>(value));
}
double microseconds_of(Seconds time) {
  return time.value() * 1e6;
}

// Output tiles that cuBLAS and CUTLASS use on tensor cores, rows x columns.
struct Tile {
  std::int64_t rows, columns;
};
constexpr std::array kTiles{Tile{256, 128}, Tile{128, 256}, Tile{128, 128}, Tile{64, 128}, Tile{64, 64}};
constexpr std::int64_t kLargeTile = 128 * 128;  // the tiles that reach the peak
constexpr std::int64_t kWidestAlignment = 256;  // elements; wider alignment changes nothing

// H100's L2 cache is the largest among the GPUs that teach GEMMs. A larger one is taken for that: trees know
// nothing beyond, and called GEMMs of 20 to 100 us on B200 to GB300 40 to 50 % too slow (NVIDIA
// aiconfigurator's measurements).
constexpr double kLargestTaughtL2 = 50 * kMebi;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// How a tile size fills the multiprocessors: the waves of tiles and those begun, the filled share of the
// waves, the used share of tiles. Returns the product of both shares: what is left of the peak.
float add_tile(std::vector<float>& row, const Gemm& gemm, const Tile& tile, int multiprocessors) {
  const std::int64_t down = ceil_divide(gemm.m, tile.rows), across = ceil_divide(gemm.n, tile.columns);
  const double tiles =
      static_cast<double>(gemm.batch) * static_cast<double>(down) * static_cast<double>(across);
  const double waves = tiles / std::max(multiprocessors, 1);
  const double padded = static_cast<double>(down * tile.rows) * static_cast<double>(across * tile.columns);
  row.push_back(static_cast<float>(std::log2(waves)));
  row.push_back(static_cast<float>(waves / std::ceil(waves)));
  row.push_back(static_cast<float>(static_cast<double>(gemm.m) * static_cast<double>(gemm.n) / padded));
  row.push_back(static_cast<float>(std::log2(std::ceil(waves))));
  return row[row.size() - 3] * row[row.size() - 2];
}

double gemm_bytes(const Gemm& gemm) {
  const double m = static_cast<double>(gemm.m), n = static_cast<double>(gemm.n),
               k = static_cast<double>(gemm.k);
  return size_of(gemm.type).value() * static_cast<double>(gemm.batch) * (m * k + k * n + m * n);
}

float log2_float(double value) {
  return static_cast<float>(std::log2(value));
}

// Bytes the busiest link carries, and the steps and latency of the algorithm.
struct RingWork {
  double gpu_link_bytes = 0, network_bytes = 0;
  int steps = 0;
};

bool one_node(const Collective& op) {
  return op.ranks <= op.ranks_per_node;
}

double nodes_of(const Collective& op) {
  return std::ceil(static_cast<double>(op.ranks) / op.ranks_per_node);
}

RingWork ring_work(const Collective& op) {
  const double bytes = op.bytes.value(), ranks = op.ranks, per_node = std::min(op.ranks_per_node, op.ranks);
  const double share = (ranks - 1) / ranks;
  switch (op.kind) {
    case CollectiveKind::all_reduce:
      return {2 * share * bytes, 2 * share * bytes / per_node, 2 * (op.ranks - 1)};
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
      return {share * bytes, share * bytes / per_node, op.ranks - 1};
    case CollectiveKind::all_to_all:
      return {(per_node - 1) / ranks * bytes, (ranks - per_node) / ranks * bytes, 1};
  }
  throw Defect("a collective without a ring");
}

}  // namespace

std::optional<MatrixPeak> matrix_peak(const GpuSpec& gpu, DataType type) {
  for (;;) {
    if (const auto speed = peak(gpu, type)) return MatrixPeak{*speed, type};
    switch (type) {
      case DataType::fp4:
        type = DataType::fp8;
        break;
      case DataType::fp8:
        type = DataType::bf16;
        break;
      case DataType::bf16:
        type = DataType::fp16;
        break;
      case DataType::fp16:
      case DataType::tf32:
        type = DataType::fp32;
        break;
      case DataType::fp32:
        return std::nullopt;
    }
  }
}

Seconds roofline(const Gemm& gemm, const GpuSpec& gpu, FlopsPerSecond peak) {
  return std::max(flops_of(gemm) / peak, Bytes(gemm_bytes(gemm)) / gpu.memory_bandwidth);
}

Bytes gemm_traffic(const Gemm& gemm) {
  return Bytes(gemm_bytes(gemm));
}

Seconds stream_time(Bytes bytes, const GpuSpec& gpu) {
  return kKernelLaunch + bytes / gpu.memory_bandwidth;
}

Seconds wire_time(const Collective& op) {
  const RingWork work = ring_work(op);
  const Seconds inside = Bytes(work.gpu_link_bytes) / op.gpu_link.bandwidth;
  if (one_node(op)) return inside;
  const Seconds between = Bytes(work.network_bytes) / op.network.bandwidth;
  return op.ranks_per_node == 1 ? between : std::max(inside, between);
}

Seconds stated_time(const Collective& op, const StatedRate& rate) {
  Collective reached = op;
  reached.gpu_link.bandwidth = op.gpu_link.bandwidth * rate.inside;
  reached.network.bandwidth = op.network.bandwidth * rate.between;
  return rate.fixed + wire_time(reached);
}

Seconds nccl_time(const Collective& op) {
  const Seconds inside = kStepOverhead + op.gpu_link.latency;
  if (one_node(op)) return kCollectiveLaunch + inside * ring_work(op).steps + wire_time(op);
  const Seconds between = kStepOverhead + op.network.latency * kHopLatencies;
  Seconds steps = between * ring_work(op).steps;
  if (op.kind == CollectiveKind::all_reduce) {
    const Seconds down = between * std::ceil(std::log2(nodes_of(op))) + inside * (op.ranks_per_node - 1);
    steps = std::min(steps, 2 * down);
  }
  return kCollectiveLaunch + steps + wire_time(op);
}

Seconds transfer_time(const PointToPoint& op) {
  return kCollectiveLaunch + op.path.latency + op.bytes / op.path.bandwidth;
}

std::vector<float> gemm_features(const Gemm& gemm, const GpuSpec& gpu, FlopsPerSecond peak, TimedAs timed,
                                 GemmModelKind kind) {
  const Seconds compute = flops_of(gemm) / peak, memory = Bytes(gemm_bytes(gemm)) / gpu.memory_bandwidth;
  std::vector<float> row{static_cast<float>(log2_of(gemm.m)), static_cast<float>(log2_of(gemm.n)),
                         static_cast<float>(log2_of(gemm.k)),
                         static_cast<float>(std::log2(microseconds_of(compute))),
                         static_cast<float>(std::log2(compute / memory))};
  float best = 0;
  for (const auto& tile : kTiles) {
    const float left = add_tile(row, gemm, tile, gpu.multiprocessors);
    row.push_back(left);
    if (tile.rows * tile.columns >= kLargeTile) best = std::max(best, left);
  }
  row.push_back(best);
  const double l2 = std::clamp(gpu.l2_cache.value(), 1.0, kLargestTaughtL2);
  row.push_back(static_cast<float>(std::log2(gemm_bytes(gemm) / l2)));
  row.push_back(static_cast<float>(log2_of(gemm.n) - log2_of(gemm.k)));
  for (const std::int64_t extent : {gemm.m, gemm.n, gemm.k}) {
    row.push_back(static_cast<float>(log2_of(std::gcd(extent, kWidestAlignment))));
  }
  row.push_back(timed == TimedAs::framework ? 1.0F : 0.0F);
  row.push_back(gemm.pass == GemmPass::input_gradient ? 1.0F : 0.0F);
  row.push_back(gemm.pass == GemmPass::weight_gradient ? 1.0F : 0.0F);
  row.push_back(static_cast<float>(std::log2(size_of(gemm.type).value())));
  if (kind == GemmModelKind::any_gpu) {
    row.push_back(static_cast<float>(std::log2(peak.value() / kTera)));
    row.push_back(static_cast<float>(std::log2(gpu.memory_bandwidth.value() / kGiga)));
    row.push_back(static_cast<float>(std::log2(std::max(gpu.multiprocessors, 1))));
    row.push_back(static_cast<float>(std::log2(l2 / kMebi)));
  }
  return row;
}

std::vector<float> attention_features(const Attention& op, const GpuSpec& gpu) {
  const auto peak = matrix_peak(gpu, op.type);
  const double speed = peak ? peak->speed.value() : multiprocessor_clocks(gpu);
  return {log2_float(static_cast<double>(op.query_tokens)),
          log2_float(static_cast<double>(op.kv_tokens)),
          log2_float(static_cast<double>(op.head_dim)),
          op.causal ? 1.0F : 0.0F,
          op.direction == Direction::backward ? 1.0F : 0.0F,
          static_cast<float>(op.kernel),
          log2_float(static_cast<double>(op.heads) / static_cast<double>(op.kv_heads)),
          log2_float(attention_waves(op, gpu)),
          log2_float(speed / multiprocessor_clocks(gpu)),
          log2_float(speed / gpu.memory_bandwidth.value())};
}

std::vector<float> kernel_features(MemoryKernel kernel, Direction direction, Bytes bytes,
                                   const GpuSpec& gpu) {
  return {static_cast<float>(std::log2(bytes.value())), static_cast<float>(pace_index(kernel, direction)),
          static_cast<float>(std::log2(gpu.memory_bandwidth.value() / multiprocessor_clocks(gpu))),
          static_cast<float>(std::log2(bytes.value() / std::max(gpu.l2_cache.value(), 1.0)))};
}

std::vector<float> collective_features(const Collective& op) {
  return {static_cast<float>(std::log2(op.bytes.value())),
          op.kind == CollectiveKind::all_reduce ? 1.0F : 0.0F,
          op.kind == CollectiveKind::all_to_all ? 1.0F : 0.0F,
          static_cast<float>(std::log2(op.ranks)),
          static_cast<float>(std::log2(op.gpu_link.bandwidth.value() / kGiga)),
          static_cast<float>(std::log2(microseconds_of(nccl_time(op))))};
}

std::vector<float> network_features(const Collective& op) {
  const Seconds wire = wire_time(op);
  return {op.kind == CollectiveKind::all_reduce ? 1.0F : 0.0F,
          op.kind == CollectiveKind::all_to_all ? 1.0F : 0.0F,
          static_cast<float>(std::log2(nodes_of(op))),
          static_cast<float>(std::log2(op.ranks_per_node)),
          static_cast<float>(std::log2(microseconds_of(wire))),
          static_cast<float>(std::log2(wire / (nccl_time(op) - wire)))};
}

std::vector<float> transfer_features(const PointToPoint& op) {
  return {static_cast<float>(std::log2(op.bytes.value())), op.same_node ? 1.0F : 0.0F,
          static_cast<float>(std::log2(microseconds_of(transfer_time(op))))};
}

const std::vector<std::string_view>& gemm_feature_names(GemmModelKind kind) {
  static const std::vector<std::string_view> one{
      "log2_m",        "log2_n",           "log2_k",         "log2_compute_us", "log2_compute_to_memory",
      "waves_256x128", "filled_256x128",   "used_256x128",   "begun_256x128",   "left_256x128",
      "waves_128x256", "filled_128x256",   "used_128x256",   "begun_128x256",   "left_128x256",
      "waves_128x128", "filled_128x128",   "used_128x128",   "begun_128x128",   "left_128x128",
      "waves_64x128",  "filled_64x128",    "used_64x128",    "begun_64x128",    "left_64x128",
      "waves_64x64",   "filled_64x64",     "used_64x64",     "begun_64x64",     "left_64x64",
      "best_left",     "log2_bytes_to_l2", "log2_n_to_k",    "log2_align_m",    "log2_align_n",
      "log2_align_k",  "framework",        "input_gradient", "weight_gradient", "log2_element_bytes"};
  static const std::vector<std::string_view> any = [] {
    auto names = one;
    names.insert(names.end(),
                 {"log2_peak_tflops", "log2_bandwidth_gbps", "log2_multiprocessors", "log2_l2_mib"});
    return names;
  }();
  return kind == GemmModelKind::one_gpu ? one : any;
}

const std::vector<std::string_view>& attention_feature_names() {
  static const std::vector<std::string_view> names{
      "log2_query_tokens", "log2_kv_tokens", "log2_head_dim",        "causal",      "backward", "kernel",
      "log2_group",        "log2_waves",     "log2_flops_per_clock", "log2_balance"};
  return names;
}

const std::vector<std::string_view>& kernel_feature_names() {
  static const std::vector<std::string_view> names{"log2_bytes", "kernel", "log2_bytes_per_clock",
                                                   "log2_bytes_to_l2"};
  return names;
}

const std::vector<std::string_view>& collective_feature_names() {
  static const std::vector<std::string_view> names{"log2_bytes", "all_reduce",     "all_to_all",
                                                   "log2_ranks", "log2_link_gbps", "log2_nccl_us"};
  return names;
}

const std::vector<std::string_view>& network_feature_names() {
  static const std::vector<std::string_view> names{"all_reduce",    "all_to_all",   "log2_nodes",
                                                   "log2_per_node", "log2_wire_us", "log2_wire_to_latency"};
  return names;
}

const std::vector<std::string_view>& transfer_feature_names() {
  static const std::vector<std::string_view> names{"log2_bytes", "same_node", "log2_path_us"};
  return names;
}

}  // namespace orrery
