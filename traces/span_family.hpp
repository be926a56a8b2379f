// Kinds of spans that are shown and counted alike.
#pragma once

#include "traces/timeline.hpp"

namespace orrery {

enum class SpanFamily {
  forward,
  backward,
  weight_gradient,
  optimizer,
  exposed,  // idle while something is on its way
  bubble,
  message,
  collective,  // these two on the network stream
};
SpanFamily family_of(SpanKind);

}  // namespace orrery
