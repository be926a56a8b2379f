#include "strategies/strategy.hpp"

namespace orrery {

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

std::string_view to_text(RecomputeGranularity granularity) {
  switch (granularity) {
    case RecomputeGranularity::none:
      return "none";
    case RecomputeGranularity::selective:
      return "selective";
    case RecomputeGranularity::full:
      return "full";
  }
  return "";
}

std::string_view to_text(RecomputeMethod method) {
  switch (method) {
    case RecomputeMethod::uniform:
      return "uniform";
    case RecomputeMethod::block:
      return "block";
  }
  return "";
}

int ParallelStrategy::gpus() const {
  int count = 0;
  for (int stage = 0; stage < pipeline; ++stage) count += gpus_of_stage(stage) * data;
  return count;
}

}  // namespace orrery
