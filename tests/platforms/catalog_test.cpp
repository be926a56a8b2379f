#include <algorithm>
#include <cctype>
#include <set>

#include "platforms/gpu.hpp"
#include "platforms/instance.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

using namespace orrery;

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

const GpuSpec& gpu(const std::string& name) {
  return find_gpu(name, "test");
}

}  // namespace

TEST_CASE("no GPU name or alias stands twice in the catalog") {
  std::set<std::string> seen;
  for (const GpuSpec& spec : gpu_catalog()) {
    INFO(spec.name);
    CHECK(seen.insert(lower(spec.name)).second);
    for (const std::string& alias : spec.aliases) {
      INFO(alias);
      CHECK(seen.insert(lower(alias)).second);
    }
  }
  CHECK(gpu_catalog().size() == 76);
}

TEST_CASE("no instance name or alias stands twice in the catalog") {
  std::set<std::string> seen;
  for (const InstanceSpec& spec : instance_catalog()) {
    INFO(spec.name);
    CHECK(seen.insert(lower(spec.name)).second);
    for (const std::string& alias : spec.aliases) CHECK(seen.insert(lower(alias)).second);
  }
  CHECK(instance_catalog().size() == 76);
}

TEST_CASE("short names mean the card that people mean by them") {
  CHECK(gpu("H100").name == "H100-SXM5-80GB");
  CHECK(gpu("h100-sxm").name == "H100-SXM5-80GB");
  CHECK(gpu("A100").name == "A100-SXM4-80GB");
  CHECK(gpu("A100-80GB").name == "A100-SXM4-80GB");
  CHECK(gpu("a100-40gb").name == "A100-SXM4-40GB");
  CHECK(gpu("V100").name == "V100-SXM2-32GB");
  CHECK(gpu("B200").name == "B200-SXM");
  CHECK(gpu("T4").name == "T4");
}

TEST_CASE("an unknown GPU or instance is refused with the nearest name") {
  CHECK(contains(input_error([] { find_gpu("H10O", "c.yaml:3: gpu"); }),
                 "c.yaml:3: gpu: found the unknown GPU 'H10O', did you mean 'H100'?"));
  CHECK(contains(input_error([] { find_instance("p5.48xlrage", "here"); }), "did you mean 'p5.48xlarge'?"));
}

TEST_CASE("the numbers of the data sheets are there") {
  const GpuSpec& h100 = gpu("H100");
  CHECK(h100.bf16 == teraflops(989));  // dense
  CHECK(h100.fp8 == teraflops(1979));
  CHECK(h100.memory == gibibytes(80));
  CHECK(h100.memory_bandwidth == gigabytes_per_second(3350));
  CHECK(h100.link_bandwidth == gigabytes_per_second(450));  // 900 both directions together
  CHECK(h100.multiprocessors == 132);
  CHECK(h100.l2_cache == Bytes(50 * kMebi));
  CHECK(h100.power == Watts(700));
  const GpuSpec& t4 = gpu("T4");
  CHECK_FALSE(peak(t4, DataType::bf16).has_value());
  CHECK(peak(t4, DataType::fp16) == teraflops(65));
  CHECK(t4.link == "PCIe 3.0 x16");
  CHECK(t4.link_bandwidth == gigabytes_per_second(16));
}

TEST_CASE("peaks of cards of one architecture are their units times clock times what the architecture does") {
  // MI355X has 256 compute units at 2.4 GHz, MI350X as many at 2.2.
  for (const DataType type : {DataType::fp32, DataType::fp16, DataType::bf16, DataType::fp8, DataType::fp4})
    CHECK(*peak(gpu("MI350X"), type) / *peak(gpu("MI355X"), type) == Approx(2.2 / 2.4).epsilon(1e-3));
  // RTX 5090 has 21,760 cores at 2.407 GHz, RTX 5060 Ti 4,608 at 2.572.
  for (const DataType type : {DataType::fp32, DataType::fp16, DataType::bf16, DataType::fp8, DataType::fp4})
    CHECK(*peak(gpu("RTX 5060 Ti"), type) / *peak(gpu("RTX 5090"), type) ==
          Approx(4608 * 2.572 / (21760 * 2.407)).epsilon(2e-3));
  // 120 units of 1,024 FLOPs in fp16, of 256 in fp32, a clock of 1.502 GHz; half as many in bf16.
  CHECK(peak(gpu("MI100"), DataType::fp16)->value() == Approx(120 * 1024 * 1.502e9).epsilon(1e-3));
  CHECK(peak(gpu("MI100"), DataType::fp32)->value() == Approx(120 * 256 * 1.502e9).epsilon(1e-3));
  CHECK(*peak(gpu("MI100"), DataType::bf16) * 2 == *peak(gpu("MI100"), DataType::fp16));
}

TEST_CASE("every GPU is whole: speeds in order, numbers within what has been built") {
  for (const GpuSpec& spec : gpu_catalog()) {
    INFO(spec.name);
    CHECK(spec.fp16.has_value());
    // CDNA's matrix units of 2020 do half as many FLOPs in bf16 (AMD's data sheet of MI100).
    if (spec.bf16) CHECK(*spec.bf16 >= *spec.fp16 * (spec.name == "MI100" ? 0.5 : 0.99));
    if (spec.fp8) CHECK(*spec.fp8 / *spec.fp16 == Approx(2).epsilon(0.03));  // half the bits, twice the rate
    CHECK(spec.memory >= gibibytes(8));
    CHECK(spec.memory <= gibibytes(512));
    CHECK(spec.memory_bandwidth >= gigabytes_per_second(200));
    CHECK(spec.memory_bandwidth <= gigabytes_per_second(10'000));
    CHECK(spec.link_bandwidth >= gigabytes_per_second(16));
    CHECK(spec.link_bandwidth <= gigabytes_per_second(900));
    CHECK(spec.multiprocessors >= 22);
    CHECK(spec.l2_cache >= Bytes(3 * kMebi));
    CHECK(spec.power >= Watts(70));
    CHECK_FALSE(spec.architecture.empty());
    const bool says_evidence = contains(spec.source, "(seen)") || contains(spec.source, "(recalled)");
    CHECK(says_evidence);
  }
}

TEST_CASE("cards with GA100 are told from Ampere's others") {
  // 64 fp32 lanes a multiprocessor, 128 in GA10x (white papers): what they give at the boost clock of 1.3
  // to 1.9 GHz.
  for (const GpuSpec& spec : gpu_catalog()) {
    if (spec.architecture != "Ampere") continue;
    INFO(spec.name);
    const double clock = spec.fp32->value() / (2.0 * spec.multiprocessors * (is_ga100(spec) ? 64 : 128));
    CHECK(clock > 1.3e9);
    CHECK(clock < 1.9e9);
  }
  CHECK_FALSE(is_ga100(gpu("V100")));
}

TEST_CASE("all cards of the chips that throttle say how far") {
  for (const GpuSpec& spec : gpu_catalog()) {
    INFO(spec.name);
    if (spec.bf16 && *spec.bf16 >= teraflops(900)) CHECK(spec.sustained != 1.0);
  }
}

TEST_CASE("every instance names a GPU of the catalog and dates its prices") {
  for (const InstanceSpec& spec : instance_catalog()) {
    INFO(spec.name);
    CHECK(gpu(spec.gpu).name == spec.gpu);
    CHECK(spec.gpus % spec.nics == 0);
    CHECK_FALSE(spec.prices.empty());
    std::set<std::string> regions;
    for (const InstancePrice& price : spec.prices) {
      CHECK(regions.insert(price.region).second);
      CHECK_FALSE(price.date.empty());
      CHECK_FALSE(price.source.empty());
      REQUIRE(price.on_demand.has_value());
      if (price.reserved_1y) CHECK(*price.reserved_1y < *price.on_demand);
      if (price.spot) CHECK(*price.spot < *price.on_demand);
    }
  }
}

TEST_CASE("instances carry the memory variant that the provider rents") {
  CHECK(find_instance("p3.16xlarge", "").gpu == "V100-SXM2-16GB");
  CHECK(find_instance("p3dn.24xlarge", "").gpu == "V100-SXM2-32GB");
  CHECK(find_instance("p4d.24xlarge", "").gpu == "A100-SXM4-40GB");
  CHECK(find_instance("p4de.24xlarge", "").gpu == "A100-SXM4-80GB");
  CHECK(find_instance("Standard_NC96ads_A100_v4", "").gpu == "A100-PCIe-80GB");
  CHECK(find_instance("gpu_1x_rtx6000", "").gpu == "Quadro RTX 6000");
  CHECK(find_instance("gpu_1x_a6000", "").gpu == "RTX A6000");
  CHECK(find_instance("g5.48xlarge", "").gpu == "A10G");
}

TEST_CASE("NICs and list prices are those of the sources") {
  const InstanceSpec& p5 = find_instance("aws-h100", "");
  CHECK(p5.name == "p5.48xlarge");
  CHECK(p5.network == gigabits_per_second(3200));
  CHECK(p5.nics == 8);
  CHECK(p5.prices[0].region == "us-east-1");
  CHECK(p5.prices[0].on_demand == DollarsPerHour(55.04));
  CHECK_FALSE(p5.prices[0].spot.has_value());
  CHECK(p5.prices[0].date == "2026-01-21");
  CHECK_FALSE(find_instance("Standard_NC6s_v3", "").network.has_value());
}

TEST_CASE("a doubtful price keeps its warning and is never the default row") {
  const InstanceSpec& spec = find_instance("gcp-h100", "");
  CHECK(spec.prices[0].region == "us-east4");
  CHECK(spec.prices.back().region == "us-central1");
  CHECK(contains(spec.prices.back().source, "do not use without checking"));
}

TEST_CASE("elements have the size of their bits") {
  CHECK(size_of(DataType::fp32) == Bytes(4));
  CHECK(size_of(DataType::tf32) == Bytes(4));
  CHECK(size_of(DataType::fp16) == Bytes(2));
  CHECK(size_of(DataType::bf16) == Bytes(2));
  CHECK(size_of(DataType::fp8) == Bytes(1));
  CHECK(to_text(DataType::bf16) == "bf16");
}
