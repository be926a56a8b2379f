#include "sim/validation/breakdown.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

namespace orrery {
namespace {

using Key = std::string (*)(const ValidatedRun&);

// "1", "2 to 8", ..., "more than 512".
std::string size_of(const ValidatedRun& run) {
  constexpr std::array<std::int64_t, 4> kEnds{1, 8, 64, 512};
  std::int64_t above = 0;
  for (const std::int64_t most : kEnds) {
    if (run.gpus <= most)
      return most == above + 1 ? "1" : std::to_string(above + 1) + " to " + std::to_string(most);
    above = most;
  }
  return "more than " + std::to_string(above);
}

double mean_inside(const std::vector<Coverage>& coverage, const std::set<std::string>& names) {
  double sum = 0, groups = 0;
  for (const Coverage& one : coverage) {
    if (!one.used || names.count(one.name) == 0) continue;
    sum += one.group_out.inside;
    ++groups;
  }
  return groups > 0 ? sum / groups : std::numeric_limits<double>::quiet_NaN();
}

ErrorShare share_of(const Validation& validation, const std::vector<Coverage>& of_time,
                    const std::string& name, const RunFilter& takes) {
  std::set<std::string> covered;
  for (const ValidatedRun& run : validation.runs) {
    if (takes(run) && run.measured) covered.insert(coverage_name(run));
  }
  ErrorShare share{accuracy(validation, takes), memory_accuracy(validation, takes),
                   mean_inside(of_time, covered)};
  share.time.name = name;
  return share;
}

struct Named {
  std::string name;
  std::set<std::string> groups;
  std::int64_t gpus;  // of the smallest of its runs
};

std::vector<Named> named_by(const Validation& validation, Key key) {
  std::vector<Named> all;
  for (const ValidatedRun& run : validation.runs) {
    const std::string name = key(run);
    auto found = std::find_if(all.begin(), all.end(), [&](const Named& one) { return one.name == name; });
    if (found == all.end()) found = all.insert(all.end(), {name, {}, run.gpus});
    if (run.measured) found->groups.insert(run.group);
    found->gpus = std::min(found->gpus, run.gpus);
  }
  return all;
}

Breakdown by_most_groups(const char* by, Key key, const Validation& validation,
                         const std::vector<Coverage>& of_time, std::size_t few) {
  std::vector<Named> named = named_by(validation, key);
  std::stable_sort(named.begin(), named.end(),
                   [](const Named& a, const Named& b) { return a.groups.size() > b.groups.size(); });
  Breakdown result{by, {}};
  std::set<std::string> others;
  for (const Named& one : named) {
    if (one.groups.size() < few) {
      others.insert(one.name);
    } else {
      result.rows.push_back(share_of(validation, of_time, one.name,
                                     [&](const ValidatedRun& run) { return key(run) == one.name; }));
    }
  }
  if (others.empty()) return result;
  const std::string name = others.size() == 1 ? *others.begin() : std::to_string(others.size()) + " others";
  result.rows.push_back(share_of(validation, of_time, name,
                                 [&](const ValidatedRun& run) { return others.count(key(run)) > 0; }));
  return result;
}

Breakdown by_size(const Validation& validation, const std::vector<Coverage>& of_time) {
  std::vector<Named> named = named_by(validation, &size_of);
  std::sort(named.begin(), named.end(), [](const Named& a, const Named& b) { return a.gpus < b.gpus; });
  Breakdown result{"number of GPUs", {}};
  for (const Named& one : named)
    result.rows.push_back(share_of(validation, of_time, one.name,
                                   [&](const ValidatedRun& run) { return size_of(run) == one.name; }));
  return result;
}

}  // namespace

std::vector<Breakdown> breakdowns(const Validation& validation, const std::vector<Coverage>& of_time,
                                  std::size_t few) {
  const auto family = [](const ValidatedRun& run) { return run.trust.family; };
  const auto gpu = [](const ValidatedRun& run) { return run.gpu; };
  const auto kind = [](const ValidatedRun& run) { return to_text(telling(Predicted::time, run.trust)); };
  return {by_most_groups("program", family, validation, of_time, few),
          by_most_groups("GPU", gpu, validation, of_time, few),
          by_most_groups("kind of run", kind, validation, of_time, few), by_size(validation, of_time)};
}

}  // namespace orrery
