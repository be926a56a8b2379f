// Names of known programs as people spell them.
#pragma once

#include <string>

namespace orrery {

// The framework of a row, with a known program's name at its beginning spelled as the program does: whatever
// the case and the signs between words, "Deepspeed, Zero 3 (2024)" is "DeepSpeed ZeRO-3 (2024)", "MCore 0.12"
// is "Megatron-Core 0.12".
std::string with_known_spelling(const std::string& framework);

}  // namespace orrery
