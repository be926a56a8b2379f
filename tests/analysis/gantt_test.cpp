#include "analysis/gantt.hpp"

#include "tests/catch.hpp"
#include "tests/traces/sample_trace.hpp"

namespace orrery {
namespace {

// Draws the spans of one rank from text such as "F0 B0 .": a letter a unit of time.
void add_program(Timeline& timeline, int rank, const std::vector<std::pair<SpanKind, int>>& program) {
  double time = 0;
  for (const auto& [kind, microbatch] : program) {
    const double length = kind == SpanKind::backward ? 2 : 1;
    add_span(timeline, compute_span(kind, rank, microbatch, time, time + length));
    time += length;
  }
  timeline.makespan = std::max(timeline.makespan, time);
}

// 1f1b on two stages with two microbatches, as STYLE 2.11 draws schedules: backward takes two columns.
Timeline two_stages() {
  using enum SpanKind;
  Timeline timeline;
  timeline.ranks = {{.stage = 0}, {.stage = 1}};
  add_program(timeline, 0,
              {{forward, 0},
               {forward, 1},
               {bubble_steady, -1},
               {bubble_steady, -1},
               {backward, 0},
               {bubble_drain, -1},
               {backward, 1}});
  add_program(timeline, 1,
              {{bubble_warmup, -1},
               {forward, 0},
               {backward, 0},
               {forward, 1},
               {backward, 1},
               {bubble_drain, -1},
               {bubble_drain, -1}});
  return timeline;
}

}  // namespace

TEST_CASE("a schedule is drawn as in the pictures of golden tests") {
  CHECK(text_gantt(two_stages(), {.unit = Seconds(1)}) ==
        "stage 0  01..aa.bb\n"
        "stage 1  .0aa1bb..\n");
}

TEST_CASE("a column shows what takes most of its time") {
  // Stage 0 from 6 s to 7 s: half of microbatch 0, a quarter each of bubble and of microbatch 1. Stage 1
  // there: half backward, half bubble, and "." comes first in ASCII.
  CHECK(text_gantt(sample_timeline(), {.unit = Seconds(1)}) ==
        "stage 0  01..aaabb\n"
        "stage 1  .0aa1b..~\n");
}

TEST_CASE("columns scale to the width asked for") {
  // Columns of 3 s. Stage 1: bubble and forward 1 s each; backward 2 s; bubble 1.5 s.
  CHECK(text_gantt(sample_timeline(), {.columns = 3, .letters = GanttLetters::kind}) ==
        "stage 0  FBB\n"
        "stage 1  .B.\n");
}

TEST_CASE("waiting is told apart by its reason") {
  using enum SpanKind;
  Timeline timeline;
  timeline.ranks.resize(1);
  add_program(timeline, 0,
              {{exposed_p2p, -1}, {forward, 10}, {weight_gradient, 10}, {exposed_dp, -1}, {optimizer, -1}});
  CHECK(text_gantt(timeline, {.unit = Seconds(1)}) == "stage 0  -A+~=\n");
  CHECK(text_gantt(timeline, {.unit = Seconds(1), .letters = GanttLetters::kind}) == "stage 0  -FW~=\n");
}

TEST_CASE("one replica is drawn, in the order of its stages") {
  Timeline timeline;
  timeline.ranks = {{.stage = 10, .replica = 1}, {.stage = 9, .replica = 0}, {.stage = 9, .replica = 1}};
  for (int rank = 0; rank < 3; ++rank) add_program(timeline, rank, {{SpanKind::forward, rank}});
  CHECK(text_gantt(timeline, {.replica = 1, .unit = Seconds(1)}) == "stage 9   2\nstage 10  0\n");
  CHECK(text_gantt(timeline, {.replica = 7, .unit = Seconds(1)}).empty());
}

TEST_CASE("microbatches beyond the alphabet start over") {
  Timeline timeline;
  timeline.ranks.resize(1);
  add_program(timeline, 0, {{SpanKind::forward, 36}, {SpanKind::backward, 27}});
  CHECK(text_gantt(timeline, {.unit = Seconds(1)}) == "stage 0  0bb\n");
}

TEST_CASE("rounding does not move a picture") {
  // 0.1 added ten times is not 1.0.
  Timeline timeline;
  timeline.ranks.resize(1);
  double time = 0;
  for (int i = 0; i < 10; ++i) {
    add_span(timeline, compute_span(SpanKind::forward, 0, i, time, time + 0.1));
    time += 0.1;
  }
  timeline.makespan = time;
  CHECK(text_gantt(timeline, {.unit = Seconds(0.1)}) == "stage 0  0123456789\n");
}

TEST_CASE("a long run is drawn as its start, middle and end, where each forward has a letter") {
  Timeline timeline;
  timeline.ranks.resize(1);
  std::vector<std::pair<SpanKind, int>> program;
  for (int i = 0; i < 100; ++i) {
    program.emplace_back(SpanKind::forward, i);
    program.emplace_back(SpanKind::backward, i);
  }
  add_program(timeline, 0, program);  // 300 s
  const std::string picture = text_gantt_windows(timeline, 9 + 24 + 3 + 12 + 3 + 24);
  // Half a second a column: a forward takes two, a backward four, and 24 columns four microbatches.
  CHECK(picture.substr(0, 9 + 24 + 3) == "stage 0  00aaaa11bbbb22cccc33dddd   ");
  // Microbatches 96 to 99: 96 is letter 24 of 36 (O), and 18 of 26 (s).
  CHECK(picture.substr(picture.find('\n') - 24, 24) == "OOssssPPttttQQuuuuRRvvvv");
  CHECK(picture.find("\n         |0 s") != std::string::npos);
  CHECK(picture.substr(picture.size() - 7) == "5 min|\n");
}

TEST_CASE("a forward in pieces, with collectives between, is as wide as one of its own") {
  Timeline whole, cut;
  whole.ranks.resize(1);
  cut.ranks.resize(1);
  double time = 0;
  for (int i = 0; i < 100; ++i) {
    for (const auto& [kind, seconds] :
         {std::pair(SpanKind::forward, 1.0), std::pair(SpanKind::backward, 2.0)}) {
      add_span(whole, compute_span(kind, 0, i, time, time + seconds));
      for (int piece = 0; piece < 4; ++piece) {
        const double begin = time + seconds * piece / 4,
                     computed = begin + seconds * (piece < 3 ? 0.2 : 0.25);
        add_span(cut, compute_span(kind, 0, i, begin, computed));
        if (piece < 3)
          add_span(cut, compute_span(SpanKind::exposed_tp, 0, -1, computed, begin + seconds / 4));
      }
      time += seconds;
    }
  }
  whole.makespan = cut.makespan = time;
  CHECK(text_gantt_windows(cut, 9 + 66) == text_gantt_windows(whole, 9 + 66));
}

TEST_CASE("a run with few forwards is drawn whole, with its times underneath") {
  // 36 columns of 0.25 s: a forward takes four.
  CHECK(text_gantt_windows(two_stages(), 9 + 36) ==
        "stage 0  00001111........aaaaaaaa....bbbbbbbb\n"
        "stage 1  ....0000aaaaaaaa1111bbbbbbbb........\n"
        "         |0 s                            9 s|\n");
}

TEST_CASE("an empty run is drawn as nothing") {
  Timeline timeline;
  timeline.ranks.resize(1);
  CHECK(text_gantt(timeline) == "stage 0  \n");
  CHECK(text_gantt(Timeline{}).empty());
}

TEST_CASE("the legend names every character") {
  CHECK(gantt_legend(GanttLetters::kind) ==
        "F forward  B backward  W weight gradient  = optimizer  ^ tensor collective  - pipeline message  ~ "
        "data-parallel "
        "collective  . "
        "bubble\n");
}

}  // namespace orrery
