#include "sim/bounds/memory_outlook.hpp"

#include <cstdio>

#include "costmodels/memory/card_memory.hpp"
#include "costmodels/trust/residuals.hpp"
#include "sim/bounds/feasibility.hpp"
#include "sim/bounds/plan_band.hpp"

namespace orrery {

MemoryOutlook memory_outlook(const PriceBook& book, const ParallelStrategy& strategy,
                             const std::vector<StageMemory>& memory) {
  MemoryOutlook outlook;
  outlook.band = memory_band(book, strategy);
  outlook.fullness = fullness(book.cluster(), strategy, memory);
  outlook.out_of_memory = out_of_memory_chance(outlook.fullness);
  if (strategy.optimizer_offload > 0)
    outlook.hosts_fit = !StageFitter(book).host_too_full(strategy, memory).has_value();
  return outlook;
}

std::string chance_text(double chance) {
  char text[32];
  std::snprintf(text, sizeof text, chance < 0.01 ? "< 1 %%" : "%.0f %%", 100 * chance);
  return text;
}

std::string outlook_text(const MemoryOutlook& outlook) {
  char share[96];
  std::snprintf(share, sizeof share,
                "%.0f %% of the fullest card, without what the allocator can give back; ",
                100 * outlook.fullness);
  return share + chance_text(outlook.out_of_memory) + " of published runs as full ran out of memory (" +
         outlook.band.basis + ")";
}

}  // namespace orrery
