// What closed formulas are made of, read off a priced plan.
#pragma once

#include <vector>

#include "costmodels/estimate/traffic.hpp"
#include "costmodels/plans/priced_plan.hpp"
#include "platforms/topology.hpp"

namespace orrery {

struct FormulaInput {
  const PricedPlan& plan;
  const PlanPrograms& programs;
  const Topology& topology;
  const TrafficFlows& flows;
};

struct FormulaTerms {
  double microbatches = 1;  // M of the replica that has most
  std::vector<Seconds>
      compute;  // t[rank]: forward and backward of one microbatch, all chunks, slowest replica
  std::vector<Seconds>
      transfer;  // h[rank]: activations it sends on and gradients it sends back, each as if alone
  // Everything after the pipeline, as if nothing overlapped: the collectives and the optimizer step of the
  // rank for which they last longest. None of the papers' pipeline formulas has it; all of ours but AMP's add
  // it alike, so that errors are those of the pipeline.
  Seconds tail;
};
FormulaTerms formula_terms(const FormulaInput&);

Seconds sum(const std::vector<Seconds>&);
Seconds largest(const std::vector<Seconds>&);  // zero when there are none

}  // namespace orrery
