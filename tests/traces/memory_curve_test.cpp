#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/traces/sample_trace.hpp"

namespace orrery {
namespace {

// Steps of one stage as (time, bytes) pairs.
std::vector<std::pair<double, double>> steps(const MemoryCurve& curve, int stage) {
  std::vector<std::pair<double, double>> result;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    if (curve.stage[i] == stage) result.emplace_back(curve.time[i], curve.bytes[i]);
  }
  return result;
}

}  // namespace

TEST_CASE("activations live from the start of their forward to the end of their backward") {
  const MemoryCurve curve =
      activation_curve(sample_timeline(), {{Bytes(10)}, {Bytes(7)}}, {{Bytes(1)}, {Bytes(1)}});
  // Stage 0: forwards start at 0 and 1, backwards end at 6.5 and 8.75.
  CHECK(steps(curve, 0) == std::vector<std::pair<double, double>>{{0, 10}, {1, 20}, {6.5, 10}, {8.75, 0}});
  // Stage 1: the second forward starts at 4.25 when the first backward ends; they never count together.
  CHECK(steps(curve, 1) == std::vector<std::pair<double, double>>{{0, 0}, {1.25, 7}, {4.25, 7}, {6.5, 0}});
}

TEST_CASE("after its backward a microbatch keeps what its weight gradient needs until that ends") {
  Timeline timeline;
  timeline.ranks.resize(1);
  add_span(timeline, compute_span(SpanKind::forward, 0, 0, 0, 1));
  add_span(timeline, compute_span(SpanKind::backward, 0, 0, 1, 2));
  add_span(timeline, compute_span(SpanKind::weight_gradient, 0, 0, 5, 6));
  CHECK(steps(activation_curve(timeline, {{Bytes(3)}}, {{Bytes(2)}}), 0) ==
        std::vector<std::pair<double, double>>{{0, 3}, {2, 2}, {6, 0}});
}

TEST_CASE("activations of a forward in several spans live from the start of the first") {
  Timeline timeline;
  timeline.ranks.resize(1);
  for (const double start : {0.0, 2.0}) {
    add_span(timeline, compute_span(SpanKind::forward, 0, 0, start, start + 1));
  }
  add_span(timeline, compute_span(SpanKind::backward, 0, 0, 3, 4));
  CHECK(steps(activation_curve(timeline, {{Bytes(3)}}, {{Bytes(1)}}), 0) ==
        std::vector<std::pair<double, double>>{{0, 3}, {4, 0}});
}

TEST_CASE("chunks have sizes of their own, and the first rank stands for the stage") {
  Timeline timeline;
  timeline.ranks = {{.stage = 0, .replica = 0}, {.stage = 0, .replica = 1}};
  for (int rank = 0; rank < 2; ++rank) {
    SpanRow second = compute_span(SpanKind::forward, rank, 0, 1, 2);
    second.chunk = 1;
    add_span(timeline, compute_span(SpanKind::forward, rank, 0, 0, 1));
    add_span(timeline, second);
  }
  CHECK(steps(activation_curve(timeline, {{Bytes(1), Bytes(100)}}, {{Bytes(1), Bytes(1)}}), 0) ==
        std::vector<std::pair<double, double>>{{0, 1}, {1, 101}});
  CHECK_THROWS_AS(activation_curve(timeline, {{Bytes(1)}}, {{Bytes(1)}}), Defect);
}

}  // namespace orrery
