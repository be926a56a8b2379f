// What the efficiency models see of an operator, and the time they are relative to. Every model predicts
// y = log(reference / time): with a physical reference the trees learn a slowly varying efficiency, and what
// they say about a GPU or link they never saw still scales with its data sheet.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "costmodels/operators/operator.hpp"
#include "traces/profile_reader.hpp"

namespace orrery {

// The matrix peak that a data type runs at on this GPU, and the type it belongs to: a GPU without bf16
// multiplies in fp16, one without fp8 in bf16, one without tf32 in fp32, as frameworks do. Never absent where
// fp32 is known.
struct MatrixPeak {
  FlopsPerSecond speed;
  DataType type = DataType::fp16;
};
std::optional<MatrixPeak> matrix_peak(const GpuSpec&, DataType);

// Time at the data-sheet peak or the data-sheet bandwidth, whichever is longer (the roofline, Williams et al.
// 2009).
Seconds roofline(const Gemm&, const GpuSpec&, FlopsPerSecond peak);

Bytes gemm_traffic(const Gemm&);  // both operands read, the result written, once

// What a kernel that streams `bytes` takes at data-sheet bandwidth, with its launch.
Seconds stream_time(Bytes bytes, const GpuSpec&);

// One launch, the steps of a ring over the slowest link, and the bytes each rank (or each node) must pass on,
// at link bandwidth; for an all-reduce over nodes the steps of a tree of nodes with chains inside them where
// those are fewer. Rank r of a node sends over its own NICs; the rings of a node share the work. Between two
// nodes trees and NVLS pass on half as much, which published runs show (1.2 to 1.8 times a ring's bound) and
// this leaves out.
Seconds nccl_time(const Collective&);
Seconds wire_time(const Collective&);  // the bytes alone, at link bandwidth: no answer may be below it
Seconds stated_time(const Collective&,
                    const StatedRate&);  // the bytes at the stated rate, and its fixed time
Seconds transfer_time(const PointToPoint&);

// Features. The vectors are as long as the lists of names; `timed` tells a kernel's own time from a
// framework's.
enum class GemmModelKind { one_gpu, any_gpu };
std::vector<float> gemm_features(const Gemm&, const GpuSpec&, FlopsPerSecond peak, TimedAs timed,
                                 GemmModelKind);
std::vector<float> attention_features(const Attention&, const GpuSpec&);
std::vector<float> kernel_features(MemoryKernel, Direction, Bytes, const GpuSpec&);
std::vector<float> collective_features(const Collective&);  // in a node
std::vector<float> network_features(const Collective&);     // over nodes
std::vector<float> transfer_features(const PointToPoint&);

const std::vector<std::string_view>& gemm_feature_names(GemmModelKind);
const std::vector<std::string_view>& attention_feature_names();
const std::vector<std::string_view>& kernel_feature_names();
const std::vector<std::string_view>& collective_feature_names();
const std::vector<std::string_view>& network_feature_names();
const std::vector<std::string_view>& transfer_feature_names();

}  // namespace orrery
