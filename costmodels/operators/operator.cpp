#include "costmodels/operators/operator.hpp"

#include "platforms/errors.hpp"

namespace orrery {

std::string_view to_text(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::flash:
      return "flash";
    case AttentionKernel::unfused:
      return "unfused";
    case AttentionKernel::flash2:
      return "flash2";
    case AttentionKernel::flash_2026:
      return "flash_2026";
    case AttentionKernel::sdpa_2025:
      return "sdpa_2025";
  }
  throw Defect("an attention kernel without a name");
}

std::string_view to_text(MemoryKernel kernel) {
  switch (kernel) {
    case MemoryKernel::norm:
      return "norm";
    case MemoryKernel::rope:
      return "rope";
    case MemoryKernel::activation:
      return "activation";
    case MemoryKernel::residual:
      return "residual";
    case MemoryKernel::embedding:
      return "embedding";
    case MemoryKernel::cross_entropy:
      return "cross_entropy";
    case MemoryKernel::optimizer:
      return "optimizer";
    case MemoryKernel::copy:
      return "copy";
  }
  throw Defect("a memory kernel without a name");
}

std::string_view to_text(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::all_to_all:
      return "all_to_all";
  }
  throw Defect("a collective without a name");
}

namespace {

double flops(const Gemm& gemm) {
  return 2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) * static_cast<double>(gemm.k) *
         static_cast<double>(gemm.batch);
}

// Two GEMMs forward: scores as wide as keys, the output as wide as values. Five backward (Dao,
// FlashAttention-2, arXiv 2307.08691, section 4.1): the scores once more, and the gradients of queries and
// keys; the gradients of probabilities and of values. Unfused attention keeps the scores, all of them, and
// masks them afterwards.
double flops(const Attention& attention) {
  const bool unfused = attention.kernel == AttentionKernel::unfused;
  const double scores = static_cast<double>(attention.query_tokens) *
                        static_cast<double>(attention.kv_tokens) * (attention.causal && !unfused ? 0.5 : 1.0);
  const bool forward = attention.direction == Direction::forward;
  const double keys = static_cast<double>(attention.head_dim) * (forward ? 1.0 : unfused ? 2.0 : 3.0);
  const double values = static_cast<double>(attention.value_width()) * (forward ? 1.0 : 2.0);
  return 2.0 * static_cast<double>(attention.batch) * static_cast<double>(attention.heads) * scores *
         (keys + values);
}

double flops(const MemoryBound&) {
  return 0;
}
double flops(const Collective&) {
  return 0;
}
double flops(const PointToPoint&) {
  return 0;
}

}  // namespace

Flops flops_of(const Operator& op) {
  return Flops(std::visit([](const auto& one) { return flops(one); }, op));
}

}  // namespace orrery
