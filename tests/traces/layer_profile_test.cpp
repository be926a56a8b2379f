#include "traces/layer_profile.hpp"

#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/traces/scratch_folder.hpp"
#include "traces/output_file.hpp"

namespace orrery {
namespace {

const std::string kMetis = R"({
  "model": {"model_name": "m", "num_layers": 4},
  "execution_time": {
	"total_time_ms": 100.0,
	"layer_compute_total_ms": [3, 30.0,
         60, 6]
  },
  "execution_memory": {"total_memory": 100, "layer_memory_total_mb": [10, 20, 30, 40]}
})";
const std::string kSailor =
    R"({"2": {"1": {"0": [0.1, 0.2, 0.5], "1": [1, 2, 0.5], "2": [3, 4, 0.5], "3": [0.3, 0.4, 0.25]}}})";
const std::string kAceso =
    "op_name,forward-compute,backward-compute,input_size,output_size,weights,activations\n"
    "encoder-embedding,100,200,1,1,1,1\nenc-1st-layernorm,10,20,1,1,1,1\nenc-attention-qkv,30,50,1,1,1,1\n"
    "final-layernorm,1,2,1,1,1,1\ngpt-post-process,4,5,1,1,1,1\n";

std::string amp_rows(const std::string& gpu, const std::vector<double>& times, int tensor = 1) {
  std::string text;
  for (std::size_t i = 0; i < times.size(); ++i) {
    text += "gpt2," + gpu + "," + std::to_string(tensor) + "," + std::to_string(i) + "," +
            std::to_string(times[i]) + "\n";
  }
  return text;
}
const std::string kAmpHeader = "model,gpu,tp,layer_index,time_s_raw\n";

LayerProfile profile_of(const ScratchFolder& folder, const std::string& name, const std::string& content) {
  write_file(folder.file(name), content);
  return read_layer_profile(folder.file(name));
}

void check_times(const LayerTimes& times, double forward, double backward) {
  CHECK(times.forward.value() == Approx(forward).epsilon(1e-12));
  REQUIRE(times.backward);
  CHECK(times.backward->value() == Approx(backward).epsilon(1e-12));
}

void check_forward(const LayerTimes& times, double forward) {
  CHECK(times == LayerTimes{Seconds(forward), std::nullopt, std::nullopt});
}

}  // namespace

TEST_CASE("a profile of Metis gives forward and backward together, in milliseconds, and memory") {
  const ScratchFolder folder;
  const LayerProfile profile = profile_of(folder, "DeviceType.A100_tp2_bs4.json", kMetis);
  REQUIRE(profile.tables.size() == 1);
  const LayerTable& table = profile.tables.front();
  CHECK(table.gpu == "A100");
  CHECK(table.model == "m");
  CHECK(table.tensor == 2);
  CHECK(table.micro_batch == 4);
  REQUIRE(table.layers.size() == 2);
  check_times(table.embedding, 1e-3, 2e-3);
  check_times(table.layers[1], 20e-3, 40e-3);
  check_times(table.head, 2e-3, 4e-3);
  CHECK(table.layers[0].memory->value() == 20 * kMebi);
}

TEST_CASE("a profile of Sailor gives forward and backward by microbatch and tensor ways") {
  const ScratchFolder folder;
  const LayerProfile profile = profile_of(folder, "profile.json", kSailor);
  REQUIRE(profile.tables.size() == 1);
  const LayerTable& table = profile.tables.front();
  CHECK(table.micro_batch == 2);
  CHECK(table.tensor == 1);
  REQUIRE(table.layers.size() == 2);
  check_times(table.embedding, 0.1, 0.2);
  check_times(table.layers[1], 3, 4);
  CHECK_FALSE(table.head.memory);
}

TEST_CASE(
    "a profile of Aceso is the sum of operators; the faster of two algorithms stands, a failed one falls") {
  const ScratchFolder folder;
  std::string slower = kAceso, failed = kAceso;
  slower.replace(slower.find("30,50"), 5, "70,90");
  failed.replace(failed.find("30,50"), 5, "10000000,10000000");
  write_file(folder.file("gpt_mbs2_tp1_algo0.csv"), slower);
  write_file(folder.file("gpt_mbs2_tp1_algo1.csv"), kAceso);
  write_file(folder.file("gpt_mbs4_tp1_algo0.csv"), failed);
  const LayerProfile profile = read_layer_profile(folder.file(""));
  REQUIRE(profile.tables.size() == 1);
  const LayerTable& table = profile.tables.front();
  CHECK(table.micro_batch == 2);
  REQUIRE(table.layers.size() == 1);
  check_times(table.embedding, 100e-6, 200e-6);
  check_times(table.layers[0], 40e-6, 70e-6);
  check_times(table.head, 5e-6, 7e-6);
  // One layer stands for all.
  CHECK(layer_times(profile, {"", "any", 7, 1, 2}).layers == std::vector<LayerTimes>(7, table.layers[0]));
}

TEST_CASE("AMP's rows are forwards of embedding, layers and head of one sequence") {
  const ScratchFolder folder;
  const LayerProfile profile = profile_of(folder, "amp.csv",
                                          kAmpHeader + amp_rows("T4 (x)", {1, 2, 10, 20, 3, 4, 5, 6}) +
                                              amp_rows("V100 (y)", {1, 2, 5, 6, 3, 4, 5, 6}));
  REQUIRE(profile.tables.size() == 2);
  const LayerTable& table = profile.tables.front();
  check_forward(table.embedding, 3);
  REQUIRE(table.layers.size() == 2);
  check_forward(table.layers[1], 20);
  check_forward(table.head, 18);
  // The GPU is told by its name; three sequences were not measured.
  const LayerTable other = layer_times(profile, {"gpt2", "V100-SXM2-16GB", 2, 1, 3});
  CHECK(other.micro_batch == 1);
  check_forward(other.layers[0], 5);
  // A profile of one model serves any, one of several the model of its name.
  check_forward(layer_times(profile, {"other", "T4", 2, 1, 1}).layers[0], 10);
  LayerProfile two = profile;
  two.tables[0].model = "bert";
  check_forward(layer_times(two, {"bert-large", "T4", 2, 1, 1}).layers[0], 10);
  CHECK_THROWS_AS(layer_times(two, {"gpt2-345m", "T4", 2, 1, 1}), InputError);
  check_forward(layer_times(two, {"GPT-2 (24 layers)", "V100", 2, 1, 1}).layers[0], 5);
  CHECK_THROWS_WITH(layer_times(profile, {"gpt2", "A100", 2, 1, 1}),
                    contains_text("2 layers, tensor 1, of gpt2 on V100 (y)"));
}

TEST_CASE("a layer of AMP's with tensor ways knows its forward without") {
  const ScratchFolder folder;
  const LayerProfile profile = profile_of(
      folder, "amp.csv",
      kAmpHeader + amp_rows("T4", {1, 2, 10, 20, 3, 4, 5, 6}) + amp_rows("T4", {1, 2, 8, 4, 3, 4, 5, 6}, 2));
  const LayerTable table = layer_times(profile, {"gpt2", "T4", 2, 2, 1});
  CHECK(table.layers[0] == LayerTimes{Seconds(8), std::nullopt, std::nullopt, Seconds(10)});
  CHECK(table.layers[1].whole == Seconds(20));
  CHECK(table.embedding.whole == Seconds(1 + 2));
}

TEST_CASE("a microbatch that was not measured is answered by the next smaller one, else by the smallest") {
  const ScratchFolder folder;
  for (const int size : {2, 4}) {
    std::string text = kSailor;
    text.replace(text.find("\"2\""), 3, "\"" + std::to_string(size) + "\"");
    if (size == 4) text.replace(text.find("[1, 2,"), 6, "[8, 9,");
    write_file(folder.file("p" + std::to_string(size) + ".json"), text);
  }
  const LayerProfile profile = read_layer_profile(folder.file(""));
  const auto first = [&](int micro_batch) {
    return layer_times(profile, {"", "", 2, 1, micro_batch}).layers[0];
  };
  check_times(first(2), 1, 2);
  check_times(first(4), 8, 9);
  check_times(first(3), 1, 2);
  check_times(first(8), 8, 9);
  check_times(first(1), 1, 2);
  CHECK(layer_times(profile, {"", "", 2, 1, 8}).micro_batch == 4);
}

TEST_CASE("broken layer profiles are wrong input that names file, place and remedy") {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& name, const std::string& content, const std::string& part) {
    CAPTURE(name, content);
    CHECK_THROWS_WITH(profile_of(folder, name, content), contains_text(part) && contains_text(name));
  };
  refused("DeviceType.A100.json", kMetis, "_tp");
  refused("DeviceType.A100_tp1_bs1.json", R"({"execution_time": {"layer_compute_total_ms": [1, -2, 3]}})",
          "-2");
  refused("DeviceType.A100_tp1_bs1.json", R"({"execution_time": {"layer_compute_total_ms": [1, 2]}})",
          "head");
  refused("a.json", R"({"x": {"1": {"0": [1, 2, 3]}}})", "'x'");
  refused("b.json", R"({"1": {"1": {"0": [1, 2], "1": [1, 2], "2": [1, 2]}}})",
          "[forward, backward, optimizer]");
  refused("c.json", "[1, 2]", "Metis or Sailor");
  refused("d.csv", "a,b\n1,2\n", "op_name");
  refused("gpt_mbs1_tp1_algo0.csv", "op_name,forward-compute,backward-compute\ndec-x,1,2\n", "'dec-x'");
  refused("gpt_mbs1_tp1_algo0.csv", "op_name,forward-compute,backward-compute\nenc-x,1,nan\n", "row 1");
  refused("e.csv", kAmpHeader + "gpt2,T4,1,1,0.5\n", "layer 0");
  refused("gpt_mbs1_tp1_algo0.csv", "op_name,forward-compute,backward-compute\nenc-x,1\n",
          "row 1: found a row of 2");
  refused("g.csv", kAmpHeader + "gpt2\n", "row 1: found a row of 1");
  refused("f.csv", kAmpHeader + "bert,T4,1,0,0.5\n", "gpt2");
  CHECK_THROWS_AS(read_layer_profile(folder.file("none.csv")), InputError);
}

}  // namespace orrery
