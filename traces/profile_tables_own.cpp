// The table that `orrery profile` writes (costmodels/profile/orrery_profile.py lists its columns).
#include <algorithm>
#include <cmath>

#include "platforms/errors.hpp"
#include "traces/profile_tables.hpp"

namespace orrery {

namespace {

// The version of the script whose columns are read here.
constexpr std::string_view kScriptVersion = "1";
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

std::optional<std::int64_t> extent(const CsvStream& rows, std::size_t column) {
  const auto value = positive_field(rows, column);
  if (!value || *value > 1e15 || *value != std::floor(*value)) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

// Absent: neither pass.
std::optional<bool> is_backward(const CsvStream& rows, const OwnColumns& at) {
  const std::string_view pass = text_field(rows, at.pass);
  if (pass != "forward" && pass != "backward") return std::nullopt;
  return pass == "backward";
}

// Why a row taught nothing; empty when it was taken.
std::string take_gemm(const CsvStream& rows, const OwnColumns& at, const std::string& gpu,
                      Profiles& profiles) {
  const auto batch = extent(rows, at.batch), m = extent(rows, at.m), n = extent(rows, at.n),
             k = extent(rows, at.k);
  const auto time = positive_field(rows, at.time);
  const auto type = data_type(text_field(rows, at.type));
  const std::string_view pass = text_field(rows, at.pass);
  if (!batch || !m || !n || !k || !time || !type) return kUnreadable;
  MeasuredGemm gemm{.source = kSource,
                    .model = std::string(text_field(rows, at.model)),
                    .gpu = gpu,
                    .type = *type,
                    .m = *m,
                    .n = *n,
                    .k = *k,
                    .batch = *batch,
                    .timed = TimedAs::kernel,
                    .time = microseconds(*time)};
  if (pass == "dgrad") {
    gemm.pass = GemmPass::input_gradient;
    std::swap(gemm.n, gemm.k);
  } else if (pass == "wgrad") {
    gemm.pass = GemmPass::weight_gradient;
    std::swap(gemm.m, gemm.k);
  } else if (pass != "forward") {
    return kUnreadable;
  }
  profiles.gemms.push_back(std::move(gemm));
  return {};
}

std::string take_kernel(const CsvStream& rows, const OwnColumns& at, const std::string& gpu,
                        Profiles& profiles) {
  const auto bytes = positive_field(rows, at.bytes), time = positive_field(rows, at.time);
  const std::string op(text_field(rows, at.op));
  const auto backward = is_backward(rows, at);
  if (!bytes || !time || !backward) return kUnreadable;
  // Norm and activation are the training kernels, timed here without what a framework adds.
  const bool training = op == "norm" || op == "activation";
  profiles.kernels.push_back({.source = kSource,
                              .model = std::string(text_field(rows, at.model)),
                              .gpu = gpu,
                              .op = op,
                              .bytes = Bytes(*bytes),
                              .timed = training ? TimedAs::framework : TimedAs::kernel,
                              .time = microseconds(*time),
                              .backward = *backward});
  return {};
}

std::string take_attention(const CsvStream& rows, const OwnColumns& at, const std::string& gpu,
                           Profiles& profiles) {
  const auto batch = extent(rows, at.batch), heads = extent(rows, at.heads),
             kv_heads = extent(rows, at.kv_heads), dim = extent(rows, at.head_dim),
             query = extent(rows, at.query), keys = extent(rows, at.keys);
  const auto time = positive_field(rows, at.time);
  const auto backward = is_backward(rows, at);
  const std::string_view causal = text_field(rows, at.causal);
  if (!batch || !heads || !kv_heads || !dim || !query || !keys || !time || !backward) return kUnreadable;
  if (*heads % *kv_heads != 0 || (causal != "0" && causal != "1")) return kUnreadable;
  if (text_field(rows, at.op) != "flash" && text_field(rows, at.op) != "unfused") return kUnreadable;
  profiles.attentions.push_back({.source = kSource,
                                 .gpu = gpu,
                                 .kernel = std::string(text_field(rows, at.op)),
                                 .batch = *batch,
                                 .heads = *heads,
                                 .kv_heads = *kv_heads,
                                 .query_tokens = *query,
                                 .kv_tokens = *keys,
                                 .head_dim = *dim,
                                 .causal = causal == "1",
                                 .backward = *backward,
                                 .time = microseconds(*time)});
  return {};
}

std::string take_collective(const CsvStream& rows, const OwnColumns& at, const std::string& gpu,
                            Profiles& profiles) {
  const auto bytes = positive_field(rows, at.bytes), time = positive_field(rows, at.time);
  const auto ranks = extent(rows, at.ranks), per_node = extent(rows, at.per_node);
  if (!bytes || !time || !ranks || !per_node || *ranks > 1'000'000 || *per_node < *ranks) return kUnreadable;
  const GpuSpec& spec = find_gpu(gpu, kSource);
  profiles.collectives.push_back({.source = kSource,
                                  .system = gpu,
                                  .op = std::string(text_field(rows, at.op)),
                                  .bytes = Bytes(*bytes),
                                  .ranks = static_cast<int>(*ranks),
                                  .ranks_per_node = static_cast<int>(*per_node),
                                  .gpu_link = gpu_link_of(spec.link_bandwidth),
                                  .network = {},
                                  .time = microseconds(*time)});
  return {};
}

std::string take(const CsvStream& rows, const OwnColumns& at, const std::string& gpu, Profiles& profiles) {
  const std::string_view family = text_field(rows, at.family);
  if (family == "gemm") return take_gemm(rows, at, gpu, profiles);
  if (family == "kernel") return take_kernel(rows, at, gpu, profiles);
  if (family == "attention") return take_attention(rows, at, gpu, profiles);
  if (family == "collective") return take_collective(rows, at, gpu, profiles);
  return kUnreadable;
}

}  // namespace

void read_own_table(CsvStream& rows, const std::string& name, InventedTimes invented, Profiles& profiles,
                    ProfileFile& file) {
  const OwnColumns at(rows);
  GpuNames gpus;
  Duplicates duplicates;
  while (rows.next()) {
    ++file.rows;
    if (rows.fields().size() != rows.columns()) {
      ++file.skipped[kUnreadable];
      continue;
    }
    if (text_field(rows, at.script) != kScriptVersion) {
      throw InputError(name, "rows of script version " + std::string(text_field(rows, at.script)),
                       "version " + std::string(kScriptVersion) +
                           "; run `orrery profile` of this version into a new folder");
    }
    if (text_field(rows, at.clock) == "invented" && invented == InventedTimes::refused) {
      throw InputError(name, "times that `orrery profile --dry-run` invented",
                       "measured times; --invented takes these, for tests");
    }
    if (text_field(rows, at.status) != "ok") {
      ++file.skipped["status " + std::string(text_field(rows, at.status))];
      continue;
    }
    const std::string* gpu = gpus.find(text_field(rows, at.gpu));
    const std::string reason = gpu == nullptr ? "GPU " + quote_for_message(text_field(rows, at.gpu)) +
                                                    " is not in the catalog (`orrery catalog gpus`)"
                               : duplicates.seen(rows) ? kDuplicate
                                                       : take(rows, at, *gpu, profiles);
    ++(reason.empty() ? file.used : file.skipped[reason]);
  }
}

}  // namespace orrery
