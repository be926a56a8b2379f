#include <algorithm>
#include <string_view>
#include <vector>

#include "platforms/embedded.hpp"
#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"
#include "strategies/huggingface.hpp"
#include "strategies/model.hpp"

extern "C" const orrery::EmbeddedRow orrery_embedded_strategies[];

namespace orrery {
namespace {

constexpr std::string_view kModels = "models/";

bool ends_with(std::string_view text, std::string_view ending) {
  return text.size() > ending.size() && text.substr(text.size() - ending.size()) == ending;
}

bool is_json(std::string_view path) {
  return ends_with(path, ".json");
}
bool is_yaml(std::string_view path) {
  return ends_with(path, ".yaml") || ends_with(path, ".yml");
}

ModelSpec parse_by_extension(std::string_view text, const std::string& file) {
  return is_json(file) ? parse_huggingface_config(text, file) : parse_model_blocks(text, file);
}

// "models/llama2-7b.json" is the model "llama2-7b"; the dot of "gpt2-1.5b" is part of the name.
std::string_view model_name(std::string_view file) {
  const std::string_view name = file.substr(kModels.size());
  return name.substr(0, name.rfind('.'));
}

std::vector<EmbeddedFile> builtin_models() {
  std::vector<EmbeddedFile> models;
  for (const EmbeddedFile& file : embedded_files(orrery_embedded_strategies))
    if (file.name.substr(0, kModels.size()) == kModels) models.push_back(file);
  return models;
}

EmbeddedFile builtin_model(const std::string& name) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : builtin_models()) {
    if (model_name(file.name) == name) return file;
    names.emplace_back(model_name(file.name));
  }
  throw InputError("model", quote_for_message(name),
                   "a built-in model (see `orrery catalog models`), a config.json or a .yaml file" +
                       did_you_mean(name, names));
}

}  // namespace

ModelSpec parse_huggingface_config(std::string_view json, const std::string& file) {
  return model_from_config(JsonConfig(json, file));
}

std::vector<std::string> builtin_model_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : builtin_models()) names.emplace_back(model_name(file.name));
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_model_text(const std::string& path_or_name) {
  if (is_json(path_or_name) || is_yaml(path_or_name)) return read_text_file(path_or_name);
  return std::string(builtin_model(path_or_name).content);
}

ModelSpec read_model(const std::string& path_or_name) {
  if (is_json(path_or_name) || is_yaml(path_or_name))
    return parse_by_extension(read_text_file(path_or_name), path_or_name);
  const EmbeddedFile file = builtin_model(path_or_name);
  ModelSpec model = parse_by_extension(file.content, std::string(file.name));
  model.name = path_or_name;
  return model;
}

}  // namespace orrery
