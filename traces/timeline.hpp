// What happened in a run, measured or replayed: spans of time per rank, in columns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platforms/units.hpp"

namespace orrery {

// The spans of the compute stream of a rank follow each other without gap or overlap from 0 to the makespan,
// so the sum of their lengths by kind is the accounting of SEMANTICS 5. The network stream holds transfers.
enum class SpanKind : std::uint8_t {
  forward,
  backward,
  weight_gradient,
  optimizer,
  exposed_tp,     // idle while a tensor, context or expert collective of its own is on its way
  exposed_p2p,    // idle while a pipeline message it waits for is on its way
  exposed_dp,     // idle while a data-parallel, embedding or norm collective it takes part in is on its way
  bubble_warmup,  // idle while what it waits for is not yet computed
  bubble_steady,
  bubble_drain,
  send,  // network stream from here on: one pipeline message, on the rank that sends it
  all_reduce,
  reduce_scatter,
  all_gather,
  tensor_collective,  // inside a forward or backward; these three on every rank that takes part
  context_exchange,
  expert_exchange,
};
inline constexpr int kSpanKinds = 17;
std::string_view to_text(SpanKind);

enum class Stream : std::uint8_t { compute, network };
inline constexpr int kStreams = 2;
std::string_view to_text(Stream);

// Row i of every column describes span i. Rows of one stream of one rank stand in the order of time; ranks
// and streams may mix. -1 in chunk or microbatch: the span belongs to none.
struct Spans {
  std::vector<SpanKind> kind;
  std::vector<Stream> stream;
  std::vector<std::int32_t> rank;
  std::vector<std::int16_t> stage;
  std::vector<std::int16_t> chunk;
  std::vector<std::int32_t> microbatch;
  std::vector<double> start;                 // s
  std::vector<double> end;                   // s
  std::vector<double> tensor_communication;  // s of the span that are exposed tensor-parallel communication
  std::vector<double> bytes;                 // moved, of network spans
  std::vector<double> flops;                 // of compute spans, on one GPU of the rank

  [[nodiscard]] std::size_t size() const { return kind.size(); }
  void reserve(std::size_t count);
  bool operator==(const Spans&) const = default;
};

struct SpanRow {
  SpanKind kind = SpanKind::forward;
  Stream stream = Stream::compute;
  std::int32_t rank = 0;
  std::int16_t stage = 0;
  std::int16_t chunk = -1;
  std::int32_t microbatch = -1;
  double start = 0;
  double end = 0;
  double tensor_communication = 0;
  double bytes = 0;
  double flops = 0;
  bool operator==(const SpanRow&) const = default;
};
void append(Spans&, const SpanRow&);
SpanRow row(const Spans&, std::size_t index);

// A rank of the trace: one stage of one replica. It stands for `gpus` GPUs (tensor x context ways) that do
// the same.
struct RankInfo {
  int device = 0;  // number of its first GPU in the cluster
  int node = 0;
  std::string gpu = {};  // catalog name
  int stage = 0;
  int replica = 0;
  int tensor_index = 0;  // of the first GPU in its tensor group
  int gpus = 1;
  bool operator==(const RankInfo&) const = default;
};

// What one link carried.
struct LinkUse {
  std::string name;
  double bandwidth = 0;           // B/s
  double latency = 0;             // s
  std::vector<double> bin_bytes;  // bytes carried in each time bin; equally many bins for every link
  bool operator==(const LinkUse&) const = default;
};

struct Timeline {
  double makespan = 0;  // s
  std::vector<RankInfo> ranks;
  Spans spans;
  double link_bin = 0;         // s, width of a bin of LinkUse::bin_bytes
  std::vector<LinkUse> links;  // only links that carried something
  bool operator==(const Timeline&) const = default;
};

}  // namespace orrery
