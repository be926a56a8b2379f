#include "analysis/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <tuple>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

void check(const PredictedAndMeasured& rows) {
  ORRERY_ENSURE(rows.predicted.size() == rows.measured.size());
  for (const double value : rows.predicted) ORRERY_ENSURE(std::isfinite(value));
  for (const double value : rows.measured) ORRERY_ENSURE(std::isfinite(value) && value > 0);
}

std::vector<std::size_t> sorted_order(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::tie(values[a], a) < std::tie(values[b], b); });
  return order;
}

// Ranks from 1; equal values share the mean of their ranks.
std::vector<double> ranks_of(const std::vector<double>& values) {
  const std::vector<std::size_t> order = sorted_order(values);
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    const double shared = 0.5 * static_cast<double>(first + 1 + end);
    for (std::size_t i = first; i < end; ++i) ranks[order[i]] = shared;
    first = end;
  }
  return ranks;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double pearson(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty()) return kUndefined;
  const double mean_a = mean_of(a), mean_b = mean_of(b);
  double product = 0, square_a = 0, square_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += (a[i] - mean_a) * (b[i] - mean_b);
    square_a += (a[i] - mean_a) * (a[i] - mean_a);
    square_b += (b[i] - mean_b) * (b[i] - mean_b);
  }
  if (square_a == 0 || square_b == 0) return kUndefined;
  return std::clamp(product / std::sqrt(square_a * square_b), -1.0, 1.0);
}

// Sorts [begin, end) and counts the pairs out of order on the way.
std::int64_t count_inversions(std::vector<double>& values, std::size_t begin, std::size_t end) {
  if (end - begin < 2) return 0;
  const std::size_t middle = begin + (end - begin) / 2;
  std::int64_t count = count_inversions(values, begin, middle) + count_inversions(values, middle, end);
  std::vector<double> merged;
  merged.reserve(end - begin);
  std::size_t left = begin, right = middle;
  while (left < middle || right < end) {
    if (right == end || (left < middle && values[left] <= values[right])) {
      merged.push_back(values[left++]);
    } else {
      count += static_cast<std::int64_t>(middle - left);
      merged.push_back(values[right++]);
    }
  }
  std::copy(merged.begin(), merged.end(), values.begin() + static_cast<std::ptrdiff_t>(begin));
  return count;
}

// Pairs of equal neighbours in a sorted sequence of `size` elements: the sum of n (n - 1) / 2 over its
// groups.
template <class Equal>
std::int64_t count_tied_pairs(std::size_t size, const Equal& equal) {
  std::int64_t pairs = 0;
  std::int64_t group = 1;
  for (std::size_t i = 1; i < size; ++i) {
    group = equal(i - 1, i) ? group + 1 : 1;
    pairs += group - 1;
  }
  return pairs;
}

}  // namespace

double quantile(std::vector<double> values, double fraction) {
  ORRERY_ENSURE(fraction >= 0 && fraction <= 1);
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double position = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

ErrorSummary summarize_errors(const PredictedAndMeasured& rows) {
  check(rows);
  if (rows.measured.empty()) return {};
  std::vector<double> signed_errors, absolute_errors;
  for (std::size_t i = 0; i < rows.measured.size(); ++i) {
    const double error = (rows.predicted[i] - rows.measured[i]) / rows.measured[i];
    signed_errors.push_back(error);
    absolute_errors.push_back(std::abs(error));
  }
  return {.mean = mean_of(absolute_errors),
          .median = quantile(absolute_errors, 0.5),
          .p90 = quantile(absolute_errors, 0.9),
          .maximum = quantile(absolute_errors, 1.0),
          .bias = mean_of(signed_errors)};
}

double spearman(const PredictedAndMeasured& rows) {
  check(rows);
  return pearson(ranks_of(rows.predicted), ranks_of(rows.measured));
}

double kendall_tau_b(const PredictedAndMeasured& rows) {
  check(rows);
  const auto &x = rows.predicted, &y = rows.measured;
  const std::size_t n = x.size();
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::tie(x[a], y[a], a) < std::tie(x[b], y[b], b); });
  const auto same_x = [&](std::size_t i, std::size_t j) { return x[order[i]] == x[order[j]]; };
  const auto same_y = [&](std::size_t i, std::size_t j) { return y[order[i]] == y[order[j]]; };
  const std::int64_t tied_x = count_tied_pairs(n, same_x);
  const std::int64_t tied_both =
      count_tied_pairs(n, [&](std::size_t i, std::size_t j) { return same_x(i, j) && same_y(i, j); });
  std::vector<double> by_x;
  for (const std::size_t i : order) by_x.push_back(y[i]);
  // Within equal x the y ascend, so that an inversion is a discordant pair and nothing else.
  const std::int64_t discordant = count_inversions(by_x, 0, n);
  const std::int64_t tied_y =
      count_tied_pairs(n, [&](std::size_t i, std::size_t j) { return by_x[i] == by_x[j]; });
  const auto pairs = static_cast<std::int64_t>(n) * (static_cast<std::int64_t>(n) - 1) / 2;
  if (pairs == tied_x || pairs == tied_y) return kUndefined;
  const std::int64_t difference = pairs - tied_x - tied_y + tied_both - 2 * discordant;
  return static_cast<double>(difference) /
         std::sqrt(static_cast<double>(pairs - tied_x) * static_cast<double>(pairs - tied_y));  // of a * a: a
}

double top1_regret(const PredictedAndMeasured& rows) {
  check(rows);
  if (rows.measured.empty()) return 0;
  const auto chosen = std::min_element(rows.predicted.begin(), rows.predicted.end()) - rows.predicted.begin();
  const double best = *std::min_element(rows.measured.begin(), rows.measured.end());
  return rows.measured[static_cast<std::size_t>(chosen)] / best - 1;
}

}  // namespace orrery
