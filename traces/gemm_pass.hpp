// Which of the three GEMMs of a linear layer: they read their matrices in different orders.
#pragma once

#include <string_view>

namespace orrery {

enum class GemmPass { forward, input_gradient, weight_gradient };

}  // namespace orrery
