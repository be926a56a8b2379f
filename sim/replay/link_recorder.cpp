#include "sim/replay/link_recorder.hpp"

#include <algorithm>

namespace orrery {

LinkRecorder::LinkRecorder(const Topology& topology, int bins, Seconds expected) : topology_(topology) {
  if (bins <= 0 || expected.value() <= 0) return;
  width_ = expected.value() / bins;
  bytes_.resize(topology.links().size());
}

void LinkRecorder::add(const Route& route, std::size_t bin, double bytes) {
  for (int i = 0; i < route.count; ++i) {
    std::vector<double>& bins = bytes_[static_cast<std::size_t>(route.links[static_cast<std::size_t>(i)])];
    if (bins.size() <= bin) bins.resize(bin + 1, 0.0);
    bins[bin] += bytes;
  }
}

void LinkRecorder::write(Timeline& timeline) const {
  timeline.link_bin = width_;
  std::size_t bins = 0;
  for (const auto& of_link : bytes_) bins = std::max(bins, of_link.size());
  for (std::size_t link = 0; link < bytes_.size(); ++link) {
    if (bytes_[link].empty()) continue;
    const TopologyLink& spec = topology_.links()[link];
    LinkUse use{spec.name, spec.spec.bandwidth.value(), spec.spec.latency.value(), bytes_[link]};
    use.bin_bytes.resize(bins, 0.0);
    timeline.links.push_back(std::move(use));
  }
}

}  // namespace orrery
