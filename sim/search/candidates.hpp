// The space of a search without a list of it: what all candidates of the same ways share, and how many there
// are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/search/search.hpp"

namespace orrery {

// Settings that differ only in switches which change neither the pipeline's work nor its shape.
struct SettingFamily {
  Setting common;  // of which those switches do not count
  std::vector<std::uint32_t> settings;
};
std::vector<SettingFamily> families_of(const std::vector<Setting>&);

// A family on some ways: what is left of it there.
struct FamilyCase {
  std::uint32_t family = 0;
  std::int64_t microbatches = 0;
  std::vector<std::uint32_t> settings;  // that have a shape
  std::vector<char> stages_fit;         // [stages of the pipeline]
};

struct WaysCase {
  Ways ways;
  std::vector<char> group_fits;  // [group] may hold stages
  std::vector<FamilyCase> families;

  [[nodiscard]] bool fits(const StageCounts& stages) const {
    for (std::size_t group = 0; group < stages.size(); ++group) {
      if (stages[group] > 0 && group_fits[group] == 0) return false;
    }
    return true;
  }
};

struct CandidateSpace {
  std::vector<int> alike;  // groups_alike
  std::vector<Setting> settings;
  std::vector<SettingFamily> families;
  std::vector<WaysCase> cases;                   // those with any candidate that has a shape
  std::size_t enumerated = 0;                    // candidates in all
  std::size_t shaped = 0;                        // that have a shape
  std::map<std::string, std::size_t> obstacles;  // of the others
};

// Throws InputError for a space that nobody would wait for.
CandidateSpace candidate_space(const SearchJob&);

}  // namespace orrery
