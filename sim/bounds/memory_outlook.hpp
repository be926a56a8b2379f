// What can be said of a plan's memory before it runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodels/memory/memory.hpp"
#include "costmodels/plans/price_book.hpp"
#include "costmodels/trust/intervals.hpp"

namespace orrery {

struct MemoryOutlook {
  ErrorBand band;  // of what is counted on a card: published peaks of its kind lie there nine times in ten
  double fullness = 0;            // of the fullest card, as counted (costmodels/memory/card_memory.hpp)
  double out_of_memory = 0;       // the share of published runs counted so full that ran out
  std::optional<bool> hosts_fit;  // the offloaded optimizer in its nodes' memory; absent: none is
};

// `memory`: [kind * P + stage], of a plan whose prices are in the book.
MemoryOutlook memory_outlook(const PriceBook&, const ParallelStrategy&,
                             const std::vector<StageMemory>& memory);

std::string chance_text(double chance);  // "8 %", "< 1 %"
// "91 % of the fullest card; 28 % of published runs as full ran out of memory (where the interval is from)".
std::string outlook_text(const MemoryOutlook&);

}  // namespace orrery
