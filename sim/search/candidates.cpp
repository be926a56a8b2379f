#include "sim/search/candidates.hpp"

#include <algorithm>
#include <numeric>

#include "platforms/errors.hpp"
#include "strategies/obstacles.hpp"

namespace orrery {
namespace {

bool same_family(const Setting& a, const Setting& b) {
  return a.micro_batch == b.micro_batch && a.chunks == b.chunks && a.schedule == b.schedule &&
         a.recompute == b.recompute && a.sequence_parallel == b.sequence_parallel &&
         a.flash_attention == b.flash_attention && a.tensor_overlap == b.tensor_overlap &&
         a.expert_tensor == b.expert_tensor && a.fully_sharded == b.fully_sharded &&
         (!a.fully_sharded || a.optimizer_instances == b.optimizer_instances);
}

// Far more than anybody waits for: three kinds of 1,368 GPUs make 9 million.
constexpr std::size_t kMostAllocations = 40'000'000;

// Candidates of some ways, without their settings: by stages in all, those whose groups fit; and the others
// by why.
struct StageCensus {
  std::vector<std::size_t> by_stages;
  std::map<std::string_view, std::size_t> obstacles;
  std::size_t all = 0;
};

// [stages of all groups]: counts that give stages to these groups and no others.
std::vector<std::size_t> counts_by_stages(const SearchJob& job, const Ways& ways, const StageCounts& used) {
  const StageGrid grid = stage_grid(job.cluster, job.space, ways);
  std::vector<std::size_t> sums(static_cast<std::size_t>(job.space.most_stages) + 1, 0);
  std::int64_t most_gpus = 0;
  for (std::size_t group = 0; group < used.size(); ++group)
    most_gpus += used[group] * grid.caps[group] * grid.gpus[group];
  if (most_gpus > job.space.most_gpus) {
    for_each_stage_counts(job.cluster, job.space, job.mode, ways, [&](const StageCounts& stages) {
      for (std::size_t group = 0; group < used.size(); ++group) {
        if ((stages[group] > 0) != (used[group] > 0)) return;
      }
      ++sums[static_cast<std::size_t>(std::accumulate(stages.begin(), stages.end(), 0))];
    });
    return sums;
  }
  sums[0] = 1;
  for (std::size_t group = 0; group < used.size(); ++group) {
    if (used[group] == 0) continue;
    std::vector<std::size_t> longer(sums.size(), 0);
    for (std::size_t before = 0; before < sums.size(); ++before) {
      if (sums[before] == 0) continue;
      const auto cap = std::min(grid.caps[group], job.space.most_stages - static_cast<int>(before));
      for (int stages = grid.steps[group]; stages <= cap; stages += grid.steps[group])
        longer[before + static_cast<std::size_t>(stages)] += sums[before];
    }
    sums = std::move(longer);
  }
  for (int stages = 0; stages <= job.space.most_stages; ++stages) {
    if (!job.space.allows_stages(stages, stages)) sums[static_cast<std::size_t>(stages)] = 0;
  }
  return sums;
}

// By which groups have stages.
StageCensus census(const SearchJob& job, const std::vector<int>& alike, const WaysCase& at,
                   std::size_t before) {
  StageCensus found;
  found.by_stages.assign(static_cast<std::size_t>(job.space.most_stages) + 1, 0);
  const std::size_t groups = at.group_fits.size();
  for (std::size_t mask = 1; mask < std::size_t{1} << groups; ++mask) {
    StageCounts used;
    for (std::size_t group = 0; group < groups; ++group) used.push_back(static_cast<int>(mask >> group & 1U));
    const int count = std::accumulate(used.begin(), used.end(), 0);
    if ((job.mode == SearchMode::homogeneous && count > 1) || !at_home(at.ways, used)) continue;
    std::vector<std::size_t> by_stages = counts_by_stages(job, at.ways, used);
    for (std::size_t& candidates : by_stages) candidates *= order_count(alike, used);
    const std::size_t all = std::accumulate(by_stages.begin(), by_stages.end(), std::size_t{0});
    found.all += all;
    if (at.ways.tensors.empty() && before + found.all > kMostAllocations) {
      throw InputError("cluster " + job.cluster.name,
                       "more than forty million ways to give its GPUs to stages",
                       "fewer node groups, lower counts, or a --space with fewer choices or stages");
    }
    std::size_t group = 0;
    while (group < groups && (used[group] == 0 || at.group_fits[group] != 0)) ++group;
    if (group < groups) {
      if (all == 0) continue;
      const Ways of_group = at.ways.of_group(static_cast<int>(group));
      found.obstacles[*group_obstacle(job.cluster.groups[group], of_group)] += all;
      continue;
    }
    for (std::size_t stages = 0; stages < by_stages.size(); ++stages)
      found.by_stages[stages] += by_stages[stages];
  }
  return found;
}

class SpaceBuilder {
 public:
  explicit SpaceBuilder(const SearchJob& job) : job_(job) {
    space_.alike = groups_alike(job.cluster);
    space_.settings = settings(job.space);
    space_.families = families_of(space_.settings);
  }

  CandidateSpace build() {
    for (const Ways& ways : all_ways(job_.cluster, job_.space, job_.mode, job_.global_batch)) add(ways);
    return std::move(space_);
  }

 private:
  void add(const Ways& ways) {
    WaysCase at{ways, {}, {}};
    for (int group = 0; group < static_cast<int>(job_.cluster.groups.size()); ++group) {
      at.group_fits.push_back(
          !group_obstacle(job_.cluster.groups[static_cast<std::size_t>(group)], ways.of_group(group)));
    }
    const StageCensus found = census(job_, space_.alike, at, allocations_);
    const std::size_t settings = space_.settings.size();
    if (ways.tensors.empty()) allocations_ += found.all;
    space_.enumerated += found.all * settings;
    if (const auto obstacle = ways_obstacle(job_.model, ways, job_.sequence)) {
      reject(*obstacle, found.all * settings);
      return;
    }
    for (const auto& [obstacle, count] : found.obstacles) reject(obstacle, count * settings);
    for (std::uint32_t family = 0; family < space_.families.size(); ++family) add_family(at, family, found);
    if (!at.families.empty()) space_.cases.push_back(std::move(at));
  }

  void add_family(WaysCase& at, std::uint32_t family, const StageCensus& found) {
    FamilyCase left;
    left.family = family;
    const std::size_t fitting =
        std::accumulate(found.by_stages.begin(), found.by_stages.end(), std::size_t{0});
    for (const std::uint32_t index : space_.families[family].settings) {
      const Setting& setting = space_.settings[index];
      const auto obstacle = setting_obstacle(job_.model, at.ways, setting, job_.global_batch, job_.sequence);
      if (obstacle)
        reject(*obstacle, fitting);
      else
        left.settings.push_back(index);
    }
    if (left.settings.empty()) return;
    const Setting& common = space_.families[family].common;
    left.microbatches = job_.global_batch / (common.micro_batch * at.ways.data);
    bool any = false;
    for (std::size_t stages = 0; stages < found.by_stages.size(); ++stages) {
      const std::size_t count = found.by_stages[stages] * left.settings.size();
      const auto obstacle = stages_obstacle(job_.model, common, static_cast<int>(stages), left.microbatches);
      left.stages_fit.push_back(!obstacle);
      if (count == 0) continue;
      if (obstacle) {
        reject(*obstacle, count);
      } else {
        space_.shaped += count;
        any = true;
      }
    }
    if (any) at.families.push_back(std::move(left));
  }

  void reject(std::string_view obstacle, std::size_t count) {
    if (count > 0) space_.obstacles[std::string(obstacle)] += count;
  }

  const SearchJob& job_;
  CandidateSpace space_;
  std::size_t allocations_ = 0;
};

}  // namespace

std::vector<SettingFamily> families_of(const std::vector<Setting>& settings) {
  std::vector<SettingFamily> families;
  for (std::uint32_t i = 0; i < settings.size(); ++i) {
    const auto known = std::find_if(families.begin(), families.end(), [&](const SettingFamily& family) {
      return same_family(family.common, settings[i]);
    });
    if (known != families.end())
      known->settings.push_back(i);
    else
      families.push_back({settings[i], {i}});
  }
  return families;
}

CandidateSpace candidate_space(const SearchJob& job) {
  return SpaceBuilder(job).build();
}

}  // namespace orrery
