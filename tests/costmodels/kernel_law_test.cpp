// What limits memory-bound kernels that are timed alone.
#include "costmodels/models/kernel_law.hpp"

#include <array>
#include <cmath>

#include "platforms/errors.hpp"
#include "tests/catch.hpp"

using namespace orrery;

TEST_CASE("a law of lone kernels fitted on two GPUs predicts a third, whatever limits each") {
  // Times by the law itself, from 1 MiB, which every cache holds, to 1 GiB. 6 bytes a clock bind rope on A100
  // and H100, the bandwidth on A40; additions are bound by memory or cache everywhere.
  KernelLaw truth{.bandwidth_share = 0.8, .cached_share = 0.5, .cache_bytes_per_clock = 15};
  truth.paces[pace_index(MemoryKernel::rope, Direction::forward)] = {6, 5000};
  truth.paces[pace_index(MemoryKernel::residual, Direction::forward)].launch_clocks = 2000;
  const std::array names{"A100", "H100", "A40"};
  const auto held_out = GENERATE(values<std::size_t>({0, 1, 2}));
  std::vector<KernelTime> rows;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const GpuSpec& gpu = find_gpu(names[i], "test");
    if (i == held_out) continue;
    for (int half = 40; half <= 60; ++half) {
      for (const auto kernel : {MemoryKernel::rope, MemoryKernel::residual}) {
        const Bytes bytes(std::exp2(half / 2.0));
        const Seconds time = law_time(truth, {.kernel = kernel, .bytes = bytes}, gpu);
        rows.push_back({kernel, bytes, &gpu, time});
      }
    }
  }
  const KernelLaw law = fit_law(rows);
  const GpuSpec& unseen = find_gpu(names[held_out], "test");
  for (const auto kernel : {MemoryKernel::rope, MemoryKernel::residual}) {
    for (const double bytes : {1e6, 2e7, 1e9}) {
      const LoneKernel op{.kernel = kernel, .bytes = Bytes(bytes)};
      INFO(names[held_out] << ' ' << to_text(kernel) << ' ' << bytes);
      CHECK(law_time(law, op, unseen) / law_time(truth, op, unseen) == Approx(1).epsilon(0.1));
    }
  }
  CHECK(law.paces[pace_index(MemoryKernel::norm, Direction::forward)] == LonePace{});
}

TEST_CASE(
    "inline ECC takes a sixteenth of the bandwidth, and an addition far beyond the cache takes nothing "
    "else") {
  GpuSpec card = find_gpu("A40", "test");
  REQUIRE(card.inline_ecc);
  KernelLaw law;
  law.paces[pace_index(MemoryKernel::residual, Direction::forward)].launch_clocks = 1e-9;
  const LoneKernel add{.kernel = MemoryKernel::residual, .bytes = Bytes(64e9)};
  const double at_full_bandwidth = 64e9 / 696e9;
  CHECK(law_time(law, add, card).value() == Approx(at_full_bandwidth * 16 / 15 / 0.88).epsilon(1e-3));
  card.inline_ecc = false;
  CHECK(law_time(law, add, card).value() == Approx(at_full_bandwidth / 0.88).epsilon(1e-3));
  CHECK_FALSE(find_gpu("A100", "test").inline_ecc);
}

TEST_CASE("the law of kernels is written and read without loss of its first six digits") {
  KernelLaw law{.bandwidth_share = 0.875, .cached_share = 1.25, .cache_bytes_per_clock = 17.5};
  law.paces[3] = {2.25, 4000};
  CHECK(parse_law(to_text(law), "test") == law);
  CHECK_THROWS_AS(parse_law("0.9 1 20 6", "test"), InputError);
  CHECK_THROWS_AS(parse_law("0.9 -1" + to_text(law), "test"), InputError);
}
