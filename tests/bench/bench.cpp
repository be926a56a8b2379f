// Times the things that must be fast, each in a process of its own, and prints a table with memory.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>

#include "analysis/table.hpp"
#include "costmodels/estimate/estimate.hpp"
#include "costmodels/stacks/stack_file.hpp"
#include "sim/bounds/feasibility.hpp"
#include "sim/replay/children.hpp"
#include "sim/replay/durations.hpp"
#include "sim/replay/replay.hpp"
#include "sim/replay/run_replay.hpp"
#include "sim/search/search.hpp"
#include "strategies/enumerate.hpp"
#include "strategies/obstacles.hpp"
#include "traces/trace.hpp"

namespace orrery {
namespace {

struct Sample {
  double wall_s = 0;
  double cpu_s = 0;
  double memory_mb = 0;  // peak of the largest process, 1e6 bytes
  double work = 0;       // what was done, in the unit of the row
};

struct Row {
  std::string name;
  std::string unit;                       // of Sample::work
  std::function<double()> run;            // returns the amount of work
  std::string bar;                        // figure to meet or beat
  std::function<void()> prepare = [] {};  // before each run, not timed
};

double cpu_seconds(const rusage& usage) {
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string measured(const std::function<double()>& run) {
  Sample sample;
  const auto start = std::chrono::steady_clock::now();
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  const double cpu_before = cpu_seconds(before);
  sample.work = run();
  sample.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  rusage own{}, of_children{};
  ::getrusage(RUSAGE_SELF, &own);
  ::getrusage(RUSAGE_CHILDREN, &of_children);
  sample.cpu_s = cpu_seconds(own) + cpu_seconds(of_children) - cpu_before;
  sample.memory_mb = static_cast<double>(std::max(own.ru_maxrss, of_children.ru_maxrss)) * 1024 / 1e6;
  return std::string(reinterpret_cast<const char*>(&sample), sizeof sample);
}

// The run with the median wall time.
Sample median(const Row& row, int runs) {
  std::vector<Sample> samples;
  for (int i = 0; i < runs; ++i) {
    Sample sample;
    const auto task = [&] {
      row.prepare();
      return measured(row.run);
    };
    const std::string bytes = run_in_children({task}, 1).front();
    std::memcpy(&sample, bytes.data(), sizeof sample);
    samples.push_back(sample);
  }
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return a.wall_s < b.wall_s; });
  return samples[samples.size() / 2];
}

// SEMANTICS 6: F 1 ms, BW 2 ms, 16 MiB messages, one NIC of 50 GiB/s and 1 us a rank.
DurationsPlan pipe(int stages, int replicas, int microbatches, const std::string& more) {
  std::string yaml = "schedule: 1f1b\np2p: eager\nmicrobatches: " + std::to_string(microbatches) +
                     "\nreplicas: " + std::to_string(replicas) +
                     "\nmessage: 16MiB\nlink: {bandwidth: 53687091200Bps, latency: 1us}\n" + more +
                     "stages:\n";
  for (int stage = 0; stage < stages; ++stage) yaml += "  - {forward: 1ms, backward: 2ms}\n";
  return parse_durations(yaml, "bench");
}

double play(const PricedPlan& plan, const Topology& topology, Folding folding) {
  const PlanPrograms programs = make_programs(plan);
  const TrafficFlows flows(plan, programs, topology, folding);
  const Replay played = replay(plan, programs, topology, flows, {});
  static_cast<void>(account(played.timeline));
  double ranks = 0;
  for (const RankInfo& rank : played.timeline.ranks) ranks += rank.gpus;
  return ranks;
}

double play(const DurationsPlan& given, Folding folding) {
  return play(given.plan, given.topology, folding);
}

// Llama-3-405B on 8 x `nodes` H100: tensor 8, pipeline 16 (8 on fewer nodes), batch of 16 sequences a
// replica; priced by the cost models.
struct LargePlan {
  PricedPlan plan;
  Topology topology;
};
ClusterSpec h100_nodes(int nodes) {
  return parse_cluster(
      "name: large\ngroups:\n  - {name: h100, gpu: H100, gpus_per_node: 8, count: " + std::to_string(nodes) +
          ", nics_per_node: 8, nic_bandwidth: 400Gbps, nic_latency: 2us}\n",
      "bench");
}
LargePlan large_plan(int nodes) {
  const ModelSpec model = read_model("llama3-405b");
  const ClusterSpec cluster = h100_nodes(nodes);
  ParallelStrategy strategy;
  strategy.pipeline = std::min(16, nodes);
  strategy.data = nodes / strategy.pipeline;
  strategy.global_batch = 16 * strategy.data;
  strategy.sequence = 8192;
  strategy.sequence_parallel = true;
  strategy.distributed_optimizer = true;
  strategy.stages.assign(static_cast<std::size_t>(strategy.pipeline), {0, 8});
  strategy.nodes = {nodes};
  const int share = 128 / strategy.pipeline;
  for (int stage = 0, first = 0; stage < strategy.pipeline; ++stage) {
    // Embedding and head count as a layer each: 126 + 2.
    const int layers = stage == 0 || stage == strategy.pipeline - 1 ? share - 1 : share;
    strategy.parts.push_back({first, layers});
    first += layers;
  }
  PriceBook book(model, cluster, {strategy.type, true, strategy.sequence});
  book.need(strategy);
  static_cast<void>(book.predict(CostModels::built_in()));
  Topology topology(cluster, strategy.nodes);
  PricedPlan plan = book.price(strategy, topology);
  return {std::move(plan), std::move(topology)};
}

std::vector<Allocation> all_allocations(const SearchJob& job) {
  std::vector<Allocation> all;
  const std::vector<int> alike = groups_alike(job.cluster);
  for (const Ways& ways : all_ways(job.cluster, job.space, job.mode, job.global_batch)) {
    for_each_stage_counts(job.cluster, job.space, job.mode, ways, [&](const StageCounts& stages) {
      const std::vector<Allocation> found = orders(job.cluster, alike, ways, stages);
      all.insert(all.end(), found.begin(), found.end());
    });
  }
  return all;
}

// The fastest plans, by the closed form of their pipelines, of all that fit Llama-2-70B on 64 nodes of 8 H100
// below one switch: what a search would replay.
class Candidates {
 public:
  explicit Candidates(std::size_t count)
      : job_(job()), book_(job_.model, job_.cluster, {job_.type, true, job_.sequence}) {
    std::vector<ParallelStrategy> shaped = all_shaped();
    static_cast<void>(book_.predict(CostModels::built_in()));
    std::vector<std::pair<double, ParallelStrategy>> fastest;
    StageFitter fitter(book_);
    for (ParallelStrategy& strategy : shaped) {
      if (!std::holds_alternative<FittedStages>(fitter.fit(strategy))) continue;
      const ReplicaPace pace = book_.replica_paces(strategy).front();
      const double time = pace.fill + pace.each * static_cast<double>(strategy.microbatches());
      fastest.emplace_back(time, std::move(strategy));
    }
    std::stable_sort(fastest.begin(), fastest.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    fastest.resize(std::min(count, fastest.size()));
    for (auto& [time, strategy] : fastest) plans_.push_back(std::move(strategy));
  }

  // Each in a child, two at once, folded.
  [[nodiscard]] double replay() const {
    std::vector<ChildTask> tasks;
    for (const ParallelStrategy& plan : plans_) {
      tasks.push_back([&] {
        static_cast<void>(play(book_.price(plan, topology_), topology_, Folding::on));
        return std::string("x");
      });
    }
    return static_cast<double>(run_in_children(tasks, 2).size());
  }

  // One after another, nothing kept from one to the next.
  [[nodiscard]] double estimate() const {
    double plans = 0;
    for (const ParallelStrategy& plan : plans_) {
      const PricedPlan priced = book_.price(plan, topology_);
      if (estimate_iteration(priced, make_programs(priced), topology_).value() > 0) ++plans;
    }
    return plans;
  }

 private:
  static SearchJob job() {
    SearchJob job;
    job.model = read_model("llama2-70b");
    job.cluster = h100_nodes(64);
    job.global_batch = 1024;
    job.sequence = 4096;
    return job;
  }

  std::vector<ParallelStrategy> all_shaped() {
    std::vector<ParallelStrategy> shaped;
    const std::vector<Setting> choices = settings(job_.space);
    for (const Allocation& allocation : all_allocations(job_)) {
      for (const Setting& setting : choices) {
        if (shape_obstacle(job_.model, job_.cluster, allocation, setting, job_.global_batch, job_.sequence))
          continue;
        shaped.push_back(strategy_of(allocation, setting, job_.global_batch, job_.sequence, job_.type));
        if (shaped.back().gpus() == 512)
          book_.need(shaped.back());
        else
          shaped.pop_back();
      }
    }
    return shaped;
  }

  SearchJob job_;
  PriceBook book_;
  Topology topology_{job_.cluster, {64}};
  std::vector<ParallelStrategy> plans_;
};

SearchJob demo_job() {
  SearchJob job;
  job.model = read_model("llama2-70b");
  job.cluster = read_cluster("demo-a100-h100");
  job.global_batch = 1024;
  job.sequence = 4096;
  job.total_tokens = 1e12;
  return job;
}

SearchSpaceCounts counts_of(const SearchJob& job) {
  std::vector<Rule> rules;
  PriceBook book(job.model, job.cluster,
                 {job.type, true, job.sequence, read_stack(std::string(kDefaultStack))});
  return search(job, rules, CostModels::built_in(), book, [](const std::string&, std::size_t, std::size_t) {})
      .counts;
}

// Candidates in all, most of which a bound drops many at once.
double search_of(const SearchJob& job) {
  return static_cast<double>(counts_of(job).enumerated);
}

// Plans that went through the exact recurrence, one by one.
double estimates_of(const SearchJob& job) {
  return static_cast<double>(counts_of(job).estimated);
}

// Llama-2-70B, global batch 2048, on any number of nodes of 8 GPUs up to `nodes` of each kind.
SearchJob large_search(const std::vector<std::string>& instances, int nodes) {
  SearchJob job;
  job.model = read_model("llama2-70b");
  std::string yaml = "name: large\ngroups:\n";
  for (std::size_t i = 0; i < instances.size(); ++i) {
    yaml += "  - {name: kind" + std::to_string(i) + ", instance: " + instances[i] + ", count: 0.." +
            std::to_string(nodes) + "}\n";
  }
  job.cluster = parse_cluster(yaml, "bench");
  job.mode = instances.size() > 1 ? SearchMode::heterogeneous : SearchMode::homogeneous;
  job.global_batch = 2048;
  job.sequence = 4096;
  job.total_tokens = 1e12;
  return job;
}

SearchJob one_nic_job() {
  SearchJob job;
  job.model = read_model("llama2-70b");
  job.cluster = parse_cluster(
      "name: one-nic\ngroups:\n  - {name: v100, instance: p3.16xlarge, count: 64}\n"
      "  - {name: t4, instance: g4dn.metal, count: 32}\n",
      "bench");
  job.mode = SearchMode::heterogeneous;
  job.type = DataType::fp16;
  job.global_batch = 1024;
  job.sequence = 4096;
  return job;
}

void add_searches(std::vector<Row>& rows) {
  const std::string peers = " (plans / CPU s: AMP 0.2, Metis 250, Sailor 460)";
  rows.push_back(
      {"search of the demo, without replays", "candidates", [] { return search_of(demo_job()); }, ""});
  for (const int nodes : {8, 64, 512}) {
    rows.push_back({"search of Llama-2-70B on up to " + std::to_string(8 * nodes) + " H100", "candidates",
                    [nodes] { return search_of(large_search({"Standard_ND96isr_H100_v5"}, nodes)); },
                    nodes == 512 ? "0.5 s, 500 MB, 200,000 candidates / CPU s" + peers : ""});
  }
  rows.push_back({"the same search", "estimated plans",
                  [] { return estimates_of(large_search({"Standard_ND96isr_H100_v5"}, 512)); }, ""});
  auto plans = std::make_shared<std::optional<Candidates>>();
  rows.push_back({"200 plans of 512 GPUs priced and estimated one by one", "plans",
                  [plans] { return (*plans)->estimate(); }, "", [plans] { plans->emplace(200); }});
  const std::vector<std::string> kinds{"Standard_ND96amsr_A100_v4", "Standard_ND96isr_H100_v5",
                                       "p5en.48xlarge"};
  for (const int nodes : {3, 21, 171}) {
    rows.push_back({"search of Llama-2-70B on up to " + std::to_string(24 * nodes) + " GPUs of three kinds",
                    "candidates", [=] { return search_of(large_search(kinds, nodes)); },
                    nodes == 171 ? "5 s, 500 MB (Astra's paper: 81 s)" : ""});
  }
  // Replicas and stages meet on the NIC of a node, so that bounds are far below what plans take.
  rows.push_back({"search of Llama-2-70B on 512 V100 and 256 T4, one NIC a node", "candidates",
                  [] { return search_of(one_nic_job()); }, "81 s (Astra's paper)"});
  // Most candidates do not fit, and layers are unlike.
  rows.push_back({"search of DeepSeek-V3 on up to 256 A100 and 256 H100", "candidates",
                  [kinds] {
                    SearchJob job = large_search({kinds[0], kinds[1]}, 32);
                    job.model = read_model("deepseek-v3");
                    job.space = default_space(job.model);
                    return search_of(job);
                  },
                  "81 s (Astra's paper)"});
}

double estimate_many() {
  constexpr int kRounds = 200;
  const DurationsPlan given = pipe(16, 1, 64, "");
  const PlanPrograms programs = make_programs(given.plan);
  double steps = 0;
  for (int i = 0; i < kRounds; ++i) {
    if (estimate_iteration(given.plan, programs, given.topology).value() <= 0) return 0;
    for (const auto& program : programs.programs.front().programs)
      steps += static_cast<double>(program.size());
  }
  return steps;
}

double write_pipe_trace() {
  const DurationsPlan given = pipe(16, 64, 64, "");
  const PlanPrograms programs = make_programs(given.plan);
  const TrafficFlows flows(given.plan, programs, given.topology, Folding::off);
  Trace trace;
  trace.timeline = replay(given.plan, programs, given.topology, flows, {}).timeline;
  trace.accounting = account(trace.timeline);
  const std::string path = "orrery-bench-" + std::to_string(::getpid()) + ".h5";
  write_trace(path, trace);
  std::remove(path.c_str());
  return static_cast<double>(trace.timeline.spans.size());
}

std::vector<Row> rows() {
  const std::string gradient = "gradient: 1GiB\n";
  const std::string others = " (SimGrid by hand 0.85 s, 42 MB; ASTRA-sim 7.0 s, 866 MB)";
  std::vector<Row> rows{
      {"replay 1f1b, 16 stages x 64 replicas x 64 microbatches, unfolded", "ranks",
       [] { return play(pipe(16, 64, 64, ""), Folding::off); }, "0.6 s, 64 MB" + others},
      {"the same, and a 1 GiB all-reduce a stage", "ranks",
       [=] { return play(pipe(16, 64, 64, gradient), Folding::off); }, "2 s (ASTRA-sim 9.1-10.6 s)"},
      {"the same, folded", "ranks", [=] { return play(pipe(16, 64, 64, gradient), Folding::on); }, "0.05 s"},
      {"unfolded without the all-reduce, and its HDF5 trace written", "spans", write_pipe_trace, ""},
  };
  for (const int nodes : {8, 16, 64, 256, 1024, 2048}) {
    rows.push_back({"Llama-3-405B, " + std::to_string(8 * nodes) + " H100, every GPU played", "GPUs",
                    [nodes] {
                      const LargePlan given = large_plan(nodes);
                      return play(given.plan, given.topology, Folding::off);
                    },
                    nodes == 2048 ? "30 s, 1 GB" : ""});
  }
  rows.push_back({"Llama-3-405B, 16384 H100, folded, pricing included", "GPUs",
                  [] {
                    const LargePlan given = large_plan(2048);
                    return play(given.plan, given.topology, Folding::on);
                  },
                  "0.2 s"});
  rows.push_back({"1,000 different plans of 512 GPUs replayed folded, two at once", "plans",
                  [] { return Candidates(1000).replay(); }, "20 s"});
  rows.push_back({"exact recurrence, 16 stages x 64 microbatches, 200 times", "steps", estimate_many, ""});
  add_searches(rows);
  return rows;
}

// Slope of log time over log GPUs, by least squares: 1 is linear.
double exponent(const std::vector<std::pair<double, double>>& points) {
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [gpus, seconds] : points) {
    x += std::log(gpus);
    y += std::log(seconds);
    xx += std::log(gpus) * std::log(gpus);
    xy += std::log(gpus) * std::log(seconds);
  }
  const auto n = static_cast<double>(points.size());
  return (n * xy - x * y) / (n * xx - x * x);
}

}  // namespace
}  // namespace orrery

// `bench TEXT`: only the rows whose name holds the text.
int main(int count, char** arguments) {
  using namespace orrery;
  const std::string wanted = count > 1 ? arguments[1] : "";
  Table table;
  table.columns = {{"what"},
                   {"wall s", Align::right},
                   {"CPU s", Align::right},
                   {"MB", Align::right},
                   {"work", Align::right},
                   {"unit"},
                   {"per CPU s", Align::right},
                   {"to beat"}};
  std::vector<std::pair<double, double>> growth;
  for (const Row& row : rows()) {
    if (row.name.find(wanted) == std::string::npos) continue;
    const Sample sample = median(row, 3);
    if (row.name.find("every GPU played") != std::string::npos)
      growth.emplace_back(sample.work, sample.cpu_s);
    table.rows.push_back({row.name, fixed(sample.wall_s, 3), fixed(sample.cpu_s, 3),
                          fixed(sample.memory_mb, 0), fixed(sample.work, 0), row.unit,
                          fixed(sample.work / sample.cpu_s, 0), row.bar});
  }
  std::cout << "median of three runs, each in a process of its own\n\n" << to_text(table);
  if (growth.size() > 1)
    std::cout << "\nCPU time of the unfolded replays grows with the number of GPUs, " << growth.front().first
              << " to " << growth.back().first << ", to the power " << fixed(exponent(growth), 2) << "\n";
  return 0;
}
