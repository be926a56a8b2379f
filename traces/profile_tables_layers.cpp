// Operators of transformer layers: vidur's kernels and the profiles in Aceso's format.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "platforms/errors.hpp"
#include "traces/profile_tables.hpp"

namespace orrery {

namespace {

struct VidurModel {
  double tokens, ways, hidden, ffn, heads, kv_heads;
  bool gated;
  bool parallel;  // attention and MLP side by side (phi-2): one norm, and both results are added
};

// Least traffic of one 16-bit kernel: what it reads and writes of activations. vidur shards rope and
// activation over the tensor ways; it repeats norm and add, so those count at one way only.
struct VidurKernel {
  const char* column;
  const char* op;
  bool sharded;
  bool by_row;  // one block of threads a token, as vLLM and PyTorch have it
  double (*bytes)(const VidurModel&);
};

double norm_bytes(const VidurModel& model) {
  return 4 * model.tokens * model.hidden;
}
double rope_bytes(const VidurModel& model) {
  return 4 * model.tokens * model.hidden * (1 + model.kv_heads / model.heads) / model.ways;
}
double activation_bytes(const VidurModel& model) {
  return (model.gated ? 6 : 4) * model.tokens * model.ffn / model.ways;
}
double add_bytes(const VidurModel& model) {
  // Two additions where a layer has two results: phi-2's takes twice the time of others' on all three GPUs.
  return (model.parallel ? 12 : 6) * model.tokens * model.hidden;
}
double embedding_bytes(const VidurModel& model) {
  return 4 * model.tokens * model.hidden;
}

constexpr std::array kVidurKernels{
    VidurKernel{"time_stats.input_layernorm.mean", "norm", false, true, norm_bytes},
    VidurKernel{"time_stats.post_attention_layernorm.mean", "norm", false, true, norm_bytes},
    VidurKernel{"time_stats.attn_rope.mean", "rope", true, true, rope_bytes},
    VidurKernel{"time_stats.mlp_act.mean", "activation", true, true, activation_bytes},
    VidurKernel{"time_stats.add.mean", "residual", false, false, add_bytes},
    VidurKernel{"time_stats.emb.mean", "embedding", false, false, embedding_bytes},
};

// gemm_long.csv holds these with their extents; taken from both, a published table would teach twice.
constexpr std::array kVidurGemms{"attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj"};

constexpr std::size_t kSecondNorm = 1;  // in kVidurKernels

struct VidurColumns {
  explicit VidurColumns(const CsvStream& rows)
      : tokens(rows.column("num_tokens")),
        ways(rows.column("num_tensor_parallel_workers")),
        hidden(rows.column("n_embd")),
        ffn(rows.column("n_expanded_embd")),
        heads(rows.column("n_head")),
        kv_heads(rows.column("n_kv_head")),
        gated(rows.column("use_gated_mlp")) {
    for (const auto& kernel : kVidurKernels) times.push_back(rows.find_column(kernel.column));
  }
  std::size_t tokens, ways, hidden, ffn, heads, kv_heads, gated;
  std::vector<std::optional<std::size_t>> times;  // parallel blocks (phi-2) have no second norm
};

// PyTorch's GELU, of phi-2, takes elements as they lie.
Bytes row_of(const VidurKernel& kernel, const VidurModel& model) {
  const bool elementwise = kernel.bytes == activation_bytes && !model.gated;
  return Bytes(kernel.by_row && !elementwise ? kernel.bytes(model) / model.tokens : 0);
}

// As Python prints and as people write them; absent for anything else.
std::optional<bool> boolean(std::string_view text) {
  if (text == "True" || text == "true" || text == "TRUE" || text == "1") return true;
  if (text == "False" || text == "false" || text == "FALSE" || text == "0") return false;
  return std::nullopt;
}

// Why a row has no model; empty when it has one.
Fault model_fault(const CsvStream& rows, const VidurColumns& at) {
  Fault fault = extent_fault(rows, {at.tokens, at.ways, at.hidden, at.ffn, at.heads, at.kv_heads});
  if (fault.empty() && !boolean(text_field(rows, at.gated)))
    fault = unreadable(rows, at.gated, "unreadable: use_gated_mlp is neither True nor False");
  return fault;
}

VidurModel vidur_model(const CsvStream& rows, const VidurColumns& at) {
  const auto number = [&](std::size_t column) { return positive_field(rows, column).value_or(1); };
  return {number(at.tokens),
          number(at.ways),
          number(at.hidden),
          number(at.ffn),
          number(at.heads),
          number(at.kv_heads),
          boolean(text_field(rows, at.gated)).value_or(false),
          !at.times[kSecondNorm]};
}

// compute/<gpu>/<organisation>/<model>/mlp.csv
struct VidurPlace {
  std::string gpu, model;
};
VidurPlace vidur_place(const std::string& name, const std::string& path) {
  std::vector<std::string> parts;
  for (const auto& part : std::filesystem::path(name)) parts.push_back(part.string());
  if (parts.size() < 4) {
    throw InputError(path, "no GPU in the path below the folder",
                     "vidur's folders <gpu>/<organisation>/<model>/mlp.csv");
  }
  return {parts[parts.size() - 4], parts[parts.size() - 3] + "/" + parts[parts.size() - 2]};
}

struct AcesoColumns {
  explicit AcesoColumns(const CsvStream& rows)
      : source(rows.column("source")),
        gpu(rows.column("gpu")),
        type(rows.column("dtype")),
        model(rows.column("model")),
        batch(rows.column("mbs")),
        ways(rows.column("tp")),
        variant(rows.column("algo")),
        op(rows.column("op")),
        forward(rows.column("fwd_us")),
        backward(rows.column("bwd_us")),
        input(rows.column("input_MB")),
        weights(rows.column("weights_MB")),
        activations(rows.column("activations_MB")),
        status(rows.column("status")) {}
  std::size_t source, gpu, type, model, batch, ways, variant, op, forward, backward, input, weights,
      activations, status;
};

// Why a row is left out; empty when it is used. With tensor ways the times hold that machine's collective;
// fp32 rows are TF32 on some GPUs and vector units on others; T5 mixes two sequence lengths.
std::string left_out(const CsvStream& rows, const AcesoColumns& at) {
  if (text_field(rows, at.status) != "ok") return "status " + std::string(text_field(rows, at.status));
  if (text_field(rows, at.type) != "fp16") return "data type " + std::string(text_field(rows, at.type));
  if (text_field(rows, at.ways) != "1") return "tensor ways, times hold a collective";
  if (text_field(rows, at.variant) != "0") return "second partition of the same operator";
  if (text_field(rows, at.model).starts_with("t5")) return "T5, sequence length not stated";
  return {};
}

// Weight matrix [K, N] of the four GEMMs of a GPT layer in units of the hidden size.
struct AcesoGemm {
  std::string_view op;
  double n, k;
};
constexpr std::array kAcesoGemms{AcesoGemm{"enc-attention-qkv", 3, 1}, AcesoGemm{"enc-attention-dense", 1, 1},
                                 AcesoGemm{"enc-MLP-GEMM-1", 4, 1}, AcesoGemm{"enc-MLP-GEMM-2", 1, 4}};
constexpr std::int64_t kAcesoSequence = 2048;  // of every GPT and OPT profile
constexpr double kMostWeights = 1e9;           // MiB of one matrix: more is a mistake

// Why a GEMM taught nothing; empty when it was taken.
Fault take_aceso_gemm(const AcesoGemm& shape, const CsvStream& rows, const AcesoColumns& at,
                      const std::string& gpu, Profiles& profiles) {
  const auto weights = positive_field(rows, at.weights), forward = positive_field(rows, at.forward),
             backward = positive_field(rows, at.backward);
  if (Fault fault = extent_fault(rows, {at.batch}); !fault.empty()) return fault;
  if (!weights || *weights > kMostWeights) return unreadable(rows, at.weights);
  if (!forward) return unreadable(rows, at.forward);
  // fp16 weights in MiB give the hidden size; it is a multiple of 64, which undoes the three printed
  // decimals.
  const double hidden = 64 * std::round(std::sqrt(*weights * kMebi / 2 / (shape.n * shape.k)) / 64);
  if (hidden <= 0) return unreadable(rows, at.weights);
  const std::string source(text_field(rows, at.source));
  MeasuredGemm gemm{.source = source,
                    .model = std::string(text_field(rows, at.model)),
                    .gpu = gpu,
                    .type = DataType::fp16,
                    .m = *extent(rows, at.batch) * kAcesoSequence,
                    .n = static_cast<std::int64_t>(shape.n * hidden),
                    .k = static_cast<std::int64_t>(shape.k * hidden),
                    .batch = 1,
                    .timed = TimedAs::framework,
                    .time = microseconds(*forward)};
  // sailor's backward times are the input gradient alone (0.85-0.98 of forward); Aceso's own hold both.
  if (backward) (source == "sailor" ? gemm.input_gradient : gemm.backward) = microseconds(*backward);
  profiles.gemms.push_back(std::move(gemm));
  return {};
}

Fault take_aceso_kernel(std::string_view op, const CsvStream& rows, const AcesoColumns& at,
                        const std::string& gpu, Profiles& profiles) {
  const bool norm = op == "enc-1st-layernorm";
  const std::size_t tensor = norm ? at.input : at.activations;
  const auto size = positive_field(rows, tensor), forward = positive_field(rows, at.forward);
  if (!size) return unreadable(rows, tensor);
  if (!forward) return unreadable(rows, at.forward);
  profiles.kernels.push_back({.source = std::string(text_field(rows, at.source)),
                              .model = std::string(text_field(rows, at.model)),
                              .gpu = gpu,
                              .op = norm ? "norm" : "activation",
                              .bytes = Bytes(2 * *size * kMebi),  // one tensor in, one of the same size out
                              .timed = TimedAs::framework,
                              .time = microseconds(*forward),
                              .program = KernelProgram::training});
  return {};
}

Fault take_aceso(const CsvStream& rows, const AcesoColumns& at, GpuNames& gpus, Profiles& profiles) {
  if (std::string reason = left_out(rows, at); !reason.empty()) return reason;
  const GpuSpec* gpu = gpus.find(text_field(rows, at.gpu));
  if (gpu == nullptr) return "GPU not in the catalog";
  const std::string_view op = text_field(rows, at.op);
  const auto* gemm = std::find_if(kAcesoGemms.begin(), kAcesoGemms.end(),
                                  [&](const AcesoGemm& one) { return one.op == op; });
  if (gemm != kAcesoGemms.end()) return take_aceso_gemm(*gemm, rows, at, gpu->name, profiles);
  if (op == "enc-1st-layernorm" || op == "enc-MLP-gelu")
    return take_aceso_kernel(op, rows, at, gpu->name, profiles);
  return "operator without a model here";
}

}  // namespace

void read_vidur_table(CsvStream& rows, const std::string& name, Profiles& profiles, ProfileFile& file) {
  const VidurColumns at(rows);
  const VidurPlace place = vidur_place(name, rows.name());
  GpuNames gpus(profiles.own_gpus);
  const GpuSpec* gpu = gpus.find(place.gpu);
  for (const char* gemm : kVidurGemms) {
    if (rows.find_column("time_stats." + std::string(gemm) + ".mean")) file.gemms_not_read.emplace_back(gemm);
  }
  Duplicates duplicates;
  while (next_row(rows, file)) {
    const bool repeated = duplicates.seen(rows);
    const Fault fault = model_fault(rows, at);
    const VidurModel model = vidur_model(rows, at);
    Profiles row;
    for (std::size_t i = 0; i < kVidurKernels.size(); ++i) {
      const auto& kernel = kVidurKernels[i];
      if (!at.times[i]) continue;
      const auto time = positive_field(rows, *at.times[i]);
      if (!fault.empty() || !time) {
        skip(file, fault.empty() ? unreadable(rows, *at.times[i]) : fault, rows.line());
      } else if (gpu == nullptr) {
        skip(file, "GPU not in the catalog", rows.line());
      } else if (!kernel.sharded && model.ways > 1) {
        skip(file, "the same kernel for more tensor ways", rows.line());
      } else if (repeated) {
        skip(file, kDuplicate, rows.line());
      } else {
        row.kernels.push_back({.source = "vidur",
                               .model = place.model,
                               .gpu = gpu->name,
                               .op = kernel.op,
                               .bytes = Bytes(kernel.bytes(model)),
                               .row = row_of(kernel, model),
                               .timed = TimedAs::kernel,
                               .time = milliseconds(*time)});
        ++file.used;
      }
    }
    append_line(profiles, std::move(row), rows.line());
  }
}

void read_aceso_table(CsvStream& rows, const std::string&, Profiles& profiles, ProfileFile& file) {
  const AcesoColumns at(rows);
  GpuNames gpus(profiles.own_gpus);
  read_rows(
      rows, [&](Profiles& row) { return take_aceso(rows, at, gpus, row); }, profiles, file);
}

}  // namespace orrery
