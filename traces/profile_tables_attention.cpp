// Published speeds of fused attention, collected in flash_attention_fwd_bwd.csv.
#include <algorithm>

#include "traces/profile_tables.hpp"

namespace orrery {

namespace {

// Where a source states no batch and heads: 16k tokens in a batch and a hidden size of 2048, as the benchmark
// of the FlashAttention papers that such tables run. At these sizes speed hardly depends on either.
constexpr std::int64_t kUsualTokens = 16384, kUsualHidden = 2048;

struct AttentionColumns {
  explicit AttentionColumns(const CsvStream& rows)
      : source(rows.column("source")),
        gpu(rows.column("gpu")),
        kernel(rows.column("kernel")),
        direction(rows.column("direction")),
        batch(rows.column("batch")),
        heads(rows.column("heads")),
        kv_heads(rows.column("kv_heads")),
        query(rows.column("seq_q")),
        keys(rows.column("seq_kv")),
        head_dim(rows.column("head_dim")),
        causal(rows.column("causal")),
        speed(rows.column("tflops")) {}
  std::size_t source, gpu, kernel, direction, batch, heads, kv_heads, query, keys, head_dim, causal, speed;
};

// FLOPs as these tables count them: two GEMMs forward, five backward, half of it under a causal mask.
double counted_flops(const MeasuredAttention& row) {
  const double scores = static_cast<double>(row.batch) * static_cast<double>(row.heads) *
                        static_cast<double>(row.query_tokens) * static_cast<double>(row.kv_tokens);
  return 4 * scores * static_cast<double>(row.head_dim) * (row.backward ? 2.5 : 1) * (row.causal ? 0.5 : 1);
}

// Why a row taught nothing; empty when it was taken.
Fault take(const CsvStream& rows, const AttentionColumns& at, GpuNames& gpus, Profiles& profiles) {
  Fault fault = extent_fault(rows, {at.query, at.keys, at.head_dim});
  for (const std::size_t column : {at.batch, at.heads, at.kv_heads})  // which some sources do not state
    if (fault.empty() && !text_field(rows, column).empty()) fault = extent_fault(rows, {column});
  if (!fault.empty()) return fault;
  const auto speed = positive_field(rows, at.speed);
  const std::string_view causal = text_field(rows, at.causal), direction = text_field(rows, at.direction);
  if (!speed) return unreadable(rows, at.speed);
  if (causal != "yes" && causal != "no") return unreadable(rows, at.causal);
  if (direction != "fwd" && direction != "bwd") return unreadable(rows, at.direction);
  const GpuSpec* gpu = gpus.find(text_field(rows, at.gpu));
  if (gpu == nullptr) return "GPU not in the catalog";
  if (text_field(rows, at.kernel) != "FlashAttention-2")
    return "attention kernel " + std::string(text_field(rows, at.kernel));
  const std::int64_t query = *extent(rows, at.query), dim = *extent(rows, at.head_dim);
  const std::int64_t heads = extent(rows, at.heads).value_or(std::max<std::int64_t>(kUsualHidden / dim, 1));
  MeasuredAttention row{
      .source = std::string(text_field(rows, at.source)),
      .gpu = gpu->name,
      .kernel = "flash2",
      .batch = extent(rows, at.batch).value_or(std::max<std::int64_t>(kUsualTokens / query, 1)),
      .heads = heads,
      .kv_heads = extent(rows, at.kv_heads).value_or(heads),
      .query_tokens = query,
      .kv_tokens = *extent(rows, at.keys),
      .head_dim = dim,
      .causal = causal == "yes",
      .backward = direction == "bwd",
      .time = {}};
  row.time = Seconds(counted_flops(row) / (*speed * 1e12));
  profiles.attentions.push_back(std::move(row));
  return {};
}

}  // namespace

void read_attention_table(CsvStream& rows, const std::string&, Profiles& profiles, ProfileFile& file) {
  const AttentionColumns at(rows);
  GpuNames gpus(profiles.own_gpus);
  read_rows(
      rows, [&](Profiles& row) { return take(rows, at, gpus, row); }, profiles, file);
}

}  // namespace orrery
