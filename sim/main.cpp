#include <cstdio>
#include "sim/durations.hpp"
#include "sim/run_replay.hpp"
int main(int argc, char** argv) {
  try {
  auto d = orrery::read_durations(argv[1]);
  auto r = orrery::run_replay(d.plan, d.topology, 0);
  std::printf("makespan %.10g estimate %.10g ratio-1 %.3g bubble %.4f act %zu imb %g\n", r.timeline.makespan*1e3, r.estimate.value()*1e3, r.timeline.makespan/r.estimate.value()-1, r.accounting.bubble_fraction, r.activities, r.imbalance.value());
  } catch (std::exception& e) { std::puts(e.what()); return 2; }
}
