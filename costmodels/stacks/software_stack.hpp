// What the training program adds to the GPUs' own speed: its kernels, its host, its overlaps, its data types.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "costmodels/operators/expert_load.hpp"
#include "costmodels/operators/operator.hpp"
#include "platforms/units.hpp"
#include "strategies/model.hpp"

namespace orrery {

// Separate: a chain of elementwise kernels over fp32 logits, as Megatron-LM's vocabulary-parallel cross
// entropy. Fused: those compiled together around its exchanges (--cross-entropy-loss-fusion, as the recipes
// of Megatron-Core and NeMo set it). Online: one kernel whose softmax is taken as it reads, another for the
// gradient, as torch.compile, FlashAttention's loss, Triton's and llm.c's make them.
enum class CrossEntropyKernel { fused, online, separate };

// How 8-bit matrices are scaled (Megatron-LM --fp8-recipe), which decides what casting to 8 bits moves.
// Delayed: by earlier steps, so that the kernel before a matrix writes 8 bits. Tensorwise: by the largest
// element of the tensor itself, which that kernel can find but not scale by. Rowwise: by that of each row,
// and for the weight gradient of each column (torchao). Mxfp8: by blocks of 32, of rows and of columns, from
// 16 bits.
enum class Fp8Recipe { delayed, tensorwise, rowwise, mxfp8 };
// Bytes of an element in 8 or 4 bits with its share of the scales: of NVFP4 a byte for 16 elements, of MXFP8
// for 32.
double narrow_bytes(DataType, Fp8Recipe);

// Whether GPT-like models (biases everywhere) train with dropout; Llama and later never do.
enum class Dropout { of_model, off };

// What the host needs to launch the kernels of one layer, of attention and MLP; the GPU waits where it is
// done sooner.
struct HostCost {
  Seconds forward;         // of one layer
  Seconds backward;        // of one layer, without what recomputation repeats
  Seconds collective;      // added for each collective of the layer
  Seconds forward_casts;   // added in 8 or 4 bits
  Seconds backward_casts;  // the same
  Seconds ring_forward;    // added for each step of a context ring after the first: attention, sends, sums
  Seconds ring_backward;   // the same
  // Added for each matrix of the layer, and where other ranks have shares of it: hooks of sharded weights.
  Seconds matrix_forward, matrix_backward, gather_forward, gather_backward;
  bool operator==(const HostCost&) const = default;
};
// Its times as stack files name them.
template <class Cost>
struct NamedTime {
  const char* name;
  Seconds Cost::*time;
};
using HostTime = NamedTime<HostCost>;
inline constexpr std::array kHostTimes{
    HostTime{"forward", &HostCost::forward},
    HostTime{"backward", &HostCost::backward},
    HostTime{"collective", &HostCost::collective},
    HostTime{"matrix_forward", &HostCost::matrix_forward},
    HostTime{"matrix_backward", &HostCost::matrix_backward},
    HostTime{"gather_forward", &HostCost::gather_forward},
    HostTime{"gather_backward", &HostCost::gather_backward},
    HostTime{"forward_casts", &HostCost::forward_casts},
    HostTime{"backward_casts", &HostCost::backward_casts},
    HostTime{"ring_forward", &HostCost::ring_forward},
    HostTime{"ring_backward", &HostCost::ring_backward},
};
static_assert(sizeof(HostCost) == kHostTimes.size() * sizeof(Seconds), "one of its times has no name");
HostCost at_pace(HostCost, double pace);  // all of it so many times as long

// Whose layers the host launches as one, at no cost beside the GPU's (Megatron-LM --cuda-graph-impl): of
// those with experts all but what ExpertCost says (--cuda-graph-scope attn moe_router moe_preprocess).
enum class CudaGraphs { none, experts, all };

// What selective recomputation repeats: Megatron's the attention core; torchtitan's every second GEMM and all
// elementwise kernels (its per-operator policy); that of its traced graphs elementwise kernels alone.
enum class SelectiveRecompute { attention, every_second_gemm, elementwise };

// What of sharded weights belongs to no layer's unit and stays whole from the forward to the end of the
// backward. PyTorch's FSDP does not free its root after the forward (_fsdp_state.py, _lazy_init), which holds
// what a program wraps in no unit; torchtitan keeps the head alone since July 2025 (83e694105). `none`:
// modules are fetched and let go one by one (DeepSpeed's hooks). `all`: a program that wraps no layer has the
// model as one unit, gathered before the forward and reduced after the backward, beside nothing.
enum class RootUnit { embedding_and_head, head, none, all };

// How the ranks of a context group see each other's keys and values. `ring`: block by block, each under the
// attention to the one before (Transformer Engine). `gathered`: PyTorch's context parallelism, which gathers
// all of them under the attention to its own block and merges partial results by separate fp32 kernels
// (torch/distributed/tensor/experimental/_attention.py: _AllGatherRotater, _SDPAMerger). `heads`: ranks
// exchange their tokens of all heads for all tokens of some heads, and back (DeepSpeed-Ulysses, arXiv
// 2309.14509; Transformer Engine's cp_comm_type a2a).
enum class ContextExchange { ring, gathered, heads };

// Where full recomputation keeps the inputs of layers: whole on the GPU; a share on each tensor rank
// (Megatron-LM's --distribute-saved-activations, DeepSpeed's --partition-activations); or in the host's
// memory (DeepSpeed's --checkpoint-in-cpu).
enum class SavedInputs { gpu, tensor_ranks, host };

// What its reports call memory: the peak of tensors; with what PyTorch's allocator keeps besides; or all that
// nvidia-smi sees on the card.
enum class MemoryFigure { allocated, reserved, card };
std::string_view to_text(MemoryFigure);  // "allocated", "reserved", "card"
MemoryFigure parse_memory_figure(const std::string&, const std::string& place);  // throws InputError there

struct OptimizerCost {
  double bytes_per_parameter = 0;  // moved by one step, of the local shard
  double bandwidth_share = 0;      // of the data sheet's, at which they move
  Seconds fixed = {};              // launches, and the gradient norm read back by the host
  // Of these bytes those that move whatever the L2 cache holds, of an optimizer that goes from one matrix to
  // the next with a kernel for each operation; 0: all, as of one kernel, or of lists of all matrices.
  double uncached = 0;
  bool operator==(const OptimizerCost&) const = default;
};

// Bandwidth that collectives and transfers reach, over what the cost models expect.
struct NetworkShare {
  double inside = 1.0, between = 1.0;  // nodes
  double collectives = 1.0;            // between nodes, besides `between`
  bool operator==(const NetworkShare&) const = default;
};

// Bytes of an element of the matrices of zeros and ones by which experts get their tokens (OneHotGroup):
// moved, forward and backward, and kept. As XLA fuses MaxText's (AI-Hypercomputer/maxtext,
// src/maxtext/layers/moe.py, generate_masks): weights written (2), read and written as zeros and ones (2 +
// 2); the gradient of the weights read (2); both kept.
struct OneHotBytes {
  double forward = 6, backward = 2, kept = 4;
  bool operator==(const OneHotBytes&) const = default;
};

// Where tensor ranks split tokens as [sequences, tokens, hidden] along their second dimension, collectives
// work along the first: a copy puts what was gathered in order, and what is to be scattered. `of_several`:
// what is gathered of one sequence is in order as it is.
enum class SequenceCopies { none, of_several, all };

// On which GPUs nothing runs beside the gathers and reductions of a layer whose experts all ranks have, where
// weights are sharded.
enum class LoneGathers { never, on_blackwell, always };

// What the host needs to launch the matrices of experts, and in 8 or 4 bits also the casts of what they
// multiply.
struct ExpertHost {
  Seconds forward, backward, forward_casts, backward_casts;
  bool operator==(const ExpertHost&) const = default;
};
using ExpertHostTime = NamedTime<ExpertHost>;
inline constexpr std::array kExpertHostTimes{
    ExpertHostTime{"forward", &ExpertHost::forward},
    ExpertHostTime{"backward", &ExpertHost::backward},
    ExpertHostTime{"forward_casts", &ExpertHost::forward_casts},
    ExpertHostTime{"backward_casts", &ExpertHost::backward_casts},
};
static_assert(sizeof(ExpertHost) == kExpertHostTimes.size() * sizeof(Seconds),
              "one of its times has no name");

// What a mixture of experts adds. Routing that drops no token is read by the host before it can launch the
// experts' kernels, a few for each expert: where these are short the GPU waits for them.
struct ExpertCost {
  bool deduplicated = false;           // a token goes once to each node, in one node to each GPU, whatever
                                       // experts it visits there
  std::optional<StatedRate> dispatch;  // of the exchange of tokens; absent: NCCL's all-to-all
  // Each rank gathers the tokens of all, and what experts give goes back as sums: bytes of an element of
  // these (Megatron-LM core/transformer/moe/token_dispatcher.py, MoEAllGatherTokenDispatcher). 0: exchanged.
  double gathered_sums = 0;
  double overlap = 0;  // share of the exchange that hides under the compute of another microbatch, 0 to 1
  ExpertLoad load;
  OneHotBytes one_hot_bytes;
  // A token's experts stand side by side, token after token (places_reached_in_turn); else they are drawn.
  bool in_turn = false;
  ExpertHost each;   // of the host for each expert of a GPU
  ExpertHost layer;  // and once a layer, however many a GPU has
  LoneGathers gathers_alone = LoneGathers::never;
  bool fused = false;  // one kernel multiplies for all experts, adds biases, activates and casts the result
  // Probabilities weigh what experts give, which stays for their gradient; else what they activate
  // (Megatron-LM since 26596307 of April 2025: permute and unpermute keep maps alone).
  bool keeps_outputs = true;
  // In 8 and 4 bits the rows of each expert are copied into a multiple of 32, or 16, and back (Megatron-LM
  // core/transformer/moe/experts.py, quantization_padding); else whoever routes or brings them aligns them.
  bool pads_rows = false;
  // Bytes of an element of each row that eager kernels around the matrices move, beside what Megatron-LM's
  // permutations do: gathers, masks, sums over a token's experts.
  double eager_forward = 0, eager_backward = 0;
  // Of an element of each row's biases, where experts have any: what adding up their gradients by
  // PyTorch's index_put takes of the backward, as bytes that a copy moves in that time.
  double indexed_biases = 0;
  // And that they hold at once in the backward of a layer, beside what is kept; of experts without biases.
  double eager_memory = 0;
  bool operator==(const ExpertCost&) const = default;
};
ExpertCost at_pace(ExpertCost, double pace);  // what it takes of the host so many times as long

// Weights that are gathered and gradients that are scattered matrix by matrix, by collectives over lists of
// one tensor a rank, before each of which the host waits for the GPU: nothing runs beside them. DeepSpeed's
// ZeRO-3 of 2021 (deepspeed/runtime/zero/partition_parameters.py @ 112ebff6, _allgather_param,
// _reduce_scatter_gradient).
struct MatrixGathers {
  Seconds host;           // for one collective
  Seconds host_per_rank;  // slicing the list, copying what the collective flattened
  bool operator==(const MatrixGathers&) const = default;
};

// Kernels around the collectives of sharded weights, for which the pass waits, or which run with those beside
// it. Bytes of each parameter that they move: of the shard, into what is sent; out of what was gathered, into
// a tensor for each matrix. And into what is scattered, a row for each rank: how long, over copying a
// gradient from its own type to the one that is sent.
struct ShardCopies {
  double own = 0, gathered = 0, scattering_time = 0;
  bool beside = false;
  bool operator==(const ShardCopies&) const = default;
};

// Bytes that a program keeps of each parameter in bf16 training (and 8 and 4 bits); absent: by data type and
// sharding, as memory.cpp says.
struct KeptStates {
  std::optional<double> weight;     // in all its copies
  std::optional<double> optimizer;  // master weight and moments, of the local shard
  // Of these the moments, in training in every type, where the optimizer is not Adam: SGD 0, or 4 with
  // momentum, Adafactor next to nothing, Muon 4.
  std::optional<double> moments;
  // Weights and moments in 16 bits, and no masters.
  bool step_in_16_bits() const { return weight == 2 && optimizer == 4; }
  bool operator==(const KeptStates&) const = default;
};

// What `orrery calibrate` leaves open of N facts, so that intervals of plans under its stack can be told.
template <std::size_t N>
struct Calibrated {
  int runs = 0;
  double scatter = 0;  // standard deviation of ln(predicted / measured) of a run
  std::array<std::array<double, N>, N> covariance = {};  // of the logarithms of the facts
  std::vector<std::string> gpus = {};                    // of the runs, by name, in order
  std::string cost_models = {};  // digest of those that priced the runs; of memory empty
  bool operator==(const Calibrated&) const = default;
};

// GELU by its formula, a kernel for each of its operations: bytes of an element that they move, in 16 bits,
// and that they keep beside input and output.
struct EagerGelu {
  double forward = 0, backward = 0, kept = 0;
  bool operator==(const EagerGelu&) const = default;
};

// What a program has for the norms, activations, rotation and residuals of a layer, beside its `elementwise`.
struct LayerKernels {
  std::optional<Fusion> norm;     // absent: as `elementwise`
  double elementwise_time = 1.0;  // of norms, activations, rope and residuals over Megatron's kernels
  // Of norms alone, and of biases, dropout and sums of the residual stream; absent: elementwise_time.
  std::optional<double> norm_time, residual_time;
  // A kernel for each operation, as PyTorch has them (`eager_kernels` says both): a gated MLP keeps its
  // activated half besides, rotated queries and keys the matrix they came from.
  bool keeps_activated = false, keeps_unrotated = false;
  // A gated MLP's gate is split off, activated and multiplied by kernels of their own, those of experts then
  // weighed by another (Megatron-Core without bias_activation_fusion: glu of core/transformer/mlp.py, and of
  // moe/experts.py).
  bool eager_activation = false;
  double host_time = 1.0;   // to launch a layer's kernels, over HostCost's forward and backward
  double kept_by_norm = 0;  // bytes of an element of its input, besides its input and its output in 16 bits
  std::optional<EagerGelu> gelu;         // absent: one kernel
  std::optional<SoftmaxKernel> softmax;  // of llama_layers; absent: the stack's
  bool operator==(const LayerKernels&) const = default;
};

// One row of stacks/stacks.yaml, which says where each value comes from. A bare number is a factor or a
// share, or bytes where it says so.
struct SoftwareStack {
  std::string name;
  std::string preset;  // the row it is, or that the file it comes from is like
  std::string family;  // the first row that it is like, over however many rows between

  // Which kernels it has.
  AttentionKernel attention = AttentionKernel::flash;  // where the plan has flash attention
  Fusion elementwise = Fusion::separate;
  LayerKernels kernels;
  std::optional<LayerKernels> llama_layers;  // in place of those in layers with RMSNorm
  CrossEntropyKernel cross_entropy = CrossEntropyKernel::fused;
  SoftmaxKernel softmax = SoftmaxKernel::fused;
  Dropout dropout = Dropout::of_model;
  Fp8Recipe fp8_recipe = Fp8Recipe::delayed;
  bool casts_weights_once = false;  // an iteration, to 8 or 4 bits, and keeps the copies (memory.hpp)
  bool rotation_scales = true;  // the kernel of rotary positions takes a factor; else eager ones turn them
  bool repeated_keys = false;   // keys and values are copied for every query head before attention
  // MLPs of dense layers work on as many tokens at a time as the hidden size has elements, keep their input
  // alone and are made again tile by tile in the backward (TiledMLP of Arctic Long Sequence Training, arXiv
  // 2506.13996, section 3.1.1).
  bool tiled_mlp = false;
  // The head works on pieces of as many logits as the hidden states have elements, forward and backward
  // at once (Liger-Kernel, fused_linear_cross_entropy.py).
  bool chunked_loss = false;
  // Or on so many pieces of each sequence, forward and backward at once, whose gradients it gathers in fp32
  // (torchtitan, ChunkedCELoss of components/loss.py).
  int loss_pieces = 1;
  // The head has a multiple of 128 rows on each tensor rank (padded_vocabulary); else as many as there are,
  // so that its GEMMs may be unaligned (unaligned_gemm.hpp).
  bool pads_vocabulary = true;

  // How long they take.
  double compute_time = 1.0;    // of all kernels of layers, embedding and head over what is predicted
  double attention_time = 1.0;  // of its attention kernel over the one that `attention` names
  double backward_gemm = 1.0;   // time of a backward GEMM over what a forward GEMM of its shape takes
  // Gradients of the products of Mamba-2's scan, over what cuBLAS takes for GEMMs of their shape: mamba-ssm's
  // kernels, and all else that its mixer's backward has. No time of them is published; fitted on nine runs on
  // H100, Nemotron-H 56B's and Nemotron 3 Nano's of source_keys dgxc-25.05 and bridge-skills-nano.
  double scan_backward = 3.1;
  Seconds kernel_gap;  // in which the GPU drains and fills between two kernels

  // Host and network, and what experts need of both.
  HostCost host;
  bool host_in_python =
      false;  // as slow on slow cores as what wraps layers in Python (HostSpec::python_pace)
  CudaGraphs cuda_graphs = CudaGraphs::none;
  NetworkShare network;
  ExpertCost experts;

  // Tensor and context groups.
  double tensor_overlap = 0;      // share of a layer's GEMMs that tensor collectives can hide under, 0 to 1
  double overlap_slowdown = 1.0;  // of compute beside a collective
  // The gradient of a column-parallel input is reduced over the tensor group under the GEMM of its weight
  // gradient (LinearWithGradAccumulationAndAsyncCommunication, megatron/core/tensor_parallel/layers.py).
  bool async_tensor_gradients = false;
  // The gate of a gated MLP is a column-parallel matrix of its own: without sequence parallelism the gradient
  // of its input is reduced once more.
  bool separate_gate = false;
  // So are queries, keys and values, and each of these matrices has what the tensor group gathers, and the
  // reduction of its input's gradient, for itself (PyTorch's ColwiseParallel without a PrepareModuleInput).
  bool separate_inputs = false;
  SequenceCopies sequence_copies = SequenceCopies::none;
  bool keeps_gathered = false;   // what sequence-parallel ranks gathered for a matrix stays for its gradient
  bool gathered_logits = false;  // every tensor rank gathers all and has the loss of the whole vocabulary
  ContextExchange context_exchange = ContextExchange::ring;

  // Weights of fully sharded plans.
  RootUnit root_unit = RootUnit::embedding_and_head;
  ShardCopies shard_copies;
  std::optional<MatrixGathers> matrix_gathers;  // absent: layer by layer, beside the layer before
  // Matrix by matrix, each beside the matrix before: what computes between matrices waits for all gathers
  // that were asked for, and hides none.
  bool gathers_wait = false;
  // A recomputed layer gathers them, gives them back and gathers them again for its backward (a checkpoint
  // around FSDP's unit); else once (a unit around the checkpoint).
  bool regathers_recomputed = false;
  // ZeRO-2: they shard gradients and optimizer alone. Every GPU has all weights, which are gathered once a
  // step, after it; gradients are reduced in every backward.
  bool whole_weights = false;
  // Such weights are gathered layer by layer beside each forward (FSDP that keeps for the backward what it
  // gathered).
  bool gathers_in_forward = false;
  Bytes reduce_buffers;  // through which gradients are reduced then

  // Gradients: bytes of one that is kept, in all its copies but a bucket's, and of one that is sent; absent:
  // gradient_bytes of the data type. Ask gradient_kept and gradient_sent.
  std::optional<double> gradient, reduced_gradient;
  // Where there are replicas, each is copied to a bucket to be sent and back (PyTorch's
  // DistributedDataParallel without gradient_as_bucket_view, its default:
  // torch/csrc/distributed/c10d/reducer.cpp).
  bool copies_to_buckets = false;
  double gradient_copy = 0;  // bytes of the copy of all gradients that is sent, when the activations are gone
  // Elements whose gradients are reduced at once under the backward; absent: Megatron-LM's.
  std::optional<double> gradient_bucket;
  // Fully sharded, they are reduced and sharded after the last microbatch alone, and those of the others are
  // added up whole, in the type they are sent in (set_requires_gradient_sync of FSDP2,
  // to_accumulated_grad_if_needed of its _fsdp_param.py).
  bool adds_up_whole = false;
  // All-reduced even where each replica then updates a share of the weights and gathers the rest (ZeRO-1
  // without a reduce-scatter).
  bool all_reduces_gradients = false;
  std::optional<double> accumulation;  // bytes moved by each microbatch for each parameter
  bool separate_accumulation = false;  // where `accumulation` is absent: a kernel of its own adds gradients
                                       // to their sum, not the weight-gradient GEMM
  // Gone from one step's end to the next step's backward: zero_grad(set_to_none=True).
  bool frees_gradients = false;

  // Optimizer.
  KeptStates states;
  bool fp16_as_bf16 = false;               // `states` and `gradient` are those of training in fp16 too
  std::optional<OptimizerCost> optimizer;  // absent: counted by optimizer_operators
  bool flat_gradients = false;             // it copies fp16 gradients to fp32 as one tensor
  bool keeps_step_copies = false;          // these copies stay for its next step
  // Bytes of a parameter that it holds besides while it steps: torch.optim's `foreach` "uses about
  // sizeof(params) more peak memory" (its documentation).
  double optimizer_copy = 0;
  // Where experts have an optimizer of their own, it and that of the rest each gather the updated weights of
  // both, unless that overlaps.
  bool gathers_for_each_optimizer = false;
  // Updated weights are not gathered: each replica broadcasts its share, one replica after another.
  bool broadcasts_parameters = false;

  // Activations, and what is in memory besides.
  SelectiveRecompute selective = SelectiveRecompute::attention;
  SavedInputs saved_inputs = SavedInputs::gpu;
  // Full recomputation ends with the last tensor that the backward of a layer needs: the matrix that gives
  // the layer's output is not multiplied by again.
  bool stops_recomputation = false;
  std::optional<double> logit_peak;  // bytes of a 16-bit logit where it needs most; absent: by cross_entropy
  std::optional<double> sharded_logit_peak;  // the same with tensor ways; absent: as without
  double activation_memory = 1.0;            // of activations and logits over what is counted
  Bytes memory_reserve{1e9};                 // CUDA context, its kernels and library workspaces of one GPU
  // Freed blocks that the allocator cannot use again, over what is allocated and freed in every iteration
  // (activations, logits, buffers): weights, gradients and states come once and stay.
  double cached_share = 0.1;
  // What a tensor group has exchanged is not used again before the GPU has passed the exchange, however far
  // ahead the host is (recordStream of PyTorch's ProcessGroupNCCL): `recorded_bytes`.
  bool records_streams = false;
  int stale_logits = 0;  // microbatches whose logits stay after their backward
  // Of NCCL, each with its buffers: the ring alone where connections wait for their first use (from NCCL 2.22
  // on); before, the tree's parent and child too.
  int channel_connections = 1;

  // Pipelines.
  bool scatter_gather = false;           // the boundary message is split over the tensor ranks
  bool whole_gradient_messages = false;  // but not on the way back
  bool receives_ahead = false;           // a stage has a buffer for each message of an iteration
  bool keeps_stage_outputs = false;      // a stage keeps what it sends until the backward of its microbatch
  bool embedding_counts = false;         // embedding and loss count as layers where layers do not divide
  bool equal_pieces = false;             // stages have equal numbers of pieces, which are the embedding, each
                                         // layer, the final norm and the head; the first ones one more

  // What reports of its runs say, and do not.
  MemoryFigure memory_figure = MemoryFigure::card;
  bool may_interleave = false;        // there are virtual stages that they do not always mention
  bool may_drop_activations = false;  // likewise recomputed or offloaded layers

  // Where `orrery calibrate` made it.
  std::optional<Calibrated<4>> calibrated;         // compute_time, host, network.inside and network.between
  std::optional<Calibrated<3>> calibrated_memory;  // activation_memory, cached_share and memory_reserve

  // Switches of the plan that this program has on; a plan of one's own says its own.
  bool flash_attention = true;
  bool sequence_parallel = false;  // where there are tensor ways
  bool distributed_optimizer = false;
  bool fully_sharded = false;
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  bool operator==(const SoftwareStack&) const = default;
};

// Whether what is fully sharded is gathered in the forwards.
inline bool forwards_gather(const SoftwareStack& stack) {
  return !stack.whole_weights || stack.gathers_in_forward;
}

// Whether kernels of their own cap the logits, of which one keeps what it gave: a compiled loss has the caps
// in its own kernels.
inline bool caps_apart(const ModelSpec& model, const SoftwareStack& stack) {
  return model.capped_logits && stack.cross_entropy != CrossEntropyKernel::online;
}

// Whether its `states` and `gradient` are of training in this type.
bool chooses_types(const SoftwareStack&, DataType);

// Bytes of one gradient. Programs choose them for bf16 (and 8 and 4 bits): fp16 training keeps gradients in
// fp16 (its optimizer copies them to fp32), fp32 training keeps and sends them in fp32.
double gradient_kept(const SoftwareStack&, DataType);
double gradient_sent(const SoftwareStack&, DataType);

// Bytes of Adam's moments of a parameter that its optimizer does not have.
double lacking_moments(const SoftwareStack&);

// Whether it trains layers of the shape with dropout.
bool drops_out(const LayerShape&, const SoftwareStack&);

// As it runs the model: with its kernels for layers of Llama's kind where the model has some.
SoftwareStack stack_for(const ModelSpec&, SoftwareStack);

// Of a dense MLP.
inline bool has_eager_gelu(const LayerShape& shape, const SoftwareStack& stack) {
  return stack.kernels.gelu && shape.experts == 1 && shape.mlp == MlpKind::gelu &&
         shape.activation != Activation::relu;
}

}  // namespace orrery
