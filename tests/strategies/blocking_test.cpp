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
    const std::string boundary = schedule.shape.chunks > 1 ? std::to_string(message.boundary) + "." : "";
    return std::string(1, arrow) + (message.gradient ? 'g' : 'a') + boundary +
           std::to_string(message.microbatch);
  };
  const bool parts = schedule.shape.chunks > 1;  // then chunk and boundary are named: F1.3, >a2.3
  for (const Step& step : schedule.programs[static_cast<std::size_t>(rank)]) {
    std::string word;
    if (step.kind == StepKind::exchange) {
      for (const MessageId id : step.sends) word += (word.empty() ? "" : " ") + name('>', id);
      for (const MessageId id : step.awaits) word += (word.empty() ? "" : " ") + name('<', id);
      word = "[" + word + "]";
    } else {
      const std::string chunk = parts ? std::to_string(step.chunk) + "." : "";
      word = (step.kind == StepKind::forward ? "F" : "B") + chunk + std::to_string(step.microbatch);
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

// forward_backward_pipelining_with_interleaving without overlap_p2p_comm, of groups of as many microbatches
// as stages. k counts the forwards, or backwards, of a rank over all its chunks.
class InterleavedMegatron {
 public:
  InterleavedMegatron(int ranks, int chunks, int microbatches, int rank)
      : ranks_(ranks), chunks_(chunks), rank_(rank), total_(microbatches * chunks) {
    const int warmup = std::min(total_, 2 * (ranks - rank - 1) + (chunks - 1) * ranks);
    if (rank > 0) call({"<" + activation(-1, 0)});
    for (int k = 0; k < warmup; ++k) {
      word("F" + task(k, true));
      const bool more = k + 1 < total_;
      const bool gradient = k + 1 == warmup && warmup < total_ && !last();
      call({sent(k, true), more ? received(k, true) : "", gradient ? "<" + gradient_below(0) : ""});
    }
    for (int k = 0; warmup + k < total_; ++k) {
      word("F" + task(warmup + k, true));
      word("B" + task(k, false));
      const bool more = warmup + k + 1 < total_;
      call({sent(warmup + k, true), sent(k, false), more ? received(warmup + k, true) : "",
            received(k, false)});
    }
    if (warmup == total_ && !last()) call({"<" + gradient_below(0)});
    for (int k = total_ - warmup; k < total_; ++k) {
      word("B" + task(k, false));
      call({sent(k, false), k + 1 < total_ ? received(k, false) : ""});
    }
  }
  std::string text;

 private:
  [[nodiscard]] bool last() const { return rank_ == ranks_ - 1; }
  [[nodiscard]] int chunk(int k, bool forward) const {
    const int position = k % (ranks_ * chunks_) / ranks_;
    return forward ? position : chunks_ - 1 - position;
  }
  [[nodiscard]] int microbatch(int k) const { return k / (ranks_ * chunks_) * ranks_ + k % ranks_; }
  [[nodiscard]] std::string task(int k, bool forward) const {
    return std::to_string(chunk(k, forward)) + "." + std::to_string(microbatch(k));
  }
  // Named by the boundary that is crossed: the one below part p is p.
  [[nodiscard]] std::string message(char what, int boundary, int k) const {
    return what + std::to_string(boundary) + "." + std::to_string(microbatch(k));
  }
  // What forward k + 1 needs: `step` -1 names the first.
  [[nodiscard]] std::string activation(int step, int k) const {
    return message('a', chunk(k, true) * ranks_ + rank_ + step, k);
  }
  [[nodiscard]] std::string gradient_below(int k) const {
    return message('g', chunk(k, false) * ranks_ + rank_, k);
  }
  [[nodiscard]] std::string sent(int k, bool forward) const {
    const int part = chunk(k, forward) * ranks_ + rank_;
    if (forward) return part == ranks_ * chunks_ - 1 ? "" : ">" + message('a', part, k);
    return part == 0 ? "" : ">" + message('g', part - 1, k);
  }
  // recv_tensor_from_previous_stage: the rank at the head waits for what the rank at the tail does ranks - 1
  // turns earlier, unless that is the end of the way.
  [[nodiscard]] std::string received(int k, bool forward) const {
    const bool leading = forward ? rank_ == 0 : last();
    if (!leading) {
      if (k + 1 >= total_) return "";
      return "<" + (forward ? activation(-1, k + 1) : gradient_below(k + 1));
    }
    const int source = k - (ranks_ - 1);
    if (source < 0) return "";
    const int end_of_way = forward ? chunks_ - 1 : 0;
    if (chunk(source, forward) == end_of_way) return "";
    const int boundary = forward ? (chunk(source, true) + 1) * ranks_ - 1 : chunk(source, false) * ranks_ - 1;
    return "<" + message(forward ? 'a' : 'g', boundary, source);
  }
  void word(const std::string& next) { text += (text.empty() ? "" : " ") + next; }
  void call(const std::vector<std::string>& messages) {
    std::string sum;
    for (const std::string& each : messages) sum += (sum.empty() || each.empty() ? "" : " ") + each;
    if (!sum.empty()) word("[" + sum + "]");
  }

  int ranks_, chunks_, rank_, total_;
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

TEST_CASE("blocking interleaved makes one call a turn, as Megatron-LM does") {
  for (int ranks = 2; ranks <= 6; ++ranks) {
    for (int chunks = 2; chunks <= 4; ++chunks) {
      for (int microbatches = ranks; microbatches <= 4 * ranks; microbatches += ranks) {
        const ScheduleShape shape{ScheduleKind::interleaved, TransferMode::blocking, ranks, chunks,
                                  microbatches};
        const Schedule schedule = make_schedule(shape);
        INFO(test::describe(shape));
        REQUIRE_FALSE(schedule_deadlock(schedule));
        for (int rank = 0; rank < ranks; ++rank) {
          INFO("rank " << rank);
          REQUIRE(text_of(schedule, rank) == InterleavedMegatron(ranks, chunks, microbatches, rank).text);
        }
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
