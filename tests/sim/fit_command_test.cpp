// `orrery fit` on damaged tables: what is left out is counted by reason, what cannot be trusted is refused.
#include <zlib.h>

#include <cmath>
#include <filesystem>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "platforms/gpu.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/run_program.hpp"

using namespace orrery;

namespace {

using Json = nlohmann::json;

const std::string kHeader = "source,gpu,dtype,op,model,tp,batch,M,N,K,time_us\n";

std::string row(const std::string& gpu, int m, const std::string& time) {
  return "own," + gpu + ",bf16,up,a,1,1," + std::to_string(m) + ",4096,4096," + time + "\n";
}

// 200 GEMMs at 0.6 of the A100's 312 TFLOP/s; every time is a multiple of `scale`.
std::string gemms(double scale = 1, int count = 200) {
  std::string text = kHeader;
  for (int i = 1; i <= count; ++i)
    text += row("A100", 64 * i, std::to_string(scale * 2.0 * 64 * i * 4096 * 4096 / 312e6 / 0.6));
  return text;
}

}  // namespace

TEST_CASE("one bad row of a table is left out and counted by its reason, and the fit goes on") {
  struct Row {
    const char* bad;
    const char* reason;
  };
  const auto [bad, reason] = GENERATE(values<Row>({
      {"own,A100,bf16,up,a,1,1,64,4096,4096,nan\n", "unreadable"},
      {"own,A100,bf16,up,a,1,1,64,4096,4096,0\n", "unreadable"},
      {"own,A100,bf16,up,a,1,1,64,4096,4096,-5\n", "unreadable"},
      {"own,A100,bf16,up,a,1,1,many,4096,4096,5\n", "unreadable"},
      {"own,A100,bf16\n", "unreadable: more or fewer fields than the header"},
      {"own,A100,bf16,up,a,1,1,0.5,4096,4096,5\n", "unreadable: a size that is no whole number up to 1e9"},
      {"own,Abacus,bf16,up,a,1,1,64,4096,4096,5\n", "GPU not in the catalog"},
      {"own,A100,int4,up,a,1,1,64,4096,4096,5\n", "data type int4"},
      // 2 x 4096^3 FLOPs take 440 us at the peak: 0.7 is milliseconds, 700,000 nanoseconds.
      {"own,A100,bf16,up,a,1,1,4096,4096,4096,0.7\n", "faster than the data sheet allows"},
      {"own,A100,bf16,up,a,1,1,4096,4096,4096,700000\n", "hundreds of times slower than the data sheet"},
  }));
  CAPTURE(bad);
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  place.write("measured/gemm_long.csv", gemms() + bad);
  const ProgramResult result = place.run({"fit", "--profiles", "measured", "--json", "-o", "costs"});
  REQUIRE(result.code == 0);
  const Json report = Json::parse(result.out);
  const Json& input = report.at("inputs").at(0);
  CHECK(input.at("skipped").at(reason) == 1);
  CHECK(input.at("rows") == 201);
  CHECK(input.at("used") == 200);
  for (const Json& model : report.at("models")) CHECK(model.at("rows") <= 200);
}

TEST_CASE("what cannot be read is told with its column, and a table without a usable row with its path") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  place.write("measured/gemm_long.csv", gemms() + row("A100", 64, "-5") + row("A100", 64, "nan"));
  const ProgramResult result = place.run({"fit", "--profiles", "measured", "-o", "costs"});
  REQUIRE(result.code == 0);
  CHECK(contains(
      result.out,
      "left out, 2 rows of gemm_long.csv: unreadable, first in line 202: '-5' in column 'time_us'\n"));
  place.write("measured/gemm_long.csv", kHeader + row("Abacus", 64, "5"));
  check_refused(place.run({"fit", "--profiles", "measured", "-o", "costs"}),
                {"no usable row; 1 of measured/gemm_long.csv: GPU not in the catalog, first in line 2"});
}

TEST_CASE(
    "times that the data sheet rules out are named with their table and line, and not counted as taken") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  place.write(
      "measured/gemm_long.csv",
      gemms() + "own,A100,bf16,up,a,1,1,4096,4096,4096,0.7\nown,A100,bf16,up,a,1,1,4096,4096,4096,0.8\n");
  const ProgramResult result = place.run({"fit", "--profiles", "measured", "-o", "costs"});
  REQUIRE(result.code == 0);
  CHECK(contains(result.out, "took 200 measurements of 202 rows of gemm_long.csv\n"));
  CHECK(
      contains(result.out,
               "left out, 2 rows of gemm_long.csv: faster than the data sheet allows, first in line 202\n"));
}

TEST_CASE(
    "a folder of costs that answers nothing of a cluster is said to, with what was asked and what it holds") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  // 200 GEMMs of 512 x 512 at a fifth of the A100's peak: narrower than GPT-2 345M's 1024.
  std::string narrow = kHeader;
  for (int i = 1; i <= 200; ++i)
    narrow += "own,A100,bf16,up,a,1,1," + std::to_string(64 * i) + ",512,512," +
              std::to_string(2.0 * 64 * i * 512 * 512 / 312e6 / 0.2) + "\n";
  const auto fitted = [&](const std::string& table, const char* folder) {
    place.write("measured/gemm_long.csv", table);
    REQUIRE(place.run({"fit", "--profiles", "measured", "-o", folder}).code == 0);
  };
  fitted(gemms(), "wide");
  fitted(narrow, "narrow");
  const auto said = [&](const char* gpu, const char* costs, const char* more) {
    place.write("one.yaml", std::string("name: one\ngroups:\n  - {name: g, gpu: ") + gpu +
                                ", gpus_per_node: 2, count: 1, nic_bandwidth: 200Gbps}\n");
    place.write("plan.yaml",
                "model: gpt2-345m\ncluster: one.yaml\ndata: 2\nglobal_batch: 8\nsequence: 1024\nnodes: [1]\n"
                "stages: [{tensor: 1}]\nparts: [[0, 24]]\n");
    const ProgramResult result = place.run({"replay", "--plan", "plan.yaml", "--costs", costs, more});
    REQUIRE(result.code == 0);
    return result.err;
  };
  CHECK(said("A100-SXM4-80GB", "wide", "--json").empty());
  for (const auto& [gpu, folder, size] : {std::tuple{"H100-SXM5-80GB", "wide", "12800 x 4096 x 4096"},
                                          std::tuple{"A100-SXM4-80GB", "narrow", "12800 x 512 x 512"}}) {
    const std::string warning = said(gpu, folder, "--json");
    CAPTURE(warning);
    CHECK(contains(warning, std::string("--costs ") + folder + ": answers none of the "));
    CHECK(contains(warning, std::string(" operators of ") + gpu + "; it holds "));
    CHECK(contains(warning, std::string("gemm of A100-SXM4-80GB, up to ") + size));
    CHECK(said(gpu, folder, "--quiet").empty());
  }
}

TEST_CASE("a repeated row teaches once") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  const std::string table = gemms();
  place.write("measured/gemm_long.csv", table + table.substr(table.rfind('\n', table.size() - 2) + 1));
  const ProgramResult result = place.run({"fit", "--profiles", "measured", "--json", "-o", "costs"});
  REQUIRE(result.code == 0);
  CHECK(Json::parse(result.out).at("inputs").at(0).at("skipped").at("duplicate of an earlier row") == 1);
}

TEST_CASE("tables that cannot be trusted are refused, and nothing is written") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  const auto refused = [&](const std::string& table, const std::vector<std::string>& parts) {
    place.write("measured/gemm_long.csv", table);
    check_refused(place.run({"fit", "--profiles", "measured", "-o", "costs"}), parts);
    CHECK_FALSE(std::filesystem::exists(place.file("costs")));
  };
  refused(gemms(1e-3), {"200 of 200 GEMMs of 'own'", "times in microseconds"});  // milliseconds
  refused(gemms(1e3), {"200 of 200 GEMMs of 'own'", "times in microseconds"});   // nanoseconds
  std::string holes = gemms();
  for (int i = 0; i < 12; ++i) holes += row("A100", 64 + i, "nan");
  refused(holes, {"measured/gemm_long.csv: found 12 unreadable of 212", "line 202: 'nan' in column 'time_us'",
                  "at most 5 %"});
  refused("source,gpu,dtype,op,model,tp,batch,M,N,time_us\n",
          {"measured/gemm_long.csv: found no column 'K'"});
  refused(gemms(1, 59), {"59 usable rows", "at least 60"});
}

namespace {

// 3 x 21 collectives of eight GPUs, 1 KiB to 1 GiB at 0.7 of `link` GB/s and 20 us; sizes as multiples of
// `unit`, and the link as the table has it.
std::string collectives(double unit, double link = 300, const std::string& said_link = "300") {
  std::ostringstream text;
  text << "source,system,collective,n_ranks,ranks_per_node,bytes,time_us,status,link_GBps\n" << std::fixed;
  for (const char* op : {"all_reduce", "reduce_scatter", "all_gather"}) {
    const double passes = op == std::string("all_reduce") ? 1.75 : 0.875;
    for (int power = 10; power <= 30; ++power) {
      const double bytes = std::exp2(power);
      text << "own,mine," << op << ",8,8," << std::setprecision(0) << bytes / unit << ','
           << std::setprecision(3) << 20 + passes * bytes / (link * 1e3) / 0.7 << ",ok," << said_link << '\n';
    }
  }
  return text.str();
}

}  // namespace

TEST_CASE("links in Gb/s are refused where no GPU has such, and doubted where one has") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  const auto fit = [&](double link, const std::string& said_link, const char* output) {
    place.write("measured/collectives_long.csv", collectives(1, link, said_link));
    return place.run({"fit", "--profiles", "measured", "--json", "-o", output});
  };
  check_refused(fit(300, "2400", "costs"),
                {"collectives_long.csv", "63 unreadable of 63", "in line 2",
                 "a link faster than the 900 GB/s of any GPU", "an eighth of Gb/s"});
  CHECK_FALSE(std::filesystem::exists(place.file("costs")));
  // PCIe 4.0 of 32 GB/s called 256: 8 / 0.7 is above what is refused, 8 at the link's whole speed is not.
  check_refused(fit(32, "256", "costs"), {"in the median 11 times what their sizes take", "not Gb/s"});
  const ProgramResult doubted = fit(32 / 0.7, "256", "costs");
  CAPTURE(doubted.err);
  REQUIRE(doubted.code == 0);
  const std::string doubt =
      "in the median 8 times what their links take: are those in GB/s, an eighth of Gb/s,";
  CHECK(contains(doubted.err,
                 "orrery: collectives_long.csv: long times of collectives of 'own mine' are " + doubt));
  CHECK(contains(Json::parse(doubted.out).at("inputs").at(0).at("doubts").at(0), doubt));
  place.write("measured/collectives_long.csv", collectives(1, 32 / 0.7, "256"));
  CHECK(place.run({"fit", "--profiles", "measured", "--quiet", "-o", "costs"}).err.empty());
  const ProgramResult right = fit(32, "32", "right");
  CHECK(right.code == 0);
  CHECK_FALSE(contains(right.err, "Gb/s"));
  CHECK_FALSE(Json::parse(right.out).at("inputs").at(0).contains("doubts"));
}

TEST_CASE("sizes in another unit are refused by the median of the long times, and latency alone is not") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  const auto fit = [&](const std::string& table) {
    place.write("measured/collectives_long.csv", table);
    return place.run({"fit", "--profiles", "measured", "-o", "costs"});
  };
  check_refused(fit(collectives(1024)), {"collectives_long.csv", "collectives of 'own mine'", "in the median",
                                         "sizes in bytes (not KB or MB)"});
  CHECK_FALSE(std::filesystem::exists(place.file("costs")));
  CHECK(fit(collectives(1)).code == 0);
  // Small messages over a slow host: 300 us each, whatever their sizes, and one that was held up.
  std::string slow = "source,system,collective,n_ranks,ranks_per_node,bytes,time_us,status,link_GBps\n";
  for (int i = 1; i <= 60; ++i) slow += "own,mine,all_reduce,8,8," + std::to_string(i) + ",300,ok,300\n";
  slow += "own,mine,all_reduce,8,8,61,5000,ok,300\n";
  CHECK(fit(slow).code == 0);
}

TEST_CASE(
    "server cards are not half as fast again as their data sheet says, and cards with a display may be") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  const auto fit = [&](const std::string& gpu, double share) {
    const double speed = share * peak(find_gpu(gpu, "test"), DataType::bf16)->value();
    std::string table = kHeader;
    for (int m = 512; m < 512 + 64 * 100; m += 64)
      table += row(gpu, m, std::to_string(2.0 * m * 4096 * 4096 / speed * 1e6));
    place.write("measured/gemm_long.csv", table);
    return place.run({"fit", "--profiles", "measured", "-o", "costs"});
  };
  check_refused(fit("A100", 1.3), {"gemm_long.csv", "100 of 100 GEMMs of 'own'", "the first in line 2"});
  CHECK(fit("A100", 1.0).code == 0);
  CHECK(fit("RTX 4090", 1.3).code == 0);
}

TEST_CASE("a table cut inside its gzip is refused by name") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  const std::string path = place.file("measured/gemm_long.csv.gz"), table = gemms();
  const gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, table.data(), static_cast<unsigned>(table.size()));
  gzclose(file);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  check_refused(place.run({"fit", "--profiles", "measured", "-o", "costs"}),
                {"gemm_long.csv.gz", "truncated"});
}

TEST_CASE("a model that cannot get its name leaves no temporary file") {
  const Workplace place;
  for (const char* folder : {"measured", "costs", "costs/gemm-ampere-108.ubj"})
    std::filesystem::create_directory(place.file(folder));
  place.write("measured/gemm_long.csv", gemms());
  check_refused(place.run({"fit", "--profiles", "measured", "-o", "costs"}),
                {"costs/gemm-ampere-108.ubj", "Is a directory"});
  for (const auto& entry : std::filesystem::directory_iterator(place.file("costs")))
    CHECK(entry.path().filename() == "gemm-ampere-108.ubj");
}

TEST_CASE("sixty rows of one GPU are enough for the model of any GPU, and the report says what was read") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  place.write("measured/gemm_long.csv", gemms(1, 60));
  place.write("measured/gemm_long (1).csv", gemms(1, 60));
  const ProgramResult result = place.run({"fit", "--profiles", "measured", "-o", "costs"});
  REQUIRE(result.code == 0);
  CHECK(contains(result.out, "took 60 measurements of 60 rows of gemm_long.csv\n"));
  CHECK(contains(result.out, "not read, since no table has such a name: 'gemm_long (1).csv'\n"));
}

TEST_CASE("rows of a GPU that the catalog lacks are taken where a cluster file describes it") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  std::string table =
      "gpu,dtype,family,op,pass,model,batch,M,N,K,heads,kv_heads,head_dim,query,keys,causal,bytes,ranks,"
      "ranks_per_node,time_us,p10_us,p90_us,repetitions,clock,status,script\n";
  for (int i = 1; i <= 200; ++i)  // at 0.6 of 800 TFLOP/s
    table += "NVIDIA H200 NVL,bf16,gemm,up,forward,a,1," + std::to_string(64 * i) + ",4096,4096,,,,,,,,,," +
             std::to_string(2.0 * 64 * i * 4096 * 4096 / 800e6 / 0.6) + ",1,1,20,events,ok,2\n";
  place.write("measured/orrery_profile.csv", table);
  const auto cluster = [&](const std::string& name) {
    return place.write(name + ".yaml",
                       "groups: [{name: g, count: 1, gpus_per_node: 4, nic_bandwidth: 400Gbps, gpu: "
                       "{name: " +
                           name +
                           ", architecture: Hopper, memory: 141GiB, memory_bandwidth: "
                           "4800GBps, fp32: 60TFLOPS, bf16: 800TFLOPS, link_bandwidth: 450GBps, "
                           "multiprocessors: 100, l2_cache: 50MiB}}]\n");
  };
  const auto fit = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"fit", "--profiles", "measured", "--json", "-o", "costs"};
    words.insert(words.end(), more.begin(), more.end());
    return place.run(words);
  };
  const std::vector<std::string> not_known{
      "200 of measured/orrery_profile.csv: GPU 'NVIDIA H200 NVL' is not in the catalog",
      "describe it in a cluster file and give --cluster"};
  check_refused(fit({}), not_known);
  check_refused(fit({"--cluster", cluster("another")}), not_known);
  // By the driver's name, or without its maker.
  for (const std::string name : {"NVIDIA H200 NVL", "h200 nvl"}) {
    const ProgramResult result = fit({"--cluster", cluster("another"), "--cluster", cluster(name)});
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    const Json model = Json::parse(result.out).at("models").at(0);
    CHECK(model.at("file") == "gemm-hopper-100.ubj");
    CHECK(model.at("gpus") == Json::array({name}));
    CHECK(model.at("rows") == 200);
  }
  std::string other = place.read("another.yaml");
  place.write("two.yaml", other.replace(other.find("800T"), 4, "700T"));
  check_refused(fit({"--cluster", "another.yaml", "--cluster", "two.yaml"}),
                {"two.yaml", "the GPU 'another' with other numbers than before"});
}

TEST_CASE("GEMMs in columns of vidur's tables are named as not read, with the table that is") {
  const Workplace place;
  std::filesystem::create_directories(place.file("measured/h100/meta/Llama"));
  std::string table =
      "time_stats.mlp_act.mean,time_stats.mlp_up_proj.mean,time_stats.attn_pre_proj.mean,n_head,n_kv_head,"
      "n_embd,n_expanded_embd,use_gated_mlp,num_tokens,num_tensor_parallel_workers\n";
  for (int tokens = 64; tokens <= 64 * 70; tokens += 64)
    table += std::to_string(0.003 + tokens * 0.00004) + ",0.1,0.1,32,32,4096,11008,True," +
             std::to_string(tokens) + ",1\n";
  place.write("measured/h100/meta/Llama/mlp.csv", table);
  const ProgramResult result = place.run({"fit", "--profiles", "measured", "-o", "costs"});
  REQUIRE(result.code == 0);
  CHECK(contains(result.out,
                 "not read, GEMMs in columns of h100/meta/Llama/mlp.csv: attn_pre_proj, mlp_up_proj; their "
                 "table is gemm_long.csv\n"));
}

TEST_CASE("the same folder given twice teaches once") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  place.write("measured/gemm_long.csv", gemms());
  REQUIRE(place.run({"fit", "--profiles", "measured", "-o", "once"}).code == 0);
  const ProgramResult result =
      place.run({"fit", "--profiles", "measured", "--profiles", "measured", "--json", "-o", "twice"});
  REQUIRE(result.code == 0);
  const Json report = Json::parse(result.out);
  CHECK(report.at("inputs").at(1).at("skipped").at("measured alike in an earlier table") == 200);
  CHECK(place.read("once/gemm-any.ubj") == place.read("twice/gemm-any.ubj"));
}

TEST_CASE("a fit into the folder of an earlier one leaves no model of that behind") {
  const Workplace place;
  std::filesystem::create_directory(place.file("measured"));
  place.write("measured/gemm_long.csv", gemms());
  REQUIRE(place.run({"fit", "--profiles", "measured", "-o", "costs"}).code == 0);
  REQUIRE(std::filesystem::exists(place.file("costs/gemm-ampere-108.ubj")));
  place.write("costs/notes.ubj", "of someone else");
  place.write("measured/gemm_long.csv", gemms(1, 100));  // too few for a model of the chip's own
  REQUIRE(place.run({"fit", "--profiles", "measured", "-o", "costs"}).code == 0);
  CHECK_FALSE(std::filesystem::exists(place.file("costs/gemm-ampere-108.ubj")));
  CHECK(std::filesystem::exists(place.file("costs/gemm-any.ubj")));
  CHECK(std::filesystem::exists(place.file("costs/notes.ubj")));
}
