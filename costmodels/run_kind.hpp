// What decides how far the time of a plan can be trusted.
#pragma once

#include <string>

#include "costmodels/price_book.hpp"

namespace orrery {

struct RunKind {
  bool measured_gpu = true;  // GEMMs of every GPU's chip were measured; else they are extrapolated
  bool other_maker = false;  // a GPU that is not NVIDIA's
  bool experts = false;      // a mixture of experts
  bool new_kernels = false;  // state spaces, latent attention: none of theirs was measured
  bool four_bits = false;    // nor were matrices in 4 bits
  bool host_bound = false;   // in most parts the host launches kernels more slowly than the GPU runs them
  std::string family;        // of software stacks: runs of it may have been validated
  bool operator==(const RunKind&) const = default;
};

// "measured GPU, dense, host-bound".
std::string to_text(const RunKind&);
// Of a plan whose prices are in the book.
RunKind kind_of(const PriceBook&, const ParallelStrategy&);

}  // namespace orrery
