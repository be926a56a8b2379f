// GEMMs of 16-bit matrices whose rows do not start at multiples of 16 bytes (50257 logits and their
// gradient): cuBLAS has kernels of older generations alone for them, which load and store one or two elements
// at a time.
#pragma once

#include <cstdint>

#include "costmodels/operators/operator.hpp"

namespace orrery {

// The largest of 8, 2 and 1 that divides the rows of all matrices that a GEMM of a linear layer reads and
// writes, in elements. cuBLAS has no kernel for 4.
std::int64_t row_alignment(const Gemm&);

// Least time of such a GEMM on an NVIDIA GPU; 0 where rows are aligned, and for types of other than 16 bits.
// 372 FLOPs a multiprocessor and clock for each element of alignment, 557 in gradients, whose tiles are
// larger:
// * 1: 96 and 99 TFLOP/s on H200, 72,000 x 3,072 x 3,072 and x 14,336 moved by 2 bytes (792 and 697 where
//   aligned; kernels cutlass_75_tensorop_bf16_s1688gemm_*_align1, a profile of FastWAM's training, 3 July
//   2026). RTX 4090 107 to 116 TFLOP/s at 2,055 to 2,073 squared (pytorch issue 181718), 331 to 359 a clock.
// * 2: 117 TFLOP/s on H100 on 81 of its 132 multiprocessors, 730 a clock (768 x 3,420 x 1,280 in 57.4 us,
//   cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2, LingBot-VLA's profile); 9,477 x 1,152 x
//   588 in 130.6 us at 1.2 GHz, 621 a clock with its third wave of tiles half empty (m87-labs/kestrel pull
//   request 143).
// * 1: of GPT-2's 50257 logits of 8,192 tokens, 1,024 wide, on H100 and H200 alike (costmodels/measured/own):
//   forward 96.6 TFLOP/s (..._bf16_128x128_tn_align1), gradients 140 and 148 (256x128_nn, 128x256_nt).
// GPUs before Turing and after Ada and Hopper are taken to be like these (assumption).
Seconds unaligned_time(const Gemm&, const GpuSpec&);

}  // namespace orrery
