// The table that `orrery profile` writes (costmodels/profile/orrery_profile.py lists its columns).
#include <algorithm>
#include <array>

#include "platforms/errors.hpp"
#include "traces/profile_tables.hpp"

namespace orrery {

namespace {

// Versions of the script whose columns are read here. The second timed one fused attention alone.
constexpr std::array<std::string_view, 2> kScriptVersions{"2", "3"};
const std::string kSource = "orrery profile";

struct OwnColumns {
  explicit OwnColumns(const CsvStream& rows)
      : gpu(rows.column("gpu")),
        type(rows.column("dtype")),
        family(rows.column("family")),
        op(rows.column("op")),
        pass(rows.column("pass")),
        model(rows.column("model")),
        batch(rows.column("batch")),
        m(rows.column("M")),
        n(rows.column("N")),
        k(rows.column("K")),
        heads(rows.column("heads")),
        kv_heads(rows.column("kv_heads")),
        head_dim(rows.column("head_dim")),
        query(rows.column("query")),
        keys(rows.column("keys")),
        causal(rows.column("causal")),
        bytes(rows.column("bytes")),
        ranks(rows.column("ranks")),
        per_node(rows.column("ranks_per_node")),
        time(rows.column("time_us")),
        clock(rows.column("clock")),
        status(rows.column("status")),
        script(rows.column("script")) {}
  std::size_t gpu, type, family, op, pass, model, batch, m, n, k, heads, kv_heads, head_dim, query, keys,
      causal, bytes, ranks, per_node, time, clock, status, script;
};

// Absent: neither pass.
std::optional<bool> is_backward(const CsvStream& rows, const OwnColumns& at) {
  const std::string_view pass = text_field(rows, at.pass);
  if (pass != "forward" && pass != "backward") return std::nullopt;
  return pass == "backward";
}

// Why a row taught nothing; empty when it was taken.
Fault take_gemm(const CsvStream& rows, const OwnColumns& at, const GpuSpec& gpu, Profiles& profiles) {
  if (Fault fault = extent_fault(rows, {at.batch, at.m, at.n, at.k}); !fault.empty()) return fault;
  const auto time = positive_field(rows, at.time);
  const auto type = data_type(text_field(rows, at.type));
  const std::string_view pass = text_field(rows, at.pass);
  if (!time) return unreadable(rows, at.time);
  if (!type) return unreadable(rows, at.type);
  MeasuredGemm gemm{.source = kSource,
                    .model = std::string(text_field(rows, at.model)),
                    .gpu = gpu.name,
                    .type = *type,
                    .m = *extent(rows, at.m),
                    .n = *extent(rows, at.n),
                    .k = *extent(rows, at.k),
                    .batch = *extent(rows, at.batch),
                    .timed = TimedAs::kernel,
                    .time = microseconds(*time)};
  if (pass == "dgrad") {
    gemm.pass = GemmPass::input_gradient;
    std::swap(gemm.n, gemm.k);
  } else if (pass == "wgrad") {
    gemm.pass = GemmPass::weight_gradient;
    std::swap(gemm.m, gemm.k);
  } else if (pass != "forward") {
    return unreadable(rows, at.pass);
  }
  profiles.gemms.push_back(std::move(gemm));
  return {};
}

Fault take_kernel(const CsvStream& rows, const OwnColumns& at, const GpuSpec& gpu, Profiles& profiles) {
  if (Fault fault = bytes_fault(rows, at.bytes); !fault.empty()) return fault;
  const auto bytes = positive_field(rows, at.bytes), time = positive_field(rows, at.time);
  const std::string op(text_field(rows, at.op));
  const auto backward = is_backward(rows, at);
  if (!time) return unreadable(rows, at.time);
  if (!backward) return unreadable(rows, at.pass);
  // PyTorch's norm and activation are the training kernels; queued ahead, they hold nothing of the host's
  // time.
  const bool training = op == "norm" || op == "activation";
  // The second version counted half of what a loss moves.
  const double counted = op == "cross_entropy" && text_field(rows, at.script) == "2" ? 2 * *bytes : *bytes;
  profiles.kernels.push_back({.source = kSource,
                              .model = std::string(text_field(rows, at.model)),
                              .gpu = gpu.name,
                              .op = op,
                              .bytes = Bytes(counted),
                              .timed = TimedAs::kernel,
                              .time = microseconds(*time),
                              .backward = *backward,
                              .program = training ? KernelProgram::training : KernelProgram::inference});
  return {};
}

// The kernel as models know it: "flash" is what programs take where they want the best fused one, cuDNN's
// from Hopper on, FlashAttention-2 before. Empty: none of theirs; absent: unknown.
std::optional<std::string_view> kernel_of(std::string_view op, const GpuSpec& gpu) {
  const bool cudnn = gpu.architecture == "Hopper" || gpu.architecture == "Blackwell" ||
                     gpu.architecture == "Blackwell Ultra";
  if (op == "unfused") return "eager";
  if (op == "flash") return "flash";
  if (op == "cudnn") return cudnn ? "flash" : "";
  if (op == "flash2") return cudnn ? "flash2" : "flash";
  return std::nullopt;
}

Fault take_attention(const CsvStream& rows, const OwnColumns& at, const GpuSpec& gpu, Profiles& profiles) {
  if (Fault fault = extent_fault(rows, {at.batch, at.heads, at.kv_heads, at.head_dim, at.query, at.keys});
      !fault.empty())
    return fault;
  const auto heads = extent(rows, at.heads), kv_heads = extent(rows, at.kv_heads);
  const auto time = positive_field(rows, at.time);
  const auto backward = is_backward(rows, at);
  const std::string_view causal = text_field(rows, at.causal);
  if (!time) return unreadable(rows, at.time);
  if (!backward) return unreadable(rows, at.pass);
  if (*heads % *kv_heads != 0) return unreadable(rows, at.kv_heads);
  if (causal != "0" && causal != "1") return unreadable(rows, at.causal);
  const auto kernel = kernel_of(text_field(rows, at.op), gpu);
  if (!kernel) return unreadable(rows, at.op);
  if (kernel->empty()) return "cuDNN's attention, which no program takes on " + gpu.architecture;
  profiles.attentions.push_back({.source = kSource,
                                 .gpu = gpu.name,
                                 .kernel = std::string(*kernel),
                                 .batch = *extent(rows, at.batch),
                                 .heads = *heads,
                                 .kv_heads = *kv_heads,
                                 .query_tokens = *extent(rows, at.query),
                                 .kv_tokens = *extent(rows, at.keys),
                                 .head_dim = *extent(rows, at.head_dim),
                                 .causal = causal == "1",
                                 .backward = *backward,
                                 .time = microseconds(*time)});
  return {};
}

Fault take_collective(const CsvStream& rows, const OwnColumns& at, const GpuSpec& gpu, Profiles& profiles) {
  const auto bytes = positive_field(rows, at.bytes), time = positive_field(rows, at.time);
  Fault fault = extent_fault(rows, {at.ranks, at.per_node});
  if (fault.empty()) fault = bytes_fault(rows, at.bytes);
  if (!fault.empty()) return fault;
  const auto ranks = extent(rows, at.ranks), per_node = extent(rows, at.per_node);
  if (!time) return unreadable(rows, at.time);
  if (*ranks > kMostRanks) return unreadable(rows, at.ranks);
  if (*per_node < *ranks) return unreadable(rows, at.per_node);
  if (*ranks < 2) return kOneRank;
  profiles.collectives.push_back({.source = kSource,
                                  .system = gpu.name,
                                  .op = std::string(text_field(rows, at.op)),
                                  .bytes = Bytes(*bytes),
                                  .ranks = static_cast<int>(*ranks),
                                  .ranks_per_node = static_cast<int>(std::min(*per_node, kMostRanks)),
                                  .gpu_link = gpu_link_of(gpu.link_bandwidth),
                                  .network = {},
                                  .time = microseconds(*time)});
  return {};
}

Fault take(const CsvStream& rows, const OwnColumns& at, const GpuSpec& gpu, Profiles& profiles) {
  const std::string_view family = text_field(rows, at.family);
  if (family == "gemm") return take_gemm(rows, at, gpu, profiles);
  if (family == "kernel") return take_kernel(rows, at, gpu, profiles);
  if (family == "attention") return take_attention(rows, at, gpu, profiles);
  if (family == "collective") return take_collective(rows, at, gpu, profiles);
  return unreadable(rows, at.family);
}

// Rows of another script, and times that were not measured.
void refuse_foreign(const CsvStream& rows, const OwnColumns& at, InventedTimes invented) {
  const std::string_view version = text_field(rows, at.script);
  if (std::find(kScriptVersions.begin(), kScriptVersions.end(), version) == kScriptVersions.end()) {
    throw InputError(rows.name(), "rows of script version " + std::string(version),
                     "version " + std::string(kScriptVersions.back()) +
                         "; run `orrery profile` of this version into a new folder");
  }
  if (text_field(rows, at.clock) == "invented" && invented == InventedTimes::refused) {
    throw InputError(rows.name(), "times that `orrery profile --dry-run` invented",
                     "measured times; --invented takes these, for tests");
  }
}

}  // namespace

void read_own_table(CsvStream& rows, InventedTimes invented, Profiles& profiles, ProfileFile& file) {
  const OwnColumns at(rows);
  GpuNames gpus(profiles.own_gpus);
  const auto take_row = [&](Profiles& row) -> Fault {
    refuse_foreign(rows, at, invented);
    const std::string_view status = text_field(rows, at.status);
    if (status != "ok") return "status " + std::string(status);
    if (const GpuSpec* gpu = gpus.find(text_field(rows, at.gpu))) return take(rows, at, *gpu, row);
    return "GPU " + quote_for_message(text_field(rows, at.gpu)) +
           " is not in the catalog (`orrery catalog gpus`): describe it in a cluster file and give --cluster";
  };
  read_rows(rows, take_row, profiles, file);
}

}  // namespace orrery
