// Writes down operators forward and backward together: whatever is added to one pass adds its counterpart to
// the other.
#pragma once

#include "costmodels/layers/layer_operators.hpp"
#include "costmodels/operators/expert_load.hpp"
#include "costmodels/operators/local_layer.hpp"

namespace orrery {

// Who casts what a GEMM multiplies to 8 or 4 bits: its input, and in the backward the gradient of its output.
// The norm before it, where the recipe lets it, or a kernel of its own; both on a rank's own tokens, before
// the tensor group gathers them, or of tokens that are not gathered. A kernel of its own on all tokens, or on
// the rank's own. None: the GEMM before it writes 8 bits.
enum class InputCast { after_norm, ungathered_after_norm, separate, own_tokens, none };
// What a tensor region is gathered for, forward where it begins and backward where it ends: a matrix, by
// which a stack may reduce the gradient under that of the weights and which reads 8 or 4 bits where it
// multiplies in them (Transformer Engine, module/layernorm_linear.py, base.py, grad_output_preprocess;
// torchao, float8_tensor_parallel.py), one that multiplies in 16 bits, or experts.
enum class TensorInput { of_matrix, of_wide_matrix, of_experts };
// Of a product's two factors, the [M, K] and the [K, N]: which have a gradient.
enum class ProductGradients { of_one, of_both };
// Whether the backward makes the result of the forward again.
enum class Recomputed { no, yes };

// Counts are of one GPU and one microbatch. Operators without work (no bytes, one rank) are left out.
class BlockBuilder {
 public:
  explicit BlockBuilder(const Sharding& sharding);

  // Backward of [M, N, K]: the gradient of the input [M, K, N] and of the weights [K, N, M].
  void linear(const Gemm& forward, InputCast input_cast, InputCast gradient_cast = InputCast::separate);
  // A product of activations: backward the gradient of the [K, N], or of both.
  void product(const Gemm& forward, ProductGradients);
  // A product of a scan: backward the gradients of both that it multiplies, in its type.
  void scan_product(const Gemm& forward, Recomputed recomputed);
  // Bytes for each element of 16 bits; other types are scaled.
  void elementwise(MemoryKernel kernel, double elements, double forward_bytes, double backward_bytes);
  void attention(const Attention& forward);
  // What context parallelism adds to the attention core of `local`, but for an exchange of heads.
  void context_exchange(const LocalLayer& local);
  // Context ranks exchange tokens of all their heads for all tokens of some heads, or back.
  void context_heads_exchange(double elements);
  // Around tensor-parallel matrices: tokens enter replicated and leave reduced. `elements` is the whole
  // tensor.
  void enter_tensor_region(double elements, TensorInput);
  void leave_tensor_region(double elements, TensorInput gradient);
  // Each tensor rank has `elements` of a matrix's output, gathers all and joins them along their last
  // dimension; backward it keeps its own.
  void gather_outputs(double elements);
  // In `elements` are as many copies of each token as it chooses experts.
  void expert_exchange(double elements, const ExpertChoice&);
  // Of all tokens of the ranks that share experts, `elements`: each rank gathers them, or has sums of all of
  // them, of so many bytes an element, that are added up where they belong.
  void expert_gather(double elements);
  void expert_sums(double elements, double bytes);
  // What is added between the two is launched for each of `count` experts.
  void begin_experts(std::int64_t count);
  void end_experts();
  // What is added to the forward from here on belongs to this module, or to none. Returns the one before.
  std::optional<RecomputeModule> enter(std::optional<RecomputeModule>);
  // Kernels of the forward, and to have those from the first given one on again in the backward, before it
  // goes through what is there already.
  [[nodiscard]] std::size_t forward_kernels() const { return out_.forward.compute.size(); }
  void repeat_in_backward(std::size_t first);
  // Full recomputation leaves out the last matrix of the forward and all that follows it.
  void stop_repeating_before_last_matrix();
  // Adds the gradient of `parameters` local weights to the running sum of the microbatches.
  void accumulate_gradients(double parameters);

  void forward(MemoryKernel kernel, double bytes) { push(out_.forward, kernel, bytes); }
  // A weight gradient that is no matrix.
  void weight_gradient(MemoryKernel kernel, double bytes);
  // A forward-only all-reduce over the tensor group.
  void reduce_statistic(double bytes);

  [[nodiscard]] BlockOperators take() {
    enter(std::nullopt);
    return std::move(out_);
  }

 private:
  // `stride`: distance between neighbours of the group in rank order. `beside`: see CallPlace.
  struct Group {
    RankGroup kind;
    int ranks;
    int stride;
    double beside = 0.0;
    bool in_turn = false;  // each step waits for the slowest hop
  };
  [[nodiscard]] Group expert_group() const;
  void push(PassOperators& pass, MemoryKernel kernel, double bytes) const;
  void cast(PassOperators& pass, InputCast, DataType, double elements) const;
  void push(PassOperators& pass, CollectiveKind kind, Group group, double bytes) const;
  // Elements of one rank's keys and values, of its queries, and of what attention makes of them.
  void ring_exchange(double key_value_elements, double query_elements, double output_elements);
  void gathered_exchange(double key_value_elements, double query_elements);
  [[nodiscard]] double gathered_element(TensorInput) const;  // bytes
  enum class Exchange { gathered, scattered };
  // Of `bytes` that tensor ranks exchange along the sequence (SequenceCopies).
  void reorder(PassOperators& pass, Exchange, double bytes) const;
  [[nodiscard]] Group tensor_group(double beside = 0.0) const {
    return {RankGroup::tensor, sharding_.tensor, 1, beside};
  }
  // Waits for the matrix whose weight gradient it runs beside; what that gradient is of is gathered beside
  // the input's gradient before.
  struct AsyncGradient {
    CollectiveKind kind;
    double bytes;
    double gathered;
  };

  Sharding sharding_;
  double element_;  // bytes
  BlockOperators out_;
  std::optional<AsyncGradient> async_gradient_;
  std::optional<ModuleSection> open_module_;
};

}  // namespace orrery
