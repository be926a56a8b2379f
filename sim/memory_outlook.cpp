#include "sim/memory_outlook.hpp"

#include <algorithm>
#include <cstdio>

#include "costmodels/card_memory.hpp"
#include "costmodels/residuals.hpp"
#include "strategies/placement.hpp"

namespace orrery {

MemoryOutlook memory_outlook(const PriceBook& book, const ParallelStrategy& strategy,
                             const std::vector<StageMemory>& memory) {
  MemoryOutlook outlook;
  outlook.band = band_of(kind_of(book, strategy), Predicted::memory);
  for (int kind = 0; kind < strategy.kinds(); ++kind) {
    const ParallelStrategy alike = strategy.of_kind(kind);
    for (int stage = 0; stage < strategy.pipeline; ++stage) {
      const Bytes card = group_of_stage(book.cluster(), alike, stage).gpu.memory;
      const StageMemory& needed = memory[static_cast<std::size_t>(kind * strategy.pipeline + stage)];
      outlook.fullness = std::max(outlook.fullness, fullness(needed, card));
    }
  }
  outlook.out_of_memory = out_of_memory_chance(outlook.fullness);
  return outlook;
}

std::string chance_text(double chance) {
  char text[32];
  std::snprintf(text, sizeof text, chance < 0.01 ? "< 1 %%" : "%.0f %%", 100 * chance);
  return text;
}

std::string outlook_text(const MemoryOutlook& outlook) {
  char share[64];
  std::snprintf(share, sizeof share, "%.0f %% of the fullest card; ", 100 * outlook.fullness);
  return share + chance_text(outlook.out_of_memory) + " of published runs as full ran out of memory (" +
         outlook.band.basis + ")";
}

}  // namespace orrery
