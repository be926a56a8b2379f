// A small run to test with: 1f1b on two stages, two microbatches, forward 1 s, backward 2 s, transfers of
// 0.25 s.
#pragma once

#include "traces/trace.hpp"

namespace orrery {

inline void add_span(Timeline& timeline, SpanRow span) {
  span.stage = static_cast<std::int16_t>(timeline.ranks[static_cast<std::size_t>(span.rank)].stage);
  append(timeline.spans, span);
}

inline SpanRow compute_span(SpanKind kind, int rank, int microbatch, double start, double end) {
  SpanRow span{.kind = kind, .rank = rank, .microbatch = microbatch, .start = start, .end = end};
  if (microbatch >= 0) span.chunk = 0;
  return span;
}

// stage 0  F0 F1 .........  B0 B0 . B1 B1 (drain) optimizer
// stage 1  .  F0 B0 B0 F1 B1 B1 .......
inline Timeline sample_timeline() {
  using enum SpanKind;
  Timeline timeline;
  timeline.makespan = 9;
  timeline.ranks = {{.device = 0, .node = 0, .gpu = "A100-SXM4-80GB", .stage = 0, .gpus = 2},
                    {.device = 2, .node = 1, .gpu = "H100-SXM5-80GB", .stage = 1, .gpus = 2}};
  add_span(timeline, compute_span(forward, 0, 0, 0, 1));
  add_span(timeline, compute_span(forward, 0, 1, 1, 2));
  add_span(timeline, compute_span(bubble_steady, 0, -1, 2, 4.25));
  add_span(timeline, compute_span(exposed_p2p, 0, -1, 4.25, 4.5));
  SpanRow backward_0 = compute_span(backward, 0, 0, 4.5, 6.5);
  backward_0.tensor_communication = 0.5;
  backward_0.flops = 1e12;
  add_span(timeline, backward_0);
  add_span(timeline, compute_span(bubble_drain, 0, -1, 6.5, 6.75));
  add_span(timeline, compute_span(backward, 0, 1, 6.75, 8.75));
  add_span(timeline, compute_span(optimizer, 0, -1, 8.75, 9));
  add_span(timeline, compute_span(bubble_warmup, 1, -1, 0, 1));
  add_span(timeline, compute_span(exposed_p2p, 1, -1, 1, 1.25));
  add_span(timeline, compute_span(forward, 1, 0, 1.25, 2.25));
  add_span(timeline, compute_span(backward, 1, 0, 2.25, 4.25));
  add_span(timeline, compute_span(forward, 1, 1, 4.25, 5.25));
  add_span(timeline, compute_span(backward, 1, 1, 5.25, 6.5));
  add_span(timeline, compute_span(bubble_drain, 1, -1, 6.5, 8));
  add_span(timeline, compute_span(exposed_dp, 1, -1, 8, 8.75));
  add_span(timeline, compute_span(optimizer, 1, -1, 8.75, 9));
  SpanRow message = compute_span(send, 0, 0, 1, 1.25);
  message.stream = Stream::network;
  message.bytes = 4e6;
  add_span(timeline, message);
  timeline.link_bin = 3;
  timeline.links = {{"a.node0.nic0.up", 25e9, 1e-6, {4e6, 0, 0}},
                    {"a.node1.nic0.up", 25e9, 1e-6, {0, 8e6, 0}}};
  return timeline;
}

inline Trace sample_trace() {
  Trace trace;
  trace.run = {{"tool_version", "0.1.0"},
               {"simgrid_version", "3.32"},
               {"command_line", "orrery replay -o \"ü 夸.h5\""},
               {"seeds", "7"},
               {"a_plan", "stages:\n  - {tensor: 2}\n"},
               {"cluster", std::string(100000, 'x')},
               {"empty", ""}};
  trace.timeline = sample_timeline();
  trace.iteration = Seconds(9);
  trace.hfu = 0.5;
  trace.accounting = account(trace.timeline);
  for (int stage = 0; stage < 2; ++stage) {
    trace.memory.push_back({.stage = stage,
                            .weights = gibibytes(6),
                            .gradients = gibibytes(6),
                            .optimizer = gibibytes(18),
                            .activations_peak = gibibytes(2 - stage),
                            .logits = gibibytes(stage),
                            .communication = gibibytes(1),
                            .reserve = gibibytes(2)});
  }
  trace.memory[1].capacity = gibibytes(80);
  trace.memory[1].kind = 1;
  trace.memory[1].gpu = "A100-SXM4-80GB";
  trace.memory[1].verdict = "fits";
  trace.activations =
      activation_curve(trace.timeline, {{gibibytes(1)}, {gibibytes(1)}}, {{gibibytes(1)}, {gibibytes(1)}});
  trace.cost = {.gpu_hours = 0.01, .price = DollarsPerHour(32.77), .per_iteration = Dollars(0.08)};
  return trace;
}

}  // namespace orrery
