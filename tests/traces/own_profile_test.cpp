#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <tuple>

#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/traces/scratch_folder.hpp"
#include "traces/profile_reader.hpp"

using namespace orrery;

namespace {

const std::string kHeader =
    "gpu,dtype,family,op,pass,model,batch,M,N,K,heads,kv_heads,head_dim,query,keys,causal,bytes,ranks,ranks_"
    "per_node,time_us,"
    "p10_us,p90_us,repetitions,clock,status,script\n";

std::string gemm_row(const std::string& pass, const std::string& time,
                     const std::string& rest = "events,ok,2") {
  return "NVIDIA H100 80GB HBM3,bf16,gemm,linear," + pass + ",llama,1,1024,6144,2048,,,,,,,,,," + time +
         ",1,2,20," + rest + "\n";
}

Profiles read(const ScratchFolder& folder, const std::string& rows,
              InventedTimes invented = InventedTimes::refused) {
  std::ofstream(folder.file("orrery_profile.csv"), std::ios::binary) << kHeader << rows;
  return read_profiles(folder.file(""), invented);
}

}  // namespace

TEST_CASE("the gradients of a layer keep their own shapes") {
  const ScratchFolder folder;
  const Profiles profiles =
      read(folder, gemm_row("forward", "50") + gemm_row("dgrad", "51") + gemm_row("wgrad", "52"));
  REQUIRE(profiles.gemms.size() == 3);
  const auto& [forward, input, weight] = std::tie(profiles.gemms[0], profiles.gemms[1], profiles.gemms[2]);
  CHECK(forward.gpu == "H100-SXM5-80GB");
  CHECK(std::array{forward.m, forward.n, forward.k} == std::array<std::int64_t, 3>{1024, 6144, 2048});
  // dx [M, K] = dy [M, N] W: N is summed over. dW: M is.
  CHECK(std::array{input.m, input.n, input.k} == std::array<std::int64_t, 3>{1024, 2048, 6144});
  CHECK(input.pass == GemmPass::input_gradient);
  CHECK(weight.k == 1024);
  CHECK(weight.m * weight.n == 6144 * 2048);
  CHECK(weight.pass == GemmPass::weight_gradient);
  CHECK(weight.time.value() == Approx(52e-6));
}

TEST_CASE("kernels, attention and collectives of one's own table") {
  const ScratchFolder folder;
  const Profiles profiles = read(
      folder,
      "NVIDIA A100-SXM4-80GB,bf16,kernel,copy,forward,width "
      "2048,,64,2048,,,,,,,,524288,,,5,4,6,20,events,ok,2\n"
      "NVIDIA A100-SXM4-80GB,bf16,kernel,norm,backward,width "
      "2048,,64,2048,,,,,,,,786432,,,6,4,7,20,events,ok,2\n"
      "NVIDIA "
      "A100-SXM4-80GB,bf16,attention,flash,backward,,16,,,,16,4,128,1024,1024,1,,,,900,890,910,20,events,ok,"
      "2\n"
      "NVIDIA A100-SXM4-80GB,fp32,collective,all_gather,,,,,,,,,,,,,1048576,8,8,40,39,41,20,events,ok,2\n");
  REQUIRE(profiles.kernels.size() == 2);
  CHECK(profiles.kernels[0].bytes.value() == 524288);
  CHECK_FALSE(profiles.kernels[0].backward);
  CHECK(profiles.kernels[0].program == KernelProgram::inference);
  CHECK(profiles.kernels[1].op == "norm");
  // PyTorch's norm is training's, but no host's time is in it: short ones teach as well.
  CHECK(profiles.kernels[1].program == KernelProgram::training);
  CHECK(profiles.kernels[1].timed == TimedAs::kernel);
  CHECK(profiles.kernels[1].backward);
  REQUIRE(profiles.attentions.size() == 1);
  CHECK(profiles.attentions[0].causal);
  CHECK(profiles.attentions[0].backward);
  CHECK(profiles.attentions[0].kernel == "flash");
  CHECK(profiles.attentions[0].kv_heads == 4);
  REQUIRE(profiles.collectives.size() == 1);
  CHECK(profiles.collectives[0].gpu_link.bandwidth.value() == 300e9);  // NVLink 3 of the catalog
}

TEST_CASE("fused attention is what programs take for the best one on its GPU, or another kernel, or none") {
  const ScratchFolder folder;
  const auto row = [](const char* gpu, const char* op, const char* version) {
    return std::string(gpu) + ",bf16,attention," + op +
           ",forward,,16,,,,16,16,128,1024,1024,1,,,,900,890,910,20,events,ok," + version + "\n";
  };
  std::string good;
  for (int i = 0; i < 60; ++i) good += gemm_row("forward", std::to_string(50 + i));
  const char *h200 = "NVIDIA H200", *a100 = "NVIDIA A100-SXM4-80GB";
  const Profiles profiles =
      read(folder, good + row(h200, "cudnn", "3") + row(h200, "flash2", "3") + row(h200, "flash", "2") +
                       row(a100, "flash2", "3") + row(a100, "cudnn", "3") + row(a100, "flash3", "3"));
  std::vector<std::string> kernels;
  for (const auto& attention : profiles.attentions) kernels.push_back(attention.kernel);
  CHECK(kernels == std::vector<std::string>{"flash", "flash2", "flash", "flash"});
  CHECK(profiles.files[0].skipped ==
        std::map<std::string, std::int64_t>{{"unreadable", 1},
                                            {"cuDNN's attention, which no program takes on Ampere", 1}});
}

TEST_CASE("a loss reads logits, writes log-probabilities, and its gradient besides zeros, in every version") {
  const ScratchFolder folder;
  const auto row = [](const char* pass, const char* bytes, const char* version) {
    return std::string("NVIDIA A100-SXM4-80GB,bf16,kernel,cross_entropy,") + pass +
           ",width 2048,,64,2048,,,,,,,," + bytes + ",,,5,4,6,20,events,ok," + version + "\n";
  };
  const Profiles profiles = read(
      folder, row("forward", "262144", "2") + row("backward", "524288", "2") + row("forward", "524289", "3"));
  std::vector<double> bytes;
  for (const auto& kernel : profiles.kernels) bytes.push_back(kernel.bytes.value());
  // 64 x 2048 logits of 2 B: two tensors, then four.
  CHECK(bytes == std::vector<double>{2 * 262144, 4 * 262144, 524289});
}

TEST_CASE("failed, repeated and foreign rows of one's own table are counted by reason") {
  const ScratchFolder folder;
  std::string good;
  for (int i = 0; i < 60; ++i) good += gemm_row("forward", std::to_string(50 + i));
  const Profiles profiles =
      read(folder, good + gemm_row("forward", "", "events,out of memory,2") + gemm_row("forward", "50") +
                       gemm_row("forward", "nan") + gemm_row("sideways", "50") + "Abacus" +
                       gemm_row("forward", "77").substr(21));
  CHECK(profiles.files[0].used == 60);
  CHECK(profiles.files[0].skipped ==
        std::map<std::string, std::int64_t>{{"status out of memory", 1},
                                            {"duplicate of an earlier row", 1},
                                            {"unreadable", 2},
                                            {"GPU 'Abacus' is not in the catalog (`orrery catalog gpus`): "
                                             "describe it in a cluster file and give --cluster",
                                             1}});
}

TEST_CASE("passes, masks, heads and ranks of one's own table are whole and known, or the row is unreadable") {
  const ScratchFolder folder;
  const auto attention = [](const char* pass, const char* heads, const char* causal) {
    return std::string("NVIDIA A100-SXM4-80GB,bf16,attention,flash,") + pass + ",,16,,,," + heads +
           ",128,1024,1024," + causal + ",,,,900,890,910,20,events,ok,2\n";
  };
  const auto kernel = [](const char* pass) {
    return std::string("NVIDIA A100-SXM4-80GB,bf16,kernel,copy,") + pass +
           ",width 2048,,64,2048,,,,,,,,524288,,,5,4,6,20,events,ok,2\n";
  };
  const auto gather = [](const char* ranks) {
    return std::string("NVIDIA A100-SXM4-80GB,fp32,collective,all_gather,,,,,,,,,,,,,1048576,") + ranks +
           ",8,40,39,41,20,events,ok,2\n";
  };
  std::string rows = attention("forward", "16,4", "0") + kernel("forward") + gather("8");
  for (int i = 0; i < 160; ++i) rows += gemm_row("forward", std::to_string(50 + i));
  const Profiles profiles = read(
      folder, rows + attention("sideways", "16,4", "1") + attention("forward", "16,64", "1") +
                  attention("forward", "16,4", "yes") + kernel("sideways") + gather("2.5") + gather("1"));
  CHECK(profiles.files[0].used == 163);
  CHECK(profiles.files[0].skipped ==
        std::map<std::string, std::int64_t>{{"unreadable", 4},
                                            {"a collective of one rank, which moves nothing", 1},
                                            {"unreadable: a size that is no whole number up to 1e9", 1}});
}

TEST_CASE("invented times and rows of another script are refused") {
  const ScratchFolder folder;
  const std::string invented = gemm_row("forward", "50", "invented,ok,2");
  CHECK_THROWS_WITH(read(folder, invented), contains_text("--dry-run"));
  CHECK(read(folder, invented, InventedTimes::taken).gemms.size() == 1);
  CHECK_THROWS_WITH(read(folder, gemm_row("forward", "50", "events,ok,99")),
                    contains_text("script version 99"));
}

namespace {

// As nccl-tests 2.14 print it.
std::string nccl_text(const std::string& hosts, const std::string& remark = "") {
  std::string text = "# Collective test starting: reduce_scatter_perf\n# nThread 1 nGpus 1\n" + remark +
                     "#\n# Using devices\n";
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    text += "#  Rank  " + std::to_string(rank) + " Group  0 Pid  1 on " + "node" + hosts[rank] +
            " device  0 [0x07] NVIDIA H100 80GB HBM3\n";
  }
  return text +
         "#                                                              out-of-place                       "
         "in-place\n"
         "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   "
         "algbw   busbw #wrong\n"
         "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  "
         "(GB/s)  (GB/s)\n"
         "           0             0     float     sum      -1     0.15    0.00    0.00      0     0.14    "
         "0.00    0.00      0\n"
         "    67108864       4194304     float     sum      -1    170.5   393.6   295.2      0    171.0   "
         "392.4   294.3      0\n"
         "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 147.6\n";
}

}  // namespace

TEST_CASE("the output of nccl-tests is read: operation, ranks per host, time out of place") {
  const ScratchFolder folder;
  std::ofstream(folder.file("run.log")) << nccl_text("aaaa");
  const Profiles profiles = read_profiles(folder.file(""));
  REQUIRE(profiles.collectives.size() == 1);
  const auto& row = profiles.collectives[0];
  CHECK(row.op == "reduce_scatter");
  CHECK(row.ranks == 4);
  CHECK(row.ranks_per_node == 4);
  CHECK(row.bytes.value() == 67108864);
  CHECK(row.time.value() == Approx(170.5e-6));
  CHECK(row.gpu_link.bandwidth.value() == 450e9);
  CHECK(profiles.files[0].skipped == std::map<std::string, std::int64_t>{{"empty message", 1}});
}

TEST_CASE("over hosts nccl-tests' rows need to be told the network") {
  const ScratchFolder folder;
  std::ofstream(folder.file("run.txt")) << nccl_text("abab");
  CHECK(read_profiles(folder.file(""))
            .files[0]
            .skipped.at("network not known: add a line '# network_GBps N'") == 1);
  std::ofstream(folder.file("run.txt")) << nccl_text("abab", "# network_GBps 50\n");
  const Profiles profiles = read_profiles(folder.file(""));
  REQUIRE(profiles.collectives.size() == 1);
  CHECK(profiles.collectives[0].ranks_per_node == 2);
  CHECK(profiles.collectives[0].network.bandwidth.value() == 50e9);
  // 400 Gb/s, of which two ranks on a node have at most half of a node's 6,400.
  std::ofstream(folder.file("run.txt")) << nccl_text("aabb", "# network_GBps 3200\n");
  CHECK_THROWS_WITH(read_profiles(folder.file("")), contains_text("a network faster than the 400 GB/s that"));
  std::ofstream(folder.file("run.txt")) << nccl_text("aaab", "# network_GBps 50\n");
  CHECK(read_profiles(folder.file("")).files[0].skipped.at("ranks not spread evenly over their hosts") == 1);
}

TEST_CASE("a run of nccl-tests over GPUs of several kinds is left out and says which") {
  const ScratchFolder folder;
  const auto file_of = [&](const std::string& third_gpu) {
    std::string text = nccl_text("aaaa");
    std::size_t name = 0;
    for (int rank = 0; rank < 3; ++rank) name = text.find("NVIDIA H100 80GB HBM3", name + 1);
    std::ofstream(folder.file("run.log")) << text.replace(name, 21, third_gpu);
    return read_profiles(folder.file("")).files[0];
  };
  CHECK(file_of("NVIDIA H100 80GB HBM3").used == 1);
  CHECK(file_of("H100-SXM5-80GB").used == 1);  // another name of the same
  for (const std::string other : {"NVIDIA A100-SXM4-80GB", "Abacus"}) {
    const ProfileFile file = file_of(other);
    CHECK(file.used == 0);
    CHECK(file.skipped.at("ranks on GPUs of several kinds, '" + other + "' and 'NVIDIA H100 80GB HBM3'") ==
          1);
    CHECK(file.skipped.at("empty message") == 1);
  }
}

TEST_CASE("runs of nccl-tests one after another keep their own ranks, hosts and operations") {
  const ScratchFolder folder;
  const std::string first = nccl_text("aaaa");
  std::string second = nccl_text("abab");
  // Versions before 2.15 do not say which test starts: the file's name does.
  second.erase(0, second.find('\n') + 1);
  // Without a first remark of its own the third run begins at its rank 0.
  std::string third = nccl_text("bb");
  third.erase(0, third.find("#  Rank"));
  std::ofstream(folder.file("all_gather.log")) << "# network_GBps 25\n" + first + second + third;
  const Profiles profiles = read_profiles(folder.file(""));
  REQUIRE(profiles.collectives.size() == 3);
  const auto shape = [&](std::size_t i) {
    const auto& row = profiles.collectives[i];
    return std::tuple(row.op, row.ranks, row.ranks_per_node);
  };
  CHECK(shape(0) == std::tuple("reduce_scatter", 4, 4));
  CHECK(shape(1) == std::tuple("all_gather", 4, 2));
  CHECK(shape(2) == std::tuple("all_gather", 2, 2));
  CHECK(profiles.collectives[1].network.bandwidth.value() == 25e9);
}

TEST_CASE("rows that nccl-tests' output holds twice teach once, and only where the same was measured") {
  const ScratchFolder folder;
  const auto file_of = [&](const std::string& text) {
    std::ofstream(folder.file("run.log")) << text;
    return read_profiles(folder.file("")).files[0];
  };
  // A run appended to itself: its row and its empty message again, in lines of their own.
  const std::string run = nccl_text("aaaa");
  const ProfileFile twice = file_of(run + run);
  CHECK(twice.used == 1);
  CHECK(twice.skipped ==
        std::map<std::string, std::int64_t>{{"duplicate of an earlier row", 1}, {"empty message", 2}});
  // The only taken row is third last of a run.
  const auto run_lines = static_cast<std::size_t>(std::count(run.begin(), run.end(), '\n'));
  CHECK(twice.first_line.at("duplicate of an earlier row") == 2 * run_lines - 2);
  // The same numbers of fewer ranks, of ranks on two hosts, and over a faster network.
  CHECK(file_of(run + nccl_text("aa")).used == 2);
  const std::string apart = nccl_text("abab", "# network_GBps 25\n");
  CHECK(file_of(run + apart + nccl_text("abab", "# network_GBps 50\n")).used == 3);
  CHECK(file_of(run + apart + apart).used == 2);
}

TEST_CASE("rows of nccl-tests that received wrong values are left out") {
  const ScratchFolder folder;
  const std::string good = nccl_text("aaaa");
  const auto with = [&](const std::string& out_of_place, const std::string& in_place) {
    std::string text = good;
    const std::size_t row = text.find("    67108864");
    const std::size_t first = text.find(" 0 ", row), second = text.find(" 0\n", row);
    text.replace(second, 2, " " + in_place).replace(first, 2, " " + out_of_place);
    std::ofstream(folder.file("run.log")) << text;
    return read_profiles(folder.file("")).files[0];
  };
  CHECK(with("N/A", "N/A").used == 1);
  for (const auto& file : {with("7", "0"), with("0", "7")}) {
    CHECK(file.used == 0);
    CHECK(file.skipped.at("wrong values were received (#wrong)") == 1);
  }
}
