// Which fused attention a published run had.
#pragma once

#include "costmodels/stacks/software_stack.hpp"
#include "sim/measured/measured_run.hpp"

namespace orrery {

// The kernel that its cells name ("FlashAttention-2", "FA3", "cuDNN"), else what programs like the stack's
// had in its year.
void use_attention_of_run(const MeasuredRun&, SoftwareStack&);

// Whether scaled_dot_product_attention of a run's PyTorch is cuDNN's on Hopper and Blackwell: from 2.11 on,
// whose package is the first with a cuDNN that check_prefer_cudnn_attention takes (pytorch/pytorch,
// aten/src/ATen/native/transformers/cuda/sdp_utils.cpp; huggingface/transformers pull request 48163); where
// no version is named, from 2026 on. Until then it is FlashAttention-2.
bool prefers_cudnn(const MeasuredRun&);

}  // namespace orrery
