#include "traces/span_family.hpp"

#include "platforms/errors.hpp"

namespace orrery {

SpanFamily family_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::forward:
      return SpanFamily::forward;
    case SpanKind::backward:
      return SpanFamily::backward;
    case SpanKind::weight_gradient:
      return SpanFamily::weight_gradient;
    case SpanKind::optimizer:
      return SpanFamily::optimizer;
    case SpanKind::exposed_tp:
    case SpanKind::exposed_p2p:
    case SpanKind::exposed_dp:
      return SpanFamily::exposed;
    case SpanKind::bubble_warmup:
    case SpanKind::bubble_steady:
    case SpanKind::bubble_drain:
      return SpanFamily::bubble;
    case SpanKind::send:
      return SpanFamily::message;
    case SpanKind::all_reduce:
    case SpanKind::reduce_scatter:
    case SpanKind::all_gather:
    case SpanKind::tensor_collective:
    case SpanKind::context_exchange:
    case SpanKind::expert_exchange:
      return SpanFamily::collective;
  }
  throw Defect("a span kind outside the enumeration");
}

}  // namespace orrery
