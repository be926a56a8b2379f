#include "traces/layer_profile.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "platforms/errors.hpp"
#include "traces/layer_profile_readers.hpp"

namespace orrery {
namespace {

std::vector<std::string> files_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string extension = entry->path().extension().string();
    if (extension == ".json" || extension == ".csv") files.push_back(entry->path().string());
  }
  if (error) throw InputError(path, "a folder that cannot be read", "layer profiles");
  std::sort(files.begin(), files.end());
  if (files.empty()) throw InputError(path, "a folder without .json or .csv files", "layer profiles");
  return files;
}

std::vector<LayerTable> tables_of(const std::string& file) {
  if (std::filesystem::path(file).extension() == ".json") return read_json_layers(file);
  return read_csv_layers(file);
}

Seconds total(const LayerTable& table) {
  LayerTimes sum = table.embedding;
  sum += table.head;
  for (const LayerTimes& layer : table.layers) sum += layer;
  return sum.forward + sum.backward.value_or(Seconds(0));
}

bool same_question(const LayerTable& a, const LayerTable& b) {
  return a.model == b.model && a.gpu == b.gpu && a.tensor == b.tensor && a.micro_batch == b.micro_batch &&
         a.layers.size() == b.layers.size();
}

std::string family(const std::string& gpu) {
  return gpu.substr(0, gpu.find_first_of(" -"));
}

// Letters and digits up to the first blank: "GPT-2 (24 layers)" is GPT2.
std::string compact(const std::string& name) {
  std::string text = name.substr(0, name.find(' '));
  text.erase(std::remove_if(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) == 0; }),
             text.end());
  return text;
}

// Names are looked at only where the profile has several.
bool is_for(const LayerProfile& profile, const LayerTable& table, std::string LayerTable::*name,
            const std::string& wanted) {
  const std::string& own = table.*name;
  const bool one_name = std::all_of(profile.tables.begin(), profile.tables.end(),
                                    [&](const LayerTable& each) { return each.*name == own; });
  return one_name || same_name(family(own), family(wanted)) || same_name(compact(own), compact(wanted));
}

std::string measured(const LayerProfile& profile) {
  std::string text;
  for (const LayerTable& table : profile.tables) {
    std::string each =
        std::to_string(table.layers.size()) + " layers, tensor " + std::to_string(table.tensor);
    if (!table.model.empty()) each += ", of " + table.model;
    if (!table.gpu.empty()) each += " on " + table.gpu;
    if (text.find(each) == std::string::npos) text += (text.empty() ? "" : "; ") + each;
  }
  return text;
}

}  // namespace

LayerTimes& LayerTimes::operator+=(const LayerTimes& other) {
  forward += other.forward;
  if (other.backward) backward = backward.value_or(Seconds(0)) + *other.backward;
  if (other.memory) memory = memory.value_or(Bytes(0)) + *other.memory;
  if (other.whole) whole = whole.value_or(Seconds(0)) + *other.whole;
  return *this;
}

LayerProfile read_layer_profile(const std::string& path) {
  LayerProfile profile{path, {}};
  for (const std::string& file : files_of(path)) {
    for (LayerTable& table : tables_of(file)) {
      const auto known = std::find_if(profile.tables.begin(), profile.tables.end(),
                                      [&](const LayerTable& each) { return same_question(each, table); });
      if (known == profile.tables.end()) {
        profile.tables.push_back(std::move(table));
      } else if (total(table) < total(*known)) {
        *known = std::move(table);
      }
    }
  }
  if (profile.tables.empty()) throw InputError(path, "no measured layers", "a layer profile with rows");
  return profile;
}

LayerTable layer_times(const LayerProfile& profile, const LayerQuery& query) {
  const LayerTable* best = nullptr;
  const auto below = [&](const LayerTable& table) { return table.micro_batch <= query.micro_batch; };
  for (const LayerTable& table : profile.tables) {
    const bool fits = table.tensor == query.tensor && is_for(profile, table, &LayerTable::gpu, query.gpu) &&
                      is_for(profile, table, &LayerTable::model, query.model) &&
                      (table.layers.size() == 1 || static_cast<int>(table.layers.size()) == query.layers);
    if (!fits) continue;
    const bool better =
        best == nullptr || (below(table) && !below(*best)) ||
        (below(table) == below(*best) &&
         (below(table) ? table.micro_batch > best->micro_batch : table.micro_batch < best->micro_batch));
    if (better) best = &table;
  }
  if (best == nullptr) {
    throw InputError(profile.path,
                     "no times of " + std::to_string(query.layers) + " layers, tensor " +
                         std::to_string(query.tensor) + ", of " + query.model + " on " + query.gpu,
                     "a plan of what was measured: " + measured(profile));
  }
  LayerTable table = *best;
  if (table.layers.size() == 1)
    table.layers.assign(static_cast<std::size_t>(query.layers), table.layers.front());
  return table;
}

}  // namespace orrery
