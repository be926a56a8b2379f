#include "costmodels/models/features.hpp"

#include <algorithm>
#include <cmath>

#include "tests/catch.hpp"

using namespace orrery;

namespace {

const GpuSpec& a100() {
  return find_gpu("A100-SXM4-80GB", "test");
}

double feature(const std::vector<float>& row, const std::vector<std::string_view>& names,
               std::string_view name) {
  const auto at = std::find(names.begin(), names.end(), name);
  REQUIRE(at != names.end());
  REQUIRE(row.size() == names.size());
  return static_cast<double>(row[static_cast<std::size_t>(at - names.begin())]);
}

LinkSpec link(double gigabytes, double latency_us) {
  return {gigabytes_per_second(gigabytes), microseconds(latency_us)};
}

}  // namespace

TEST_CASE("a stated rate is a share of the links and a fixed time") {
  Collective op{.kind = CollectiveKind::all_to_all,
                .bytes = Bytes(8e9),
                .ranks = 8,
                .ranks_per_node = 8,
                .gpu_link = link(100, 1),
                .network = link(10, 1)};
  const StatedRate rate{.inside = 0.5, .between = 0.25, .fixed = Seconds(0.01)};
  // Seven of eight parts leave: 7 GB at 50 GB/s.
  CHECK(stated_time(op, rate).value() == Approx(0.01 + 7.0 / 50));
  // On two nodes half leaves the node: 4 GB at 2.5 GB/s, and meanwhile 3 GB inside.
  op.ranks_per_node = 4;
  CHECK(stated_time(op, rate).value() == Approx(0.01 + 4.0 / 2.5));
}

TEST_CASE("the roofline is the longer of arithmetic and traffic") {
  // 2 x 4096^3 / 312e12 = 440.5 us; traffic 3 x 4096^2 x 2 B / 2039e9 = 49.4 us.
  const Gemm square{.m = 4096, .n = 4096, .k = 4096};
  CHECK(roofline(square, a100(), teraflops(312)).value() == Approx(2 * 4096.0 * 4096 * 4096 / 312e12));
  // One row: 2 x 4096^2 / 312e12 = 0.1 us, the matrix of 32 MiB takes 16.5 us.
  const Gemm thin{.m = 1, .n = 4096, .k = 4096};
  CHECK(roofline(thin, a100(), teraflops(312)).value() == Approx(2 * (4096.0 * 4096 + 2 * 4096) / 2039e9));
}

TEST_CASE("waves, filled waves and used tiles are those of a hand count") {
  // 1000 x 4096 in tiles of 128 x 128: 8 x 32 = 256 tiles on 108 multiprocessors = 2.370 waves, 3 begun; the
  // last row of tiles is used for 104 of 128.
  const Gemm gemm{.m = 1000, .n = 4096, .k = 4096};
  const auto& names = gemm_feature_names(GemmModelKind::one_gpu);
  const auto row = gemm_features(gemm, a100(), teraflops(312), TimedAs::kernel, GemmModelKind::one_gpu);
  CHECK(feature(row, names, "waves_128x128") == Approx(std::log2(256.0 / 108)));
  CHECK(feature(row, names, "filled_128x128") == Approx(256.0 / 108 / 3));
  CHECK(feature(row, names, "used_128x128") == Approx(1000.0 / 1024));
  CHECK(feature(row, names, "log2_align_m") == 3);  // 1000 = 8 x 125
  CHECK(feature(row, names, "log2_align_n") == 8);  // no more than 256 counts
  CHECK(feature(row, names, "log2_m") == Approx(std::log2(1000.0)));
  CHECK(feature(row, names, "framework") == 0);
}

TEST_CASE("a GPU multiplies in the next type it has") {
  const GpuSpec& v100 = find_gpu("V100", "test");
  CHECK(matrix_peak(v100, DataType::bf16)->type == DataType::fp16);
  CHECK(matrix_peak(v100, DataType::fp8)->speed == *v100.fp16);
  CHECK(matrix_peak(v100, DataType::tf32)->type == DataType::fp32);
  CHECK(matrix_peak(a100(), DataType::bf16)->type == DataType::bf16);
}

TEST_CASE("an L2 cache larger than any that taught GEMMs is taken for the largest that did") {
  const Gemm gemm{.m = 4096, .n = 768, .k = 2048};
  GpuSpec gpu = find_gpu("B200", "test");
  const auto features = [&](double mebibytes) {
    gpu.l2_cache = Bytes(mebibytes * kMebi);
    return gemm_features(gemm, gpu, *gpu.bf16, TimedAs::kernel, GemmModelKind::any_gpu);
  };
  CHECK(features(126) == features(50));  // H100's
  CHECK(features(40) != features(50));
}

TEST_CASE("a ring in a node moves 2 (n-1)/n of the vector over every link") {
  // 8 ranks, 450 GB/s: 2 x 7/8 x 64 MiB / 450 GB/s = 261 us.
  const Collective op{.bytes = Bytes(64 * kMebi),
                      .ranks = 8,
                      .ranks_per_node = 8,
                      .gpu_link = link(450, 1),
                      .network = link(50, 5)};
  CHECK(wire_time(op).value() == Approx(2 * 7.0 / 8 * 64 * kMebi / 450e9));
  // 14 steps of 1 us and NCCL's 1 us, and 8 us of launch.
  CHECK((nccl_time(op) - wire_time(op)).value() == Approx(8e-6 + 14 * 2e-6));
}

TEST_CASE("rings over nodes share the NICs of all ranks of a node") {
  Collective op{.bytes = Bytes(1e9),
                .ranks = 16,
                .ranks_per_node = 8,
                .gpu_link = link(450, 1),
                .network = link(50, 5)};
  // 2 x 15/16 GB leave each node over 8 x 50 GB/s: 4.69 ms; NVLink's 4.17 ms is shorter.
  CHECK(wire_time(op).value() == Approx(2 * 15.0 / 16 * 1e9 / 400e9));
  op.kind = CollectiveKind::all_gather;
  CHECK(wire_time(op).value() == Approx(15.0 / 16 * 1e9 / 400e9));
  op.kind = CollectiveKind::all_to_all;  // each rank sends half of its vector to the other node
  CHECK(wire_time(op).value() == Approx(0.5 * 1e9 / 50e9));
  op = {
      .bytes = Bytes(1e9), .ranks = 4, .ranks_per_node = 1, .gpu_link = link(450, 1), .network = link(50, 5)};
  CHECK(wire_time(op).value() == Approx(2 * 3.0 / 4 * 1e9 / 50e9));
}

TEST_CASE("over nodes a ring takes a step for every rank, an all-reduce one for every level of a tree") {
  Collective op{.kind = CollectiveKind::all_gather,
                .bytes = Bytes(1e6),
                .ranks = 64,
                .ranks_per_node = 8,
                .gpu_link = link(450, 1),
                .network = link(50, 2)};
  const auto latency = [&] { return (nccl_time(op) - wire_time(op)).value(); };
  // 63 steps of 1 us and four latencies of 2 us, and 8 us of launch.
  CHECK(latency() == Approx(8e-6 + 63 * 9e-6));
  op.kind = CollectiveKind::all_reduce;
  // Up and down: 3 levels of 8 nodes, and 7 GPUs below each at 1 us and a latency of 1 us.
  CHECK(latency() == Approx(8e-6 + 2 * (3 * 9e-6 + 7 * 2e-6)));
  op.ranks = 2;
  op.ranks_per_node = 1;
  CHECK(latency() == Approx(8e-6 + 2 * 9e-6));  // two nodes of one GPU: the ring is the tree
}
