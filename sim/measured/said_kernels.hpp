// What a published run's words change of its program's stack.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodels/stacks/software_stack.hpp"
#include "sim/measured/measured_run.hpp"
#include "strategies/model.hpp"

namespace orrery {

// Which of PyTorch's FSDPs it had: the second shards each matrix by itself and copies; the first shards a
// layer as one tensor, which is gathered in place; "one FSDP unit" and "without auto-wrap" the whole model. A
// run on one GPU that says neither shards nothing.
void use_said_sharding(const MeasuredRun&, SoftwareStack&);

// How 8-bit matrices are scaled (precision; "rowwise" also of framework and note).
void use_said_scales(const MeasuredRun&, SoftwareStack&);

// Experts of Megatron one after another: "no grouped GEMM", SequentialMLP.
void use_said_experts(const MeasuredRun&, SoftwareStack&);

// Kernels that move tokens to experts and back (Megatron-LM's --moe-permute-fusion) in place of PyTorch's.
void use_said_permutation(const MeasuredRun&, SoftwareStack&);

// Context ranks that exchange heads: "Ulysses", and XTuner's (xtuner/parallel/sequence/attention.py).
void use_said_exchange(const MeasuredRun&, SoftwareStack&);

// "Async TP": PyTorch's tensor ranks multiply pieces as they come, and put none in order
// (_fused_all_gather_matmul, _fused_matmul_reduce_scatter of torch/distributed/_symmetric_memory).
void use_said_async_tensors(const MeasuredRun&, SoftwareStack&);

// How evenly experts are loaded: `expert_load_cv`, else "forced balance", or "natural routing" of 32 and more
// (of few, as Mixtral's, each gets nearly its share). Absent: the row does not say.
std::optional<double> said_load(const MeasuredRun&, const ModelSpec&);
// That, and the rows that each of them has whatever the routing (`expert_capacity`; of programs that fill
// such rows, else as a "capacity factor" of its words).
void use_said_loads(const MeasuredRun&, const ModelSpec&, ExpertLoad&);

// Other optimizers than Adam (framework, note): SGD, Adafactor and Muon by the moments that they keep.
void use_said_optimizer(const MeasuredRun&, SoftwareStack&, std::vector<std::string>& assumptions);

// What a step of AdamW moves in a program of one's own: by `foreach` over lists of tensors, as PyTorch does
// unless told, or by a loop over parameters.
void use_said_adam(const MeasuredRun&, SoftwareStack&);

// Gradients and moments in 16 bits, GELU by its formula, losses in chunks, checkpoints in the host's memory,
// libraries that exchange tokens with experts.
void use_said_kernels(const MeasuredRun&, SoftwareStack&);

// Context ranks with consecutive shares of the tokens ("contiguous causal shards", "no zigzag"), of which a
// causal ring waits for the last.
void use_said_shares(const MeasuredRun&, SoftwareStack&);

}  // namespace orrery
