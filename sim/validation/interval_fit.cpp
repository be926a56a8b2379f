#include "sim/validation/interval_fit.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "sim/replay/on_threads.hpp"

namespace orrery {
namespace {

// ln(predicted / measured); absent where it was not measured.
std::optional<double> residual(const ValidatedRun& run, Predicted what) {
  const std::optional<double>& measured = what == Predicted::time ? run.measured : run.measured_memory;
  if (!measured) return std::nullopt;
  return std::log((what == Predicted::time ? run.predicted : run.predicted_memory) / *measured);
}

// Those of the validation, and of the table that comes with Orrery what it does not have.
std::vector<ResidualGroup> with_built_in(std::vector<ResidualGroup> groups, Predicted what) {
  const std::size_t own = groups.size();
  for (const ResidualGroup& group : built_in_residuals().of(what)) {
    const auto end = groups.begin() + static_cast<std::ptrdiff_t>(own);
    if (std::none_of(groups.begin(), end,
                     [&](const ResidualGroup& one) { return one.source == group.source; }))
      groups.push_back(group);
  }
  return groups;
}

template <class Drop>
std::vector<ResidualGroup> groups_but(std::vector<ResidualGroup> all, const Drop& drop) {
  std::erase_if(all, drop);
  return all;
}

// Shares of the runs that their bands hold, and how good these are, runs counting alike.
IntervalQuality quality(const IntervalModel& model, const std::vector<const ValidatedRun*>& runs,
                        Predicted what) {
  constexpr double kOutside = 2 / 0.1;  // what a run outside costs for its distance
  IntervalQuality sum;
  for (const ValidatedRun* run : runs) {
    const ErrorBand alone = model.band(run->trust);
    const ErrorBand band = what == Predicted::time ? over_open_facts(alone, *run) : alone;
    const double low = -std::log(band.high), high = -std::log(band.low), value = *residual(*run, what);
    const double outside = std::max({low - value, value - high, 0.0});
    sum.inside += outside == 0 ? 1 : 0;
    sum.width += high - low;
    sum.score += high - low + kOutside * outside;
  }
  const double n = static_cast<double>(runs.size());
  return {.inside = sum.inside / n, .width = sum.width / n, .score = sum.score / n};
}

std::vector<ResidualGroup> residual_groups(const Validation& validation, Predicted what,
                                           const std::vector<std::string>& without) {
  std::vector<ResidualGroup> groups;
  std::vector<std::vector<double>> residuals;
  for (const ValidatedRun& run : validation.runs) {
    const auto value = residual(run, what);
    if (!value || std::find(without.begin(), without.end(), run.group) != without.end()) continue;
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const ResidualGroup& group) {
      return group.name == coverage_name(run) && group.kind == telling(what, run.trust);
    });
    const auto index = static_cast<std::size_t>(found - groups.begin());
    if (found == groups.end()) {
      groups.push_back({coverage_name(run), run.group, telling(what, run.trust)});
      residuals.emplace_back();
    }
    residuals[index].push_back(*value);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const double n = static_cast<double>(residuals[i].size());
    double squares = 0;
    for (const double value : residuals[i]) groups[i].mean += value / n;
    for (const double value : residuals[i]) squares += (value - groups[i].mean) * (value - groups[i].mean);
    groups[i].runs = static_cast<int>(residuals[i].size());
    groups[i].variance = n > 1 ? squares / (n - 1) : 0;
  }
  return groups;
}

// Runs of sources that publish some that ran out of memory, by source. One that stopped for a reason nobody
// wrote down tells nothing.
std::map<std::string, std::vector<MemoryOutcome>> memory_outcomes(const Validation& validation) {
  std::map<std::string, std::vector<MemoryOutcome>> outcomes;
  for (const ValidatedRun& run : validation.runs) {
    if (run.out_of_memory || !run.failed) outcomes[run.group].push_back({run.fullness, run.out_of_memory});
  }
  std::erase_if(outcomes, [](const auto& source) {
    return std::none_of(source.second.begin(), source.second.end(),
                        [](const MemoryOutcome& run) { return run.ran_out; });
  });
  return outcomes;
}

// By all sources but one; by all where it is empty.
OutOfMemoryModel out_of_memory_model(const std::map<std::string, std::vector<MemoryOutcome>>& outcomes,
                                     const std::string& but = {}) {
  std::vector<MemoryOutcome> all;
  for (const auto& [source, runs] : outcomes) {
    if (source != but) all.insert(all.end(), runs.begin(), runs.end());
  }
  return fit_out_of_memory(all).value_or(built_in_residuals().out_of_memory);
}

}  // namespace

std::string coverage_name(const ValidatedRun& run) {
  return run.group + " " + run.kind;
}

Residuals residuals_of(const Validation& validation, const std::vector<std::string>& without) {
  return {residual_groups(validation, Predicted::time, without),
          residual_groups(validation, Predicted::memory, {}),
          out_of_memory_model(memory_outcomes(validation))};
}

std::vector<Coverage> coverage_of(const Validation& validation, Predicted what,
                                  const std::vector<std::string>& without, int threads) {
  const std::vector<ResidualGroup> all = with_built_in(residual_groups(validation, what, without), what);
  std::vector<std::string> names;
  std::map<std::string, std::vector<const ValidatedRun*>> runs;
  for (const ValidatedRun& run : validation.runs) {
    if (!residual(run, what)) continue;
    if (runs[coverage_name(run)].empty()) names.push_back(coverage_name(run));
    runs[coverage_name(run)].push_back(&run);
  }
  std::vector<Coverage> rows(names.size());
  on_threads(names.size(), threads, [&](std::size_t i) {
    const std::string& name = names[i];
    const std::vector<const ValidatedRun*>& own = runs.at(name);
    const IntervalModel no_group =
        interval_model(groups_but(all, [&](const ResidualGroup& one) { return one.name == name; }), what);
    const IntervalModel no_source = interval_model(
        groups_but(all, [&](const ResidualGroup& one) { return one.source == own.front()->group; }), what);
    const bool used = std::find(without.begin(), without.end(), own.front()->group) == without.end();
    rows[i] = {name,
               own.size(),
               used,
               quality(no_group, own, what),
               quality(no_source, own, what),
               no_group.band(own.front()->trust)};
  });
  return rows;
}

std::vector<ForeseenChances> foreseen_chances(const Validation& validation) {
  const auto outcomes = memory_outcomes(validation);
  if (outcomes.empty()) return {};
  std::vector<ForeseenChances> rows{{0, 0.01}, {0.01, 0.05}, {0.05, 0.2}, {0.2, 0.5}, {0.5, 0.8}, {0.8, 1}};
  for (const auto& [source, runs] : outcomes) {
    const OutOfMemoryModel model = out_of_memory_model(outcomes, source);
    for (const MemoryOutcome& run : runs) {
      const double chance = model.chance(run.fullness);
      const auto row = std::find_if(rows.begin(), rows.end() - 1,
                                    [&](const ForeseenChances& one) { return chance < one.high; });
      ++row->runs;
      row->ran_out += run.ran_out;
      row->mean += chance;
    }
  }
  for (ForeseenChances& row : rows)
    if (row.runs > 0) row.mean /= static_cast<double>(row.runs);
  return rows;
}

}  // namespace orrery
