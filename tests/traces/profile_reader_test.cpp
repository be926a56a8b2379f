#include "traces/profile_reader.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/traces/profile_folder.hpp"
#include "traces/measured_once.hpp"

using namespace orrery;

namespace {

namespace fs = std::filesystem;

const std::string kOtherFields = "unreadable: more or fewer fields than the header";
const std::string kNoWholeSize = "unreadable: a size that is no whole number up to 1e9";
const std::string kNoWholeBytes = "unreadable: a size that is no whole number of bytes";

const std::string kGemmHeader = "source,gpu,dtype,op,model,tp,batch,M,N,K,time_us,direction,tflops\n";
const std::string kGoodGemm =
    "vidur,A100,fp16,attn_pre_proj,Qwen/Qwen-72B,1,1,4096,24576,8192,7306.0,fwd,225.74\n";

std::string good_gemms(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += "vidur,A100,fp16,attn_pre_proj,Qwen/Qwen-72B,1,1,4096,24576,8192," + std::to_string(7306 + i) +
            ",fwd,225.74\n";
  }
  return text;
}

}  // namespace

TEST_CASE("a GEMM table is read, plain and gzipped, with the catalog's names of GPUs") {
  const test::ProfileFolder folder;
  fs::create_directories(folder.at("a"));
  folder.write_gzip("a/gemm_long.csv.gz", kGemmHeader + kGoodGemm);
  folder.write(
      "b/gemm_long.csv",
      kGemmHeader + "DeepBench-train,NV_V100,FP16_ip_Mixed_math,gemm NN,,,1,1760,16,1760,20.0,fwd,4.9\n");
  const Profiles profiles = read_profiles(folder.name());
  REQUIRE(profiles.gemms.size() == 2);
  const auto& first = profiles.gemms[0];
  CHECK(first.gpu == "A100-SXM4-80GB");
  CHECK(first.m == 4096);
  CHECK(first.n == 24576);
  CHECK(first.k == 8192);
  CHECK(first.time.value() == Approx(7306e-6));
  CHECK(profiles.gemms[1].gpu == "V100-SXM2-16GB");
  CHECK(profiles.gemms[1].type == DataType::fp16);
  CHECK(profiles.files[0].name == "a/gemm_long.csv.gz");
}

TEST_CASE("rows that cannot be used are counted by reason") {
  const test::ProfileFolder folder;
  folder.write("gemm_long.csv", kGemmHeader + good_gemms(100) + good_gemms(1) +
                                    "vidur,A100,fp16,x,m,1,1,4096,24576,8192,nan,fwd,1\n"
                                    "vidur,A100,fp16,x,m,1,1,4096,24576,8192,0,fwd,1\n"
                                    "vidur,A100,fp16,x,m,1,1,4096,24576,8192,-3,fwd,1\n"
                                    "vidur,A100,fp16,x,m,1,1,4096,many,8192,1,fwd,1\n"
                                    "vidur,A100,fp16,x,m\n"
                                    "vidur,Abacus,fp16,x,m,1,1,4096,24576,8192,1,fwd,1\n"
                                    "vidur,A100,int8,x,m,1,1,4096,24576,8192,1,fwd,1\n");
  const Profiles profiles = read_profiles(folder.name());
  const auto& file = profiles.files.front();
  CHECK(file.rows == 108);
  CHECK(file.used == 100);
  CHECK(file.skipped == std::map<std::string, std::int64_t>{{"unreadable", 4},
                                                            {kOtherFields, 1},
                                                            {"duplicate of an earlier row", 1},
                                                            {"GPU not in the catalog", 1},
                                                            {"data type int8", 1}});
  // The header is line 1, a hundred good rows follow and one of them again.
  CHECK(file.first_line == std::map<std::string, std::size_t>{{"unreadable", 103},
                                                              {kOtherFields, 107},
                                                              {"duplicate of an earlier row", 102},
                                                              {"GPU not in the catalog", 108},
                                                              {"data type int8", 109}});
  CHECK(file.first_found == std::map<std::string, std::string>{{"unreadable", "'nan' in column 'time_us'"},
                                                               {kOtherFields, "5 fields, not 13"}});
}

TEST_CASE("errors name a table by the path that was given, and the first cell that cannot be read") {
  const test::ProfileFolder folder;
  const auto refusal = [&](const std::string& name, const std::string& text) {
    folder.write(name, text);
    try {
      read_profiles(folder.name());
    } catch (const InputError& error) {
      fs::remove(folder.at(name));
      CHECK(error.place == folder.at(name).string());
      return error.found;
    }
    return std::string("nothing");
  };
  const std::string good = kGemmHeader + good_gemms(10);  // up to line 11
  const auto first = [](const std::string& why) {
    return "1 unreadable of 11 measurements, the first in line 12" + why;
  };
  CHECK(refusal("a/gemm_long.csv", good + "vidur,A100,fp16,x,m,1,1,64,4k,8192,9.5,fwd,1\n") ==
        first(": '4k' in column 'N'"));
  CHECK(refusal("a/gemm_long.csv", good + "vidur,A100,fp16,x,m,1,1,64,0.5,8192,9.5,fwd,1\n") ==
        first(": a size that is no whole number up to 1e9, '0.5' in column 'N'"));
  CHECK(refusal("a/gemm_long.csv", good + "vidur,A100,fp16\n") ==
        first(": more or fewer fields than the header, 3 fields, not 13"));
  CHECK(refusal("collectives_long.csv",
                "source,system,collective,n_ranks,ranks_per_node,bytes,time_us,status,link_GBps\n"
                "own,mine,all_reduce,8,8,1048576,50,ok,0.001\n") ==
        "1 unreadable of 1 measurements, the first in line 2: a link below 0.01 GB/s, '0.001' in column "
        "'link_GBps'");
  CHECK(refusal("gemm_long.csv", "source\n") == "no column 'gpu'");
  CHECK(
      refusal(
          "mlp.csv",
          "num_tokens,num_tensor_parallel_workers,n_embd,n_expanded_embd,n_head,n_kv_head,use_gated_mlp\n") ==
      "no GPU in the path below the folder");
  // In nccl-tests' output titles are words of a remark.
  const std::string run =
      "# Rank  0 Pid  1 on  n device  0 [0x07] NVIDIA H100 80GB HBM3\n"
      "#       size         count      type   redop    root     time   algbw   busbw #wrong\n# "
      "out-of-place\n";
  CHECK(refusal("all_reduce.txt", run + " 1024 256 float sum -1 none 1 1 0\n") ==
        "1 unreadable of 1 measurements, the first in line 4: 'none' in column 'time'");
  CHECK(refusal("all_reduce.txt", run) == "no row of a size and its time");
}

TEST_CASE("a table with more than one unreadable row in twenty is refused") {
  const test::ProfileFolder folder;
  std::string short_rows;
  for (int i = 0; i < 10; ++i) short_rows += "vidur,A100,fp16," + std::to_string(i) + "\n";
  folder.write("gemm_long.csv", kGemmHeader + good_gemms(90) + short_rows);
  CHECK_THROWS_WITH(read_profiles(folder.name()),
                    contains_text("10 unreadable of 100 measurements, the first in line 92"));
}

TEST_CASE("a missing column and a truncated gzip are named") {
  const test::ProfileFolder folder;
  folder.write("gemm_long.csv", "source,gpu,dtype,op,model,tp,batch,M,N,KK,time_us\n");
  CHECK_THROWS_WITH(read_profiles(folder.name()), contains_text("gemm_long.csv: found no column 'K'"));
  fs::remove(folder.at("gemm_long.csv"));

  std::string rows = kGemmHeader;
  for (int i = 1; i < 20000; ++i)
    rows += "vidur,A100,fp16,x,m,1,1," + std::to_string(i * 7919 % 20011 + 1) + ",512,512,1.5,fwd,1\n";
  folder.write_gzip("gemm_long.csv.gz", rows);
  CHECK(read_profiles(folder.name()).gemms.size() == 19999);
  fs::resize_file(folder.at("gemm_long.csv.gz"), fs::file_size(folder.at("gemm_long.csv.gz")) / 2);
  CHECK_THROWS_WITH(read_profiles(folder.name()), contains_text("truncated"));
}

TEST_CASE("a table of several gzips is read whole, and one with something else behind is refused") {
  const test::ProfileFolder folder;
  const auto packed = [&](const std::string& text) {
    folder.write_gzip("part.gz", text);
    std::ifstream part(folder.at("part.gz"), std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(part), {}};
    fs::remove(folder.at("part.gz"));
    return bytes;
  };
  const auto read = [&](const std::string& bytes) {
    folder.write("gemm_long.csv.gz", bytes);
    return read_profiles(folder.name()).gemms.size();
  };
  const std::string table = packed(kGemmHeader + kGoodGemm), more = packed(good_gemms(3));
  CHECK(read(table) == 1);
  CHECK(read(table + more) == 4);
  CHECK(read(table + std::string(512, '\0')) == 1);
  for (const std::string& tail : {kGoodGemm, std::string("\n"), std::string(512, '\0') + "x"})
    CHECK_THROWS_WITH(read(table + tail),
                      contains_text("gemm_long.csv.gz: found bytes that are not gzipped after the end"));
  for (const std::string& tail : {more.substr(0, 1), more.substr(0, more.size() / 2)})
    CHECK_THROWS_WITH(read(table + tail), contains_text("truncated or corrupt gzip"));
  std::string wrong = more;
  wrong[more.size() - 6] = static_cast<char>(~wrong[more.size() - 6]);  // of its checksum
  CHECK_THROWS_WITH(read(table + wrong), contains_text("truncated or corrupt gzip"));
}

TEST_CASE("a folder without a known table is refused") {
  const test::ProfileFolder folder;
  folder.write("notes.txt", "nothing");
  CHECK_THROWS_WITH(read_profiles(folder.name()), contains_text("no known table beside 'notes.txt'"));
  CHECK_THROWS_AS(read_profiles(folder.name() + "/none"), InputError);
}

TEST_CASE("rows with shifted columns and sizes that are no counts are left out, named and counted") {
  const test::ProfileFolder folder;
  const std::string good = good_gemms(100);
  const auto skipped = [&](const std::string& row) {
    folder.write("gemm_long.csv", kGemmHeader + good + row + "\n");
    const ProfileFile file = read_profiles(folder.name()).files.front();
    CHECK(file.used == 100);
    REQUIRE(file.skipped.size() == 1);
    return *file.skipped.begin();
  };
  const auto times = [](const char* reason, std::int64_t count) {
    return std::pair<const std::string, std::int64_t>(reason, count);
  };
  // `4,096` without quotes: M would be 4, N 96, K 24576 and the time 8192 us.
  CHECK(skipped("vidur,A100,fp16,x,m,1,1,4,096,24576,8192,7306.0,fwd,225.74") ==
        times(kOtherFields.c_str(), 1));
  for (const char* size : {"0.5", "1.9", "1e30", "2e9"}) {
    INFO(size);
    CHECK(skipped(std::string("vidur,A100,fp16,x,m,1,1,") + size + ",24576,8192,7306.0,fwd,225.74") ==
          times(kNoWholeSize.c_str(), 1));
  }
}

TEST_CASE("counts of every table are whole") {
  const test::ProfileFolder folder;
  const auto skipped = [&](const char* name, const std::string& header, const std::string& good,
                           const std::string& bad) {
    std::string text = header + "\n";
    for (int i = 0; i < 40; ++i) text += good + std::to_string(i) + "\n";
    folder.write(name, text + bad + "0\n");
    const ProfileFile file = read_profiles(folder.name()).files.front();
    fs::remove(folder.at(name));
    return file.skipped;
  };
  const std::map<std::string, std::int64_t> one{{kNoWholeSize, 1}};
  CHECK(skipped("collectives_long.csv",
                "source,system,collective,n_ranks,ranks_per_node,bytes,time_us,status,link_GBps,notes",
                "own,mine,all_reduce,8,8,1048576,100,ok,300,",
                "own,mine,all_reduce,2.5,8,1048576,100,ok,300,") == one);
  CHECK(skipped("flash_attention_fwd_bwd.csv",
                "source,gpu,kernel,direction,batch,heads,kv_heads,seq_q,seq_kv,head_dim,causal,tflops,notes",
                "a,A100,FlashAttention-2,fwd,,,,1024,1024,128,no,180,",
                "a,A100,FlashAttention-2,fwd,1.5,,,1024,1024,128,no,180,") == one);
  CHECK(skipped("transformer_ops_fwd_bwd_long.csv",
                "source,gpu,dtype,model,mbs,tp,algo,op,fwd_us,bwd_us,input_MB,weights_MB,activations_MB,"
                "status,notes",
                "sailor,A100-40,fp16,GPT,1,1,0,enc-attention-qkv,453,430,20,37.5,30,ok,",
                "sailor,A100-40,fp16,GPT,1e30,1,0,enc-attention-qkv,453,430,20,37.5,30,ok,") == one);
}

TEST_CASE("collectives of one rank and GEMMs of an unknown direction are named and left out") {
  const test::ProfileFolder folder;
  using Skipped = std::map<std::string, std::int64_t>;
  folder.write("collectives_long.csv",
               "source,system,collective,n_ranks,ranks_per_node,bytes,time_us,status,link_GBps\n"
               "own,mine,all_reduce,8,8,1048576,50,ok,300\n"
               "own,mine,all_reduce,1,8,1048576,5,ok,300\n"
               "own,mine,send_recv,1,1,1048576,5,ok,300\n");
  folder.write("gemm_long.csv", kGemmHeader + kGoodGemm +
                                    "vidur,A100,fp16,x,m,1,1,4096,24576,8192,7306,,1\n" +
                                    "vidur,A100,fp16,x,m,1,1,4096,24576,8192,7306,forward,1\n" +
                                    "vidur,A100,fp16,x,m,1,1,4096,24576,8192,7306,bwd,1\n" +
                                    "vidur,A100,fp16,x,m,1,1,4096,24576,8192,7306,sideways,1\n");
  const Profiles profiles = read_profiles(folder.name());
  CHECK(profiles.collectives.size() == 1);
  CHECK(profiles.files[0].skipped == Skipped{{"a collective of one rank, which moves nothing", 2}});
  CHECK(profiles.files[0].first_line.at("a collective of one rank, which moves nothing") == 3);
  CHECK(profiles.gemms.size() == 3);
  CHECK(profiles.files[1].skipped == Skipped{{"direction 'bwd', where fwd alone is read", 1},
                                             {"direction 'sideways', where fwd alone is read", 1}});
}

namespace {

// Why the last of 41 collectives is left out.
std::map<std::string, std::int64_t> skipped_collective(const std::string& row) {
  const test::ProfileFolder folder;
  std::string text =
      "source,system,collective,n_ranks,ranks_per_node,bytes,time_us,status,link_GBps,network_GBps\n";
  for (int i = 1; i <= 40; ++i) text += "own,mine,all_reduce,8,8," + std::to_string(i) + ",50,ok,300,\n";
  folder.write("collectives_long.csv", text + row + "\n");
  return read_profiles(folder.name()).files.front().skipped;
}

}  // namespace

TEST_CASE("sizes in bytes are whole") {
  const auto skipped = [](const std::string& bytes) {
    return skipped_collective("own,mine,all_reduce,8,4," + bytes + ",50,ok,300,25");
  };
  CHECK(skipped("1048576").empty());
  for (const char* megabytes : {"0.5", "67.108864"})
    CHECK(skipped(megabytes) == std::map<std::string, std::int64_t>{{kNoWholeBytes, 1}});
}

TEST_CASE("links are no faster than data sheets, so that those in Gb/s are seen") {
  // Of eight ranks, four or one on a node.
  const auto why = [](const std::string& system, const std::string& per_node, const std::string& links) {
    const auto skipped =
        skipped_collective("own," + system + ",all_reduce,8," + per_node + ",1048576,50,ok," + links);
    return skipped.empty() ? std::string() : skipped.begin()->first;
  };
  const std::string of_any = "unreadable: a link faster than the 900 GB/s of any GPU in one direction (GB/s ";
  const std::string of_a100 =
      "unreadable: a link faster than the 300 GB/s of A100-SXM4-80GB in one direction ";
  // NVLink 3 of 300 GB/s and PCIe 4.0 of 32, over 200 and 400 Gb/s; B200's NVLink is the catalog's fastest.
  for (const char* links : {"300,25", "32,50", "900,100"}) CHECK(why("mine", "4", links).empty());
  for (const char* links : {"300,25", "300,100", "312,100"}) CHECK(why("A100", "4", links).empty());
  for (const char* links : {"2400,25", "300e9,25"})
    CHECK_THAT(why("mine", "4", links), contains_text(of_any));
  for (const char* links : {"2400,25", "600,25"}) CHECK_THAT(why("A100", "4", links), contains_text(of_a100));
  CHECK_THAT(why("RTX 4090", "4", "256,25"), contains_text("the 32 GB/s of RTX 4090"));
  // Eight GPUs share at most 6,400 Gb/s in a node, four of them twice 100 GB/s each, and one has all.
  CHECK_THAT(why("mine", "4", "300,400"), contains_text("a network faster than the 200 GB/s that a GPU has"));
  CHECK(why("mine", "1", "300,400").empty());
  for (const char* links : {"300,25e9", "300,0.001", "0.001,25"})
    CHECK_FALSE(why("mine", "1", links).empty());
}

TEST_CASE("a table of sizes in megabytes is refused with its first line and the reason") {
  const test::ProfileFolder folder;
  std::string text = "source,gpu,model,op,bytes,time_us\n";
  for (int i = 1; i < 40; ++i)
    text += "own,A100,m,norm," + std::to_string(0.3 * i) + "," + std::to_string(i) + "\n";
  folder.write("kernels_long.csv", text);
  CHECK_THROWS_WITH(read_profiles(folder.name()),
                    contains_text("the first in line 2: a size that is no whole number of bytes"));
}

TEST_CASE("a row that no one can read is no duplicate, however often it stands there") {
  const test::ProfileFolder folder;
  std::string nothing;
  for (int i = 0; i < 10; ++i) nothing += "vidur,A100,fp16,x,m,1,1,4096,24576,8192,nan,fwd,1\n";
  folder.write("gemm_long.csv", kGemmHeader + good_gemms(90) + nothing);
  CHECK_THROWS_WITH(read_profiles(folder.name()), contains_text("10 unreadable of 100"));
}

TEST_CASE("what an earlier table holds is not taken again, of the same folder or another one") {
  const test::ProfileFolder folder;
  const std::string table = kGemmHeader + good_gemms(50);
  folder.write("a/gemm_long.csv", table);
  folder.write_gzip("a/gemm_long.csv.gz", table);
  folder.write("b/gemm_long.csv", kGemmHeader + good_gemms(60));
  const Profiles profiles = read_profiles(folder.name());
  CHECK(profiles.gemms.size() == 60);
  const std::string reason = "measured alike in an earlier table";
  REQUIRE(profiles.files.size() == 3);
  CHECK(profiles.files[0].used == 50);
  CHECK(profiles.files[1].used == 0);
  CHECK(profiles.files[1].skipped.at(reason) == 50);
  CHECK(profiles.files[2].used == 10);

  MeasuredOnce known;
  CHECK(read_profiles(folder.name(), known, InventedTimes::refused).gemms.size() == 60);
  const Profiles again = read_profiles(folder.name(), known, InventedTimes::refused);
  CHECK(again.gemms.empty());
  CHECK(again.files[2].skipped.at(reason) == 60);
}

TEST_CASE("files that are no known table are named, but for those that `orrery profile` leaves") {
  const test::ProfileFolder folder;
  folder.write("gemm_long.csv", kGemmHeader + kGoodGemm);
  for (const char* name : {"gemm_long (1).csv", "orrery_profile (1).csv", "all_reduce.stdout", "machine.json",
                           "orrery_profile.py", "orrery_timing.py", "orrery_gpus.json"})
    folder.write(name, "whatever\n");
  CHECK(read_profiles(folder.name()).not_read ==
        std::vector<std::string>{"all_reduce.stdout", "gemm_long (1).csv", "orrery_profile (1).csv"});
}

TEST_CASE("cards are told by the names that drivers give them, where they are the catalog's") {
  const test::ProfileFolder folder;
  const auto gpu = [&](const std::string& name) {
    folder.write("gemm_long.csv", kGemmHeader + "own," + name + ",fp16,x,m,1,1,4096,24576,8192,7306,fwd,1\n");
    const Profiles profiles = read_profiles(folder.name());
    return profiles.gemms.empty() ? "none" : profiles.gemms[0].gpu;
  };
  CHECK(gpu("NVIDIA B300 SXM6 AC") == "B300-SXM");
  CHECK(gpu("NVIDIA GH200 120GB") == "GH200-96GB");
  CHECK(gpu("NVIDIA RTX 6000 Ada Generation") == "RTX 6000 Ada");
  CHECK(gpu("NVIDIA RTX PRO 6000 Blackwell Server Edition") == "RTX PRO 6000");
  CHECK(gpu("AMD Instinct MI300X VF") == "MI300X");
  // Half of a card, and cards of other clocks and links.
  CHECK(gpu("AMD Instinct MI250X/MI250") == "none");
  CHECK(gpu("NVIDIA H200 NVL") == "none");
  CHECK(gpu("Tesla V100-SXM3-32GB") == "none");
}
