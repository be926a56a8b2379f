// The tree behind YamlValue; only yaml.cpp and yaml_parser.cpp know it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platforms/yaml.hpp"

namespace orrery {

// A node lives as long as its root; `parent` and `file` point into the same tree.
struct YamlNode {
  YamlValue::Kind kind = YamlValue::Kind::null;
  int line = 0;  // counted from 1
  std::string scalar;
  std::string key;        // in the parent, when that is a map
  std::size_t index = 0;  // in the parent
  const YamlNode* parent = nullptr;
  std::vector<std::unique_ptr<YamlNode>> children;
  std::string file;  // of the root only
};

// "cluster.yaml:12: groups[1].count"
std::string place_of(const YamlNode&);

std::shared_ptr<const YamlNode> parse_yaml_tree(std::string_view text, const std::string& file);

}  // namespace orrery
