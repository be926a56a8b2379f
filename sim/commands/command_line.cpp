#include "sim/commands/command_line.hpp"

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

namespace orrery {

namespace options = boost::program_options;

namespace {
constexpr const char* kStray = "arguments without an option";
constexpr double kMostCount = 1e18;
}  // namespace

struct CommandLine::Impl {
  std::string command, summary, example;
  options::options_description own{"Options", 110}, common{"Common options", 110}, hidden;
  options::positional_options_description positions;
  std::string positional_help;
  options::variables_map given;
  std::string file_option;                     // names a file of options; empty: the command has none
  std::set<std::string> maps;                  // options that the file may give as a map
  std::map<std::string, YamlValue> from_file;  // options that the file decided

  [[nodiscard]] const options::option_description* known(const std::string& name) const {
    for (const auto* group : {&own, &common}) {
      if (const auto* found = group->find_nothrow(name, false)) return found;
    }
    return nullptr;
  }

  // What is wrong with the options, in the user's words.
  [[nodiscard]] InputError trouble(const std::string& found, const std::string& expected) const {
    return {"orrery " + command, found, expected + "; see `orrery " + command + " --help`"};
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto* group : {&own, &common}) {
      for (const auto& option : group->options()) all.push_back("--" + option->long_name());
    }
    return all;
  }
};

CommandLine::CommandLine(std::string command, std::string summary, std::string example)
    : impl_(std::make_unique<Impl>()) {
  impl_->command = std::move(command);
  impl_->summary = std::move(summary);
  impl_->example = std::move(example);
  auto add = impl_->common.add_options();
  add("json", "one JSON document on standard output, nothing else there");
  add("quiet", "no progress and no remarks on standard error");
  add("jobs", options::value<std::string>()->value_name("N"), "processes and threads at once (all cores)");
  add("seed", options::value<std::string>()->value_name("S"), "of everything random (1)");
  add("output,o", options::value<std::string>()->value_name("PATH"), "where results are written");
  add("help,h", "this text");
}

CommandLine::~CommandLine() = default;

CommandLine& CommandLine::value(const std::string& name, const std::string& what, const std::string& help) {
  impl_->own.add_options()(name.c_str(), options::value<std::string>()->value_name(what), help.c_str());
  return *this;
}

CommandLine& CommandLine::value_or_map(const std::string& name, const std::string& what,
                                       const std::string& help) {
  impl_->maps.insert(name);
  return value(name, what, help);
}

CommandLine& CommandLine::values(const std::string& name, const std::string& what, const std::string& help) {
  impl_->own.add_options()(
      name.c_str(), options::value<std::vector<std::string>>()->value_name(what)->composing(), help.c_str());
  return *this;
}

CommandLine& CommandLine::flag(const std::string& name, const std::string& help) {
  impl_->own.add_options()(name.c_str(), help.c_str());
  return *this;
}

CommandLine& CommandLine::positional(const std::string& name, const std::string& help) {
  impl_->hidden.add_options()(name.c_str(), options::value<std::vector<std::string>>());
  impl_->positions.add(name.c_str(), -1);
  impl_->positional_help = help;
  return *this;
}

CommandLine& CommandLine::file_of_options(const std::string& name, const std::string& help) {
  impl_->file_option = name;
  return value(name, "FILE", help);
}

void CommandLine::store(const std::vector<std::string>& arguments) {
  // What stands without an option has a name here that nobody may write as one: it is unknown to the parser.
  options::options_description written, all;
  written.add(impl_->own).add(impl_->common);
  all.add(written).add(impl_->hidden);
  const int style = options::command_line_style::unix_style & ~options::command_line_style::allow_guessing;
  try {
    auto parsed = options::command_line_parser(arguments)
                      .options(written)
                      .positional(impl_->positions)
                      .style(style)
                      .run();
    parsed.description = &all;
    options::store(parsed, impl_->given);
  } catch (const options::unknown_option& error) {
    const std::string given = error.get_option_name(), name = given.substr(0, given.find('='));
    throw impl_->trouble("an unknown option '" + name + "'" + did_you_mean(name, impl_->names()),
                         "an option of this command");
  } catch (const options::multiple_occurrences& error) {
    throw impl_->trouble(error.get_option_name() + " more than once", error.get_option_name() + " once");
  } catch (const options::invalid_command_line_syntax& error) {
    const bool extra = error.kind() == options::invalid_syntax::extra_parameter;
    throw impl_->trouble(error.get_option_name() + (extra ? " with a value" : " without a value"),
                         extra ? "the option alone" : "a value after it");
  } catch (const options::error& error) {
    throw impl_->trouble(error.what(), "options of this command");
  }
}

void CommandLine::store_file(const std::string& path) {
  const YamlValue root = YamlValue::read_file(path);
  std::vector<std::string> allowed;
  for (const std::string& name : impl_->names()) {
    if (name != "--help" && name != "--" + impl_->file_option) allowed.push_back(name.substr(2));
  }
  root.allow_keys(allowed);
  options::options_description all;
  all.add(impl_->own).add(impl_->common);
  options::parsed_options parsed(&all);
  for (const std::string& name : root.keys()) {
    const YamlValue value = root.at(name);
    const auto semantic = impl_->known(name)->semantic();
    if (!semantic->is_composing() && has(name)) continue;
    options::option option;
    option.string_key = name;
    if (semantic->max_tokens() == 0) {
      if (!value.boolean()) continue;
    } else if (value.kind() == YamlValue::Kind::list && semantic->is_composing()) {
      for (const YamlValue& item : value.items()) option.value.push_back(item.text());
    } else {
      const bool map = value.kind() == YamlValue::Kind::map && impl_->maps.count(name) > 0;
      option.value.push_back(map ? path : value.text());
    }
    parsed.options.push_back(std::move(option));
    impl_->from_file.emplace(name, value);
  }
  options::store(parsed, impl_->given);
}

bool CommandLine::parse(const std::vector<std::string>& arguments) {
  if (impl_->positional_help.empty()) {
    impl_->hidden.add_options()(kStray, options::value<std::vector<std::string>>());
    impl_->positions.add(kStray, -1);
  }
  store(arguments);
  if (impl_->given.count("help") == 0) {
    if (const auto stray = list(kStray); !stray.empty()) {
      throw impl_->trouble(quote_for_message(stray.front()) + ", which belongs to no option", "options only");
    }
    if (const auto file = impl_->file_option.empty() ? std::nullopt : text(impl_->file_option))
      store_file(*file);
    if (text("output") == "") throw InputError(place("output"), "an empty text", "a path");
    if (text("output") == "-") throw InputError(place("output"), "'-'", "a path, such as /dev/stdout");
    static_cast<void>(jobs());  // wrong values are found by commands that do not look at them, too
    static_cast<void>(seed());
    return true;
  }
  std::cout << "Example:\n  " << impl_->example << "\n\n" << impl_->summary << "\n";
  if (!impl_->positional_help.empty()) std::cout << impl_->positional_help << "\n";
  if (!impl_->own.options().empty()) std::cout << "\n" << impl_->own;
  std::cout << "\n" << impl_->common;
  return false;
}

bool CommandLine::has(const std::string& name) const {
  return impl_->given.count(name) > 0;
}

std::optional<std::string> CommandLine::text(const std::string& name) const {
  if (!has(name)) return std::nullopt;
  return impl_->given[name].as<std::string>();
}

std::string CommandLine::required(const std::string& name) const {
  auto given = text(name);
  if (!given) {
    throw InputError("orrery " + impl_->command, "no --" + name,
                     "--" + name + "; `orrery " + impl_->command + " --help` shows an example");
  }
  return *std::move(given);
}

std::optional<YamlValue> CommandLine::map(const std::string& name) const {
  const auto found = impl_->from_file.find(name);
  if (found == impl_->from_file.end() || found->second.kind() != YamlValue::Kind::map) return std::nullopt;
  return found->second;
}

std::string CommandLine::place(const std::string& name) const {
  const auto found = impl_->from_file.find(name);
  return found == impl_->from_file.end() ? "--" + name : found->second.place();
}

std::vector<std::string> CommandLine::list(const std::string& name) const {
  if (!has(name)) return {};
  return impl_->given[name].as<std::vector<std::string>>();
}

std::int64_t CommandLine::integer(const std::string& name, std::int64_t low, std::int64_t high,
                                  std::int64_t otherwise) const {
  const auto given = text(name);
  if (!given) return otherwise;
  std::int64_t value = 0;
  const auto [end, trouble] = std::from_chars(given->data(), given->data() + given->size(), value);
  if (trouble != std::errc() || end != given->data() + given->size() || value < low || value > high) {
    throw InputError(place(name), quote_for_message(*given),
                     "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

std::optional<double> CommandLine::number(const std::string& name, double low, double high) const {
  const auto given = text(name);
  if (!given) return std::nullopt;
  double value = 0;
  const auto [end, trouble] = std::from_chars(given->data(), given->data() + given->size(), value);
  if (trouble == std::errc() && end == given->data() + given->size() && value >= low && value <= high)
    return value;
  std::ostringstream range;
  range << "a number from " << low << " to " << high;
  throw InputError(place(name), quote_for_message(*given), range.str());
}

std::optional<double> CommandLine::count(const std::string& name) const {
  const auto given = text(name);
  if (!given) return std::nullopt;
  double value = 0;
  const auto [end, trouble] = std::from_chars(given->data(), given->data() + given->size(), value);
  const std::string suffix(end, given->data() + given->size());
  const std::vector<std::pair<std::string, double>> suffixes{{"", 1},    {"K", 1e3},  {"M", 1e6}, {"G", 1e9},
                                                             {"B", 1e9}, {"T", 1e12}, {"P", 1e15}};
  const auto scale =
      std::find_if(suffixes.begin(), suffixes.end(), [&](const auto& s) { return s.first == suffix; });
  const double scaled = scale == suffixes.end() ? 0 : value * scale->second;
  if (trouble != std::errc() || !(scaled >= 1 && scaled <= kMostCount)) {
    throw InputError(place(name), quote_for_message(*given),
                     "a count from 1 to 1e18 such as 1024, 300B or 1T");
  }
  return scaled;
}

std::optional<std::size_t> CommandLine::choice(const std::string& name,
                                               const std::vector<std::string>& names) const {
  const auto given = text(name);
  if (!given) return std::nullopt;
  const auto found = std::find(names.begin(), names.end(), *given);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  throw InputError(place(name), quote_for_message(*given),
                   "one of " + comma_list(names) + did_you_mean(*given, names));
}

int CommandLine::jobs() const {
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return static_cast<int>(integer("jobs", 1, 1024, cores));
}

std::uint64_t CommandLine::seed() const {
  return static_cast<std::uint64_t>(integer("seed", 0, std::int64_t{1} << 62, 1));
}

}  // namespace orrery
