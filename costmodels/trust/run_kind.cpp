#include "costmodels/trust/run_kind.hpp"

namespace orrery {

RunKind telling(Predicted what, RunKind kind) {
  if (what == Predicted::time) {
    kind.sharded_weights = false;
  } else {
    kind.measured_gpu = true;
    kind.host_bound = false;
  }
  return kind;
}

std::string to_text(const RunKind& kind, Predicted what) {
  std::string text = kind.experts ? "experts" : "dense";
  if (what == Predicted::time) text = (kind.measured_gpu ? "measured GPU, " : "extrapolated GPU, ") + text;
  if (kind.other_maker) text += ", another maker's GPU";
  if (kind.new_kernels) text += ", unmeasured kernels";
  if (kind.four_bits) text += ", 4 bits";
  if (kind.sharded_weights) text += ", sharded weights";
  if (kind.host_bound) text += ", host-bound";
  return text;
}

}  // namespace orrery
