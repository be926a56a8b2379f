// How far predictions are from what was measured, and whether they rank alike.
#pragma once

#include <vector>

namespace orrery {

// Row i of every column is one plan or run. All of it in one unit; measured values above zero.
struct PredictedAndMeasured {
  std::vector<double> predicted;
  std::vector<double> measured;
};

// Fractions, not per cent: 0.05 is five per cent. |p - m| / m is the absolute percentage error of a row.
struct ErrorSummary {
  double mean = 0;  // MAPE
  double median = 0;
  double p90 = 0;  // with linear interpolation between rows, as numpy does
  double maximum = 0;
  double bias = 0;  // mean of (p - m) / m: above zero predicts too much
  bool operator==(const ErrorSummary&) const = default;
};

// Zeros when there are no rows. Throws Defect for columns of different lengths, a measured value not above
// zero, or a value that is not finite: readers check their input first. So do all functions below.
ErrorSummary summarize_errors(const PredictedAndMeasured&);

// Rank correlations in [-1, 1]; NaN where one column has no two different values. Spearman: Pearson's
// correlation of ranks, tied values sharing the mean of theirs. Kendall: tau-b (Kendall 1945), in n log n
// (Knight 1966).
double spearman(const PredictedAndMeasured&);
double kendall_tau_b(const PredictedAndMeasured&);

// What trusting the prediction costs: measured value of the row predicted smallest (the first of equals) over
// the smallest measured value, minus 1. Zero when the best was chosen, and when there are no rows.
double top1_regret(const PredictedAndMeasured&);

// Value below which `fraction` of the rows lie, with linear interpolation between rows. Zero when there are
// none.
double quantile(std::vector<double> values, double fraction);

}  // namespace orrery
