#include "sim/commands/commands.hpp"

namespace orrery {

const std::vector<Command>& commands() {
  static const std::vector<Command> all{
      {"search", "the best plans for a model on a cluster, priced and replayed", run_search},
      {"replay", "one plan, or stage durations given by hand, played event by event", run_replay_command},
      {"report", "one HTML page from traces", run_report},
      {"export", "a trace for another tool: perfetto, chakra, paje, csv", run_export},
      {"compare", "analytical estimators against the replay, or two plans side by side", run_compare},
      {"launch", "Megatron-LM arguments and a torchrun script from a plan", run_launch},
      {"catalog", "built-in gpus, instances, models, clusters, stacks, schedules, estimators", run_catalog},
      {"validate", "predicted against published runs: error by group", run_validate},
      {"calibrate", "a stack fitted to runs of your own, with a narrower interval", run_calibrate},
      {"profile", "the operators of training measured on the GPUs of this machine", run_profile},
      {"fit", "efficiency models from measured operators", run_fit},
  };
  return all;
}

}  // namespace orrery
