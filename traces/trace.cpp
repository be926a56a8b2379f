#include "traces/trace.hpp"

#include <algorithm>
#include <map>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

struct MemoryEvent {
  double time = 0;
  double bytes = 0;  // negative when freed
};

struct Life {
  double start = 0;
  std::optional<double> backward_end;  // of the backward for the input; absent: alive until the run ends
  std::optional<double> weights_end;   // of the weight gradient, where it is a span of its own
};

using LifeByMicrobatch = std::map<std::pair<int, int>, Life>;  // by chunk and microbatch

// Lives of the activations of each stage on its first rank.
std::map<int, LifeByMicrobatch> lives_by_stage(const Timeline& timeline) {
  std::map<int, int> first_rank;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    first_rank.emplace(timeline.ranks[rank].stage, static_cast<int>(rank));
  }
  std::map<int, LifeByMicrobatch> lives;
  for (const auto& entry : first_rank) lives[entry.first];
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const SpanRow span = row(timeline.spans, i);
    const auto first = first_rank.find(span.stage);
    if (first == first_rank.end() || first->second != span.rank) continue;
    const std::pair<int, int> key(span.chunk, span.microbatch);
    if (span.kind == SpanKind::forward) {
      Life fresh;  // a forward may be several spans
      fresh.start = span.start;
      lives[span.stage].try_emplace(key, fresh);
    }
    if (span.kind == SpanKind::backward || span.kind == SpanKind::weight_gradient) {
      Life& life = lives[span.stage][key];
      std::optional<double>& end = span.kind == SpanKind::backward ? life.backward_end : life.weights_end;
      end = std::max(end.value_or(span.end), span.end);
    }
  }
  return lives;
}

std::vector<MemoryEvent> events_of(const LifeByMicrobatch& lives, const std::vector<Bytes>& bytes,
                                   const std::vector<Bytes>& for_weights) {
  std::vector<MemoryEvent> events;
  for (const auto& [key, life] : lives) {
    const auto chunk = static_cast<std::size_t>(key.first);
    ORRERY_ENSURE(chunk < bytes.size() && chunk < for_weights.size());
    events.push_back({life.start, bytes[chunk].value()});
    if (!life.backward_end) continue;
    const double kept = life.weights_end ? for_weights[chunk].value() : 0.0;
    events.push_back({*life.backward_end, kept - bytes[chunk].value()});
    if (life.weights_end) events.push_back({*life.weights_end, -kept});
  }
  std::sort(events.begin(), events.end(), [](const MemoryEvent& a, const MemoryEvent& b) {
    return a.time != b.time ? a.time < b.time : a.bytes < b.bytes;
  });
  return events;
}

void append_curve(MemoryCurve& curve, int stage, const std::vector<MemoryEvent>& events) {
  const auto push = [&](double time, double bytes) {
    curve.stage.push_back(static_cast<std::int16_t>(stage));
    curve.time.push_back(time);
    curve.bytes.push_back(bytes);
  };
  push(0, 0);
  for (const MemoryEvent& event : events) {
    const double bytes = curve.bytes.back() + event.bytes;
    if (event.time == curve.time.back()) {
      curve.bytes.back() = bytes;
    } else {
      push(event.time, bytes);
    }
  }
}

}  // namespace

MemoryCurve activation_curve(const Timeline& timeline, const std::vector<std::vector<Bytes>>& bytes,
                             const std::vector<std::vector<Bytes>>& for_weights) {
  MemoryCurve curve;
  for (const auto& [stage, lives] : lives_by_stage(timeline)) {
    const auto at = static_cast<std::size_t>(stage);
    ORRERY_ENSURE(stage >= 0 && at < bytes.size() && bytes.size() == for_weights.size());
    append_curve(curve, stage, events_of(lives, bytes[at], for_weights[at]));
  }
  return curve;
}

std::string run_attribute(const Trace& trace, std::string_view name) {
  for (const RunAttribute& attribute : trace.run) {
    if (attribute.name == name) return attribute.value;
  }
  return {};
}

}  // namespace orrery
