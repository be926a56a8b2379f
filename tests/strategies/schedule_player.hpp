// Plays a schedule by raising start times until nothing moves: an oracle that shares no code with the
// estimator.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "strategies/schedule.hpp"

namespace orrery::test {

// Times in any unit: of every part's forward, backward (without what the weights take where that is split
// off) and weight gradient, and of a message over every boundary.
struct PlayTimes {
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> weight;
  std::vector<double> transfer;

  [[nodiscard]] double of(StepKind kind, std::size_t part) const {
    if (kind == StepKind::forward) return forward[part];
    return kind == StepKind::backward ? backward[part] : weight[part];
  }
};

struct Played {
  std::vector<std::vector<double>> start;  // [rank][step]
  std::vector<std::vector<double>> end;

  [[nodiscard]] double end_of(std::size_t rank) const { return end[rank].empty() ? 0.0 : end[rank].back(); }
  [[nodiscard]] double makespan() const {
    double latest = 0;
    for (std::size_t rank = 0; rank < end.size(); ++rank) latest = std::max(latest, end_of(rank));
    return latest;
  }
};

class Player {
 public:
  Player(const Schedule& schedule, const PlayTimes& times) : schedule_(schedule), times_(times) {
    const auto messages = static_cast<std::size_t>(schedule.message_count());
    posted_.assign(messages, 0.0);
    arrived_.assign(messages, 0.0);
    for (const auto& program : schedule.programs) {
      played_.start.emplace_back(program.size(), 0.0);
      played_.end.emplace_back(program.size(), 0.0);
      steps_ += program.size();
    }
  }

  // Absent when the ranks wait for each other for ever: with times above zero a cycle rises without end,
  // while the longest path without one has at most all steps on it.
  std::optional<Played> play() {
    for (std::size_t sweep = 0; sweep <= 2 * steps_ + 1; ++sweep) {
      moved_ = false;
      for (std::size_t rank = 0; rank < schedule_.programs.size(); ++rank) sweep_rank(rank);
      if (!moved_) return played_;
    }
    return std::nullopt;
  }

 private:
  void raise(double& value, double to) {
    if (to <= value) return;
    value = to;
    moved_ = true;
  }

  [[nodiscard]] double transfer(MessageId id) const {
    return times_.transfer[static_cast<std::size_t>(schedule_.message(id).boundary)];
  }

  void sweep_rank(std::size_t rank) {
    double before = 0;
    for (std::size_t i = 0; i < schedule_.programs[rank].size(); ++i) {
      const Step& step = schedule_.programs[rank][i];
      double& start = played_.start[rank][i];
      double& end = played_.end[rank][i];
      raise(start, before);
      if (step.kind == StepKind::exchange) {
        exchange(step, start, end);
      } else {
        compute(rank, step, start, end);
      }
      before = end;
    }
  }

  void compute(std::size_t rank, const Step& step, double& start, double& end) {
    for (const MessageId id : step.awaits) raise(start, arrived_[static_cast<std::size_t>(id)]);
    const auto part = static_cast<std::size_t>(schedule_.part(static_cast<int>(rank), step.chunk));
    raise(end, start + times_.of(step.kind, part));
    for (const MessageId id : step.sends) raise(arrived_[static_cast<std::size_t>(id)], end + transfer(id));
  }

  void exchange(const Step& step, double start, double& end) {
    raise(end, start);
    for (const MessageList* list : {&step.sends, &step.awaits}) {
      for (const MessageId id : *list) {
        raise(posted_[static_cast<std::size_t>(id)], start);  // by the later of the two ends
        raise(arrived_[static_cast<std::size_t>(id)], posted_[static_cast<std::size_t>(id)] + transfer(id));
        raise(end, arrived_[static_cast<std::size_t>(id)]);
      }
    }
  }

  const Schedule& schedule_;
  const PlayTimes& times_;
  std::vector<double> posted_, arrived_;
  Played played_;
  std::size_t steps_ = 0;
  bool moved_ = false;
};

inline std::optional<Played> play(const Schedule& schedule, const PlayTimes& times) {
  return Player(schedule, times).play();
}

// Equal parts and free transfers. `weight` is only played where the backward is split.
inline PlayTimes equal_times(const Schedule& schedule, double forward, double backward, double weight = 0) {
  const auto parts = static_cast<std::size_t>(schedule.boundaries() + 1);
  return {std::vector(parts, forward), std::vector(parts, backward), std::vector(parts, weight),
          std::vector(parts - 1, 0.0)};
}

// A column a unit of time (times are whole numbers). Forward 0-9, then A-Z by microbatch; backward a-z. Where
// the backward is split: weight gradient A-Z (up to 10 microbatches). With chunks, a second row names the
// chunk. Without times a forward takes one column and a backward two, or one and one for its weight gradient.
inline std::string picture(const Schedule& schedule, const PlayTimes& times) {
  const Played played = play(schedule, times).value();
  std::string text;
  for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
    std::string row(static_cast<std::size_t>(played.makespan()), '.');
    std::string chunks = row;
    for (std::size_t i = 0; i < schedule.programs[rank].size(); ++i) {
      const Step& step = schedule.programs[rank][i];
      int digit = step.microbatch < 10 ? '0' : 'A' - 10;
      if (step.kind == StepKind::backward) digit = 'a';
      if (step.kind == StepKind::weight_gradient) digit = 'A';
      for (auto column = static_cast<std::size_t>(played.start[rank][i]);
           column < static_cast<std::size_t>(played.end[rank][i]); ++column) {
        row[column] = static_cast<char>(digit + step.microbatch);
        chunks[column] = static_cast<char>('0' + step.chunk);
      }
    }
    text += "stage " + std::to_string(rank) + "  " + row + "\n";
    if (schedule.shape.chunks > 1) text += "  chunk  " + chunks + "\n";
  }
  return text;
}

inline std::string picture(const Schedule& schedule) {
  return picture(schedule, equal_times(schedule, 1, schedule.split_backward ? 1 : 2, 1));
}

inline std::string describe(const ScheduleShape& shape) {
  return std::string(to_text(shape.kind)) + " " + std::string(to_text(shape.transfers)) +
         " P=" + std::to_string(shape.ranks) + " v=" + std::to_string(shape.chunks) +
         " M=" + std::to_string(shape.microbatches) +
         (shape.microbatch_group > 0 ? " G=" + std::to_string(shape.microbatch_group) : "");
}

}  // namespace orrery::test
