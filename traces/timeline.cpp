#include "traces/timeline.hpp"

#include "platforms/errors.hpp"

namespace orrery {

std::string_view to_text(SpanKind kind) {
  switch (kind) {
    case SpanKind::forward:
      return "forward";
    case SpanKind::backward:
      return "backward";
    case SpanKind::weight_gradient:
      return "weight_gradient";
    case SpanKind::optimizer:
      return "optimizer";
    case SpanKind::exposed_tp:
      return "exposed_tp";
    case SpanKind::exposed_p2p:
      return "exposed_p2p";
    case SpanKind::exposed_dp:
      return "exposed_dp";
    case SpanKind::bubble_warmup:
      return "bubble_warmup";
    case SpanKind::bubble_steady:
      return "bubble_steady";
    case SpanKind::bubble_drain:
      return "bubble_drain";
    case SpanKind::send:
      return "send";
    case SpanKind::all_reduce:
      return "all_reduce";
    case SpanKind::reduce_scatter:
      return "reduce_scatter";
    case SpanKind::all_gather:
      return "all_gather";
    case SpanKind::tensor_collective:
      return "tensor_collective";
    case SpanKind::context_exchange:
      return "context_exchange";
    case SpanKind::expert_exchange:
      return "expert_exchange";
  }
  throw Defect("a span kind outside the enumeration");
}

std::string_view to_text(Stream stream) {
  switch (stream) {
    case Stream::compute:
      return "compute";
    case Stream::network:
      return "network";
  }
  throw Defect("a stream outside the enumeration");
}

void Spans::reserve(std::size_t count) {
  kind.reserve(count);
  stream.reserve(count);
  rank.reserve(count);
  stage.reserve(count);
  chunk.reserve(count);
  microbatch.reserve(count);
  start.reserve(count);
  end.reserve(count);
  tensor_communication.reserve(count);
  bytes.reserve(count);
  flops.reserve(count);
}

void append(Spans& spans, const SpanRow& row) {
  spans.kind.push_back(row.kind);
  spans.stream.push_back(row.stream);
  spans.rank.push_back(row.rank);
  spans.stage.push_back(row.stage);
  spans.chunk.push_back(row.chunk);
  spans.microbatch.push_back(row.microbatch);
  spans.start.push_back(row.start);
  spans.end.push_back(row.end);
  spans.tensor_communication.push_back(row.tensor_communication);
  spans.bytes.push_back(row.bytes);
  spans.flops.push_back(row.flops);
}

SpanRow row(const Spans& spans, std::size_t index) {
  return {.kind = spans.kind[index],
          .stream = spans.stream[index],
          .rank = spans.rank[index],
          .stage = spans.stage[index],
          .chunk = spans.chunk[index],
          .microbatch = spans.microbatch[index],
          .start = spans.start[index],
          .end = spans.end[index],
          .tensor_communication = spans.tensor_communication[index],
          .bytes = spans.bytes[index],
          .flops = spans.flops[index]};
}

}  // namespace orrery
