#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "costmodels/fit/profile_script.hpp"
#include "platforms/gpu.hpp"
#include "sim/commands/command_line.hpp"
#include "sim/commands/commands.hpp"
#include "strategies/model.hpp"
#include "traces/json_text.hpp"
#include "traces/output_file.hpp"
#include "traces/profile_reader.hpp"

namespace orrery {

namespace {

namespace fs = std::filesystem;

// "NAME=hidden,ffn,heads,kv_heads,head_dim,vocabulary,gated", as the script takes it.
std::string layer_argument(std::string name, const LayerShape& layer, std::int64_t head_width) {
  for (char& letter : name) {
    if (letter == ',' || letter == '=' || static_cast<unsigned char>(letter) < 0x20) letter = '-';
  }
  std::string text = name + "=";
  for (const std::int64_t number : {layer.hidden, layer.ffn, layer.heads, layer.kv_heads, layer.head_dim,
                                    std::max<std::int64_t>(head_width, 1)}) {
    text += std::to_string(number) + ",";
  }
  return text + (layer.mlp == MlpKind::gated ? "1" : "0");
}

// One for each kind of layer that has attention or an MLP; the script has no scan of a state space.
std::vector<std::string> layer_arguments(const std::string& name) {
  const ModelSpec model = read_model(name);
  std::vector<std::string> layers;
  for (const LayerShape& layer : model.shapes) {
    if (!layer.has_attention() && !layer.has_mlp()) continue;
    std::string text = layer_argument(model.name.empty() ? name : model.name, layer, model.head_width());
    if (std::find(layers.begin(), layers.end(), text) == layers.end()) layers.push_back(std::move(text));
  }
  if (layers.empty())
    throw InputError("--model " + name, "no layer with attention or an MLP",
                     "a model whose matrices can be timed");
  return layers;
}

// Each name with the data types of its GPU.
nlohmann::ordered_json types_by_name(const std::vector<KnownGpuName>& names) {
  auto all = nlohmann::ordered_json::object();
  for (const KnownGpuName& known : names) {
    auto& types = all[known.name] = nlohmann::ordered_json::array();
    for (const DataType type :
         {DataType::fp32, DataType::tf32, DataType::fp16, DataType::bf16, DataType::fp8})
      if (peak(find_gpu(known.gpu, "catalog"), type)) types.push_back(to_text(type));
  }
  return all;
}

// Beside the table, so that the folder says what measured it, and what `orrery fit` will know its GPU by.
std::string write_script(const std::string& folder, std::string_view script) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw InputError(folder, error.message(), "a folder that can be created");
  for (const auto& file : profile_script()) {
    write_file((fs::path(folder) / fs::path(file.name).filename()).string(), file.content);
  }
  const KnownGpuNames known = known_gpu_names();
  const nlohmann::ordered_json names{{"catalog", types_by_name(known.catalog)},
                                     {"makers", known.makers},
                                     {"sources", types_by_name(known.sources)}};
  write_file((fs::path(folder) / "orrery_gpus.json").string(), names.dump(1) + "\n");
  return (fs::path(folder) / script).string();
}

// The families and settings that the script takes, as it takes them.
std::vector<std::string> script_options(const CommandLine& line) {
  std::vector<std::string> words;
  const std::vector<std::string> families{"gemm", "attention", "kernel", "collective"};
  for (const std::string& family : line.list("only")) {
    if (std::find(families.begin(), families.end(), family) == families.end())
      throw InputError(line.place("only"), quote_for_message(family),
                       "gemm, attention, kernel or collective" + did_you_mean(family, families));
    words.push_back("--only=" + family);
  }
  static_cast<void>(line.number("pause", 0, 60));
  static_cast<void>(line.number("minutes", 1e-3, 1e6));
  for (const char* option : {"types", "gpu-name", "pause", "minutes"}) {
    const auto value = line.text(option);
    if (value == "" || value == "--")  // Python's argparse would take the second for none
      throw InputError(line.place(option), value->empty() ? "an empty text" : quote_for_message(*value),
                       "a value");
    if (value) words.push_back("--" + std::string(option) + "=" + *value);
  }
  for (const char* flag : {"quiet", "dry-run", "unknown-gpu", "retry", "json"}) {
    if (line.has(flag)) words.push_back("--" + std::string(flag));
  }
  return words;
}

// What the script of whole steps takes; the rest says how operators are measured.
std::vector<std::string> step_options(const CommandLine& line) {
  for (const char* option :
       {"model", "only", "types", "gpu-name", "pause", "unknown-gpu", "retry", "dry-run", "json"}) {
    if (line.has(option))
      throw InputError(
          "--steps", "--" + std::string(option) + " beside it",
          "--minutes, --quiet, --python or --script: steps are of models and programs of their own");
  }
  std::vector<std::string> words;
  if (line.number("minutes", 1e-3, 1e6)) words.push_back("--minutes=" + *line.text("minutes"));
  if (line.has("quiet")) words.push_back("--quiet");
  return words;
}

// This process becomes the program, so that a signal ends it and leaves nothing behind.
[[noreturn]] void become(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  throw InputError("orrery profile", "no program '" + words[0] + "' that starts",
                   "Python 3 with PyTorch; --python names it");
}

}  // namespace

int run_profile(const Arguments& arguments) {
  CommandLine line("profile",
                   "Measures the operators of training on the GPUs of this machine, for `orrery fit`. "
                   "Continues a folder that "
                   "an interrupted run left.",
                   "orrery profile --model llama2-70b -o measured");
  line.values("model", "MODEL", "layers to measure, in place of the usual six models; may be repeated");
  line.values("only", "FAMILY", "gemm, attention, kernel or collective alone; may be repeated");
  line.value("types", "LIST", "data types, as fp16,bf16 (all that the GPU has)");
  line.value("gpu-name", "NAME", "the catalog's name of the GPU, where the driver's is not known");
  line.value("minutes", "M",
             "begin no row after this long (no limit): rows come in no order, so that those measured are a "
             "sample, and the same command goes on");
  line.value("pause", "S", "seconds between rows, to keep the GPU cool (0)");
  line.value("python", "PROGRAM", "a Python 3 that can import torch (python3)");
  line.flag("unknown-gpu",
            "measure a GPU that the catalog does not have, for `orrery fit --cluster` with a file that "
            "describes it");
  line.flag("retry", "measure the rows that failed once more, however often they did");
  line.flag("dry-run", "no GPU and no PyTorch: invented times, marked as such");
  line.flag("steps",
            "training steps of known models instead, kernel by kernel, as a table for `orrery validate "
            "--measured` (one GPU; with --minutes)");
  line.flag("script", "write the Python script to the folder and do not run it");
  if (!line.parse(arguments)) return 0;
  std::vector<std::string> words{line.text("python").value_or("python3"), ""};
  const std::string folder = line.required("output");
  words.insert(words.end(), {"--output", folder});
  for (const auto& model : line.list("model")) {
    for (const std::string& layer : layer_arguments(model)) words.push_back("--layer=" + layer);
  }
  for (std::string& word : line.has("steps") ? step_options(line) : script_options(line))
    words.push_back(std::move(word));
  words[1] = write_script(folder, line.has("steps") ? kStepsScript : kProfileScript);
  if (line.has("script")) {
    const nlohmann::ordered_json files{{"script", words[1]}};
    std::cout << (line.json() ? json_document(files) : words[1] + "\n");
    return 0;
  }
  become(std::move(words));
}

}  // namespace orrery
