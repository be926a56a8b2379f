// Options of one command: declared, parsed, read with checks. Wrong ones are InputErrors that name the
// option.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platforms/errors.hpp"
#include "platforms/units.hpp"
#include "platforms/yaml.hpp"

namespace orrery {

class CommandLine {
 public:
  // `example` is the first thing --help shows. The common options (--json, --quiet, --jobs, --seed, -o) are
  // declared.
  CommandLine(std::string command, std::string summary, std::string example);
  ~CommandLine();

  CommandLine& value(const std::string& name, const std::string& what, const std::string& help);
  // Like value; a file of options may write a map in its place.
  CommandLine& value_or_map(const std::string& name, const std::string& what, const std::string& help);
  CommandLine& values(const std::string& name, const std::string& what,
                      const std::string& help);  // may be repeated
  CommandLine& flag(const std::string& name, const std::string& help);
  CommandLine& positional(const std::string& name, const std::string& help);  // any number

  // An option that names a YAML file of options of this command: `global-batch: 1024`, `rule: [...]`, a flag
  // as `json: true`. What the command line says too stays as it says; options that may be repeated add up.
  CommandLine& file_of_options(const std::string& name, const std::string& help);

  // False when --help was asked for and has been printed.
  [[nodiscard]] bool parse(const std::vector<std::string>& arguments);

  [[nodiscard]] bool has(const std::string& name) const;
  [[nodiscard]] std::optional<std::string> text(const std::string& name) const;
  [[nodiscard]] std::string required(const std::string& name) const;
  // The value of an option of the file that was written as a map in its place: `space: {micro_batch_size: [1,
  // 2]}`.
  [[nodiscard]] std::optional<YamlValue> map(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> list(const std::string& name) const;
  [[nodiscard]] std::int64_t integer(const std::string& name, std::int64_t low, std::int64_t high,
                                     std::int64_t otherwise) const;
  [[nodiscard]] std::optional<double> number(const std::string& name, double low, double high) const;
  // A count from 1 to 1e18 with a suffix: "1024", "300B", "1T" (K, M, G or B, T, P: powers of 1000).
  [[nodiscard]] std::optional<double> count(const std::string& name) const;
  template <class Q>
  [[nodiscard]] std::optional<Q> quantity(const std::string& name) const {
    const auto given = text(name);
    if (!given) return std::nullopt;
    return parse_quantity<Q>(*given, place(name));
  }
  // Where an option was given: "--top", or "job.yaml:3: top".
  [[nodiscard]] std::string place(const std::string& name) const;
  // The value as one of `names`, as its index.
  [[nodiscard]] std::optional<std::size_t> choice(const std::string& name,
                                                  const std::vector<std::string>& names) const;

  // Common options.
  [[nodiscard]] bool json() const { return has("json"); }
  [[nodiscard]] bool quiet() const { return has("quiet"); }
  [[nodiscard]] int jobs() const;  // all cores by default
  [[nodiscard]] std::uint64_t seed() const;

 private:
  void store(const std::vector<std::string>& arguments);
  void store_file(const std::string& path);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery
