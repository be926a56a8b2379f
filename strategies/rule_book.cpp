#include "strategies/rule_book.hpp"

#include <algorithm>

namespace orrery {
namespace {

// Of one rule; layouts of uneven pipelines differ from plan to plan.
constexpr std::size_t kMostKnown = 100'000;

std::vector<const ArgumentRow*> rows_of(const std::vector<std::string>& names) {
  std::vector<const ArgumentRow*> rows;
  for (const ArgumentRow& row : argument_rows())
    if (std::find(names.begin(), names.end(), row.name) != names.end()) rows.push_back(&row);
  return rows;
}

}  // namespace

RuleBook::RuleBook(const ModelSpec& model, const std::vector<Rule>& rules) : model_(model) {
  for (const Rule& rule : rules) entries_.push_back({&rule, rows_of(rule.arguments()), {}});
}

const Rule* RuleBook::dropping(const ParallelStrategy& strategy) {
  for (Entry& entry : entries_)
    if (matches(entry, strategy)) return entry.rule;
  return nullptr;
}

bool RuleBook::matches(Entry& entry, const ParallelStrategy& strategy) {
  values_.clear();
  for (const ArgumentRow* row : entry.named) values_.push_back(row->value(model_, strategy));
  const auto known = entry.known.find(values_);
  if (known != entry.known.end()) return known->second;
  ArgumentTable table;
  for (std::size_t i = 0; i < values_.size(); ++i)
    table.emplace_back(std::string(entry.named[i]->name), values_[i]);
  ++evaluations_;
  const bool matches = entry.rule->matches(table);
  if (entry.known.size() >= kMostKnown) entry.known.clear();
  entry.known.emplace(values_, matches);
  return matches;
}

}  // namespace orrery
