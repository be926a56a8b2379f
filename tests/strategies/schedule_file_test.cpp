// Schedules from files of torch.distributed.pipelining, and the search for deadlocks.
#include "strategies/schedule_file.hpp"

#include <set>

#include "platforms/errors.hpp"
#include "tests/catch.hpp"
#include "tests/strategies/random_schedule.hpp"
#include "tests/strategies/schedule_player.hpp"

namespace orrery {
namespace {

using test::between;

Schedule read(const std::string& text) {
  return read_schedule_csv(text, "a.csv", TransferMode::eager);
}

std::string trouble_of(const std::string& text) {
  try {
    read(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// What a file does not hold: the kind and the group; with one microbatch gpipe and 1f1b have the same orders,
// but their phases.
Schedule without_what_files_lack(Schedule schedule) {
  schedule.shape.kind = ScheduleKind::from_file;
  schedule.shape.microbatch_group = 0;
  if (schedule.shape.microbatches > 1) return schedule;
  for (auto& program : schedule.programs) {
    for (Step& step : program) step.phase = Phase::warmup;
  }
  return schedule;
}

std::string phases(const Schedule& schedule, std::size_t rank) {
  std::string text;
  for (const Step& step : schedule.programs[rank]) text += "wsd"[static_cast<std::size_t>(step.phase)];
  return text;
}

// One change of a file: of letters, or two cells swapped.
void mutate(std::string& text, std::mt19937& random) {
  constexpr std::string_view kAlphabet = "0123456789FBIW,\n\r ();-_SENDRCVUHAOLP\xff";
  const auto below = [&random](std::size_t size) {
    return static_cast<std::size_t>(between(random, 0, static_cast<int>(size) - 1));
  };
  if (text.empty()) return;
  const std::size_t at = below(text.size());
  const std::size_t length = 1 + below(12);
  const std::size_t cell = text.rfind(',', at);
  const std::size_t next = text.find(',', at);
  switch (between(random, 0, 7)) {
    case 0:
      text[at] = kAlphabet[below(kAlphabet.size())];
      break;
    case 1:
      text.erase(at, length);
      break;
    case 2:
      text.insert(at, 1, kAlphabet[below(kAlphabet.size())]);
      break;
    case 3:
      text.insert(at, text.substr(text.size() / 2, length));
      break;
    default:  // the cell before `next` goes to its other side
      if (cell == std::string::npos || next == std::string::npos) return;
      const std::string moved = text.substr(cell, next - cell);
      if (moved.find('\n') != std::string::npos) return;
      text.erase(cell, moved.size());
      text.insert(std::min(text.find_first_of(",\n", cell + 1), text.size()), moved);
  }
}

}  // namespace

TEST_CASE("a schedule is written as torch writes it, one line a rank") {
  CHECK(to_csv(make_schedule({ScheduleKind::one_f_one_b, TransferMode::blocking, 2, 1, 3})) ==
        "0F0,0F1,0B0,0F2,0B1,0B2\n"
        "1F0,1B0,1F1,1B1,1F2,1B2\n");
  CHECK(to_csv(make_schedule({ScheduleKind::interleaved, TransferMode::eager, 2, 2, 2})) ==
        "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n"
        "1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n");
  CHECK(to_csv(make_schedule({ScheduleKind::zb_h1, TransferMode::eager, 2, 1, 2})) ==
        "0F0,0F1,0I0,0W0,0I1,0W1\n"
        "1F0,1I0,1F1,1I1,1W0,1W1\n");
}

// ScheduleZBVZeroBubble of torch.distributed.pipelining for 2 ranks and 3 microbatches, without its idle
// cells.
TEST_CASE("zb-v is the order of torch's ZBVZeroBubble") {
  CHECK(to_csv(make_schedule({ScheduleKind::zb_v, TransferMode::eager, 2, 2, 3})) ==
        "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,3W2,0I1,0W1,0I2,0W2\n"
        "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1I1,2I2,1I2,1W1,2W2,1W2\n");
}

TEST_CASE("every built-in schedule is the same after it was written and read") {
  std::mt19937 random(21);
  std::set<ScheduleKind> seen;
  for (int i = 0; i < 300; ++i) {
    ScheduleShape shape = test::random_shape(random);
    if (shape.transfers == TransferMode::blocking) shape.transfers = TransferMode::overlapped;
    INFO(test::describe(shape));
    const Schedule schedule = make_schedule(shape);
    const std::string text = to_csv(schedule);
    const Schedule again = read_schedule_csv(text, "a.csv", shape.transfers);
    REQUIRE(without_what_files_lack(again) == without_what_files_lack(schedule));
    REQUIRE(to_csv(again) == text);
    seen.insert(shape.kind);
  }
  CHECK(seen.size() == 6);
}

TEST_CASE("idle, send, receive and unshard cells, blanks and line ends change nothing") {
  CHECK(read(",0UNSHARD, 0F0 "
             ",0SEND_F0,,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\r\n,,1RECV_F0,1F0,1B0,1SEND_B0,\r\n\r\n") ==
        read("0F0,0B0\n1F0,1B0"));
}

TEST_CASE("operations that torch overlaps come one after the other") {
  CHECK(read("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n") == read("0F0,0F1,0B0,0B1\n"));
}

TEST_CASE("the layout of stages is the file's") {
  const Schedule schedule = read("1F0,2F0,2B0,1B0\n0F0,3F0,3B0,0B0\n");
  CHECK(schedule.rank_of_part == std::vector<int>{1, 0, 0, 1});
  CHECK(schedule.chunk_of_part == std::vector<int>{0, 0, 1, 1});
  CHECK(schedule.part_at == std::vector<std::vector<int>>{{1, 2}, {0, 3}});
  CHECK(schedule.shape.ranks == 2);
  CHECK(schedule.shape.chunks == 2);
  CHECK(schedule.shape.microbatches == 1);
  CHECK(!schedule.split_backward);
  CHECK(schedule.programs[0][1].awaits.count == 0);  // 2F0 follows 1F0 on the same rank
}

// 1f1b over 4 ranks with 2 microbatches: ranks 0 and 1 have no pair, rank 2 has one, of the same order of
// operations. gpipe has none.
TEST_CASE("phases of a file are those of the built-in schedule with the same orders") {
  const auto phases_of = [](ScheduleKind kind) {
    const Schedule schedule = read(to_csv(make_schedule({kind, TransferMode::eager, 4, 1, 2})));
    std::vector<std::string> all;
    for (std::size_t rank = 0; rank < 4; ++rank) all.push_back(phases(schedule, rank));
    return all;
  };
  CHECK(phases_of(ScheduleKind::one_f_one_b) == std::vector<std::string>{"wwdd", "wwdd", "wssd", "wsss"});
  CHECK(phases_of(ScheduleKind::gpipe) == std::vector<std::string>{"wwdd", "wwdd", "wwdd", "wwdd"});
}

TEST_CASE(
    "phases of other files: pairs of a forward and the backward that follows, and what is around them") {
  // Gradients of the last two microbatches come in the other order than 1f1b's.
  const Schedule schedule = read(
      "0F0,0F1,0F2,0B0,0F3,0B1,0B3,0B2\n"
      "1F0,1F1,1B0,1F2,1B1,1F3,1B3,1B2\n"
      "2F0,2B0,2F1,2B1,2F2,2F3,2B3,2B2\n");
  CHECK(phases(schedule, 0) == "wwssssdd");
  CHECK(phases(schedule, 1) == "wssssssd");
  CHECK(phases(schedule, 2) == "wssssssd");
  // Weight gradients belong to the pair whose backward they follow.
  CHECK(phases(read("0F0,0F1,0I0,0F2,0W0,0I1,0W1,0I2,0W2\n"), 0) == "wssssssdd");
}

TEST_CASE("an order that was built for durations keeps its phases in a file") {
  std::mt19937 random(22);
  int built_orders = 0;
  for (int i = 0; i < 60; ++i) {
    const ScheduleShape shape = test::random_shape(random);
    const auto of = [&random](int low, int high) { return Seconds(between(random, low, high)); };
    ScheduleTimes times;
    for (int part = 0; part < shape.ranks * shape.chunks; ++part)
      times.parts.push_back({of(1, 4), of(1, 4), of(1, 4)});
    for (std::size_t boundary = 1; boundary < times.parts.size(); ++boundary)
      times.transfers.push_back(of(0, 3));
    const Schedule built = make_schedule(shape, times);
    if (!built.split_backward) continue;
    const std::string text = to_csv(built);
    if (text != to_csv(make_schedule(shape))) ++built_orders;
    INFO(text);
    REQUIRE(without_what_files_lack(read_schedule_csv(text, "a.csv", shape.transfers)) ==
            without_what_files_lack(built));
  }
  CHECK(built_orders > 10);
}

TEST_CASE("a backward left whole among split ones lets its gradient go after both halves") {
  const std::string text = "0F0,0F1,0B0,0I1,0W1\n1F0,1F1,1B0,1I1,1W1\n";
  const Schedule schedule = read(text);
  CHECK(schedule.split_backward);
  const auto& last = schedule.programs[1];
  CHECK(last.size() == 6);  // F F I W I W
  CHECK((last[2].sends.count == 0 && last[3].sends.count == 1));
  CHECK((last[4].sends.count == 1 && last[5].sends.count == 0));
  CHECK(read(to_csv(schedule)) == schedule);
  // Files of old releases: B is the input's where there is a W, BW is both.
  CHECK(read("0F0,0F1,0BW0,0B1,0W1\n1F0,1F1,1BW0,1B1,1W1\n") == schedule);
}

TEST_CASE("a schedule file that cannot be read says where and why") {
  struct Row {
    std::string text;
    std::string trouble;
  };
  const auto row = GENERATE(values<Row>({
      {"", "a.csv: found an empty file; expected one line for each rank, of cells as 0F0,0F1,0B0"},
      {" \n\n", "a.csv: found an empty file; expected one line for each rank, of cells as 0F0,0F1,0B0"},
      {"0F0,0X0\n",
       "a.csv:1, cell 2 (rank 0): found '0X0'; expected a stage, an action (F, B, I or W) and a microbatch, "
       "as 0F3, or "
       "nothing where the rank idles"},
      {"0F0,0B0\n1F0,1F99999999999,1B0\n",
       "a.csv:2, cell 2 (rank 1): found '1F99999999999'; expected stages and microbatches up to 999999"},
      {"0F0,0B0\n0F1,0B1\n",
       "a.csv:2, cell 1 (rank 1): found '0F1'; expected stage 0 on one rank; it is on rank 0 as 0F0"},
      {"0F0,0F0,0B0\n",
       "a.csv:1, cell 2 (rank 0): found '0F0'; expected each operation once; 0F0 is in cell 1 too"},
      {"0F0,0B0,0I0\n",
       "a.csv:1, cell 3 (rank 0): found '0I0'; expected each operation once; 0B0 is in cell 2 too"},
      {"0F0,0BW0,0W0\n",
       "a.csv:1, cell 3 (rank 0): found '0W0'; expected no W beside 0BW0, which is both gradients"},
      {"0B0,0F0\n", "a.csv:1, cell 1 (rank 0): found '0B0'; expected 0F0 before it on the same rank"},
      {"0F0,0W0,0I0\n", "a.csv:1, cell 2 (rank 0): found '0W0'; expected 0I0 before it on the same rank"},
      {"0F0,0F1,0B0\n",
       "a.csv:1: found no 0B1 on rank 0; expected every microbatch forward and backward on every stage (an "
       "incomplete "
       "schedule)"},
      {"0F0,0B0,0F1,0B1\n1F1,1B1\n",
       "a.csv:2: found no 1F0 on rank 1; expected every microbatch forward and backward on every stage (an "
       "incomplete "
       "schedule)"},
      {"0F0,0I0\n",
       "a.csv:1: found no 0W0 on rank 0; expected every microbatch forward and backward on every stage (an "
       "incomplete "
       "schedule)"},
      {"0F0,0B0\n2F0,2B0\n",
       "a.csv:2, cell 1 (rank 1): found '2F0'; expected stages without gaps: no rank holds stage 1"},
      {"0F0,0B0\n\n1F0,1B0\n", "a.csv:2: found no operation; expected the operations of rank 1"},
      {"0F0,2F0,2B0,0B0\n1F0,1B0\n",
       "a.csv:2: found 1 stages on rank 1; expected as many stages on every rank (rank 0 has 2), 32767 at "
       "most"},
      {"0F0,1SEND_F0,0B0\n1F0,1B0\n",
       "a.csv:1, cell 2 (rank 0): found '1SEND_F0'; expected an operation on a stage of rank 0"},
  }));
  CHECK(trouble_of(row.text) == row.trouble);
}

TEST_CASE("cells that are almost right are not read") {
  const std::string cell =
      GENERATE("F0", "0F", "0", "-1F0", "0F-1", "0F0x", "0f0", "0F0 0B0", "0OVERLAP_F_B", "(0F0",
               "(0F0;0B0)F", "()OVERLAP_F_B", "(;)OVERLAP_F_B", "0SEND_F", "0 F0", "\xff");
  CHECK(trouble_of("0F0," + cell + ",0B0\n").find("a.csv:1, cell 2 (rank 0)") == 0);
}

TEST_CASE("blocking transfers are refused for files") {
  CHECK_THROWS_AS(read_schedule_csv("0F0,0B0\n", "a.csv", TransferMode::blocking), InputError);
}

TEST_CASE("ranks that wait for each other are named") {
  // Rank 0 wants the gradient of 0 before it computes 1; rank 1 wants 1 before it gives the gradient of 0.
  CHECK(trouble_of("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n") ==
        "a.csv: found rank 0 at 0B0 waits for 1B0 of rank 1; rank 1 at 1F1 waits for 0F1 of rank 0; expected "
        "an order "
        "in which every operation comes after those that it needs");
  // Rank 2 is stuck behind the two, not in the circle.
  CHECK(trouble_of("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n").find("rank 2") ==
        std::string::npos);
  CHECK(trouble_of("1F0,0F0,0B0,1B0\n").find("rank 0: 1F0 comes before 0F0, which it needs") !=
        std::string::npos);
}

// Every rank wants to run its second stage first, which needs that of the rank before; rank 0 needs the first
// stage of the last rank.
TEST_CASE("a circle over many ranks is told in a line of bounded length") {
  constexpr int kRanks = 1000;
  std::string text;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string low = std::to_string(rank);
    const std::string high = std::to_string(rank + kRanks);
    text += high + "F0," + low + "F0," + high + "B0," + low + "B0\n";
  }
  const std::string trouble = trouble_of(text);
  CHECK(
      trouble.find(
          "a.csv: found rank 0 at 1000F0 waits for 999F0 of rank 999; rank 999 at 1999F0 waits for 1998F0") ==
      0);
  CHECK(trouble.find("; and so on over 1000 ranks") != std::string::npos);
  CHECK(trouble.size() < 1500);
}

TEST_CASE("mutated schedule files are read or refused, nothing else; what is read comes to an end") {
  std::mt19937 random(23);
  int readable = 0;
  int stuck = 0;
  for (int i = 0; i < 3000; ++i) {
    ScheduleShape shape = test::random_shape(random);
    shape.transfers = TransferMode::eager;
    std::string text = to_csv(make_schedule(shape));
    for (int change = between(random, 0, 3); change > 0; --change) mutate(text, random);
    INFO(text);
    try {
      const Schedule schedule = read(text);
      ++readable;
      REQUIRE(without_what_files_lack(read(to_csv(schedule))) == without_what_files_lack(schedule));
      REQUIRE(test::play(schedule, test::equal_times(schedule, 1, 1, 1)).has_value());
    } catch (const InputError& error) {
      if (error.found.find(" waits for ") != std::string::npos) ++stuck;
    }
  }
  CHECK((readable > 300 && readable < 2700));
  CHECK(stuck > 3);
}

TEST_CASE("a large file is read in a moment") {
  const Schedule schedule = make_schedule({ScheduleKind::zb_h2, TransferMode::eager, 64, 1, 1024});
  CHECK(read(to_csv(schedule)).shape.microbatches == 1024);  // 196,608 operations
  std::string one_a_rank;
  for (int rank = 0; rank < 50'000; ++rank) {
    one_a_rank += std::to_string(rank) + "F0," + std::to_string(rank) + "B0\n";
  }
  CHECK(read(one_a_rank).shape.ranks == 50'000);
}

}  // namespace orrery
