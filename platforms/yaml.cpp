#include "platforms/yaml.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "platforms/yaml_tree.hpp"

namespace orrery {

namespace {

// A key stands in messages as it is, unless it would break the line or fill it.
std::string readable(const std::string& key) {
  const std::string quoted = quote_for_message(key);
  return quoted == "'" + key + "'" ? key : quoted;
}

std::string key_path(const YamlNode& node) {
  if (node.parent == nullptr) return {};
  const std::string above = key_path(*node.parent);
  if (node.parent->kind == YamlValue::Kind::list) return above + "[" + std::to_string(node.index) + "]";
  return above.empty() ? readable(node.key) : above + "." + readable(node.key);
}

const YamlNode& root_of(const YamlNode& node) {
  return node.parent == nullptr ? node : root_of(*node.parent);
}

std::string range_text(const std::string& low, const std::string& high) {
  return " from " + low + " to " + high;
}

std::string number_text(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string place_of(const YamlNode& node) {
  const std::string path = key_path(node);
  return root_of(node).file + ":" + std::to_string(node.line) + (path.empty() ? "" : ": " + path);
}

YamlValue::YamlValue(std::shared_ptr<const YamlNode> node) : node_(std::move(node)) {}

YamlValue YamlValue::parse(std::string_view text, const std::string& file) {
  return YamlValue(parse_yaml_tree(text, file));
}

YamlValue YamlValue::read_file(const std::string& path) {
  return parse(read_text_file(path), path);
}

YamlValue::Kind YamlValue::kind() const {
  return node_->kind;
}

std::string YamlValue::place() const {
  return place_of(*node_);
}

std::string YamlValue::found() const {
  switch (node_->kind) {
    case Kind::null:
      return "nothing";
    case Kind::scalar:
      return quote_for_message(node_->scalar);
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a map";
  }
  fail_ensure("a kind of YAML value", __FILE__, __LINE__);
}

void YamlValue::fail(const std::string& expected) const {
  throw InputError(place(), found(), expected);
}

std::string YamlValue::text() const {
  if (node_->kind != Kind::scalar) fail("a single value");
  return node_->scalar;
}

std::int64_t YamlValue::integer(std::int64_t low, std::int64_t high) const {
  const std::string expected = "a whole number" + range_text(std::to_string(low), std::to_string(high));
  if (node_->kind != Kind::scalar) fail(expected);
  const std::string& digits = node_->scalar;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < low || value > high)
    fail(expected);
  return value;
}

double YamlValue::number(double low, double high) const {
  const std::string expected = "a number" + range_text(number_text(low), number_text(high));
  if (node_->kind != Kind::scalar) fail(expected);
  const std::string& digits = node_->scalar;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size() && std::isfinite(value);
  if (!is_number || value < low || value > high) fail(expected);
  return value;
}

bool YamlValue::boolean() const {
  if (node_->kind == Kind::scalar && node_->scalar == "true") return true;
  if (node_->kind == Kind::scalar && node_->scalar == "false") return false;
  fail("true or false");
}

YamlValue YamlValue::child(std::size_t index) const {
  return YamlValue(std::shared_ptr<const YamlNode>(node_, node_->children[index].get()));
}

std::vector<YamlValue> YamlValue::items() const {
  if (node_->kind != Kind::list) fail("a list");
  std::vector<YamlValue> values;
  for (std::size_t index = 0; index < node_->children.size(); ++index) values.push_back(child(index));
  return values;
}

std::vector<std::string> YamlValue::keys() const {
  if (node_->kind != Kind::map) fail("a map (key: value)");
  std::vector<std::string> names;
  for (const auto& entry : node_->children) names.push_back(entry->key);
  return names;
}

std::optional<YamlValue> YamlValue::find(const std::string& key) const {
  if (node_->kind != Kind::map) fail("a map (key: value)");
  for (std::size_t index = 0; index < node_->children.size(); ++index) {
    if (node_->children[index]->key == key) return child(index);
  }
  return std::nullopt;
}

std::size_t YamlValue::one_of(const std::vector<std::string>& names) const {
  const std::string word = text();
  const auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end()) fail("one of " + comma_list(names) + did_you_mean(word, names));
  return static_cast<std::size_t>(found - names.begin());
}

YamlValue YamlValue::at(const std::string& key) const {
  std::optional<YamlValue> value = find(key);
  if (!value) throw InputError(place(), "no key '" + key + "'", "a map with the key '" + key + "'");
  return *value;
}

void YamlValue::allow_keys(const std::vector<std::string>& allowed) const {
  for (const std::string& key : keys()) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    throw InputError(find(key)->place(),
                     "the unknown key " + quote_for_message(key) + did_you_mean(key, allowed),
                     "one of " + comma_list(allowed));
  }
}

std::string read_text_file(const std::string& path) {
  constexpr std::size_t kLargest = std::size_t{256} << 20;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw InputError(path, "a folder", "a file");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw InputError(path, "no readable file", "the path of a file that exists and may be read");
  std::string content;
  std::vector<char> block(std::size_t{1} << 16);
  while (stream.read(block.data(), static_cast<std::streamsize>(block.size())) || stream.gcount() > 0) {
    content.append(block.data(), static_cast<std::size_t>(stream.gcount()));
    if (content.size() > kLargest) throw InputError(path, "more than 256 MiB", "a smaller file");
  }
  if (stream.bad()) throw InputError(path, "a file that cannot be read to its end", "a readable file");
  return content;
}

std::string yaml_quoted(const std::string& text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result = "\"";
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\') {
      result += {'\\', character};
    } else if (byte < 0x20 || byte == 0x7f) {
      result += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
    } else {
      result += character;
    }
  }
  return result + "\"";
}

}  // namespace orrery
