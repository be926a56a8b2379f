// `orrery fit` on damaged tables: what is left out is counted by reason, what cannot be trusted is refused.
#include <zlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>

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
  refused(holes, {"12 unreadable of 212", "at most 5 %"});
  refused("source,gpu,dtype,op,model,tp,batch,M,N,time_us\n", {"gemm_long.csv", "no column 'K'"});
  refused(gemms(1, 59), {"59 usable rows", "at least 60"});
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
