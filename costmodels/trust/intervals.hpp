// Where the true time and memory of a plan lie, from how far predictions of published runs of its kind were
// off.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "costmodels/trust/run_kind.hpp"

namespace orrery {

// Runs of one kind by one source on one GPU. They share a bias: seven runs of a group say little more of the
// next group than one does.
struct ResidualGroup {
  std::string name;  // "torchtitan H100"
  std::string source;
  RunKind kind;
  int runs = 0;
  double mean = 0;      // of ln(predicted / measured): the bias of the group
  double variance = 0;  // of the same around the mean, n - 1 in the denominator; 0 for a single run
  bool operator==(const ResidualGroup&) const = default;
};

// The true value over the predicted one.
struct ErrorBand {
  double low = 1, high = 1;
  // Standard deviations of ln(predicted / measured): of the bias of a new group, and of a run around it.
  double bias = 0, scatter = 0;
  std::string basis;  // "measured GPU, dense; megatron-core seen in 3 groups: -12 % +9 %"
};

// Intervals that hold nine runs in ten of a group that is none of these, groups counting alike. The variance
// of a residual is a sum over what makes a run hard to predict, for each source of error one component: any
// run, an extrapolated GPU, one of another maker, experts, kernels never measured, 4 bits, weights sharded, a
// host-bound pass; a family of programs never seen counts as much as any run, one that was seen the less the
// more groups it has. A family of many groups spreads as these do, more or less than all. Intervals lie
// around the bias of the family, dense models and experts apart, shrunk towards none, and are so many
// deviations wide that groups left out one by one are held: conformal over groups (Dunn, Wasserman and
// Ramdas, arXiv 1809.07441, pooled), so that none need be normal.
class IntervalModel {
 public:
  // Throws InputError where there is no group. The kinds of the groups are as `telling` leaves them.
  // `widening`: of the deviations that groups left out call for.
  explicit IntervalModel(std::vector<ResidualGroup>, Predicted = Predicted::time, double widening = 1);
  [[nodiscard]] ErrorBand band(const RunKind&) const;

 private:
  // Of ln(predicted / measured), and how uncertain it is.
  struct FamilyBias {
    double mean = 0, variance = 0;
  };
  struct Family {
    std::array<FamilyBias, 2> bias;  // of dense models, of experts
    double spread = 1;               // its variance over that of all runs of its groups' kinds
  };
  // Groups of the same sources of error, whose residuals add up.
  struct Alike {
    std::array<bool, 8> sources{};
    double weight = 0, squares = 0;
  };
  static std::array<double, 8> components(const std::vector<Alike>&, std::array<double, 8> start);
  void tell_families();                                  // from the weights and variances
  [[nodiscard]] Family family_of(const RunKind&) const;  // one that no group has: without bias, as all spread
  [[nodiscard]] FamilyBias bias_of_family(const RunKind&) const;
  [[nodiscard]] double deviation(const RunKind&) const;
  [[nodiscard]] double calibrated_multiplier() const;

  std::vector<ResidualGroup> groups_;
  Predicted what_;
  std::vector<std::size_t> name_of_, family_of_, alike_of_;  // of each group, from 0
  std::vector<Alike> alike_;
  std::vector<double> weights_;  // of each group; 0 for one left out
  std::array<double, 8> variance_{};
  std::vector<Family> families_;
  double multiplier_ = 0;
};

}  // namespace orrery
