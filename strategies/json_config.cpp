#include "strategies/json_config.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "platforms/errors.hpp"
#include "platforms/utf8.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;

// "3:14", counted from 1, of the character before byte `end`.
std::string line_and_column(std::string_view text, std::size_t end) {
  const std::string_view before = text.substr(0, std::min(text.size(), end > 0 ? end - 1 : 0));
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const std::size_t line_start = before.rfind('\n');
  const std::size_t column =
      line_start == std::string_view::npos ? before.size() : before.size() - line_start - 1;
  return std::to_string(lines + 1) + ":" + std::to_string(column + 1);
}

std::string kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    default:
      return "a " + std::string(value.type_name());
  }
}

std::string found(const Json& value) {
  if (value.is_structured() || value.is_null()) return kind_of(value);
  constexpr std::size_t kLongest = 60;
  return shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace), kLongest);
}

// Python's json writes numbers that JSON lacks as bare words; as texts they are refused only where they are
// read.
std::string with_quoted_numbers(std::string_view text) {
  std::string quoted;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!in_text) {
      std::string_view number;
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
        if (number.empty() && text.substr(i).starts_with(word)) number = word;
      if (!number.empty()) {
        quoted.append("\"").append(number).append("\"");
        i += number.size() - 1;
        continue;
      }
    }
    if (text[i] == '"') in_text = !in_text;
    quoted += text[i];
    if (in_text && text[i] == '\\' && i + 1 < text.size()) quoted += text[++i];
  }
  return quoted;
}

// The document, whose objects have each key once.
Json parse_json(const std::string& text, const std::string& file) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  return Json::parse(text, [&](int, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      throw InputError(file, "the key " + quote_for_message(value.get<std::string>()) + " a second time",
                       "each key once in an object");
    return true;
  });
}

}  // namespace

struct JsonConfig::Document {
  Json json;

  [[nodiscard]] const Json* find(const std::string& key) const {
    const auto entry = json.find(key);
    return entry == json.end() || entry->is_null() ? nullptr : &*entry;
  }
};

JsonConfig::JsonConfig(std::string_view text, std::string file) : file_(std::move(file)) {
  Json json;
  const std::string quoted = with_quoted_numbers(text);
  try {
    json = parse_json(quoted, file_);
  } catch (const Json::parse_error& error) {
    throw InputError(file_ + ":" + line_and_column(quoted, error.byte), "broken JSON", "a JSON object");
  } catch (const Json::exception&) {  // a number too large for any type
    throw InputError(file_, "JSON with a value out of range", "a JSON object");
  }
  if (!json.is_object())
    throw InputError(file_, kind_of(json), "a JSON object, as in a Hugging Face config.json");
  document_ = std::make_shared<const Document>(Document{std::move(json)});
}

JsonConfig::JsonConfig(std::string file, std::shared_ptr<const Document> document)
    : file_(std::move(file)), document_(std::move(document)) {}

bool JsonConfig::has(const std::string& key) const {
  return document_->find(key) != nullptr;
}

std::vector<std::string> JsonConfig::keys() const {
  std::vector<std::string> names;
  for (const auto& item : document_->json.items()) names.push_back(item.key());
  return names;
}

void JsonConfig::fail(const std::string& key, const std::string& expected) const {
  const auto value = document_->json.find(key);  // null too, which find() takes for nothing
  if (value != document_->json.end()) throw InputError(file_ + ": " + key, found(*value), expected);
  throw InputError(file_ + ": " + key, "nothing", expected + did_you_mean(key, keys()));
}

std::optional<std::int64_t> JsonConfig::find_integer(const std::string& key, Range range) const {
  const Json* value = document_->find(key);
  if (value == nullptr) return std::nullopt;
  // An unsigned number above the signed range would wrap when it is read.
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<std::uint64_t>() > (std::uint64_t{1} << 62));
  const std::int64_t number = fits ? value->get<std::int64_t>() : 0;
  if (!fits || number < range.low || number > range.high)
    fail(key, "a whole number from " + std::to_string(range.low) + " to " + std::to_string(range.high));
  return number;
}

std::int64_t JsonConfig::integer(const std::string& key, Range range) const {
  const auto number = find_integer(key, range);
  if (!number)
    fail(key, "a whole number from " + std::to_string(range.low) + " to " + std::to_string(range.high));
  return *number;
}

std::optional<double> JsonConfig::find_number(const std::string& key, Range range) const {
  const Json* value = document_->find(key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : -1.0;
  const bool fits = number >= static_cast<double>(range.low) && number <= static_cast<double>(range.high);
  if (!value->is_number() || !fits)
    fail(key, "a number from " + std::to_string(range.low) + " to " + std::to_string(range.high));
  return number;
}

std::optional<bool> JsonConfig::find_boolean(const std::string& key) const {
  const Json* value = document_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail(key, "true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonConfig::find_text(const std::string& key) const {
  const Json* value = document_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(key, "a text in quotes");
  return value->get<std::string>();
}

std::string JsonConfig::text(const std::string& key) const {
  const auto value = find_text(key);
  if (!value) fail(key, "a text in quotes");
  return *value;
}

std::vector<std::int64_t> JsonConfig::find_integers(const std::string& key, Range range) const {
  const Json* value = document_->find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) fail(key, "a list of whole numbers");
  std::vector<std::int64_t> numbers;
  for (const Json& item : *value) {
    if (!item.is_number_integer()) fail(key, "a list of whole numbers");
    numbers.push_back(item.get<std::int64_t>());
    if (numbers.back() < range.low || numbers.back() > range.high)
      fail(key, "whole numbers from " + std::to_string(range.low) + " to " + std::to_string(range.high));
  }
  return numbers;
}

std::vector<std::string> JsonConfig::find_texts(const std::string& key) const {
  const Json* value = document_->find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) fail(key, "a list of texts");
  std::vector<std::string> texts;
  for (const Json& item : *value) {
    if (!item.is_string()) fail(key, "a list of texts");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

std::optional<JsonConfig> JsonConfig::find_object(const std::string& key) const {
  const Json* value = document_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail(key, "an object");
  return JsonConfig(file_ + ": " + key, std::make_shared<const Document>(Document{*value}));
}

}  // namespace orrery
