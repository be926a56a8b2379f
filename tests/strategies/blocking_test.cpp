// Which sends and receives Megatron-LM joins into one blocking call: core/pipeline_parallel/schedules.py,
// forward_backward_pipelining_without_interleaving, written out call by call and compared.
#include "strategies/schedule.hpp"
#include "tests/catch.hpp"
#include "tests/strategies/schedule_player.hpp"

namespace orrery {
namespace {

// A program as text: F3 and B3 compute; [>a3 <g1] sends the activation of microbatch 3 joined with receiving
// the gradient of 1.
std::string text_of(const Schedule& schedule, int rank) {
  std::string text;
  const auto name = [&](char arrow, MessageId id) {
    const Message message = schedule.message(id);
    return std::string(1, arrow) + (message.gradient ? 'g' : 'a') + std::to_string(message.microbatch);
  };
  for (const Step& step : schedule.programs[static_cast<std::size_t>(rank)]) {
    std::string word;
    if (step.kind == StepKind::exchange) {
      for (const MessageId id : step.sends) word += (word.empty() ? "" : " ") + name('>', id);
      for (const MessageId id : step.awaits) word += (word.empty() ? "" : " ") + name('<', id);
      word = "[" + word + "]";
    } else {
      word = (step.kind == StepKind::forward ? "F" : "B") + std::to_string(step.microbatch);
    }
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

// What Megatron-LM calls, in its order. Calls at the ends of the model do nothing there.
class Megatron {
 public:
  Megatron(int ranks, int microbatches, int rank)
      : first_(rank == 0), last_(rank == ranks - 1), microbatches_(microbatches) {
    const int warmup = std::min(ranks - rank - 1, microbatches);
    const int remaining = microbatches - warmup;
    for (int i = 0; i < warmup; ++i) {
      call({}, receive('a', i));
      word("F" + std::to_string(i));
      call(send('a', i), {});
    }
    if (remaining > 0) call({}, receive('a', warmup));
    for (int i = 0; i < remaining; ++i) {
      word("F" + std::to_string(warmup + i));
      call(send('a', warmup + i), receive('g', i));
      word("B" + std::to_string(i));
      call(send('g', i), i + 1 < remaining ? receive('a', warmup + i + 1) : "");
    }
    for (int i = remaining; i < microbatches_; ++i) {
      call({}, receive('g', i));
      word("B" + std::to_string(i));
      call(send('g', i), {});
    }
  }
  std::string text;

 private:
  void word(const std::string& next) { text += (text.empty() ? "" : " ") + next; }
  [[nodiscard]] std::string send(char what, int i) const {
    if (what == 'a' ? last_ : first_) return "";
    return std::string(">") + what + std::to_string(i);
  }
  [[nodiscard]] std::string receive(char what, int i) const {
    if (what == 'a' ? first_ : last_) return "";
    return std::string("<") + what + std::to_string(i);
  }
  void call(const std::string& sent, const std::string& received) {
    if (sent.empty() && received.empty()) return;
    word("[" + sent + (sent.empty() || received.empty() ? "" : " ") + received + "]");
  }

  bool first_, last_;
  int microbatches_;
};

}  // namespace

TEST_CASE("blocking 1f1b on two stages, call by call") {
  const Schedule schedule = make_schedule({ScheduleKind::one_f_one_b, TransferMode::blocking, 2, 1, 3});
  CHECK(text_of(schedule, 0) == "F0 [>a0] F1 [>a1 <g0] B0 F2 [>a2 <g1] B1 [<g2] B2");
  CHECK(text_of(schedule, 1) == "[<a0] F0 B0 [>g0 <a1] F1 B1 [>g1 <a2] F2 B2 [>g2]");
}

TEST_CASE("blocking 1f1b makes the calls of Megatron-LM for up to 9 stages and 20 microbatches") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int microbatches = 1; microbatches <= 20; ++microbatches) {
      const ScheduleShape shape{ScheduleKind::one_f_one_b, TransferMode::blocking, ranks, 1, microbatches};
      const Schedule schedule = make_schedule(shape);
      for (int rank = 0; rank < ranks; ++rank) {
        INFO(test::describe(shape) << " rank " << rank);
        REQUIRE(text_of(schedule, rank) == Megatron(ranks, microbatches, rank).text);
      }
    }
  }
}

TEST_CASE("blocking gpipe joins nothing") {
  const Schedule schedule = make_schedule({ScheduleKind::gpipe, TransferMode::blocking, 3, 1, 2});
  CHECK(text_of(schedule, 0) == "F0 [>a0] F1 [>a1] [<g0] B0 [<g1] B1");
  CHECK(text_of(schedule, 1) == "[<a0] F0 [>a0] [<a1] F1 [>a1] [<g0] B0 [>g0] [<g1] B1 [>g1]");
  CHECK(text_of(schedule, 2) == "[<a0] F0 [<a1] F1 B0 [>g0] B1 [>g1]");
}

}  // namespace orrery
