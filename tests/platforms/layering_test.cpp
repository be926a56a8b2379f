// Reads the #include lines of every folder: no wrong arrow, and an outside library only where it belongs.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/catch.hpp"

namespace {

struct Include {
  std::string file;    // "platforms/cluster.cpp"
  std::string folder;  // "platforms"
  std::string target;  // "platforms/cluster.hpp" or "vector"
  bool is_quoted = false;
};

using Folders = std::set<std::string>;

// Which folders a folder may include besides itself (DESIGN, shape).
const std::map<std::string, Folders> kArrows = {
    {"platforms", {}},
    {"strategies", {"platforms"}},
    {"traces", {"platforms", "strategies"}},
    {"costmodels", {"platforms", "strategies", "traces"}},
    {"analysis", {"platforms", "strategies", "traces"}},
    {"sim", {"platforms", "strategies", "traces", "costmodels", "analysis"}},
};

struct Owner {
  std::string prefix;  // of the header's name
  Folders folders;
};

// Outside libraries by the start of their headers' names, and who may include them (in a .cpp only).
const std::vector<Owner> kOwners = {
    {"yaml-cpp/", {"platforms"}},
    {"nlohmann/", {"strategies", "costmodels", "sim"}},
    {"muparserx/", {"strategies"}},
    {"mpParser", {"strategies"}},
    {"hdf5", {"traces"}},
    {"H5", {"traces"}},
    {"zlib", {"traces"}},
    {"xgboost/", {"costmodels"}},
    {"simgrid/", {"sim"}},
    {"xbt/", {"sim"}},
    {"smpi/", {"sim"}},
    {"boost/math/", {"costmodels"}},
    {"boost/program_options", {"sim"}},
    {"mpi.h", {"sim"}},
};

bool starts_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

bool is_header(const std::string& file) {
  return std::filesystem::path(file).extension() == ".hpp";
}

// The target of an #include line; nothing for any other line.
void add_include(std::vector<Include>& includes, const std::string& folder, const std::string& file,
                 const std::string& line) {
  const std::size_t hash = line.find_first_not_of(" \t");
  if (hash == std::string::npos || line[hash] != '#') return;
  const std::size_t word = line.find_first_not_of(" \t", hash + 1);
  if (word == std::string::npos || line.compare(word, 7, "include") != 0) return;
  const std::size_t open = line.find_first_of("<\"", word);
  if (open == std::string::npos) return;
  const std::size_t close = line.find_first_of(">\"", open + 1);
  includes.push_back({file, folder, line.substr(open + 1, close - open - 1), line[open] == '"'});
}

std::vector<Include> read_includes() {
  const std::filesystem::path root = ORRERY_SOURCE_DIR;
  std::vector<Include> includes;
  for (const auto& row : kArrows) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / row.first)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cpp" && extension != ".hpp" && extension != ".h" && extension != ".c") continue;
      std::ifstream stream(entry.path());
      for (std::string line; std::getline(stream, line);) {
        add_include(includes, row.first, std::filesystem::relative(entry.path(), root).string(), line);
      }
    }
  }
  return includes;
}

// Of a file in "costmodels/plans" or below: that. Empty: it lies in one of the six folders itself.
std::string subfolder_of(const std::string& file) {
  const std::size_t first = file.find('/'), second = file.find('/', first + 1);
  return second == std::string::npos ? "" : file.substr(0, second);
}

// By subfolder: those of the same folder that it includes.
std::map<std::string, Folders> inner_arrows(const std::vector<Include>& includes) {
  std::map<std::string, Folders> arrows;
  for (const Include& include : includes) {
    const std::string from = subfolder_of(include.file), to = subfolder_of(include.target);
    const bool inside = starts_with(include.target, include.folder + "/");
    if (inside && !from.empty() && !to.empty() && from != to) arrows[from].insert(to);
  }
  return arrows;
}

// All that a subfolder includes, through others too.
Folders reached_from(const std::string& from, const std::map<std::string, Folders>& arrows) {
  Folders reached;
  std::vector<std::string> open{from};
  while (!open.empty()) {
    const auto next = arrows.find(open.back());
    open.pop_back();
    if (next == arrows.end()) continue;
    for (const std::string& to : next->second)
      if (reached.insert(to).second) open.push_back(to);
  }
  return reached;
}

// What is wrong with one include; empty when nothing is.
std::string trouble(const Include& include) {
  const std::string arrow = include.file + " includes " + include.target;
  const std::string target_folder = include.target.substr(0, include.target.find('/'));
  const bool is_ours = kArrows.count(target_folder) > 0;
  if (include.is_quoted && !is_ours) return arrow + ": a quoted include starts with one of our folders";
  if (is_ours && !include.is_quoted) return arrow + ": our own headers are quoted";
  if (is_ours && target_folder != include.folder && kArrows.at(include.folder).count(target_folder) == 0) {
    return arrow + ": " + include.folder + " may not include " + target_folder;
  }
  for (const Owner& owner : kOwners) {
    if (!starts_with(include.target, owner.prefix)) continue;
    if (owner.folders.count(include.folder) == 0) return arrow + ": the library belongs to another folder";
    if (is_header(include.file)) return arrow + ": a library stays behind a .cpp";
  }
  return {};
}

}  // namespace

TEST_CASE("no folder includes a folder above it, and every outside library stays in a .cpp of its folder") {
  const std::vector<Include> includes = read_includes();
  REQUIRE(includes.size() > 20);  // the sources were found
  for (const Include& include : includes) {
    INFO(trouble(include));
    CHECK(trouble(include).empty());
  }
}

TEST_CASE("inside a folder its subfolders include each other one way") {
  const std::map<std::string, Folders> arrows = inner_arrows(read_includes());
  REQUIRE(arrows.count("costmodels/plans") == 1);
  for (const auto& [from, to] : arrows) {
    INFO(from);
    CHECK(reached_from(from, arrows).count(from) == 0);
  }
  const Include there{"sim/a/x.cpp", "sim", "sim/b/y.hpp", true},
      back{"sim/b/y.hpp", "sim", "sim/a/x.hpp", true};
  CHECK(reached_from("sim/a", inner_arrows({there})).count("sim/a") == 0);
  CHECK(reached_from("sim/a", inner_arrows({there, back})).count("sim/a") == 1);
}

// Two of one name in one program are one to the linker, whatever they hold.
TEST_CASE("no two headers define types of one name") {
  const std::filesystem::path root = ORRERY_SOURCE_DIR;
  const std::regex definition(R"(^(?:struct|class|enum class) (\w+)[^;]*$)");
  std::map<std::string, std::string> home;  // header, by type
  for (const auto& row : kArrows) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / row.first)) {
      if (!is_header(entry.path().string())) continue;
      std::ifstream stream(entry.path());
      std::smatch found;
      for (std::string line; std::getline(stream, line);) {
        if (!std::regex_search(line, found, definition)) continue;
        const std::string file = std::filesystem::relative(entry.path(), root).string();
        CAPTURE(found[1].str(), file);
        CHECK(home.emplace(found[1].str(), file).first->second == file);
      }
    }
  }
  CHECK(home.size() > 100);
}

TEST_CASE("the rules see a wrong arrow") {
  CHECK_FALSE(trouble({"platforms/a.cpp", "platforms", "strategies/model.hpp", true}).empty());
  CHECK_FALSE(trouble({"analysis/a.cpp", "analysis", "costmodels/memory/memory.hpp", true}).empty());
  CHECK_FALSE(trouble({"costmodels/a.cpp", "costmodels", "analysis/pareto.hpp", true}).empty());
  CHECK_FALSE(trouble({"sim/a.cpp", "sim", "tests/catch.hpp", true}).empty());
  CHECK_FALSE(trouble({"sim/a.cpp", "sim", "replay.hpp", true}).empty());
  CHECK_FALSE(trouble({"sim/a.cpp", "sim", "platforms/units.hpp", false}).empty());
  CHECK(trouble({"sim/a.cpp", "sim", "platforms/units.hpp", true}).empty());
  CHECK(trouble({"sim/a.cpp", "sim", "sim/replay/replay.hpp", true}).empty());
}

TEST_CASE("the rules see a library outside its folder or in a header") {
  CHECK_FALSE(trouble({"sim/a.cpp", "sim", "yaml-cpp/yaml.h", false}).empty());
  CHECK_FALSE(trouble({"platforms/a.hpp", "platforms", "yaml-cpp/yaml.h", false}).empty());
  CHECK_FALSE(trouble({"traces/a.cpp", "traces", "nlohmann/json.hpp", false}).empty());
  CHECK(trouble({"traces/a.cpp", "traces", "hdf5.h", false}).empty());
  CHECK(trouble({"sim/a.cpp", "sim", "nlohmann/json.hpp", false}).empty());
}

TEST_CASE("include lines are found however they are indented") {
  std::vector<Include> includes;
  add_include(includes, "sim", "sim/a.cpp", "  #  include <vector>  // why");
  add_include(includes, "sim", "sim/a.cpp", "#include \"sim/b.hpp\"");
  add_include(includes, "sim", "sim/a.cpp", "// #include \"sim/c.hpp\"");
  REQUIRE(includes.size() == 2);
  CHECK(includes[0].target == "vector");
  CHECK_FALSE(includes[0].is_quoted);
  CHECK(includes[1].target == "sim/b.hpp");
  CHECK(includes[1].is_quoted);
}

TEST_CASE("every source of the tests is built by the CMakeLists.txt beside it") {
  int sources = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/tests")) {
    if (entry.path().extension() != ".cpp") continue;
    std::ifstream stream(entry.path().parent_path() / "CMakeLists.txt");
    const std::string list{std::istreambuf_iterator<char>(stream), {}};
    const std::regex name("\\b" + entry.path().stem().string() + "\\.cpp\\b");
    INFO(entry.path().string());
    CHECK(std::regex_search(list, name));
    ++sources;
  }
  CHECK(sources > 100);
}
