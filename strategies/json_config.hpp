// Checked reading of a JSON object such as a Hugging Face config.json: errors name the file and the key, keys
// that nobody asks for are ignored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

class JsonConfig {
 public:
  // Throws InputError with line:column for broken JSON, and when the top is not an object.
  JsonConfig(std::string_view text, std::string file);

  [[nodiscard]] const std::string& file() const { return file_; }

  // Present and not null: Hugging Face writes null for "the default".
  [[nodiscard]] bool has(const std::string& key) const;
  [[nodiscard]] std::vector<std::string> keys() const;

  // A whole number in [low, high]. Throws InputError when it is missing or anything else.
  struct Range {
    std::int64_t low;
    std::int64_t high;
  };
  [[nodiscard]] std::int64_t integer(const std::string& key, Range) const;
  [[nodiscard]] std::optional<std::int64_t> find_integer(const std::string& key, Range) const;
  // Whole or not, in the same range.
  [[nodiscard]] std::optional<double> find_number(const std::string& key, Range) const;
  [[nodiscard]] std::optional<bool> find_boolean(const std::string& key) const;
  [[nodiscard]] std::string text(const std::string& key) const;
  [[nodiscard]] std::optional<std::string> find_text(const std::string& key) const;
  [[nodiscard]] std::vector<std::int64_t> find_integers(const std::string& key,
                                                        Range) const;               // empty when absent
  [[nodiscard]] std::vector<std::string> find_texts(const std::string& key) const;  // empty when absent
  // An object within this one; its errors name "file: key".
  [[nodiscard]] std::optional<JsonConfig> find_object(const std::string& key) const;

  // Throws InputError{"file: key", what stands there, expected}.
  [[noreturn]] void fail(const std::string& key, const std::string& expected) const;

 private:
  struct Document;
  JsonConfig(std::string file, std::shared_ptr<const Document> document);
  std::string file_;
  std::shared_ptr<const Document> document_;
};

}  // namespace orrery
