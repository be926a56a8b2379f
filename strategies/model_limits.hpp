// The largest sizes the readers accept: several times what anybody has trained, and small enough that no
// parameter count leaves 64 bits (3 x hidden x ffn x experts x layers < 2^62).
#pragma once

#include <cstdint>

namespace orrery {

inline constexpr std::int64_t kMostLayers = 4096;
inline constexpr std::int64_t kMostHidden = 1 << 17;
inline constexpr std::int64_t kMostHeads = 1 << 12;
inline constexpr std::int64_t kMostHeadDim = 1 << 12;
inline constexpr std::int64_t kMostFfn = 1 << 19;
inline constexpr std::int64_t kMostExperts = 1 << 12;
inline constexpr std::int64_t kMostVocabulary = 1 << 26;
inline constexpr std::int64_t kMostSequence = 1 << 27;
inline constexpr std::int64_t kMostInputParameters = std::int64_t{1} << 40;

}  // namespace orrery
