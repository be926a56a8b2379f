#include "strategies/schedule_file.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "platforms/errors.hpp"
#include "strategies/schedule_cells.hpp"
#include "strategies/task_order.hpp"

namespace orrery {
namespace {

using RankCells = std::vector<std::vector<Cell>>;

bool is_task(const Cell& cell) {
  return cell.kind != CellKind::transfer && cell.kind != CellKind::other;
}

// What the file has for one microbatch on one stage.
struct Operations {
  const Cell* forward = nullptr;
  const Cell* backward = nullptr;  // B or BW, or I
  const Cell* weight = nullptr;
  [[nodiscard]] bool split() const { return weight != nullptr; }
};

class FileReader {
 public:
  FileReader(const RankCells& ranks, const std::string& file) : ranks_(ranks), file_(file) {}

  Schedule read(TransferMode transfers) {
    Schedule schedule;
    schedule.shape = {ScheduleKind::from_file, transfers, static_cast<int>(ranks_.size())};
    lay_out_parts(schedule);
    collect_operations();
    check_complete(schedule);
    for (const auto& entry : operations_) schedule.split_backward |= entry.second.split();
    std::vector<TaskOrder> orders;
    for (const auto& cells : ranks_) orders.push_back(order_of(schedule, cells));
    name_phases(schedule, orders);
    return with_programs(std::move(schedule), orders);
  }

 private:
  [[noreturn]] void fail(const Cell& cell, const std::string& expected) const {
    throw InputError(place_of(cell, file_), quote_for_message(cell.text), expected);
  }

  void lay_out_parts(Schedule& schedule) const {
    std::map<int, const Cell*> first_of_stage;
    for (const auto& cells : ranks_) {
      for (const Cell& cell : cells) {
        if (!is_task(cell)) continue;
        const Cell& first = *first_of_stage.emplace(cell.stage, &cell).first->second;
        if (first.line == cell.line) continue;
        fail(cell, "stage " + std::to_string(cell.stage) + " on one rank; it is on rank " +
                       std::to_string(first.line - 1) + " as " + first.text);
      }
    }
    schedule.part_at.resize(ranks_.size());
    for (const auto& [stage, cell] : first_of_stage) {
      if (stage != static_cast<int>(schedule.rank_of_part.size())) {
        fail(*cell,
             "stages without gaps: no rank holds stage " + std::to_string(schedule.rank_of_part.size()));
      }
      auto& parts = schedule.part_at[static_cast<std::size_t>(cell->line - 1)];
      schedule.rank_of_part.push_back(cell->line - 1);
      schedule.chunk_of_part.push_back(static_cast<int>(parts.size()));
      parts.push_back(stage);
    }
    check_chunks(schedule);
    schedule.shape.chunks = static_cast<int>(schedule.part_at.front().size());
  }

  void check_chunks(const Schedule& schedule) const {
    const std::size_t chunks = schedule.part_at.front().size();
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::size_t found = schedule.part_at[rank].size();
      const std::string place = file_ + ":" + std::to_string(rank + 1);
      if (found == 0)
        throw InputError(place, "no operation", "the operations of rank " + std::to_string(rank));
      if (found != chunks || found > std::size_t{std::numeric_limits<std::int16_t>::max()}) {
        throw InputError(
            place, std::to_string(found) + " stages on rank " + std::to_string(rank),
            "as many stages on every rank (rank 0 has " + std::to_string(chunks) + "), 32767 at most");
      }
    }
    for (const auto& cells : ranks_) {
      for (const Cell& cell : cells) {
        const bool known = cell.stage < static_cast<int>(schedule.rank_of_part.size());
        if (!known || schedule.rank_of_part[static_cast<std::size_t>(cell.stage)] != cell.line - 1) {
          fail(cell, "an operation on a stage of rank " + std::to_string(cell.line - 1));
        }
      }
    }
  }

  void collect_operations() {
    for (const auto& cells : ranks_) {
      for (const Cell& cell : cells) {
        if (is_task(cell)) collect(cell);
      }
    }
  }

  void collect(const Cell& cell) {
    Operations& known = operations_[{cell.stage, cell.microbatch}];
    const bool weight = cell.kind == CellKind::weight_gradient;
    const Cell*& place = cell.kind == CellKind::forward ? known.forward
                         : weight                       ? known.weight
                                                        : known.backward;
    if (place != nullptr) {
      fail(cell,
           "each operation once; " + place->text + " is in cell " + std::to_string(place->column) + " too");
    }
    if (cell.kind != CellKind::forward && known.forward == nullptr) {
      fail(cell, std::to_string(cell.stage) + "F" + std::to_string(cell.microbatch) +
                     " before it on the same rank");
    }
    if (weight && known.backward == nullptr) {
      fail(cell, std::to_string(cell.stage) + "I" + std::to_string(cell.microbatch) +
                     " before it on the same rank");
    }
    if (weight && known.backward->kind == CellKind::full_backward) {
      fail(cell, "no W beside " + known.backward->text + ", which is both gradients");
    }
    place = &cell;
  }

  // Each microbatch on each stage: a file of n operations cannot make this loop longer than n.
  void check_complete(Schedule& schedule) const {
    int microbatches = 0;
    for (const auto& entry : operations_) microbatches = std::max(microbatches, entry.first.second + 1);
    for (std::size_t stage = 0; stage < schedule.rank_of_part.size(); ++stage) {
      for (int i = 0; i < microbatches; ++i) {
        const auto found = operations_.find({static_cast<int>(stage), i});
        const bool some = found != operations_.end();
        if (!some) fail_missing(schedule, stage, "F" + std::to_string(i));
        if (found->second.backward == nullptr) fail_missing(schedule, stage, "B" + std::to_string(i));
        if (found->second.backward->kind == CellKind::input_gradient && !found->second.split()) {
          fail_missing(schedule, stage, "W" + std::to_string(i));
        }
      }
    }
    schedule.shape.microbatches = microbatches;
  }

  [[noreturn]] void fail_missing(const Schedule& schedule, std::size_t stage, const std::string& what) const {
    const int rank = schedule.rank_of_part[stage];
    throw InputError(file_ + ":" + std::to_string(rank + 1),
                     "no " + std::to_string(stage) + what + " on rank " + std::to_string(rank),
                     "every microbatch forward and backward on every stage (an incomplete schedule)");
  }

  [[nodiscard]] TaskOrder order_of(const Schedule& schedule, const std::vector<Cell>& cells) const {
    TaskOrder order;
    for (const Cell& cell : cells) {
      if (!is_task(cell)) continue;
      const int chunk = schedule.chunk_of_part[static_cast<std::size_t>(cell.stage)];
      Task task{StepKind::forward, Phase::warmup, chunk, cell.microbatch};
      if (cell.kind == CellKind::weight_gradient) task.kind = StepKind::weight_gradient;
      if (cell.kind != CellKind::forward && cell.kind != CellKind::weight_gradient) {
        task.kind = StepKind::backward;
        task.whole = schedule.split_backward && !operations_.at({cell.stage, cell.microbatch}).split();
      }
      order.push_back(task);
      if (!task.whole) continue;
      task.kind = StepKind::weight_gradient;
      order.push_back(task);
    }
    return order;
  }

  const RankCells& ranks_;
  const std::string& file_;
  std::map<std::pair<int, int>, Operations> operations_;  // by stage and microbatch
};

}  // namespace

Schedule read_schedule_csv(std::string_view text, const std::string& file, TransferMode transfers) {
  if (transfers == TransferMode::blocking) {
    throw InputError(file, "blocking transfers", "eager or overlapped transfers with a schedule from a file");
  }
  const RankCells ranks = read_schedule_cells(text, file);
  Schedule schedule = FileReader(ranks, file).read(transfers);
  if (const auto deadlock = schedule_deadlock(schedule)) {
    throw InputError(file, *deadlock, "an order in which every operation comes after those that it needs");
  }
  return schedule;
}

std::string to_csv(const Schedule& schedule) {
  std::string text;
  for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
    std::string line;
    std::vector<Step> steps;
    std::copy_if(schedule.programs[rank].begin(), schedule.programs[rank].end(), std::back_inserter(steps),
                 [](const Step& step) { return is_compute(step.kind); });
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      // A weight gradient that sends is half of a backward that is whole; see Task::whole.
      const bool whole = step.kind == StepKind::backward && i + 1 < steps.size() &&
                         steps[i + 1].sends.count > 0 && steps[i + 1].kind == StepKind::weight_gradient;
      const char* backward = schedule.split_backward && !whole ? "I" : "B";
      const char* action = step.kind == StepKind::forward    ? "F"
                           : step.kind == StepKind::backward ? backward
                                                             : "W";
      line += (line.empty() ? "" : ",") + std::to_string(schedule.part(static_cast<int>(rank), step.chunk)) +
              action + std::to_string(step.microbatch);
      if (whole) ++i;
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace orrery
