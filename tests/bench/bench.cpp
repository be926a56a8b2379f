// Times the things that must be fast, each in a process of its own, and prints a table with memory.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>

#include "analysis/table.hpp"
#include "costmodels/estimate.hpp"
#include "sim/children.hpp"
#include "sim/durations.hpp"
#include "sim/replay.hpp"
#include "sim/run_replay.hpp"
#include "sim/search.hpp"
#include "traces/trace.hpp"

namespace orrery {
namespace {

struct Sample {
  double wall_s = 0;
  double cpu_s = 0;
  double memory_mb = 0;  // peak of the process, 1e6 bytes
  double work = 0;       // what was done, in the unit of the row
};

struct Row {
  std::string name;
  std::string unit;                // of Sample::work
  std::function<double()> run;     // returns the amount of work
  std::string bar;                 // figure to meet or beat
};

double cpu_seconds(const rusage& usage) {
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string measured(const std::function<double()>& run) {
  Sample sample;
  const auto start = std::chrono::steady_clock::now();
  sample.work = run();
  sample.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  sample.cpu_s = cpu_seconds(usage);
  sample.memory_mb = static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
  return std::string(reinterpret_cast<const char*>(&sample), sizeof sample);
}

// The run with the median wall time.
Sample median(const Row& row, int runs) {
  std::vector<Sample> samples;
  for (int i = 0; i < runs; ++i) {
    Sample sample;
    const std::string bytes = run_in_children({[&] { return measured(row.run); }}, 1).front();
    std::memcpy(&sample, bytes.data(), sizeof sample);
    samples.push_back(sample);
  }
  std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) { return a.wall_s < b.wall_s; });
  return samples[samples.size() / 2];
}

// SEMANTICS 6: F 1 ms, BW 2 ms, 16 MiB messages, one NIC of 50 GiB/s and 1 us a rank.
DurationsPlan pipe(int stages, int replicas, int microbatches, const std::string& more) {
  std::string yaml = "schedule: 1f1b\np2p: eager\nmicrobatches: " + std::to_string(microbatches) +
                     "\nreplicas: " + std::to_string(replicas) +
                     "\nmessage: 16MiB\nlink: {bandwidth: 53687091200Bps, latency: 1us}\n" + more + "stages:\n";
  for (int stage = 0; stage < stages; ++stage) yaml += "  - {forward: 1ms, backward: 2ms}\n";
  return parse_durations(yaml, "bench");
}

double play(const DurationsPlan& given) {
  const Timeline timeline = replay(given.plan, make_schedule(given.plan.schedule), given.topology, {});
  return static_cast<double>(account(timeline).ranks.size());
}

SearchJob demo_job() {
  SearchJob job;
  job.model = read_model("llama2-70b");
  job.cluster = read_cluster("demo-a100-h100");
  job.global_batch = 1024;
  job.sequence = 4096;
  job.total_tokens = 1e12;
  return job;
}

double search_demo() {
  const SearchJob job = demo_job();
  std::vector<Rule> rules;
  PriceBook book(job.model, job.cluster, {job.type, true, job.sequence});
  const SearchResult result =
      search(job, rules, CostModels::built_in(), book, [](const std::string&, std::size_t, std::size_t) {});
  return static_cast<double>(result.counts.enumerated);
}

double estimate_many() {
  constexpr int kRounds = 200;
  const DurationsPlan given = pipe(16, 1, 64, "");
  const Schedule schedule = make_schedule(given.plan.schedule);
  double steps = 0;
  for (int i = 0; i < kRounds; ++i) {
    if (estimate_iteration(given.plan, schedule, given.topology).value() <= 0) return 0;
    for (const auto& program : schedule.programs) steps += static_cast<double>(program.size());
  }
  return steps;
}

double write_pipe_trace() {
  const DurationsPlan given = pipe(16, 64, 64, "");
  Trace trace;
  trace.timeline = replay(given.plan, make_schedule(given.plan.schedule), given.topology, {});
  trace.accounting = account(trace.timeline);
  const std::string path = "orrery-bench-" + std::to_string(::getpid()) + ".h5";
  write_trace(path, trace);
  std::remove(path.c_str());
  return static_cast<double>(trace.timeline.spans.size());
}

std::vector<Row> rows() {
  const std::string gradient = "gradient: 1GiB\n";
  return {
      {"replay 1f1b, 16 stages x 64 replicas x 64 microbatches, unfolded", "ranks",
       [] { return play(pipe(16, 64, 64, "")); }, "1 s, 100 MB (SimGrid by hand 0.85 s, 42 MB; ASTRA-sim 7.0 s, 866 MB)"},
      {"the same, and a 1 GiB all-reduce a stage", "ranks", [=] { return play(pipe(16, 64, 64, gradient)); },
       "ASTRA-sim 9.1-10.6 s"},
      {"the same, and its HDF5 trace written", "spans", write_pipe_trace, ""},
      {"exact recurrence, 16 stages x 64 microbatches, 200 times", "steps", estimate_many, ""},
      {"search of the demo, without replays", "candidates", search_demo, "AMP 0.2, Metis 250, Sailor 460 plans / CPU s"},
  };
}

std::string fixed(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

}  // namespace
}  // namespace orrery

int main() {
  using namespace orrery;
  Table table;
  table.columns = {{"what"},
                   {"wall s", Align::right},
                   {"CPU s", Align::right},
                   {"MB", Align::right},
                   {"work", Align::right},
                   {"unit"},
                   {"per CPU s", Align::right},
                   {"to beat"}};
  for (const Row& row : rows()) {
    const Sample sample = median(row, 5);
    table.rows.push_back({row.name, fixed(sample.wall_s, 3), fixed(sample.cpu_s, 3), fixed(sample.memory_mb, 0),
                          fixed(sample.work, 0), row.unit, fixed(sample.work / sample.cpu_s, 0), row.bar});
  }
  std::cout << "median of five runs, each in a process of its own\n\n" << to_text(table);
  return 0;
}
