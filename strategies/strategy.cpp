#include "strategies/strategy.hpp"

#include "platforms/errors.hpp"

namespace orrery {

void mark_ends(std::vector<LayerRange>& parts) {
  if (parts.size() < 2) return;
  if (parts.front().count == 0) parts[1].without_embedding = true;
  if (parts.back().count == 0) parts[parts.size() - 2].without_head = true;
}

bool experts_spread_evenly(int sharing, int context, int data) {
  return sharing % context == 0 ? data % (sharing / context) == 0 : context % sharing == 0;
}

std::string_view to_text(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::gpipe:
      return "gpipe";
    case ScheduleKind::one_f_one_b:
      return "1f1b";
    case ScheduleKind::interleaved:
      return "interleaved";
    case ScheduleKind::zb_h1:
      return "zb-h1";
    case ScheduleKind::zb_h2:
      return "zb-h2";
    case ScheduleKind::zb_v:
      return "zb-v";
    case ScheduleKind::from_file:
      return "file";
  }
  return "";
}

std::string_view to_text(TransferMode mode) {
  switch (mode) {
    case TransferMode::eager:
      return "eager";
    case TransferMode::blocking:
      return "blocking";
    case TransferMode::overlapped:
      return "overlapped";
  }
  return "";
}

std::string_view to_text(RankOrder order) {
  switch (order) {
    case RankOrder::cp_dp_pp:
      return "tp-cp-ep-dp-pp";
    case RankOrder::cp_pp_dp:
      return "tp-cp-ep-pp-dp";
    case RankOrder::dp_cp_pp:
      return "tp-ep-dp-cp-pp";
    case RankOrder::dp_pp_cp:
      return "tp-ep-dp-pp-cp";
    case RankOrder::pp_cp_dp:
      return "tp-pp-cp-ep-dp";
    case RankOrder::pp_dp_cp:
      return "tp-pp-ep-dp-cp";
  }
  return "";
}

int ParallelStrategy::gpus() const {
  int count = 0;
  for (int stage = 0; stage < pipeline; ++stage) count += gpus_of_stage(stage) * data;
  return count;
}

int ParallelStrategy::replicas_of_kind(int kind) const {
  return replicas.empty() ? data : replicas[static_cast<std::size_t>(kind)].count;
}

std::vector<int> ParallelStrategy::kind_of_replica() const {
  std::vector<int> result;
  for (int kind = 0; kind < kinds(); ++kind)
    result.insert(result.end(), static_cast<std::size_t>(replicas_of_kind(kind)), kind);
  return result;
}

ParallelStrategy ParallelStrategy::of_kind(int kind) const {
  ParallelStrategy alike = *this;
  if (replicas.empty()) return alike;
  const ReplicaKind& replica = replicas[static_cast<std::size_t>(kind)];
  alike.replicas.clear();
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    alike.stages[stage].group = replica.groups[stage];
  alike.global_batch = replica.microbatches * micro_batch * data;
  return alike;
}

}  // namespace orrery
