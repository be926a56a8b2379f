#include "sim/interval_fit.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery {
namespace {

std::string name_of(const ValidatedRun& run) {
  return run.group + " " + run.kind;
}

double residual(const ValidatedRun& run) {
  return std::log(run.predicted / *run.measured);
}

// Those of the validation, and of the table that comes with Orrery what it does not have.
std::vector<ResidualGroup> with_built_in(std::vector<ResidualGroup> groups) {
  const std::size_t own = groups.size();
  for (const ResidualGroup& group : built_in_residuals()) {
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
IntervalQuality quality(const std::vector<ResidualGroup>& groups,
                        const std::vector<const ValidatedRun*>& runs) {
  constexpr double kOutside = 2 / 0.1;  // what a run outside costs for its distance
  const IntervalModel model(groups);
  IntervalQuality mean;
  for (const ValidatedRun* run : runs) {
    const TimeBand band = model.band(run->trust);
    const double low = -std::log(band.high), high = -std::log(band.low), value = residual(*run);
    const double outside = std::max({low - value, value - high, 0.0});
    const double n = static_cast<double>(runs.size());
    mean.inside += (outside == 0) / n;
    mean.width += (high - low) / n;
    mean.score += (high - low + kOutside * outside) / n;
  }
  return mean;
}

}  // namespace

std::vector<ResidualGroup> residual_groups(const Validation& validation,
                                           const std::vector<std::string>& without) {
  std::vector<ResidualGroup> groups;
  std::vector<std::vector<double>> residuals;
  for (const ValidatedRun& run : validation.runs) {
    if (!run.measured || std::find(without.begin(), without.end(), run.group) != without.end()) continue;
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const ResidualGroup& group) {
      return group.name == name_of(run) && group.kind == run.trust;
    });
    const auto index = static_cast<std::size_t>(found - groups.begin());
    if (found == groups.end()) {
      groups.push_back({name_of(run), run.group, run.trust});
      residuals.emplace_back();
    }
    residuals[index].push_back(residual(run));
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

std::vector<Coverage> coverage_of(const Validation& validation, const std::vector<std::string>& without) {
  const std::vector<ResidualGroup> all = with_built_in(residual_groups(validation, without));
  std::vector<std::string> names;
  std::map<std::string, std::vector<const ValidatedRun*>> runs;
  for (const ValidatedRun& run : validation.runs) {
    if (!run.measured) continue;
    if (runs[name_of(run)].empty()) names.push_back(name_of(run));
    runs[name_of(run)].push_back(&run);
  }
  std::vector<Coverage> rows;
  for (const std::string& name : names) {
    const std::vector<const ValidatedRun*>& own = runs[name];
    const auto no_group = groups_but(all, [&](const ResidualGroup& one) { return one.name == name; });
    const auto no_source =
        groups_but(all, [&](const ResidualGroup& one) { return one.source == own.front()->group; });
    const bool used = std::find(without.begin(), without.end(), own.front()->group) == without.end();
    rows.push_back({name, own.size(), used, quality(no_group, own), quality(no_source, own),
                    IntervalModel(no_group).band(own.front()->trust)});
  }
  return rows;
}

}  // namespace orrery
