#include "sim/link_recorder.hpp"

#include <algorithm>

namespace orrery {

LinkRecorder::LinkRecorder(const Topology& topology, int bins, Seconds expected) : topology_(topology) {
  if (bins <= 0 || expected.value() <= 0) return;
  width_ = expected.value() / bins;
  bytes_.resize(topology.links().size());
}

void LinkRecorder::add(const Flow& flow, Interval when) {
  const Route& route = flow.route;
  const auto first = static_cast<std::size_t>(when.start / width_);
  const auto last = std::max(first, static_cast<std::size_t>(when.end / width_));
  const double rate = when.end > when.start ? flow.payload.value() / (when.end - when.start) : 0.0;
  for (int i = 0; i < route.count; ++i) {
    std::vector<double>& bins = bytes_[static_cast<std::size_t>(route.links[static_cast<std::size_t>(i)])];
    if (bins.size() <= last) bins.resize(last + 1, 0.0);
    for (std::size_t bin = first; bin <= last; ++bin) {
      const double start = std::max(when.start, static_cast<double>(bin) * width_);
      const double end = std::min(when.end, static_cast<double>(bin + 1) * width_);
      bins[bin] += rate > 0 ? rate * (end - start) : flow.payload.value();
    }
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
