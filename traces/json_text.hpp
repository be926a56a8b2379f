// Text and numbers as JSON writes them.
#pragma once

#include <string>
#include <string_view>

namespace orrery {

// Appends the text in quotes. Bytes that are no UTF-8 become U+FFFD; "<" is escaped, so that the result may
// also stand inside a <script> element.
void append_json(std::string& out, std::string_view text);

// Appends the shortest text that reads back to the same number; null for NaN and infinities, which JSON
// lacks.
void append_json(std::string& out, double number);

// A document for standard output. Names and paths may hold bytes that are no UTF-8: U+FFFD stands for them.
template <class Json>
std::string json_document(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery
