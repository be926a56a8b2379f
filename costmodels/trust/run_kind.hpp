// What decides how far the time of a plan can be trusted.
#pragma once

#include <string>

namespace orrery {

struct RunKind {
  bool measured_gpu = true;      // GEMMs of every GPU's chip were measured; else they are extrapolated
  bool other_maker = false;      // a GPU that is not NVIDIA's
  bool experts = false;          // a mixture of experts
  bool new_kernels = false;      // state spaces, latent attention: none of theirs was measured
  bool four_bits = false;        // nor were matrices in 4 bits
  bool sharded_weights = false;  // gathered as they are needed (FSDP, ZeRO-3)
  bool host_bound = false;       // in most parts the host launches kernels more slowly than the GPU runs them
  std::string family;            // of software stacks: runs of it may have been validated
  bool operator==(const RunKind&) const = default;
};

// What is predicted of a run, and measured. Of memory: the peak of the fullest GPU, in the figure that its
// source reports.
enum class Predicted { time, memory };

// What of a kind tells how far off that is; the rest as of the best known kind. Which things do was tried on
// the residuals: intervals of time became no better by sharded weights, those of memory by GPUs and hosts.
RunKind telling(Predicted, RunKind);

// "measured GPU, dense, host-bound"; of memory "dense".
std::string to_text(const RunKind&, Predicted = Predicted::time);

}  // namespace orrery
