// Plays a schedule without times: what can go on goes on; what is left when nothing can waits for ever.
#include <algorithm>

#include "strategies/schedule.hpp"

namespace orrery {
namespace {

std::string operation(const Schedule& schedule, StepKind kind, int part, int microbatch) {
  const char* letter = kind == StepKind::forward           ? "F"
                       : kind == StepKind::weight_gradient ? "W"
                       : schedule.split_backward           ? "I"
                                                           : "B";
  return std::to_string(part) + letter + std::to_string(microbatch);
}

// The operation whose result the message carries.
std::string operation(const Schedule& schedule, MessageId id) {
  const Message message = schedule.message(id);
  return operation(schedule, message.gradient ? StepKind::backward : StepKind::forward,
                   message.gradient ? message.boundary + 1 : message.boundary, message.microbatch);
}

class Player {
 public:
  explicit Player(const Schedule& schedule)
      : schedule_(schedule),
        next_(schedule.programs.size(), 0),
        waits_for_(schedule.programs.size()),
        sent_(static_cast<std::size_t>(schedule.message_count())),
        received_(static_cast<std::size_t>(schedule.message_count())),
        done_(3 * schedule.rank_of_part.size() * static_cast<std::size_t>(schedule.shape.microbatches)) {}

  std::optional<std::string> play() {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) ready_.push_back(rank);
    while (!ready_.empty()) {
      const std::size_t rank = ready_.back();
      ready_.pop_back();
      advance(rank);
      if (trouble_) return trouble_;
    }
    const auto stuck =
        std::find_if(waits_for_.begin(), waits_for_.end(), [](auto id) { return id.has_value(); });
    if (stuck == waits_for_.end()) return std::nullopt;
    return cycle(static_cast<std::size_t>(stuck - waits_for_.begin()));
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  void advance(std::size_t rank) {
    const std::vector<Step>& program = schedule_.programs[rank];
    for (; next_[rank] < program.size() && !trouble_; ++next_[rank]) {
      const Step& step = program[next_[rank]];
      if (step.kind == StepKind::exchange) post(step);
      waits_for_[rank] = missing_message(step);
      if (waits_for_[rank]) return;
      if (is_compute(step.kind)) compute(rank, step);
    }
  }

  // Both ends of an exchange post before either goes on; a computed result is sent whether or not anybody
  // waits.
  void post(const Step& step) {
    for (const MessageId id : step.awaits) mark(received_, id);
    for (const MessageId id : step.sends) mark(sent_, id);
  }

  [[nodiscard]] std::optional<MessageId> missing_message(const Step& step) const {
    for (const MessageId id : step.awaits) {
      if (!sent_[at(id)]) return id;
    }
    if (step.kind != StepKind::exchange) return std::nullopt;
    for (const MessageId id : step.sends) {
      if (!received_[at(id)]) return id;
    }
    return std::nullopt;
  }

  void compute(std::size_t rank, const Step& step) {
    const int part = schedule_.part(static_cast<int>(rank), step.chunk);
    const auto need = [&](StepKind kind, int from_part) {
      const bool elsewhere = from_part < 0 || from_part > schedule_.boundaries() ||
                             schedule_.rank_of_part[at(from_part)] != static_cast<int>(rank);
      if (elsewhere || done_[index(kind, from_part, step.microbatch)] || trouble_) return;
      trouble_ = "rank " + std::to_string(rank) + ": " +
                 operation(schedule_, step.kind, part, step.microbatch) + " comes before " +
                 operation(schedule_, kind, from_part, step.microbatch) + ", which it needs";
    };
    if (step.kind == StepKind::forward) need(StepKind::forward, part - 1);
    if (step.kind == StepKind::backward) {
      need(StepKind::forward, part);
      need(StepKind::backward, part + 1);
    }
    if (step.kind == StepKind::weight_gradient) need(StepKind::backward, part);
    done_[index(step.kind, part, step.microbatch)] = true;
    for (const MessageId id : step.sends) mark(sent_, id);
  }

  void mark(std::vector<bool>& flags, MessageId id) {
    if (flags[at(id)]) return;  // a rank that is woken posts its step again
    flags[at(id)] = true;
    const Message message = schedule_.message(id);
    for (const int end : {message.from_rank, message.to_rank}) {
      if (waits_for_[at(end)] == id) ready_.push_back(at(end));
    }
  }

  [[nodiscard]] std::size_t index(StepKind kind, int part, int microbatch) const {
    const std::size_t row = static_cast<std::size_t>(kind) * schedule_.rank_of_part.size() + at(part);
    return row * at(schedule_.shape.microbatches) + at(microbatch);
  }

  [[nodiscard]] std::size_t other_end(std::size_t rank) const {
    const Message message = schedule_.message(*waits_for_[rank]);
    return at(at(message.from_rank) == rank ? message.to_rank : message.from_rank);
  }

  [[nodiscard]] std::string where(std::size_t rank) const {
    const Step& step = schedule_.programs[rank][next_[rank]];
    const std::string who = "rank " + std::to_string(rank) + " at ";
    if (is_compute(step.kind)) {
      return who + operation(schedule_, step.kind, schedule_.part(static_cast<int>(rank), step.chunk),
                             step.microbatch);
    }
    std::string moved;
    for (const MessageList* list : {&step.sends, &step.awaits}) {
      for (const MessageId id : *list) moved += (moved.empty() ? "" : " and ") + operation(schedule_, id);
    }
    return who + "the exchange of " + moved;
  }

  // Every blocked rank waits for one other rank: following them from any ends in a circle, or at a rank that
  // is over.
  [[nodiscard]] std::string cycle(std::size_t rank) const {
    constexpr std::size_t kMostNamed = 16;
    for (std::size_t i = 0; i < next_.size() && waits_for_[rank]; ++i) rank = other_end(rank);
    if (!waits_for_[rank]) return never_sent();
    std::vector<std::size_t> ring{rank};
    for (std::size_t next = other_end(rank); next != rank; next = other_end(next)) ring.push_back(next);
    std::rotate(ring.begin(), std::min_element(ring.begin(), ring.end()), ring.end());
    std::string text;
    for (std::size_t i = 0; i < std::min(ring.size(), kMostNamed); ++i)
      text += (i > 0 ? "; " : "") + wait(ring[i]);
    if (ring.size() > kMostNamed) text += "; and so on over " + std::to_string(ring.size()) + " ranks";
    return text;
  }

  [[nodiscard]] std::string wait(std::size_t rank) const {
    const std::string result = operation(schedule_, *waits_for_[rank]);
    const std::string other = "rank " + std::to_string(other_end(rank));
    const bool sends = at(schedule_.message(*waits_for_[rank]).from_rank) == rank;
    return where(rank) + " waits for " + (sends ? other + " to receive " + result : result + " of " + other);
  }

  [[nodiscard]] std::string never_sent() const {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (waits_for_[rank] && !waits_for_[other_end(rank)]) return wait(rank) + ", which is at its end";
    }
    return "";
  }

  const Schedule& schedule_;
  std::vector<std::size_t> next_;                    // step of each rank
  std::vector<std::optional<MessageId>> waits_for_;  // of each rank
  std::vector<bool> sent_, received_;                // messages; received_: by exchanges only
  std::vector<bool> done_;                           // compute steps
  std::vector<std::size_t> ready_;
  std::optional<std::string> trouble_;
};

}  // namespace

std::optional<std::string> schedule_deadlock(const Schedule& schedule) {
  return Player(schedule).play();
}

}  // namespace orrery
