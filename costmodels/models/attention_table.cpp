#include "costmodels/models/attention_table.hpp"
#include "costmodels/operators/cached_traffic.hpp"

#include <algorithm>
#include <cmath>

#include "costmodels/models/features.hpp"
#include "costmodels/models/kernel_pace.hpp"
#include "costmodels/operators/local_layer.hpp"
#include "platforms/embedded.hpp"
#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"

extern "C" const orrery::EmbeddedRow orrery_embedded_costmodels[];

namespace orrery {

namespace {

std::vector<double> numbers(const YamlValue& list, double low, double high) {
  std::vector<double> values;
  for (const auto& item : list.items()) values.push_back(item.number(low, high));
  return values;
}

std::vector<std::string> texts(const YamlValue& list) {
  std::vector<std::string> values;
  for (const auto& item : list.items()) values.push_back(item.text());
  return values;
}

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// Linear in log2 of the sequence; constant outside the table.
double interpolate(const std::vector<double>& sequences, const std::vector<double>& values, double sequence) {
  const auto above = std::lower_bound(sequences.begin(), sequences.end(), sequence);
  if (above == sequences.begin()) return values.front();
  if (above == sequences.end()) return values.back();
  const auto i = static_cast<std::size_t>(above - sequences.begin());
  const double share = std::log2(sequence / sequences[i - 1]) / std::log2(sequences[i] / sequences[i - 1]);
  return values[i - 1] + (values[i] - values[i - 1]) * share;
}

constexpr double kReached = 0.85;  // of the data sheet's bandwidth, by PyTorch's additions on A100

// Of dropout alone, of a score in 16 and in 32 bits: with the numbers of the two below.
double dropout_traffic(const Attention& op) {
  return op.dropout ? (op.direction == Direction::forward ? 6.8 : 5.6) : 0.0;
}
double wide_dropout_traffic(const Attention& op) {
  return op.dropout ? (op.direction == Direction::forward ? 11.5 : 10.1) : 0.0;
}

// Bytes that elementwise kernels move of a score in 16 bits, at data-sheet bandwidth: the A100 column of
// FIDELITY A 2, and of PyTorch's kernels reads and writes.
double score_traffic(const Attention& op) {
  const bool forward = op.direction == Direction::forward;
  const double dropout = dropout_traffic(op);
  if (op.softmax == SoftmaxKernel::fused) return dropout + (forward ? 4.0 : 5.4);
  // Half of 2 + 2; backward half of 2 + 2, and a gradient that is written whole.
  if (op.softmax == SoftmaxKernel::triangular) return dropout + (forward ? 2.0 : 4.0) / kReached;
  // Scaled (4), chosen (4), added to (4), softmax (4); backward of softmax 6, of choice and scaling 4 each.
  if (op.softmax == SoftmaxKernel::stepwise) return dropout + (forward ? 16.0 : 14.0) / kReached;
  // Softmax 2 + 4 and a cast of 4 + 2; backward the cast 2 + 4, softmax 4 + 4 + 2.
  if (op.softmax == SoftmaxKernel::stepwise_wide) return dropout + 24.0 / kReached;
  // masked_fill_ and softmax; backward the mask is filled into a copy of the gradient, and softmax reads two.
  return dropout + (forward ? 4 + 4 : 4 + 4 + 6) / kReached;
}

// The same of a score in 32 bits, which Megatron-LM's fused kernel does not take
// (megatron/model/fused_softmax.py, is_kernel_available): the layer's number is multiplied in, the mask
// filled, softmax taken, each by a kernel of its own. Medians over V100, RTX 2080 Ti, Titan RTX, A100, RTX
// 3090 and GH200 of their medians (eth-easl/sailor cf2c8e3c,
// Planner/baselines/Aceso/profiler/*/profiled-data-fp32/OPT-350_*), 29.6 to 45.1 B forward and 54.9 to 61.7
// backward, of dropout 10.6 to 12.3 and 9.8 to 10.9. Kernels of one's own multiply nothing.
constexpr double kWideForward = 34.0, kWideBackward = 56.8;
constexpr double kWideKernel = (4 + 4) / kReached;  // one that reads and writes once
double wide_score_traffic(const Attention& op) {
  const bool forward = op.direction == Direction::forward;
  return wide_dropout_traffic(op) + (forward ? kWideForward : kWideBackward) -
         (op.softmax == SoftmaxKernel::eager ? kWideKernel : 0.0);
}

// Of a score in 16 bits that is cast to 32 bits for these kernels, and its probability back.
double widened_score_traffic(const Attention& op) {
  constexpr double kCasts = (2 + 4) + (4 + 2);
  Attention kept = op;
  kept.dropout = false;
  return dropout_traffic(op) + wide_score_traffic(kept) + kCasts / kReached;
}

// Added forward by a kernel that broadcasts, which is as far from the bandwidth as the filling of a broadcast
// mask: what `wide_score_traffic` has forward beyond a multiplication and a softmax. Backward a sum over the
// sequences.
double bias_traffic(const Attention& op) {
  constexpr double kBroadcast = (4 + 4) / (kWideForward - 2 * kWideKernel);
  const double element = size_of(op.type).value();
  return op.direction == Direction::forward ? 2 * element / kBroadcast : element / kReached;
}

// By softmax's formula, in elements of a score. Forward it is scaled (2), chosen by the mask (2), its
// greatest sought (1) and taken from it (2), exponentiated (2), summed (1) and divided (2). Backward the
// division gives one gradient (2) and another by four kernels and a sum (2 + 2 + 2 + 3 + 1), which is added
// (2); then the exponential (3), what was taken away (2 + 1), a gradient of zeros but for the greatest (1),
// added (3), the choice (2) and the scaling (2). Under autocast from the exponential on in 32 bits, between
// casts.
constexpr double kFormulaForward = 12, kFormulaBackward = 28;
constexpr double kFormulaWideForward = 2 * 7 + (2 + 4) + 4 * 5 + (4 + 2),
                 kFormulaWideBackward = (2 + 4) + 4 * (2 + 10 + 2 + 3) + (4 + 2) + 2 * (3 + 1 + 3 + 2 + 2);
bool by_formula(const Attention& op) {
  return op.softmax == SoftmaxKernel::formula || op.softmax == SoftmaxKernel::formula_wide;
}

double formula_traffic(const Attention& op, double scores, const GpuSpec& gpu) {
  const bool forward = op.direction == Direction::forward;
  const double element = size_of(op.type).value();
  const bool wide = op.softmax == SoftmaxKernel::formula_wide && element < 4;
  const double all = wide ? (forward ? kFormulaWideForward : kFormulaWideBackward)
                          : element * (forward ? kFormulaForward : kFormulaBackward);
  const double single = element * (forward ? 2 : 3);  // what one kernel would move
  const double dropout = element > 2 ? wide_dropout_traffic(op) : dropout_traffic(op);
  return dropout + moved_past_cache(gpu, (wide ? 4 : element) * scores, all, single) / kReached;
}

double elementwise_traffic(const Attention& op, double scores, const GpuSpec& gpu) {
  const double bias = op.biased ? bias_traffic(op) : 0.0;
  if (by_formula(op)) return bias + formula_traffic(op, scores, gpu);
  if (size_of(op.type).value() > 2) return bias + wide_score_traffic(op);
  return bias + (op.softmax == SoftmaxKernel::wide ? widened_score_traffic(op) : score_traffic(op));
}

constexpr double kTileTokens = 128;  // queries one thread block of FlashAttention-2 and cuDNN works on
constexpr Seconds kLaunch = Seconds(5e-6);
constexpr double kStreamShare = 0.8;  // of the bandwidth, for the traffic of Q, K, V, O
// Integer instructions a multiprocessor starts in a clock, of 32 bits (CUDA C++ Programming Guide, throughput
// of native arithmetic instructions, compute capabilities 7.0 to 10.0).
constexpr double kIntegerLanes = 64;

// Width of a GPU's matrix units, FLOPs a clock of one multiprocessor and a power of two by construction, over
// the one that was measured. Exponentials and shared memory go at the same pace on every multiprocessor, so
// what they add to the matrices' time weighs less where these are narrow. Wider units than were measured came
// with kernels that kept the balance.
double relative_width(const GpuSpec& gpu, double measured) {
  const auto peak = matrix_peak(gpu, DataType::bf16);
  if (!peak || of_other_maker(gpu)) return 1;  // nothing was measured there
  return std::min(
      1.0, std::exp2(std::round(std::log2(peak->speed.value() / multiprocessor_clocks(gpu) / measured))));
}

}  // namespace

Bytes attention_traffic(const Attention& op) {
  const double queries =
      2.0 * static_cast<double>(op.batch * op.heads) * static_cast<double>(op.query_tokens);
  const double keys = 2.0 * static_cast<double>(op.batch * op.kv_heads) * static_cast<double>(op.kv_tokens);
  const auto widths = static_cast<double>(op.head_dim + op.value_width());
  // Forward reads Q, K, V and writes O; backward reads them with O and dO, and writes dQ, dK, dV.
  const double forward = (queries + keys) * widths;
  return Bytes(op.direction == Direction::forward ? forward : 2 * forward);
}

AttentionTable AttentionTable::published() {
  for (const auto& file : embedded_files(orrery_embedded_costmodels)) {
    if (file.name == "fitted/attention.yaml") return parse(file.content, "attention.yaml");
  }
  throw Defect("no table of attention inside the program");
}

AttentionTable AttentionTable::parse(std::string_view yaml, const std::string& file) {
  const YamlValue root = YamlValue::parse(yaml, file);
  root.allow_keys({"sequences", "kernels"});
  AttentionTable table;
  table.sequences_ = numbers(root.at("sequences"), 1, 1e9);
  if (table.sequences_.empty() || !std::is_sorted(table.sequences_.begin(), table.sequences_.end())) {
    root.at("sequences").fail("sequence lengths in ascending order");
  }
  for (const auto& row : root.at("kernels").items()) {
    row.allow_keys({"name", "kernels", "architectures", "measured", "peak", "flops_per_clock", "dropout",
                    "forward", "backward"});
    const double peak = row.at("peak").positive_quantity<FlopsPerSecond>().value() / kTera;
    const auto curve = [&](const YamlValue& value) {
      value.allow_keys({"plain", "causal", "narrow"});
      const auto shares = [&](const YamlValue& list) {
        auto values = numbers(list, 1e-3, 2 * peak);
        if (values.size() != table.sequences_.size()) list.fail("one figure for each of the sequences");
        for (double& one : values) one /= peak;
        return values;
      };
      return Curve{shares(value.at("plain")), shares(value.at("causal")), value.at("narrow").number(0.01, 2)};
    };
    std::vector<AttentionKernel> kernels;
    for (const auto& item : row.at("kernels").items()) kernels.push_back(item.one_of_values(kFusedAttention));
    table.kernels_.push_back({.kernels = std::move(kernels),
                              .flops_per_clock = row.at("flops_per_clock").number(1, 1e6),
                              .dropout = row.at("dropout").number(0, 1000),
                              .architectures = texts(row.at("architectures")),
                              .measured = texts(row.at("measured")),
                              .forward = curve(row.at("forward")),
                              .backward = curve(row.at("backward"))});
  }
  if (table.kernels_.empty()) root.at("kernels").fail("at least one kernel");
  return table;
}

// The kernel itself, else the best of the architecture that is no later, else any.
const AttentionTable::Kernel& AttentionTable::kernel_for(const Attention& op, const GpuSpec& gpu) const {
  const auto found = [&](AttentionKernel asked) {
    return std::find_if(kernels_.begin(), kernels_.end(), [&](const Kernel& kernel) {
      const auto& own = kernel.kernels;
      return std::find(own.begin(), own.end(), asked) != own.end() &&
             contains(kernel.architectures, gpu.architecture);
    });
  };
  for (const AttentionKernel asked : {op.kernel, AttentionKernel::flash, AttentionKernel::flash2}) {
    if (const auto kernel = found(asked); kernel != kernels_.end()) return *kernel;
  }
  return kernels_.back();
}

AttentionKernel AttentionTable::kernel_on(const Attention& op, const GpuSpec& gpu) const {
  return op.kernel == AttentionKernel::unfused ? op.kernel : kernel_for(op, gpu).kernels.front();
}

AttentionTable::Efficiency AttentionTable::at(const Attention& op, const GpuSpec& gpu) const {
  const Kernel& kernel = kernel_for(op, gpu);
  const Curve& curve = op.direction == Direction::forward ? kernel.forward : kernel.backward;
  const double sequence = static_cast<double>(op.query_tokens);
  double share = interpolate(sequences_, op.causal ? curve.causal : curve.plain, sequence);
  // Head dimensions between 64 and 128 lie between the two; others take the nearer.
  const double wide = std::clamp(std::log2(static_cast<double>(op.head_dim) / 64), 0.0, 1.0);
  share *= curve.narrow + (1 - curve.narrow) * wide;
  share = 1 / (1 + (1 / share - 1) * relative_width(gpu, kernel.flops_per_clock));
  return {share, contains(kernel.measured, gpu.architecture)};
}

double AttentionTable::dropout_instructions(const Attention& op, const GpuSpec& gpu) const {
  return op.dropout ? kernel_for(op, gpu).dropout : 0;
}

double attention_waves(const Attention& op, const GpuSpec& gpu) {
  const double tiles = static_cast<double>(op.batch) * static_cast<double>(op.heads) *
                       std::ceil(static_cast<double>(op.query_tokens) / kTileTokens);
  return tiles / std::max(gpu.multiprocessors, 1);
}

AttentionTime fused_attention_time(const AttentionTable& table, const Attention& op, const GpuSpec& gpu) {
  const auto peak = matrix_peak(gpu, DataType::bf16);  // no published kernel of training multiplies in fp8
  if (!peak) return {Seconds(0), false};
  const auto [share, measured] = table.at(op, gpu);
  const double filled = std::min(1.0, attention_waves(op, gpu));
  const Seconds compute = flops_of(op) / (peak->speed * (share * filled));
  const Seconds memory = attention_traffic(op) / (gpu.memory_bandwidth * kStreamShare);
  // Beside the matrices, not under them: Ma et al. 2025 (arXiv 2410.07531), abstract.
  const double scores = static_cast<double>(op.batch * op.heads) * static_cast<double>(op.query_tokens) *
                        static_cast<double>(op.kv_tokens) * (op.causal ? 0.5 : 1.0);
  const Seconds draws(scores * table.dropout_instructions(op, gpu) /
                      (kIntegerLanes * multiprocessor_clocks(gpu)));
  // The published bars have keys and values of one width.
  return {kLaunch + std::max(compute, memory) + draws, measured && op.value_width() == op.head_dim};
}

AttentionTime attention_time(const AttentionTable& table, const Attention& op, const GpuSpec& gpu) {
  return op.kernel == AttentionKernel::unfused ? unfused_attention_time(op, gpu)
                                               : fused_attention_time(table, op, gpu);
}

AttentionTime unfused_attention_time(const Attention& op, const GpuSpec& gpu) {
  const auto peak = matrix_peak(gpu, outside_fp8(op.type));
  if (!peak) return {Seconds(0), false};
  const bool forward = op.direction == Direction::forward;
  const double batches = static_cast<double>(op.batch) * static_cast<double>(op.heads);
  const double queries = static_cast<double>(op.query_tokens), keys = static_cast<double>(op.kv_tokens),
               width = static_cast<double>(op.head_dim + op.value_width()) / 2;
  const double scores = batches * queries * keys;  // the mask is applied to all of them
  const double element = size_of(op.type).value();
  // One of the batched GEMMs; backward has four of the same size. Their times over this sum are FIDELITY A
  // 2's on A100, which V100 repeats within 10 %: Q K^T 1.16, P V 1.0, backward 0.95 each.
  const Seconds gemm = Flops(2 * scores * width) / peak->speed +
                       Bytes(element * (scores + batches * width * (queries + keys))) / gpu.memory_bandwidth;
  const double gemms = forward ? 1.16 + 1.0 : 4 * 0.95;
  const Seconds elementwise = Bytes(elementwise_traffic(op, scores, gpu) * scores) / gpu.memory_bandwidth;
  const bool measured = gpu.architecture == "Ampere" || gpu.architecture == "Volta";
  return {kLaunch + gemm * gemms + elementwise, measured};
}

}  // namespace orrery
