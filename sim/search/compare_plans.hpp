// Two plans side by side.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "costmodels/memory/memory.hpp"
#include "costmodels/plans/price_book.hpp"
#include "sim/replay/plan_run.hpp"
#include "strategies/arguments.hpp"

namespace orrery {

// One plan, replayed.
struct PlanSide {
  std::string path, model, cluster;
  const PriceBook& book;
  const ParallelStrategy& strategy;
  const std::vector<StageMemory>& memory;
  const ReplaySummary& replay;
  std::vector<std::pair<std::string, double>> estimates;  // name of the estimator, s
  double total_tokens = 0;                                // 0: not said
  ErrorBand band = {};
};

// A row of the comparison: what a plan has, as people read it and, where it is one, as a number; of arguments
// as what they are.
struct PlanFact {
  std::string group;  // "plan", "run", "estimators", "all stages", "stage 0", ...
  std::string name;   // with its unit
  std::string text;
  std::optional<double> number = {};
  std::optional<Argument> argument = {};
};
std::vector<PlanFact> plan_facts(const PlanSide&);

struct FactPair {
  std::string group, name;
  std::array<std::optional<PlanFact>, 2> sides;  // absent: that plan has no such stage
  [[nodiscard]] bool differs() const;
};
// In the order of the first, with what only the second has at the end of its group.
std::vector<FactPair> side_by_side(const std::vector<PlanFact>&, const std::vector<PlanFact>&);

// A table a group; "*" marks what differs. Of Megatron-LM's arguments only those that differ.
std::string to_text(const std::vector<FactPair>&, const std::array<std::string, 2>& paths);
// {"plans":[{"path", group: {name: value}}, ...], "differences":["group: name", ...]}
std::string to_json(const std::vector<FactPair>&, const std::array<std::string, 2>& paths);

}  // namespace orrery
