#include "sim/commands/what_if.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <utility>

#include "platforms/yaml.hpp"
#include "strategies/schedule_file.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostIterations = 1000;

void slow_down(PricedPlan& plan, const SlowGpu& slow, const std::string& text) {
  const bool known = slow.stage < plan.stages() && slow.replica.value_or(0) < plan.replicas;
  if (!known) {
    throw InputError("--slow", "'" + text + "'",
                     "a stage below " + std::to_string(plan.stages()) + " and a replica below " +
                         std::to_string(plan.replicas));
  }
  if (slow.from_iteration >= plan.iterations)
    throw InputError(
        "--slow", "'" + text + "', from iteration " + std::to_string(slow.from_iteration),
        "an iteration below the " + std::to_string(plan.iterations) + " that are played (--iterations)");
  const bool several_starts = !plan.slowness.empty() && plan.slow_from != slow.from_iteration;
  if (several_starts) throw InputError("--slow", "'" + text + "'", "one first iteration for all slow GPUs");
  plan.slow_from = slow.from_iteration;
  plan.slowness.resize(plan.gpus.size(), 1.0);
  for (int replica = 0; replica < plan.replicas; ++replica) {
    if (slow.replica && *slow.replica != replica) continue;
    plan.slowness[static_cast<std::size_t>(replica * plan.stages() + slow.stage)] *= slow.factor;
  }
}

void use_schedule_file(PricedPlan& plan, const std::string& path, TransferMode transfers) {
  if (!plan.replica_microbatches.empty())
    throw InputError("--schedule-file", "a plan whose replicas have unequal microbatches",
                     "equal replicas: the file holds one order of operations for all");
  Schedule schedule = read_schedule_csv(read_text_file(path), path, transfers);
  const bool fits = schedule.shape.ranks == plan.schedule.ranks &&
                    schedule.shape.chunks == plan.schedule.chunks &&
                    schedule.shape.microbatches == plan.schedule.microbatches;
  if (!fits) {
    const auto shape = [](const ScheduleShape& of) {
      return std::to_string(of.ranks) + " ranks of " + std::to_string(of.chunks) + " chunks with " +
             std::to_string(of.microbatches) + " microbatches";
    };
    throw InputError(path, shape(schedule.shape), shape(plan.schedule) + ", as the plan has");
  }
  const bool in_parts = std::all_of(plan.parts.begin(), plan.parts.end(),
                                    [](const PartTimes& part) { return part.weight_gradient.value() > 0; });
  if (schedule.split_backward && !in_parts) {
    throw InputError(path, "a backward in two parts (I and W)",
                     "a plan whose schedule splits the backward (zb-h1), or durations with a weight_gradient "
                     "in every row");
  }
  if (!schedule.split_backward) {
    for (PartTimes& part : plan.parts) {
      PlayedPiece weights;
      weights.compute = std::exchange(part.weight_gradient, Seconds(0));
      weights.flops = std::exchange(part.weight_gradient_flops, Flops(0));
      part.backward += weights.compute;
      part.backward_flops += weights.flops;
      if (!part.backward_pieces.empty()) part.backward_pieces.push_back(weights);
    }
  }
  plan.schedule = schedule.shape;
  plan.given_schedule = std::move(schedule);
}

}  // namespace

SlowGpu parse_slow_gpu(const std::string& text, const std::string& place) {
  static const std::regex form(R"((\d{1,6})(?:\.(\d{1,6}))?=(\d{1,6}(?:\.\d{1,9})?)(?:@(\d{1,6}))?)");
  std::smatch match;
  if (!std::regex_match(text, match, form)) {
    throw InputError(place, "'" + text + "'",
                     "STAGE=FACTOR, STAGE.REPLICA=FACTOR or STAGE.REPLICA=FACTOR@ITERATION");
  }
  SlowGpu slow;
  slow.stage = std::stoi(match[1]);
  if (match[2].matched) slow.replica = std::stoi(match[2]);
  slow.factor = std::stod(match[3]);
  if (match[4].matched) slow.from_iteration = std::stoi(match[4]);
  if (!(slow.factor > 0)) throw InputError(place, "'" + text + "'", "a factor above zero");
  return slow;
}

void declare_what_ifs(CommandLine& line) {
  line.value("iterations", "N",
             "iterations played one after another; times are of the steady state (1, or 2 where iterations "
             "overlap)")
      .values("slow", "S[.R]=F[@I]",
              "stage S [of replica R] takes F times as long [from iteration I, of --iterations, the first "
              "being 0]; may be repeated")
      .value("jitter", "SIGMA",
             "log-normal noise on every duration: deviation of its logarithm, such as 0.03")
      .value("runs", "N", "replays with other noise; mean, deviation and quantiles of the iteration (1)")
      .value("algorithm", "NAME",
             "of gradient collectives: ring, double_binary_tree, hierarchical, direct (NCCL's choice)")
      .value("schedule-file", "FILE",
             "order of operations of each rank, as torch.distributed.pipelining writes it (CSV)");
}

void apply_what_ifs(const CommandLine& line, PricedPlan& plan) {
  plan.iterations = static_cast<int>(line.integer("iterations", 1, kMostIterations, plan.iterations));
  if (const auto file = line.text("schedule-file")) {
    const bool blocking = plan.schedule.transfers == TransferMode::blocking;
    use_schedule_file(plan, *file, blocking ? TransferMode::overlapped : plan.schedule.transfers);
    if (blocking && !line.quiet()) {
      std::fputs(
          "orrery: --schedule-file: transfers are played overlapped, which its order may need; the plan has "
          "them blocking\n",
          stderr);
    }
  }
  for (const std::string& text : line.list("slow")) slow_down(plan, parse_slow_gpu(text, "--slow"), text);
  if (const auto name = line.text("algorithm"))
    plan.algorithm = parse_collective_algorithm(*name, "--algorithm");
  plan.jitter = line.number("jitter", 0, 2).value_or(plan.jitter);
  plan.seed = line.seed();
}

}  // namespace orrery
