#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "platforms/yaml.hpp"
#include "strategies/rules.hpp"

namespace orrery {
namespace {

// The part of a line before a `#` outside quotes, without blanks at its end.
std::string_view without_comment(std::string_view line) {
  bool quoted = false;
  std::size_t end = 0;
  for (; end < line.size() && (quoted || line[end] != '#'); ++end)
    if (line[end] == '"') quoted = !quoted;
  while (end > 0 && (line[end - 1] == ' ' || line[end - 1] == '\t' || line[end - 1] == '\r')) --end;
  return line.substr(0, end);
}

}  // namespace

std::vector<Rule> parse_rules(std::string_view text, const std::string& file) {
  std::vector<Rule> rules;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = without_comment(text.substr(0, end));
    if (line.find_first_not_of(" \t") != std::string_view::npos)
      rules.emplace_back(std::string(line), file + ":" + std::to_string(number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return rules;
}

std::vector<Rule> read_rules(const std::string& path) {
  return parse_rules(read_text_file(path), path);
}

}  // namespace orrery
