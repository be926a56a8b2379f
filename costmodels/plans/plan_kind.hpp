// Of what kind the runs of a plan are, which decides how far its predictions can be trusted.
#pragma once

#include "costmodels/plans/price_book.hpp"
#include "costmodels/trust/run_kind.hpp"

namespace orrery {

// Of a plan whose prices are in the book.
RunKind kind_of(const PriceBook&, const ParallelStrategy&);

}  // namespace orrery
