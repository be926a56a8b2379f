// Closed formulas for the time of an iteration, by name, to be held against the exact recurrence and the
// replay.
#pragma once

#include <string_view>
#include <vector>

#include "costmodels/estimators/formula_terms.hpp"

namespace orrery {

// Seconds of one iteration in the steady state.
struct Estimator {
  std::string_view name;
  std::string_view what;  // the equation, in a line
  Seconds (*iteration)(const FormulaInput&);
};
const std::vector<Estimator>& estimators();

// The schedule played exactly (estimate.hpp): transfers that meet share each link evenly, as if the others
// were free, where the replay has max-min fair rates; exact where nothing contends.
Seconds recurrence_estimate(const FormulaInput&);

// (M + (P - 1) / v) mean(t) + tail. Narayanan et al., Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM, arXiv 2104.04473, sections 2.2.1 and 2.2.2: ideal time m (t_f + t_b), bubble (p
// - 1) (t_f + t_b) / v. Made for equal stages: the mean stands for all of them, so an uneven plan looks as
// fast as an even one. Transfers are free.
Seconds homogeneous_estimate(const FormulaInput&);

// sum(t) + (M - 1) max(t) + tail: uneven stages, free transfers. The least that is asked of a 1f1b formula;
// up to 18 % above the truth where stages differ (SEMANTICS 6) and far below it where transfers are not
// hidden.
Seconds no_transfer_estimate(const FormulaInput&);

// sum(t + h) + (M - 1) max(t + h) + tail. Astra, arXiv 2502.13480, cost of a heterogeneous pipeline: t is
// compute and h communication of a stage for one microbatch. Of a stage with several chunks t and h are those
// of all chunks. Every transfer is taken to be on the critical path, though eager sends hide; the two halves
// of 1f1b are taken to meet at the slowest stage only.
Seconds astra_estimate(const FormulaInput&);

// sum(t) + sum(e) + (M - 1) max(t) + max(d). AMP, arXiv 2210.07297, section 4: e is the activation over a
// boundary, by the slowest tensor rank, mean over the replicas; d = 2 (D - 1) / D x gradients / bandwidth is
// the ring all-reduce of a stage by the slowest link of its ring. Its code (github.com/DachengLi1/AMP @
// 72eeea4, src/cost_homo.py) looks at the last link of the ring alone, which is the slowest in the layouts it
// logs. Defects: gradients of activations travel free; links are never shared and reach their data sheet;
// neither latency nor optimizer step. Two more lie not in the formula but in what AMP feeds it: one profile
// averaged over all GPU kinds, and a microbatch of b sequences taking b times one of one.
Seconds amp_estimate(const FormulaInput&);

}  // namespace orrery
