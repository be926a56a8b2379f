// Rules over many candidates: each is evaluated once for every combination of the arguments it names.
#pragma once

#include <map>
#include <vector>

#include "strategies/megatron.hpp"
#include "strategies/rules.hpp"

namespace orrery {

class RuleBook {
 public:
  // Keeps references to both.
  RuleBook(const ModelSpec&, const std::vector<Rule>&);
  // The first rule, in their order, that drops the strategy; absent: none does.
  [[nodiscard]] const Rule* dropping(const ParallelStrategy&);
  [[nodiscard]] std::size_t evaluations() const { return evaluations_; }  // of rules so far

 private:
  struct Entry {
    const Rule* rule;
    std::vector<const ArgumentRow*> named;
    std::map<std::vector<Argument>, bool> known;  // by the values of those
  };
  bool matches(Entry&, const ParallelStrategy&);

  const ModelSpec& model_;
  std::vector<Entry> entries_;
  std::vector<Argument> values_;
  std::size_t evaluations_ = 0;
};

}  // namespace orrery
