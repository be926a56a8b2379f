// Checked reading of YAML: every value knows its file, line and key; unknown and duplicate keys are errors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platforms/errors.hpp"
#include "platforms/units.hpp"

namespace orrery {

struct YamlNode;

// A value of a YAML document: a scalar, a list or a map. Cheap to copy; shares the parsed tree.
class YamlValue {
 public:
  enum class Kind { null, scalar, list, map };

  // Parses one document. Throws InputError for a broken document (file:line:column), a duplicate key, an
  // anchor loop, bytes that are no text, and documents beyond 16 MiB, 64 levels or a million values (aliases
  // counted each time).
  static YamlValue parse(std::string_view text, const std::string& file);
  static YamlValue read_file(const std::string& path);  // also InputError when it cannot be read

  [[nodiscard]] Kind kind() const;
  [[nodiscard]] std::string place() const;                    // "cluster.yaml:12: groups[1].count"
  [[nodiscard]] std::string found() const;                    // "'abc'", "a list", "a map", "nothing"
  [[noreturn]] void fail(const std::string& expected) const;  // InputError{place(), found(), expected}

  // Scalars. Each throws InputError when the value is not of the kind or outside [low, high].
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) const;
  [[nodiscard]] double number(double low, double high) const;
  [[nodiscard]] bool boolean() const;
  // Which of `names` the text is; what is none of them is refused with the nearest.
  [[nodiscard]] std::size_t one_of(const std::vector<std::string>& names) const;
  // The same of values of an enum, which its to_text names.
  template <class Choices>
  [[nodiscard]] auto one_of_values(const Choices& choices) const {
    std::vector<std::string> names;
    for (const auto choice : choices) names.emplace_back(to_text(choice));
    return choices[one_of(names)];
  }
  template <class Q>
  [[nodiscard]] Q quantity() const {  // "5us"; a bare number is an error that says so
    return parse_quantity<Q>(text(), place());
  }
  template <class Q>
  [[nodiscard]] Q positive_quantity() const {
    const Q value = quantity<Q>();
    // What is so small is a slip of the pen, and times and sizes divided by it would leave the range of
    // numbers.
    if (!(value.value() >= 1e-15)) fail("a quantity above zero (1e-15 or more)");
    return value;
  }

  // Lists.
  [[nodiscard]] std::vector<YamlValue> items() const;  // throws when not a list

  // Maps. `keys` are in the order of the file.
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::optional<YamlValue> find(const std::string& key) const;
  [[nodiscard]] YamlValue at(const std::string& key) const;  // throws when the key is missing
  // Throws InputError naming the line and the nearest valid key when the map holds a key not in `allowed`.
  void allow_keys(const std::vector<std::string>& allowed) const;

 private:
  explicit YamlValue(std::shared_ptr<const YamlNode> node);
  [[nodiscard]] YamlValue child(std::size_t index) const;
  std::shared_ptr<const YamlNode> node_;  // owns the whole tree, points at this value
};

// The whole file. Throws InputError{path, "no readable file", ...}.
std::string read_text_file(const std::string& path);

// The text as a scalar, always in double quotes, so that "1.0", "yes" and "a: b" stay the texts they are.
std::string yaml_quoted(const std::string& text);

}  // namespace orrery
