#include "sim/search/mix_search.hpp"

#include <algorithm>

namespace orrery {

MixSearch::MixSearch(const SearchJob& job, PriceBook& book, StageFitter& fitter, FoundPlans& found,
                     SearchSpaceCounts& counts)
    : job_(job), book_(book), mixer_(book, fitter), found_(found), counts_(counts) {}

void MixSearch::enumerate(std::vector<Setting> settings) {
  settings_ = std::move(settings);
  for (ReplicaMix& mix : replica_mixes(job_.cluster, job_.space, job_.mode, job_.global_batch)) {
    MixCase at{std::move(mix), {}};
    for (std::uint32_t index = 0; index < settings_.size(); ++index) {
      const Setting& setting = settings_[index];
      ++counts_.enumerated;
      if (const auto obstacle =
              mix_obstacle(job_.model, job_.cluster, at.mix, setting, job_.global_batch, job_.sequence)) {
        found_.reject(InfeasibleKind::shape, std::string(*obstacle));
        continue;
      }
      at.settings.push_back(index);
      book_.need(strategy_of(at.mix, setting, job_.global_batch, job_.sequence, job_.type));
    }
    if (at.settings.empty()) continue;
    if (job_.may_reorder()) need_spread_rings(at.mix);
    cases_.push_back(std::move(at));
  }
}

void MixSearch::need_spread_rings(const ReplicaMix& mix) {
  for (int group = 0; group < static_cast<int>(mix.replicas.size()); ++group) {
    if (mix.replicas[static_cast<std::size_t>(group)] == 0) continue;
    const int copies = mix.ways.data * mix.ways.context;
    for (const int instances : job_.space.instance_counts())
      book_.need_spread_rings(group, mix.ways.tensor, copies, mix.ways.expert, instances);
  }
}

void MixSearch::play(Fitting which, std::uint32_t first) {
  std::vector<FittedCase> fitted;
  for (std::uint32_t at = 0; at < cases_.size(); ++at) {
    for (const std::uint32_t setting : cases_[at].settings) {
      if (auto found = fit(which, at, setting)) fitted.push_back(std::move(*found));
    }
  }
  std::stable_sort(fitted.begin(), fitted.end(),
                   [](const FittedCase& a, const FittedCase& b) { return a.least.time < b.least.time; });
  const auto place_of = [&](const FittedCase& one) {
    return CandidatePlace{first + one.at, 0, 0, one.setting};
  };
  std::size_t soon = 0;  // the first that is not begun
  for (std::size_t i = 0; i < fitted.size(); ++i) {
    auto begun = found_.begun(place_of(fitted[i]));
    if (!found_.may_matter(fitted[i].least)) continue;
    for (soon = std::max(soon, i + 1); found_.may_begin() && soon < fitted.size(); ++soon)
      found_.begin(splits_of(fitted[soon]), place_of(fitted[soon]));
    found_.play(begun ? std::move(*begun) : splits_of(fitted[i]), place_of(fitted[i]));
  }
}

std::vector<Split> MixSearch::splits_of(const FittedCase& fitted) const {
  std::vector<Split> splits;
  const auto add = [&](const FittedMix& mix) {
    for (ParallelStrategy& choice : with_overlaps(mix.strategy, settings_[fitted.setting]))
      splits.push_back({std::move(choice), mix.memory, mix.least});
  };
  add(fitted.mix);
  if (fitted.equal) add(*fitted.equal);
  return splits;
}

std::optional<MixSearch::FittedCase> MixSearch::fit(Fitting which, std::uint32_t at, std::uint32_t setting) {
  const ReplicaMix& mix = cases_[at].mix;
  if (which == Fitting::of_those_that_may_matter &&
      !found_.may_matter(strategy_of(mix, settings_[setting], job_.global_batch, job_.sequence, job_.type),
                         mixer_.least_time(mix, settings_[setting], job_.global_batch))) {
    ++counts_.pruned;
    return std::nullopt;
  }
  auto fitted = mixer_.fit(mix, settings_[setting], job_.global_batch);
  if (const auto* trouble = std::get_if<Infeasible>(&fitted)) {
    found_.reject(*trouble);
    return std::nullopt;
  }
  FittedCase found{std::get<FittedMix>(std::move(fitted)), {}, {}, at, setting};
  if (found_.left_by_rules(with_overlaps(found.mix.strategy, settings_[setting])).empty())
    return std::nullopt;
  found.equal = mixer_.fit_equal(found.mix);
  const Seconds time = found.equal ? std::min(found.mix.least, found.equal->least) : found.mix.least;
  found.least = found_.least(found.mix.strategy, time);
  if (found_.beyond_limits(found.mix.strategy, time)) return std::nullopt;
  return found;
}

}  // namespace orrery
