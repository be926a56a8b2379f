// Programs built on Hugging Face's Trainer and Transformers, as software stacks.
#pragma once

#include <optional>
#include <string_view>

#include "costmodels/stacks/software_stack.hpp"
#include "sim/measured/measured_run.hpp"

namespace orrery {

// Of Hugging Face's Trainer and of what is built on it, with the kernels, the loss and the optimizer that the
// row names. Absent of other programs.
std::optional<SoftwareStack> trainer_stack(const MeasuredRun&);

// torchtitan, and what is priced like it.
bool is_of_pytorch(const SoftwareStack&);

// Makes its fully sharded plans ZeRO-2's, which shard gradients and optimizer alone (of FSDP2
// reshard_after_forward off).
void keep_weights_whole(SoftwareStack&);

// Whether the name of a program, in small letters, says that nothing is compiled, or torch.compile without
// denying it.
bool runs_eager(std::string_view framework);
bool is_compiled(std::string_view framework);

// A program of PyTorch's with weights, gradients and Adam's moments in 16 bits, without fp32 masters.
SoftwareStack in_16_bits(const MeasuredRun&, SoftwareStack);
// The same where the row says so and the program is PyTorch's. Else as it is.
SoftwareStack in_said_bits(const MeasuredRun&, SoftwareStack);
// Whether the row leaves that open: PyTorch's, in bf16, and no autocast.
bool may_be_in_16_bits(const MeasuredRun&, const SoftwareStack&);

}  // namespace orrery
