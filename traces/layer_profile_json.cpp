// Layer profiles of Metis and of Sailor. JSON is read by the reader for YAML, which contains it.
#include <algorithm>
#include <charconv>
#include <filesystem>

#include "platforms/yaml.hpp"
#include "traces/layer_profile_readers.hpp"

namespace orrery {
namespace {

constexpr int kMostWays = 4096;
constexpr double kMilli = 1e-3;

int count_key(const YamlValue& owner, const std::string& key, int least) {
  int value = 0;
  const auto [end, trouble] = std::from_chars(key.data(), key.data() + key.size(), value);
  if (trouble == std::errc() && end == key.data() + key.size() && value >= least && value <= kMostWays)
    return value;
  throw InputError(
      owner.place(), "key " + quote_for_message(key),
      "whole numbers as keys: {microbatch: {tensor ways: {layer: [forward, backward, optimizer]}}}");
}

// The first is the embedding, the last the head.
void split_ends(LayerTable& table, const YamlValue& where) {
  if (table.layers.size() < 3) where.fail("an embedding, one layer or more, and a head");
  table.embedding = table.layers.front();
  table.head = table.layers.back();
  table.layers.erase(table.layers.begin());
  table.layers.pop_back();
}

std::string metis_gpu(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  constexpr std::string_view kPrefix = "DeviceType.";
  if (name.rfind(kPrefix, 0) == 0) name.erase(0, kPrefix.size());
  return name.substr(0, name.find('_'));
}

LayerTable metis_table(const std::string& path, const YamlValue& root) {
  LayerTable table;
  if (const auto model = root.find("model")) {
    if (const auto name = model->find("model_name")) table.model = name->text();
  }
  table.gpu = metis_gpu(path);
  table.tensor = count_in_name(path, "_tp");
  table.micro_batch = count_in_name(path, "_bs");
  const YamlValue times = root.at("execution_time").at("layer_compute_total_ms");
  for (const YamlValue& time : times.items()) {
    const Seconds both(time.number(0, kLongestLayer / kMilli) * kMilli);
    table.layers.push_back({both / 3.0, both * (2.0 / 3.0), std::nullopt});
  }
  const auto memory = root.find("execution_memory");
  const auto megabytes = memory ? memory->find("layer_memory_total_mb") : std::nullopt;
  if (megabytes) {
    const std::vector<YamlValue> rows = megabytes->items();
    if (rows.size() != table.layers.size()) megabytes->fail("as many numbers as layer_compute_total_ms has");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      table.layers[i].memory = Bytes(rows[i].number(0, 1e9) * kMebi);  // Megatron-LM's memory report: 2^20
    }
  }
  split_ends(table, times);
  return table;
}

LayerTable sailor_table(const YamlValue& layers) {
  LayerTable table;
  const std::vector<std::string> keys = layers.keys();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (count_key(layers, keys[i], 0) != static_cast<int>(i)) layers.fail("layers 0, 1, 2, ... in order");
    const YamlValue row = layers.at(keys[i]);
    const std::vector<YamlValue> times = row.items();
    if (times.size() != 3) row.fail("[forward, backward, optimizer] in seconds");
    const auto seconds = [&](std::size_t at) { return Seconds(times[at].number(0, kLongestLayer)); };
    table.layers.push_back({seconds(0), seconds(1), std::nullopt});
  }
  split_ends(table, layers);
  return table;
}

std::vector<LayerTable> sailor_tables(const std::string& path, const YamlValue& root) {
  std::vector<LayerTable> tables;
  // The files lie in folders <model>/<gpu>/.
  const std::string gpu = std::filesystem::path(path).parent_path().filename().string();
  for (const std::string& micro_batch : root.keys()) {
    const int sequences = count_key(root, micro_batch, 1);
    const YamlValue by_ways = root.at(micro_batch);
    for (const std::string& ways : by_ways.keys()) {
      const int tensor = count_key(by_ways, ways, 1);
      tables.push_back(sailor_table(by_ways.at(ways)));
      tables.back().gpu = gpu;
      tables.back().micro_batch = sequences;
      tables.back().tensor = tensor;
    }
  }
  return tables;
}

}  // namespace

std::vector<LayerTable> read_json_layers(const std::string& path) {
  // Metis indents its samples with tabs, which YAML wants nowhere.
  std::string text = read_text_file(path);
  std::replace(text.begin(), text.end(), '\t', ' ');
  const YamlValue root = YamlValue::parse(text, path);
  if (root.kind() != YamlValue::Kind::map) root.fail("a layer profile of Metis or Sailor");
  if (root.find("execution_time")) return {metis_table(path, root)};
  return sailor_tables(path, root);
}

}  // namespace orrery
