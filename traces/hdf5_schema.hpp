// Every column of a version 1 trace, once: the writer and the reader both visit these tables, so they cannot
// disagree.
#pragma once

#include <cmath>
#include <limits>
#include <optional>

#include "traces/hdf5_library.hpp"
#include "traces/trace.hpp"

namespace orrery {

// How a member of a struct is held in a column. Absent is NaN.
inline double to_cell(double value) {
  return value;
}
inline int to_cell(int value) {
  return value;
}
inline std::string to_cell(const std::string& value) {
  return value;
}
template <class D>
double to_cell(Quantity<D> value) {
  return value.value();
}
template <class D>
double to_cell(const std::optional<Quantity<D>>& value) {
  return value ? value->value() : std::numeric_limits<double>::quiet_NaN();
}

inline double to_cell(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

template <class Cell, class Member>
void from_cell(const Cell& cell, Member& member) {
  member = Member(cell);
}
inline void from_cell(double cell, std::optional<double>& member) {
  member = std::isnan(cell) ? std::nullopt : std::optional(cell);
}
template <class D>
void from_cell(double cell, std::optional<Quantity<D>>& member) {
  member = std::isnan(cell) ? std::nullopt : std::optional(Quantity<D>(cell));
}

// Files of earlier versions do not have it.
inline constexpr const char* kIteration = "/run/iteration";

// `scalar(path, member, label)`. `T` is Trace or const Trace. Files of earlier versions do not have them.
template <class T, class Scalar>
void visit_utilisation(T& trace, Scalar&& scalar) {
  scalar("/run/mfu", trace.mfu,
         {"1", "model FLOPs of an iteration, attention in full, over the GPUs' peak; NaN: not known"});
  scalar("/run/hfu", trace.hfu,
         {"1", "FLOPs of the spans of an iteration, recomputation too, over the GPUs' peak; NaN: not known"});
}

// `visit(path, vector, label)` for each column of the spans. `S` is Spans or const Spans.
template <class S, class Visit>
void visit_spans(S& spans, Visit&& visit) {
  visit("/ops/kind", spans.kind, {"index into /ops/kinds", "what the span is"});
  visit("/ops/stage", spans.stage, {"1", "pipeline stage"});
  visit("/ops/chunk", spans.chunk, {"1", "model part of the stage; -1: none"});
  visit("/ops/microbatch", spans.microbatch, {"1", "microbatch of the replica; -1: none"});
  visit("/ops/rank", spans.rank, {"index into /ranks", "rank; of a message the sender"});
  visit("/ops/stream", spans.stream, {"index into /ops/streams", "0: compute, without gaps; 1: network"});
  visit("/ops/start", spans.start, {"s", "start since the start of the run"});
  visit("/ops/end", spans.end, {"s", "end since the start of the run"});
  visit("/ops/bytes", spans.bytes, {"B", "moved by a network span"});
  visit("/ops/flops", spans.flops, {"FLOP", "done by a compute span on one GPU of the rank"});
  visit("/ops/tensor_communication", spans.tensor_communication,
        {"s", "part of the span that is exposed tensor-parallel communication"});
}

// The columns of an accounting: `visit(name, member pointer, description)`.
template <class Visit>
void visit_accounting(Visit&& visit) {
  visit("compute", &Accounting::compute, "forward, backward and weight gradient without exposed_tp");
  visit("exposed_tp", &Accounting::exposed_tp, "exposed tensor-parallel communication");
  visit("exposed_p2p", &Accounting::exposed_p2p, "idle while a pipeline message is on its way");
  visit("exposed_dp", &Accounting::exposed_dp, "idle while a data-parallel collective is on its way");
  visit("optimizer", &Accounting::optimizer, "optimizer step");
  visit("bubble_warmup", &Accounting::bubble_warmup, "idle for data not yet computed, in warm-up");
  visit("bubble_steady", &Accounting::bubble_steady, "idle for data not yet computed, in steady state");
  visit("bubble_drain", &Accounting::bubble_drain, "idle for data not yet computed, in drain");
}

// `column(path, rows, access, label)`: `access(row)` is a reference to the member that the column holds.
template <class Rows, class Column>
void visit_ranks(Rows& ranks, Column&& column) {
  column("/ranks/device", ranks, [](auto& r) -> auto& { return r.device; },
         {"1", "its first GPU in the cluster"});
  column("/ranks/node", ranks, [](auto& r) -> auto& { return r.node; }, {"1", "node of that GPU"});
  column("/ranks/gpu", ranks, [](auto& r) -> auto& { return r.gpu; }, {"", "catalog name of the GPU"});
  column("/ranks/stage", ranks, [](auto& r) -> auto& { return r.stage; }, {"1", "pipeline stage"});
  column("/ranks/replica", ranks, [](auto& r) -> auto& { return r.replica; }, {"1", "data-parallel replica"});
  column("/ranks/tensor_index", ranks, [](auto& r) -> auto& { return r.tensor_index; },
         {"1", "index of its first GPU in the tensor-parallel group"});
  column("/ranks/gpus", ranks, [](auto& r) -> auto& { return r.gpus; },
         {"1", "GPUs it stands for, all doing the same"});
}

template <class Rows, class Column>
void visit_rank_accounting(Rows& ranks, Column&& column) {
  visit_accounting([&](const std::string& name, auto member, const char* description) {
    column("/ranks/" + name, ranks, [member](auto& r) -> auto& { return r.*member; }, {"s", description});
  });
}

template <class Rows, class Column>
void visit_stages(Rows& stages, Column&& column) {
  column("/stages/stage", stages, [](auto& s) -> auto& { return s.stage; }, {"1", "pipeline stage"});
  visit_accounting([&](const std::string& name, auto member, const char* description) {
    column("/stages/mean_" + name, stages, [member](auto& s) -> auto& { return s.mean.*member; },
           {"s", description});
    column("/stages/max_" + name, stages, [member](auto& s) -> auto& { return s.maximum.*member; },
           {"s", description});
  });
}

template <class Rows, class Column>
void visit_links(Rows& links, Column&& column) {
  column("/links/name", links, [](auto& l) -> auto& { return l.name; }, {"", "name of the link"});
  column("/links/bandwidth", links, [](auto& l) -> auto& { return l.bandwidth; },
         {"B/s", "of one direction"});
  column("/links/latency", links, [](auto& l) -> auto& { return l.latency; },
         {"s", "counted once a crossing"});
}

template <class Rows, class Column>
void visit_memory(Rows& rows, Column&& column) {
  column("/memory/stage", rows, [](auto& m) -> auto& { return m.stage; }, {"1", "pipeline stage"});
  column("/memory/weights", rows, [](auto& m) -> auto& { return m.weights; }, {"B", "weights on one GPU"});
  column("/memory/gradients", rows, [](auto& m) -> auto& { return m.gradients; }, {"B", "gradients"});
  column("/memory/optimizer", rows, [](auto& m) -> auto& { return m.optimizer; }, {"B", "optimizer states"});
  column("/memory/activations_peak", rows, [](auto& m) -> auto& { return m.activations_peak; },
         {"B", "live activations at the peak, with what a backward recomputes"});
  column("/memory/logits", rows, [](auto& m) -> auto& { return m.logits; },
         {"B", "logits of the last stage"});
  column("/memory/communication", rows, [](auto& m) -> auto& { return m.communication; },
         {"B", "buffers of collectives and transfers"});
  column("/memory/reserve", rows, [](auto& m) -> auto& { return m.reserve; },
         {"B", "gradients of a layer in its backward, allocator slack, communicators, driver context"});
  column("/memory/capacity", rows, [](auto& m) -> auto& { return m.capacity; },
         {"B", "memory of the card; NaN: not known"});
}

// Of the same rows; files of earlier versions do not have them.
inline constexpr const char* kMemoryKind = "/memory/kind";
template <class Rows, class Column>
void visit_memory_verdicts(Rows& rows, Column&& column) {
  column(kMemoryKind, rows, [](auto& m) -> auto& { return m.kind; },
         {"1", "kind of replica; replicas on unlike GPUs have rows of their own"});
  column("/memory/gpu", rows, [](auto& m) -> auto& { return m.gpu; }, {"name", "GPU of the stage"});
  column("/memory/verdict", rows, [](auto& m) -> auto& { return m.verdict; },
         {"word", "fits, risky (published runs as full ran out of memory) or too big"});
}

// `S` is MemoryCurve or const MemoryCurve.
template <class S, class Visit>
void visit_curve(S& curve, Visit&& visit) {
  visit("/memory/curve/stage", curve.stage, {"1", "pipeline stage"});
  visit("/memory/curve/time", curve.time, {"s", "from this time until the next row of the stage"});
  visit("/memory/curve/bytes", curve.bytes,
        {"B", "live activations on one GPU that wait for a backward, without what that recomputes"});
}

// `scalar(path, member, label)`. `C` is TraceCost or const TraceCost.
template <class C, class Scalar>
void visit_cost(C& cost, Scalar&& scalar) {
  scalar("/cost/gpu_hours", cost.gpu_hours, {"h", "GPU-hours of one iteration; NaN: not known"});
  scalar("/cost/price", cost.price, {"USD/h", "of all nodes together; NaN: not known"});
  scalar("/cost/per_iteration", cost.per_iteration, {"USD", "of one iteration; NaN: not known"});
  scalar("/cost/per_million_tokens", cost.per_million_tokens, {"USD", "of 1e6 tokens; NaN: not known"});
  scalar("/cost/whole_run", cost.whole_run, {"USD", "of the whole training; NaN: not known"});
}

}  // namespace orrery
