// Efficiency of fused attention by sequence length, from published bars (fitted/attention.yaml).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "costmodels/operators/operator.hpp"

namespace orrery {

class AttentionTable {
 public:
  // Throws InputError for a broken table.
  static AttentionTable parse(std::string_view yaml, const std::string& file);
  static AttentionTable published();  // the table that comes with Orrery

  // Share of the 16-bit matrix peak that the kernel reaches, and whether this was measured on the GPU's
  // architecture.
  struct Efficiency {
    double share = 0;
    bool measured = false;
  };
  [[nodiscard]] Efficiency at(const Attention&, const GpuSpec&) const;
  // What the kernel is there: `sdpa_2025` is FlashAttention-2 on Hopper, FlashAttention-2 the best one on
  // Ampere.
  [[nodiscard]] AttentionKernel kernel_on(const Attention&, const GpuSpec&) const;
  // Integer instructions a score that is not masked, in either direction; 0 without dropout.
  [[nodiscard]] double dropout_instructions(const Attention&, const GpuSpec&) const;

 private:
  struct Curve {
    std::vector<double> plain, causal;  // share of the peak at each of sequences_, head dimension 128
    double narrow = 1;                  // factor at head dimension 64
  };
  struct Kernel {
    std::vector<AttentionKernel> kernels;
    double flops_per_clock = 0;  // of a multiprocessor's matrix units, where it was measured
    double dropout = 0;          // instructions a score
    std::vector<std::string> architectures, measured;
    Curve forward, backward;
  };

  [[nodiscard]] const Kernel& kernel_for(const Attention&, const GpuSpec&) const;

  std::vector<double> sequences_;  // ascending
  std::vector<Kernel> kernels_;
};

// Fused attention: FLOPs at that share of the peak, its traffic at the bandwidth, a GPU that one tile for
// each multiprocessor does not fill yet, and the random numbers of dropout.
struct AttentionTime {
  Seconds time;
  bool measured = false;
};
AttentionTime fused_attention_time(const AttentionTable&, const Attention&, const GpuSpec&);

// Unfused attention: batched GEMMs, softmax and dropout, which write the scores to memory (FIDELITY A 2).
AttentionTime unfused_attention_time(const Attention&, const GpuSpec&);

// The one of both that the operator asks for: what a fitted model is relative to.
AttentionTime attention_time(const AttentionTable&, const Attention&, const GpuSpec&);

// What fused attention reads and writes at least: forward Q, K, V, O; backward these, dO, dQ, dK, dV.
Bytes attention_traffic(const Attention&);
// Tiles of 128 queries for each multiprocessor.
double attention_waves(const Attention&, const GpuSpec&);

}  // namespace orrery
