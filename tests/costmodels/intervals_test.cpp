// Intervals from residuals of groups: against closed forms, and groups drawn from known variances.
#include "costmodels/trust/residuals.hpp"

#include <cmath>
#include <random>

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

namespace orrery {
namespace {

RunKind dense(const std::string& family) {
  RunKind kind;
  kind.family = family;
  return kind;
}

RunKind with_experts(const std::string& family) {
  RunKind kind = dense(family);
  kind.experts = true;
  return kind;
}

ResidualGroup group(const std::string& name, const RunKind& kind, double mean, double variance,
                    int runs = 10) {
  return {name, name, kind, runs, mean, variance};
}

double half_width(const ErrorBand& band) {
  return 0.5 * std::log(band.high / band.low);
}

// Deviations of a group's bias and of its runs around that.
struct Scatter {
  double bias = 0, runs = 0;
};

std::vector<double> draw_runs(std::mt19937_64& random, const Scatter& scatter, int count) {
  std::normal_distribution<double> normal;
  const double bias = scatter.bias * normal(random);
  std::vector<double> runs;
  for (int run = 0; run < count; ++run) runs.push_back(bias + scatter.runs * normal(random));
  return runs;
}

ResidualGroup summarised(const std::string& name, const RunKind& kind, const std::vector<double>& runs) {
  const double n = static_cast<double>(runs.size());
  double mean = 0, squares = 0;
  for (const double value : runs) mean += value / n;
  for (const double value : runs) squares += (value - mean) * (value - mean);
  return group(name, kind, mean, squares / (n - 1), static_cast<int>(runs.size()));
}

// Share of the runs of new groups of a kind that intervals from `others` groups of each kind hold, in many
// worlds.
double coverage(const std::vector<std::pair<RunKind, Scatter>>& kinds, int others,
                const std::pair<RunKind, Scatter>& target) {
  constexpr int kWorlds = 300, kRuns = 8;
  std::mt19937_64 random(7);
  double inside = 0;
  for (int world = 0; world < kWorlds; ++world) {
    std::vector<ResidualGroup> groups;
    for (const auto& [kind, scatter] : kinds) {
      for (int i = 0; i < others; ++i)
        groups.push_back(
            summarised("g" + std::to_string(groups.size()), kind, draw_runs(random, scatter, kRuns)));
    }
    const ErrorBand band = IntervalModel(groups).band(target.first);
    for (const double residual : draw_runs(random, target.second, kRuns))
      inside += std::exp(-residual) >= band.low && std::exp(-residual) <= band.high;
  }
  return inside / (kWorlds * kRuns);
}

// 300 groups of their own: a group is held or not as a whole where its bias is most of the error, so that two
// standard errors of 0.9 are 2 sqrt(0.09 / 300) = 0.035.
constexpr double kTwoErrors = 0.035;

}  // namespace

TEST_CASE("nine runs in ten of a group left out are held, whether groups differ or their runs do") {
  const auto scatter = GENERATE(values<Scatter>({{0.1, 0.03}, {0.05, 0.1}, {0.2, 0.2}}));
  INFO(scatter.bias << " " << scatter.runs);
  const double inside = coverage({{dense("f"), scatter}}, 20, {dense("f"), scatter});
  CHECK(inside > 0.9 - kTwoErrors);
  CHECK(inside < 0.96 + kTwoErrors);  // 0.9 (k + 1) / k of the groups' own mixture, and wider for small k
}

TEST_CASE("each kind of runs is held, though one scatters three times as much as the other") {
  const std::pair<RunKind, Scatter> calm{dense("f"), {0.07, 0.05}}, wild{with_experts("f"), {0.21, 0.15}};
  for (const auto& target : {calm, wild}) {
    const double inside = coverage({calm, wild}, 12, target);
    CHECK(inside > 0.9 - 2 * kTwoErrors);  // each kind's own; their mean is what is calibrated
  }
}

// Thirty groups of each: with a prior of ten that spread as all do, the variance of family f over that of all
// is (10 + 30 r) / 40, where r is its own over theirs.
TEST_CASE("a family of many groups is as wide as it scatters, and one of none as all do") {
  std::vector<ResidualGroup> groups;
  for (int i = 0; i < 30; ++i) {
    const double sign = i % 2 == 0 ? 1 : -1;
    groups.push_back(group("calm " + std::to_string(i), dense("calm"), 0.05 * sign, 1e-4));
    groups.push_back(group("wild " + std::to_string(i), dense("wild"), 0.35 * sign, 1e-4));
  }
  const IntervalModel model(groups);
  const double calm = half_width(model.band(dense("calm"))), wild = half_width(model.band(dense("wild")));
  const double all = (0.05 * 0.05 + 0.35 * 0.35) / 2;
  const double ratio = (10 + 30 * 0.35 * 0.35 / all) / (10 + 30 * 0.05 * 0.05 / all);
  CHECK(wild / calm == Approx(std::sqrt(ratio)).epsilon(0.1));  // beside what its bias leaves open
  CHECK(half_width(model.band(dense("never seen"))) > calm);
  const std::pair<RunKind, Scatter> narrow{dense("calm"), {0.05, 0.02}}, wide{dense("wild"), {0.4, 0.02}};
  const double both = coverage({narrow, wide}, 30, narrow) + coverage({narrow, wide}, 30, wide);
  CHECK(both / 2 > 0.9 - kTwoErrors);
}

TEST_CASE("groups of heavy tails are held too") {
  // One group in six is four times as far off: 0.9 of the mixture lies within about 2.2 usual deviations.
  std::mt19937_64 random(11);
  double inside = 0;
  constexpr int kWorlds = 300;
  const auto draw = [&] { return draw_runs(random, {random() % 6 == 0 ? 0.4 : 0.1, 0.02}, 6); };
  for (int world = 0; world < kWorlds; ++world) {
    std::vector<ResidualGroup> groups;
    for (int i = 0; i < 24; ++i) groups.push_back(summarised("g" + std::to_string(i), dense("f"), draw()));
    const ErrorBand band = IntervalModel(groups).band(dense("f"));
    for (const double residual : draw())
      inside += std::exp(-residual) >= band.low && std::exp(-residual) <= band.high;
  }
  CHECK(inside / (6 * kWorlds) > 0.9 - kTwoErrors);
  CHECK(inside / (6 * kWorlds) < 0.98);
}

TEST_CASE("what no group tells of doubles the variance of all, each thing by itself") {
  std::vector<ResidualGroup> groups;
  for (int i = 0; i < 10; ++i)
    groups.push_back(group("g" + std::to_string(i), dense("f"), i % 2 == 0 ? 0.1 : -0.1, 1e-3));
  const IntervalModel model(groups);
  // The bias of a family of ten groups is known to 2 / (2 + 10) of the variance of all, of none to all of it.
  const double of_all = half_width(model.band(dense("f"))) / std::sqrt(1 + 2.0 / 12);
  CHECK(half_width(model.band(dense("new"))) == Approx(of_all * std::sqrt(2.0)));
  CHECK(half_width(model.band(with_experts("f"))) == Approx(of_all * std::sqrt(3.0)));  // no experts seen
  RunKind strange = with_experts("new");
  strange.four_bits = strange.new_kernels = strange.other_maker = true;
  strange.measured_gpu = false;
  CHECK(half_width(model.band(strange)) == Approx(of_all * std::sqrt(7.0)));
}

TEST_CASE("a kind that many groups tell of is as wide as these were off, and leaves the others alone") {
  std::vector<ResidualGroup> groups;
  for (int i = 0; i < 40; ++i) {
    const double sign = i % 2 == 0 ? 1 : -1;
    groups.push_back(group("d" + std::to_string(i), dense("f"), sign * 0.05, 1e-4));
    groups.push_back(group("e" + std::to_string(i), with_experts("f"), sign * 0.25, 1e-4));
  }
  const IntervalModel model(groups);
  const double calm = half_width(model.band(dense("f"))), wild = half_width(model.band(with_experts("f")));
  CHECK(wild / calm == Approx(5).epsilon(0.05));
  CHECK(calm > 0.05);
  CHECK(calm < 0.08);  // all lie at 0.05, their runs within 0.02 of it
}

TEST_CASE("intervals lie around the bias of a family's dense models or experts, drawn towards none") {
  std::vector<ResidualGroup> groups;
  for (int i = 0; i < 6; ++i) groups.push_back(group("fast" + std::to_string(i), dense("fast"), -0.2, 1e-4));
  for (int i = 0; i < 6; ++i) groups.push_back(group("true" + std::to_string(i), dense("true"), 0, 1e-4));
  const IntervalModel model(groups);
  const auto centre = [&](const char* family) {
    const ErrorBand band = model.band(dense(family));
    return 0.5 * std::log(band.low * band.high);
  };
  CHECK(centre("fast") == Approx(0.2 * 6 / 8));  // predictions too fast: true times above them
  CHECK(centre("true") == Approx(0).margin(1e-12));
  CHECK(centre("new") == Approx(0).margin(1e-12));
  // Dense models tell nothing of experts' bias.
  const ErrorBand experts = model.band(with_experts("fast"));
  CHECK(std::log(experts.low * experts.high) == Approx(0).margin(1e-12));
}

TEST_CASE("a group on a GPU of which little is known says little of its program") {
  const auto centre_with = [](bool measured) {
    std::vector<ResidualGroup> groups;
    for (int i = 0; i < 12; ++i)
      groups.push_back(group("f" + std::to_string(i), dense("f"), i % 2 == 0 ? 0.05 : -0.05, 1e-4));
    groups.push_back(group("odd", dense("p"), -0.7, 1e-4));
    groups.back().kind.measured_gpu = measured;
    groups.back().kind.other_maker = !measured;
    const ErrorBand band = IntervalModel(groups).band(dense("p"));
    return 0.5 * std::log(band.low * band.high);
  };
  CHECK(centre_with(true) > 0);
  CHECK(centre_with(false) > 0);
  CHECK(centre_with(false) < 0.3 * centre_with(true));
}

TEST_CASE("a group counts once, however many runs it has or kinds these are of") {
  std::vector<ResidualGroup> whole, split;
  for (int i = 0; i < 8; ++i) {
    const double mean = 0.03 * (i - 4);
    whole.push_back(group("g" + std::to_string(i), dense("f"), mean, 1e-3, i == 0 ? 1000 : 10));
    split.push_back(whole.back());
  }
  split[0].runs = 600;
  split.push_back(whole[0]);
  split.back().runs = 400;
  // But for n - 1 in the variance of 600 and 400 runs.
  CHECK(half_width(IntervalModel(split).band(dense("f"))) ==
        Approx(half_width(IntervalModel(whole).band(dense("f")))).epsilon(1e-4));
}

TEST_CASE(
    "sharded weights widen what is said of memory alone, extrapolated GPUs and slow hosts of time alone") {
  const auto widths = [](Predicted what, const RunKind& strange) {
    std::vector<ResidualGroup> groups;
    for (int i = 0; i < 8; ++i) groups.push_back(group("d" + std::to_string(i), dense("f"), 0.02, 1e-3));
    for (int i = 0; i < 8; ++i)
      groups.push_back(group("s" + std::to_string(i), telling(what, strange), i % 2 == 0 ? 0.4 : -0.4, 1e-3));
    const IntervalModel model(groups, what);
    return std::pair(half_width(model.band(dense("f"))), half_width(model.band(strange)));
  };
  RunKind sharded = dense("f"), elsewhere = dense("f");
  sharded.sharded_weights = true;
  elsewhere.measured_gpu = false;
  elsewhere.host_bound = true;
  const auto [memory, of_sharded] = widths(Predicted::memory, sharded);
  CHECK(of_sharded > 2 * memory);
  const auto [time, of_elsewhere] = widths(Predicted::time, elsewhere);
  CHECK(of_elsewhere > 2 * time);
  const auto [time_again, sharded_time] = widths(Predicted::time, sharded);
  CHECK(sharded_time == Approx(time_again));
  const auto [memory_again, memory_elsewhere] = widths(Predicted::memory, elsewhere);
  CHECK(memory_elsewhere == Approx(memory_again));
  CHECK(to_text(elsewhere) == "extrapolated GPU, dense, host-bound");
  CHECK(to_text(telling(Predicted::memory, elsewhere), Predicted::memory) == "dense");
}

TEST_CASE("the table of groups is read as it was written, and wrong ones are refused") {
  RunKind kind = with_experts("g");
  kind.four_bits = kind.sharded_weights = kind.host_bound = kind.new_kernels = kind.other_maker = true;
  // Names of programs come from users' tables.
  const RunKind odd = dense("PyTorch FSDP, 'compiled': {\"2.0\"} # \\");
  const Residuals residuals{{group("a", dense("f"), -0.125, 0.25), group("b", kind, 0.5, 0)},
                            {group("c, d", odd, 0, 0)},
                            {.even = 0.75, .spread = 0.125}};
  CHECK(parse_residuals(to_yaml(residuals, {"where from"}), "t.yaml") == residuals);
  const Residuals no_memory{residuals.time, {}, {}};
  CHECK(parse_residuals(to_yaml(no_memory, {}), "t.yaml") == no_memory);
  CHECK(contains(input_error([] {
                   parse_residuals(
                       "{out_of_memory: {even: 1, spread: 1}, memory: [], time: [{name: a, sorce: b}]}",
                       "t.yaml");
                 }),
                 "sorce"));
  CHECK(contains(input_error([] { IntervalModel(std::vector<ResidualGroup>()); }), "at least one"));
  CHECK(built_in_residuals().time.size() >= 9);
  CHECK(built_in_residuals().memory.size() >= 9);
}

}  // namespace orrery
