#include "traces/accounting.hpp"

#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/traces/sample_trace.hpp"

namespace orrery {

TEST_CASE("each kind of span goes to its column") {
  const RunAccounting run = account(sample_timeline());
  // Rank 0: forwards 2 x 1, backwards 2 x 2, of which 0.5 s are tensor-parallel communication.
  CHECK(run.ranks[0].compute.value() == Approx(5.5));
  CHECK(run.ranks[0].exposed_tp.value() == Approx(0.5));
  CHECK(run.ranks[0].exposed_p2p.value() == Approx(0.25));
  CHECK(run.ranks[0].optimizer.value() == Approx(0.25));
  CHECK(run.ranks[0].bubble_steady.value() == Approx(2.25));
  CHECK(run.ranks[0].bubble_drain.value() == Approx(0.25));
  CHECK(run.ranks[1].exposed_dp.value() == Approx(0.75));
  CHECK(run.ranks[1].bubble_warmup.value() == Approx(1));
  for (const Accounting& rank : run.ranks) CHECK(rank.total().value() == Approx(9).epsilon(1e-12));
  // Bubbles: 2.25 + 0.25 and 1 + 1.5, over two ranks of 9 s.
  CHECK(run.bubble_fraction == Approx(5.0 / 18));
}

TEST_CASE("a stage is the mean and the maximum of its ranks, and its mean adds up to the makespan") {
  Timeline timeline;
  timeline.makespan = 2;
  timeline.ranks = {{.stage = 3}, {.stage = 3}};
  add_span(timeline, compute_span(SpanKind::forward, 0, 0, 0, 2));
  add_span(timeline, compute_span(SpanKind::forward, 1, 0, 0, 1));
  add_span(timeline, compute_span(SpanKind::bubble_drain, 1, -1, 1, 2));
  const RunAccounting run = account(timeline);
  REQUIRE(run.stages.size() == 1);
  CHECK(run.stages[0].stage == 3);
  CHECK(run.stages[0].mean.compute.value() == Approx(1.5));
  CHECK(run.stages[0].maximum.compute.value() == Approx(2));
  CHECK(run.stages[0].maximum.bubble_drain.value() == Approx(1));
  CHECK(run.stages[0].mean.total().value() == Approx(2));
}

TEST_CASE("network spans do not count") {
  Timeline timeline = sample_timeline();
  const RunAccounting before = account(timeline);
  SpanRow transfer = compute_span(SpanKind::all_reduce, 0, -1, 3, 100);
  transfer.stream = Stream::network;
  add_span(timeline, transfer);
  CHECK(account(timeline) == before);
}

// Iterations that end at 3, 5 and 8 s of 9: two in the steady state, 2.5 s each in the mean, with 4 s and 1 s
// of a forward that lasts from 2 to 7 s and of which a fifth is communication, and of the bubble after it.
TEST_CASE("the accounting of a steady iteration is the mean of those after the first") {
  Timeline timeline;
  timeline.makespan = 9;
  timeline.ranks.resize(1);
  add_span(timeline, compute_span(SpanKind::bubble_warmup, 0, -1, 0, 2));
  SpanRow forward = compute_span(SpanKind::forward, 0, 0, 2, 7);
  forward.tensor_communication = 1;
  add_span(timeline, forward);
  add_span(timeline, compute_span(SpanKind::bubble_drain, 0, -1, 7, 9));
  const RunAccounting run = account_steady(timeline, {3, 5, 8}, {4});
  CHECK(run.makespan.value() == Approx(2.5));
  CHECK(run.ranks[0].compute.value() == Approx(0.8 * 4 / 2));
  CHECK(run.ranks[0].exposed_tp.value() == Approx(0.2 * 4 / 2));
  CHECK(run.ranks[0].bubble_drain.value() == Approx(1.0 / 2));
  CHECK(run.ranks[0].bubble_warmup.value() == 0);
  CHECK(run.stages[0].mean.total().value() == Approx(2.5));
  CHECK(run.bubble_fraction == Approx(0.2));
  CHECK(account_steady(timeline, {9}, {0}) == account(timeline));
}

// Rank 1 ends both iterations, of 3 s of work, a second after rank 0, which begins the second at once: 3 s of
// work each from 3 and 4 s on. Rank 2 begins the second after the end of the first: from 4 s on, 2 s of work.
TEST_CASE("a rank that begins the second iteration while others end the first is looked at from there on") {
  Timeline timeline;
  timeline.makespan = 7;
  timeline.ranks.resize(3);
  add_span(timeline, compute_span(SpanKind::forward, 0, 0, 0, 3));
  add_span(timeline, compute_span(SpanKind::forward, 0, 1, 3, 6));
  add_span(timeline, compute_span(SpanKind::bubble_drain, 0, -1, 6, 7));
  add_span(timeline, compute_span(SpanKind::bubble_warmup, 1, -1, 0, 1));
  add_span(timeline, compute_span(SpanKind::forward, 1, 0, 1, 4));
  add_span(timeline, compute_span(SpanKind::forward, 1, 1, 4, 7));
  add_span(timeline, compute_span(SpanKind::forward, 2, 0, 0, 2));
  add_span(timeline, compute_span(SpanKind::bubble_warmup, 2, -1, 2, 5));
  add_span(timeline, compute_span(SpanKind::forward, 2, 1, 5, 7));
  const RunAccounting run = account_steady(timeline, {4, 7}, {3, 4, 5});
  CHECK(run.ranks[0].compute.value() == Approx(3));
  CHECK(run.ranks[1].compute.value() == Approx(3));
  CHECK(run.ranks[2].compute.value() == Approx(2));
  CHECK(run.ranks[2].bubble_warmup.value() == Approx(1));
  CHECK(run.bubble_fraction == Approx(1.0 / 9));
}

// As of a part without layers.
TEST_CASE("a span of no length adds nothing to a steady iteration") {
  Timeline timeline;
  timeline.makespan = 4;
  timeline.ranks.resize(1);
  add_span(timeline, compute_span(SpanKind::forward, 0, 0, 0, 3));
  add_span(timeline, compute_span(SpanKind::backward, 0, 0, 3, 3));
  add_span(timeline, compute_span(SpanKind::bubble_drain, 0, -1, 3, 4));
  const RunAccounting run = account_steady(timeline, {2, 4}, {3});
  CHECK(run.ranks[0].compute.value() == Approx(1));
  CHECK(run.ranks[0].bubble_drain.value() == Approx(1));
}

namespace {

std::string complaint(const Timeline& timeline) {
  try {
    account(timeline);
  } catch (const Defect& defect) {
    return defect.what();
  }
  return "no complaint";
}

// Rank 0 of two is busy all the time; rank 1 has the two given spans and a makespan of 4.
Timeline two_spans(double first_start, double first_end, double second_start, double second_end) {
  Timeline timeline;
  timeline.makespan = 4;
  timeline.ranks.resize(2);
  add_span(timeline, compute_span(SpanKind::forward, 0, 0, 0, 4));
  add_span(timeline, compute_span(SpanKind::forward, 1, 0, first_start, first_end));
  add_span(timeline, compute_span(SpanKind::bubble_drain, 1, -1, second_start, second_end));
  return timeline;
}

}  // namespace

TEST_CASE("spans that do not fill the makespan are a defect that names rank and difference") {
  CHECK(complaint(two_spans(0, 2, 2, 4)) == "no complaint");
  CHECK(complaint(two_spans(0, 2, 2 + 3e-9, 4)) == "no complaint");
  CHECK_THAT(complaint(two_spans(0, 2, 2.5, 4)),
             contains_text("rank 1") && contains_text("gap") && contains_text("0.5 s"));
  CHECK_THAT(complaint(two_spans(0, 2, 1.75, 4)),
             contains_text("rank 1") && contains_text("overlap") && contains_text("0.25 s"));
  CHECK_THAT(complaint(two_spans(0, 2, 2, 3)),
             contains_text("rank 1") && contains_text("makespan") && contains_text("-1 s"));
  CHECK_THAT(complaint(two_spans(0.5, 2, 2, 4)), contains_text("gap") && contains_text("0.5 s"));
  CHECK_THAT(complaint(two_spans(0, 2, 2, 1)), contains_text("negative length"));
  CHECK(complaint(two_spans(0, std::nan(""), 2, 4)) != "no complaint");
}

TEST_CASE("a rank without spans is a defect unless the run is empty") {
  Timeline timeline;
  timeline.ranks.resize(1);
  CHECK(complaint(timeline) == "no complaint");
  timeline.makespan = 1;
  CHECK(complaint(timeline) != "no complaint");
}

TEST_CASE("more tensor communication than span is a defect") {
  Timeline timeline = sample_timeline();
  timeline.spans.tensor_communication[0] = 1.5;
  CHECK_THAT(complaint(timeline), contains_text("tensor communication"));
}

}  // namespace orrery
