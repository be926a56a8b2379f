// Published speeds of fused attention, collected in flash_attention_fwd_bwd.csv.
#include <algorithm>

#include "traces/profile_tables.hpp"

namespace orrery {

namespace {

// Where a source states no batch and heads: 16k tokens in a batch and a hidden size of 2048, as the benchmark
// of the FlashAttention papers that such tables run. At these sizes speed hardly depends on either.
constexpr double kUsualTokens = 16384, kUsualHidden = 2048;

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
  const double scores = static_cast<double>(row.batch * row.heads) * static_cast<double>(row.query_tokens) *
                        static_cast<double>(row.kv_tokens);
  return 4 * scores * static_cast<double>(row.head_dim) * (row.backward ? 2.5 : 1) * (row.causal ? 0.5 : 1);
}

std::string take(const CsvStream& rows, const AttentionColumns& at, GpuNames& gpus, Profiles& profiles) {
  const auto query = positive_field(rows, at.query), keys = positive_field(rows, at.keys),
             dim = positive_field(rows, at.head_dim), speed = positive_field(rows, at.speed);
  if (!query || !keys || !dim || !speed) return kUnreadable;
  const std::string* gpu = gpus.find(text_field(rows, at.gpu));
  if (gpu == nullptr) return "GPU not in the catalog";
  if (text_field(rows, at.kernel) != "FlashAttention-2")
    return "attention kernel " + std::string(text_field(rows, at.kernel));
  const double heads = positive_field(rows, at.heads).value_or(std::max(kUsualHidden / *dim, 1.0));
  const double batch = positive_field(rows, at.batch).value_or(std::max(kUsualTokens / *query, 1.0));
  MeasuredAttention row{
      .source = std::string(text_field(rows, at.source)),
      .gpu = *gpu,
      .kernel = "flash2",
      .batch = static_cast<std::int64_t>(batch),
      .heads = static_cast<std::int64_t>(heads),
      .kv_heads = static_cast<std::int64_t>(positive_field(rows, at.kv_heads).value_or(heads)),
      .query_tokens = static_cast<std::int64_t>(*query),
      .kv_tokens = static_cast<std::int64_t>(*keys),
      .head_dim = static_cast<std::int64_t>(*dim),
      .causal = text_field(rows, at.causal) == "yes",
      .backward = text_field(rows, at.direction) == "bwd"};
  row.time = Seconds(counted_flops(row) / (*speed * 1e12));
  profiles.attentions.push_back(std::move(row));
  return {};
}

}  // namespace

void read_attention_table(CsvStream& rows, const std::string&, Profiles& profiles, ProfileFile& file) {
  const AttentionColumns at(rows);
  GpuNames gpus;
  Duplicates duplicates;
  while (rows.next()) {
    ++file.rows;
    const std::string reason = duplicates.seen(rows) ? kDuplicate : take(rows, at, gpus, profiles);
    ++(reason.empty() ? file.used : file.skipped[reason]);
  }
}

}  // namespace orrery
