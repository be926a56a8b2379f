#include "costmodels/memory/memory_parts.hpp"

namespace orrery {

std::vector<std::pair<std::string_view, Bytes>> memory_parts(const StageMemory& memory) {
  return {{"weights", memory.weights},
          {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},
          {"activations", memory.activations},
          {"workspace", memory.workspace},
          {"logits", memory.logits},
          {"communication", memory.communication},
          {"cached", memory.cached},
          {"communicators", memory.communicators},
          {"context", memory.context}};
}

}  // namespace orrery
