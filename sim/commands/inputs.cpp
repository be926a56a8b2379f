#include "sim/commands/inputs.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "costmodels/models/sha256.hpp"
#include "costmodels/stacks/stack_file.hpp"
#include "sim/replay/progress.hpp"
#include "sim/replay/xml_platform.hpp"
#include "traces/output_file.hpp"

namespace orrery {

namespace {

// As a shell reads it back.
std::string shell_word(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Of a folder: of its files, each after its name. What cannot be read twice, such as a pipe, has none.
InputDigest digest_of(const std::string& path) {
  if (std::filesystem::is_regular_file(path)) return {path, sha256_hex(read_text_file(path))};
  if (!std::filesystem::is_directory(path)) return {path, "unknown"};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string all;
  for (const auto& file : files) all += file.filename().string() + "\n" + read_text_file(file.string());
  return {path, sha256_hex(all)};
}

}  // namespace

std::string command_line_text(const std::string& command, const std::vector<std::string>& arguments) {
  std::string text = "orrery " + command;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--quiet" || arguments[i].rfind("--jobs=", 0) == 0) continue;
    if (arguments[i] == "--jobs") {
      ++i;
      continue;
    }
    text += " " + shell_word(arguments[i]);
  }
  return text;
}

CostModels read_costs(const CommandLine& line) {
  const auto folder = line.text("costs");
  return folder ? CostModels::from_folder(*folder) : CostModels::built_in();
}

void warn_of_silent_costs(const CommandLine& line, const CostModels& costs, const OwnAnswers& answers,
                          const std::vector<const ClusterSpec*>& clusters) {
  if (line.quiet() || answers.asked == 0 || answers.answered > 0) return;
  std::vector<std::string> gpus;
  for (const ClusterSpec* cluster : clusters) {
    for (const NodeGroup& group : cluster->groups) {
      if (std::find(gpus.begin(), gpus.end(), group.gpu.name) == gpus.end()) gpus.push_back(group.gpu.name);
    }
  }
  std::string held;
  for (const std::string& model : costs.own().held) held += (held.empty() ? "" : "; ") + model;
  std::cerr << "orrery: " << line.place("costs") << " " << *line.text("costs") << ": answers none of the "
            << answers.asked << " operators of " << comma_list(gpus) << "; it holds " << held
            << ". Other models are asked in their place, or its own beyond what they were measured on: "
               "measure these GPUs "
               "and sizes (`orrery profile`), or leave the option out\n";
}

MeasuredTable read_measured_option(const CommandLine& line) {
  MeasuredTable table = read_measured_table(line.required("measured"));
  for (const std::string& sentence : table.remarks) {
    if (!line.quiet()) std::cerr << "orrery: " << sentence << "\n";
  }
  return table;
}

SoftwareStack read_stack_option(const CommandLine& line) {
  return read_stack(line.text("stack").value_or(std::string(kDefaultStack)), line.place("stack"));
}

ClusterSpec read_any_cluster(const std::string& name, std::optional<Pricing> pricing) {
  if (!is_xml_platform(name)) return read_cluster(name, pricing);
  if (pricing)
    throw InputError("--pricing", "a SimGrid platform beside it", "a cluster file: a platform has no prices");
  return read_xml_platform(name);
}

ClusterSpec read_cluster_option(const CommandLine& line, const std::string& name) {
  std::optional<Pricing> pricing;
  if (const auto text = line.text("pricing")) pricing = parse_pricing(*text, line.place("pricing"));
  ClusterSpec cluster = read_any_cluster(name, pricing);
  if (line.has("no-contention")) cluster.contention = Contention::ideal;
  return cluster;
}

RunOrigin origin_of(const CommandLine& line, const std::string& command,
                    const std::vector<std::string>& arguments) {
  RunOrigin origin;
  origin.command_line = command_line_text(command, arguments);
  origin.seed = line.seed();
  for (const char* option : {"job", "plan", "durations", "space", "schedule-file"}) {
    if (line.has(option) && !line.map(option)) origin.inputs.push_back(digest_of(*line.text(option)));
  }
  for (const std::string& path : line.list("rules")) origin.inputs.push_back(digest_of(path));
  for (const std::string& text : line.list("layer-profile"))
    origin.inputs.push_back(digest_of(text.substr(text.find('=') + 1)));
  return origin;
}

RunOrigin origin_of(const CommandLine& line, const std::string& command,
                    const std::vector<std::string>& arguments, const PlanNames& names,
                    const CostModels& costs) {
  RunOrigin origin = origin_of(line, command, arguments);
  origin.model = names.model;
  origin.cluster = names.cluster;
  origin.stack = names.stack;
  origin.model_digest = sha256_hex(read_model_text(names.model));
  origin.cost_models = costs.digest();
  const std::string stack = names.stack.empty() ? std::string(kDefaultStack) : names.stack;
  origin.inputs.push_back({names.model, origin.model_digest});
  origin.inputs.push_back({names.cluster, sha256_hex(read_cluster_text(names.cluster))});
  origin.inputs.push_back({stack, sha256_hex(read_stack_text(stack))});
  origin.inputs.push_back({line.text("costs").value_or("cost models"), origin.cost_models});
  return origin;
}

void require_writable(const std::string& path) {
  const OutputFile tried(path);
}

int picture_columns() {
  constexpr int kLeast = 60, kUsual = 110, kMost = 180;
  return std::clamp(terminal_columns().value_or(kUsual), kLeast, kMost);
}

void make_output_folder(const std::string& path) {
  std::error_code trouble;
  std::filesystem::create_directories(path, trouble);
  if (trouble || !std::filesystem::is_directory(path)) {
    throw InputError(path, trouble ? trouble.message() : "a file",
                     "a folder that can be made or written to (-o)");
  }
  if (::access(path.c_str(), W_OK) != 0)
    throw InputError(path, "no leave to write", "a folder that can be written to (-o)");
}

}  // namespace orrery
