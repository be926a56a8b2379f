// One operator as the GPU or the network sees it: what the efficiency models are asked about.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "platforms/cluster.hpp"
#include "platforms/gpu.hpp"
#include "platforms/units.hpp"
#include "traces/gemm_pass.hpp"

namespace orrery {

enum class Direction { forward, backward };

// C[m, n] = A[m, k] B[k, n], `batch` times. 2 m n k FLOPs each. Of a layer [m, n, k], the input gradient is
// [m, k, n] and the weight gradient [k, n, m].
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 1;
  DataType type = DataType::bf16;
  GemmPass pass = GemmPass::forward;
  bool scan_gradient = false;  // of a product of Mamba-2's scan, inside a kernel of the scan's backward
  bool operator==(const Gemm&) const = default;
};

// `flash`: the best fused kernel of the GPU's generation in its first years (cuDNN or FlashAttention-3 on
// Hopper in 2024, cuDNN on Blackwell in 2025); `flash_2026`: cuDNN 9.19 on both, elsewhere `flash`; `flash2`:
// FlashAttention-2, as torchtitan, llm-foundry and NeMo 24.03 run it; `sdpa_2025`: PyTorch's
// scaled_dot_product_attention as torchtitan calls it since May 2025, cuDNN on Blackwell's servers and
// FlashAttention-2 elsewhere; `unfused`: two batched GEMMs, softmax, dropout.
enum class AttentionKernel { flash, unfused, flash2, flash_2026, sdpa_2025 };
std::string_view to_text(AttentionKernel);
inline constexpr std::array kAttentionKernels{AttentionKernel::flash, AttentionKernel::flash_2026,
                                              AttentionKernel::flash2, AttentionKernel::sdpa_2025,
                                              AttentionKernel::unfused};
inline constexpr std::span kFusedAttention(kAttentionKernels.data(), kAttentionKernels.size() - 1);
inline bool is_best_fused(AttentionKernel kernel) {
  return kernel == AttentionKernel::flash || kernel == AttentionKernel::flash_2026;
}

// Mask and softmax of unfused attention: one kernel, as Megatron-LM has it; PyTorch's two; what Megatron-LM
// does where its kernel cannot be used, PyTorch's in 32 bits between two casts; or one of any number of heads
// that leaves out what a causal mask hides (llm.c, llmc/attention.cuh). `stepwise`: a kernel each to scale,
// to choose by the causal mask, to add that of padding, and softmax, as Hugging Face's GPT-2 has them
// (GPT2Attention._attn of transformers v4.12, modeling_gpt2.py); `stepwise_wide`: under autocast, or as
// Llama's layers there have it, softmax gives 32 bits that are cast back; `formula`: softmax too by its
// formula, a kernel for each operation (nn_utils.py of Stanford's CS336); `formula_wide`: under autocast,
// which exponentiates in 32 bits.
enum class SoftmaxKernel { fused, eager, wide, triangular, stepwise, stepwise_wide, formula, formula_wide };

// softmax(Q K^T) V of `batch` sequences and `heads` heads (of this GPU).
struct Attention {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, query_tokens = 0, kv_tokens = 0, head_dim = 0;
  std::int64_t value_dim = 0;  // of V and the output where it differs from head_dim (of Q and K); 0: head_dim
  bool causal = true;
  AttentionKernel kernel = AttentionKernel::flash;
  SoftmaxKernel softmax = SoftmaxKernel::fused;  // of unfused attention
  bool biased = false;                           // a learned number is added to each score
  bool dropout = false;                          // of the probabilities
  Direction direction = Direction::forward;
  DataType type = DataType::bf16;
  [[nodiscard]] std::int64_t value_width() const { return value_dim > 0 ? value_dim : head_dim; }
  bool operator==(const Attention&) const = default;
};

enum class MemoryKernel { norm, rope, activation, residual, embedding, cross_entropy, optimizer, copy };
std::string_view to_text(MemoryKernel);

// `separate`: a kernel of its own, as measured. `fused`: part of one generated or hand-written kernel that
// streams (Transformer Engine, torch.compile); FIDELITY B 9.3 takes 0.8 of the bandwidth for those.
enum class Fusion { separate, fused };

// An operator bound by memory: `bytes` is what it must read and write at least. `direction` tells a gradient
// from its forward where both were measured.
struct MemoryBound {
  MemoryKernel kernel = MemoryKernel::copy;
  Bytes bytes{};
  Fusion fusion = Fusion::separate;
  Direction direction = Direction::forward;
  bool operator==(const MemoryBound&) const = default;
};

enum class CollectiveKind { all_reduce, reduce_scatter, all_gather, all_to_all };
std::string_view to_text(CollectiveKind);

// Whom a collective inside a forward or backward joins: the tensor ranks of a stage, its context ranks, or
// the same GPU of neighbouring replicas that share a set of experts.
enum class RankGroup { tensor, context, expert };

// What a library other than NCCL reaches: its shares of the bandwidth of a GPU's link and of its network, and
// what a call takes besides.
struct StatedRate {
  double inside = 1.0, between = 1.0;  // nodes
  Seconds fixed;
  bool operator==(const StatedRate&) const = default;
};

// A collective of `ranks` GPUs, `ranks_per_node` of them in each node. `bytes`: the whole vector of one rank
// (the input of all-reduce and reduce-scatter, the output of all-gather, what a rank sends in all in
// all-to-all).
struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Bytes bytes{};
  int ranks = 1;
  int ranks_per_node = 1;
  LinkSpec gpu_link{};                 // inside the node, of one GPU
  LinkSpec network{};                  // what one rank gets of its node's NICs
  std::optional<StatedRate> stated{};  // in place of what was measured of NCCL
  bool one_channel = false;  // a ring by which every hop carries all, between nodes by one GPU's card
  bool operator==(const Collective&) const = default;
};

struct PointToPoint {
  Bytes bytes{};
  LinkSpec path{};  // narrowest bandwidth and whole latency
  bool same_node = false;
  bool operator==(const PointToPoint&) const = default;
};

using Operator = std::variant<Gemm, Attention, MemoryBound, Collective, PointToPoint>;

// FLOPs of an operator: 2 m n k batch; attention 2 b s_q s_kv heads (d_qk + d_v), backward (3 d_qk + 2 d_v),
// half of both when causal; unfused attention never half, backward twice the forward; zero for the others.
Flops flops_of(const Operator&);

}  // namespace orrery
