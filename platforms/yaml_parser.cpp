#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <array>
#include <map>
#include <sstream>

#include "platforms/utf8.hpp"
#include "platforms/yaml_tree.hpp"

namespace orrery {

namespace {

constexpr std::size_t kLargestText = std::size_t{16} << 20;
constexpr std::size_t kMostNodes = 1'000'000;
constexpr std::size_t kDeepest = 64;

// The tags of the YAML core schema change nothing here, because every reader says which kind it wants.
bool is_harmless_tag(const std::string& tag) {
  constexpr std::array<std::string_view, 10> kHarmless = {"",
                                                          "?",
                                                          "!",
                                                          "tag:yaml.org,2002:str",
                                                          "tag:yaml.org,2002:int",
                                                          "tag:yaml.org,2002:float",
                                                          "tag:yaml.org,2002:bool",
                                                          "tag:yaml.org,2002:null",
                                                          "tag:yaml.org,2002:seq",
                                                          "tag:yaml.org,2002:map"};
  for (const std::string_view harmless : kHarmless) {
    if (tag == harmless) return true;
  }
  return false;
}

// Builds our tree from yaml-cpp's events. yaml-cpp's own tree is not used: it keeps no key lines, merges what
// an alias repeats and lets a document grow without bound.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& file) : root_(std::make_shared<YamlNode>()) {
    root_->file = file;
    root_->line = 1;
  }

  [[nodiscard]] std::shared_ptr<const YamlNode> root() const { return root_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) fail(mark, "a second document", "one document a file");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (awaits_key()) fail(mark, "an empty key", "a key");
    finish_leaf(place_node(mark), anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    if (awaits_key()) {
      take_key(mark, value);
      return;
    }
    YamlNode& node = place_node(mark);
    node.kind = YamlValue::Kind::scalar;
    node.scalar = value;
    finish_leaf(node, anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlValue::Kind::list);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlValue::Kind::map);
  }
  void OnMapEnd() override { close(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (awaits_key()) fail(mark, "an alias as a key", "a plain key");
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end())
      fail(mark, "an alias inside the value it names", "a value that does not contain itself");
    YamlNode& node = place_node(mark);
    copy_into(node, *found->second, mark, stack_.size());
  }

 private:
  struct Open {
    YamlNode* node;
    YAML::anchor_t anchor;
    bool has_key = false;
    std::string key;
    std::map<std::string, int> key_lines;
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& found,
                         const std::string& expected) const {
    throw InputError(
        root_->file + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1), found,
        expected);
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!is_harmless_tag(tag)) fail(mark, "the tag " + quote_for_message(tag), "a value without a tag");
  }

  [[nodiscard]] bool awaits_key() const {
    return !stack_.empty() && stack_.back().node->kind == YamlValue::Kind::map && !stack_.back().has_key;
  }

  void take_key(const YAML::Mark& mark, const std::string& key) {
    Open& map = stack_.back();
    const auto [known, fresh] = map.key_lines.emplace(key, mark.line + 1);
    if (!fresh) {
      fail(mark, "the key " + quote_for_message(key) + " a second time",
           "each key once (it already stands in line " + std::to_string(known->second) + ")");
    }
    map.key = key;
    map.has_key = true;
  }

  void count_node(const YAML::Mark& mark) {
    if (++nodes_ > kMostNodes)
      fail(mark, "more than a million values", "a smaller document (are aliases nested?)");
  }

  // The node for a value that starts now: the root, or a new child of the innermost open list or map.
  YamlNode& place_node(const YAML::Mark& mark) {
    count_node(mark);
    if (stack_.empty()) {
      root_->line = mark.line + 1;
      return *root_;
    }
    Open& parent = stack_.back();
    YamlNode& node = add_child(*parent.node);
    node.line = mark.line + 1;
    if (parent.has_key) node.key = std::move(parent.key);
    parent.has_key = false;
    return node;
  }

  static YamlNode& add_child(YamlNode& parent) {
    auto node = std::make_unique<YamlNode>();
    node->parent = &parent;
    node->index = parent.children.size();
    parent.children.push_back(std::move(node));
    return *parent.children.back();
  }

  // An anchor becomes known only when its value is complete, so an alias inside it is found to be a loop.
  void finish_leaf(const YamlNode& node, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = &node;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlValue::Kind kind) {
    check_tag(mark, tag);
    if (awaits_key())
      fail(mark, kind == YamlValue::Kind::map ? "a map as a key" : "a list as a key", "a plain key");
    if (stack_.size() >= kDeepest) fail(mark, "more than 64 levels of nesting", "a flatter document");
    YamlNode& node = place_node(mark);
    node.kind = kind;
    stack_.push_back({&node, anchor, false, {}, {}});
  }

  void close() {
    finish_leaf(*stack_.back().node, stack_.back().anchor);
    stack_.pop_back();
  }

  void copy_into(YamlNode& target, const YamlNode& source, const YAML::Mark& mark, std::size_t depth) {
    if (depth >= kDeepest) fail(mark, "more than 64 levels of nesting", "a flatter document");
    target.kind = source.kind;
    target.line = source.line;
    target.scalar = source.scalar;
    for (const auto& child : source.children) {
      count_node(mark);
      YamlNode& copy = add_child(target);
      copy.key = child->key;
      copy_into(copy, *child, mark, depth + 1);
    }
  }

  std::shared_ptr<YamlNode> root_;
  std::vector<Open> stack_;
  std::map<YAML::anchor_t, const YamlNode*> anchors_;
  std::size_t nodes_ = 0;
  int documents_ = 0;
};

// Length of the character that starts at `at`; 0 when the bytes are no text that YAML allows.
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const bool control = (first < 0x20 && first != '\t' && first != '\n' && first != '\r') || first == 0x7f;
  return control ? 0 : utf8_length(text.substr(at));
}

// yaml-cpp guesses other encodings, takes byte 4 for the end of the file and passes control characters on.
void require_text(std::string_view text, const std::string& file) {
  if (text.size() > kLargestText)
    throw InputError(file, "more than 16 MiB", "a YAML document of a few kilobytes");
  int line = 1;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    if (length == 0) {
      throw InputError(file + ":" + std::to_string(line), "the byte " + quote_for_message(text.substr(at, 1)),
                       "YAML text in UTF-8 without control characters");
    }
    if (text[at] == '\n') ++line;
    at += length;
  }
}

}  // namespace

std::shared_ptr<const YamlNode> parse_yaml_tree(std::string_view text, const std::string& file) {
  require_text(text, file);
  TreeBuilder builder(file);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    const std::string place = error.mark.is_null() ? file
                                                   : file + ":" + std::to_string(error.mark.line + 1) + ":" +
                                                         std::to_string(error.mark.column + 1);
    throw InputError(place, "broken YAML (" + error.msg + ")", "a valid YAML document");
  }
  return builder.root();
}

}  // namespace orrery
