// Builds a JSON document value by value; commas come by themselves.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "traces/json_text.hpp"

namespace orrery {

class JsonBuilder {
 public:
  JsonBuilder& begin(char bracket) {  // '{' or '['
    separate();
    out_ += bracket;
    first_ = true;
    return *this;
  }
  JsonBuilder& end(char bracket) {  // '}' or ']'
    out_ += bracket;
    first_ = false;
    return *this;
  }
  JsonBuilder& key(std::string_view name) {
    separate();
    append_json(out_, name);
    out_ += ':';
    first_ = true;
    return *this;
  }
  template <class Value>  // text or double
  JsonBuilder& value(const Value& item) {
    separate();
    append_json(out_, item);
    return *this;
  }
  std::string finish() { return std::move(out_); }

 private:
  void separate() {
    if (!first_) out_ += ',';
    first_ = false;
  }

  std::string out_;
  bool first_ = true;
};

}  // namespace orrery
