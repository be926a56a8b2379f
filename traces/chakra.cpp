#include "traces/chakra.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "platforms/errors.hpp"
#include "traces/json_text.hpp"
#include "traces/network_lanes.hpp"
#include "traces/output_file.hpp"
#include "traces/span_family.hpp"

namespace orrery {
namespace {

// Numbers of schema/protobuf/et_def.proto.
enum class NodeType { compute = 4, send = 5, receive = 6, collective = 7 };
constexpr int kAllReduce = 0, kAllGather = 2, kAllToAll = 6, kReduceScatter = 7;

struct Node {
  SpanRow span;
  NodeType type = NodeType::compute;
  std::optional<std::pair<int, int>> ranks;  // sender and receiver of a message
  std::vector<std::size_t> needs;
};

bool is_forward_or_backward(SpanKind kind) {
  return kind == SpanKind::forward || kind == SpanKind::backward;
}

std::optional<NodeType> type_of(SpanKind kind) {
  switch (family_of(kind)) {
    case SpanFamily::forward:
    case SpanFamily::backward:
    case SpanFamily::weight_gradient:
    case SpanFamily::optimizer:
      return NodeType::compute;
    case SpanFamily::message:
      return NodeType::send;
    case SpanFamily::collective:
      return NodeType::collective;
    case SpanFamily::exposed:
    case SpanFamily::bubble:
      return std::nullopt;
  }
  throw Defect("a span kind outside the enumeration");
}

class Graph {
 public:
  explicit Graph(const Timeline& timeline) : timeline_(timeline), nodes_(timeline.ranks.size()) {
    for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
      const SpanRow span = row(timeline.spans, i);
      if (const auto type = type_of(span.kind)) rank(span.rank).push_back({span, *type, std::nullopt, {}});
    }
    for (std::vector<Node>& nodes : nodes_) sort(nodes);
    note_steps();
    for (std::size_t i = 0; i < nodes_.size(); ++i) add_receives(static_cast<int>(i));
    for (std::vector<Node>& nodes : nodes_) {
      sort(nodes);
      connect(nodes);
    }
  }
  [[nodiscard]] const std::vector<Node>& nodes(std::size_t rank) const { return nodes_[rank]; }

 private:
  std::vector<Node>& rank(int index) { return nodes_[static_cast<std::size_t>(index)]; }

  // By start; what ends first before what it may have let go.
  static void sort(std::vector<Node>& nodes) {
    std::stable_sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) {
      return std::pair(a.span.start, a.span.end) < std::pair(b.span.start, b.span.end);
    });
  }

  struct Key {
    int replica;
    std::int32_t microbatch;
    SpanKind kind;
    auto operator<=>(const Key&) const = default;
  };

  void note_steps() {
    for (const std::vector<Node>& nodes : nodes_) {
      for (const Node& node : nodes) {
        if (!is_forward_or_backward(node.span.kind)) continue;
        const int replica = timeline_.ranks[static_cast<std::size_t>(node.span.rank)].replica;
        steps_[{replica, node.span.microbatch, node.span.kind}].push_back(node.span);
      }
    }
    for (auto& [key, spans] : steps_) {
      std::stable_sort(spans.begin(), spans.end(),
                       [](const SpanRow& a, const SpanRow& b) { return a.start < b.start; });
    }
  }

  // A message sent before the backward of its microbatch on its own rank and chunk is an activation. The
  // parts of a model take a microbatch one after another, so its receiver is whoever does it first after the
  // arrival.
  std::optional<int> receiver(const SpanRow& message) const {
    const int replica = timeline_.ranks[static_cast<std::size_t>(message.rank)].replica;
    const auto backwards = steps_.find({replica, message.microbatch, SpanKind::backward});
    bool gradient = false;
    if (backwards != steps_.end()) {
      for (const SpanRow& span : backwards->second) {
        const bool own = span.rank == message.rank && span.chunk == message.chunk;
        gradient = gradient || (own && nanoseconds(span.end) <= nanoseconds(message.start));
      }
    }
    const SpanKind kind = gradient ? SpanKind::backward : SpanKind::forward;
    const auto steps = steps_.find({replica, message.microbatch, kind});
    if (steps == steps_.end()) return std::nullopt;
    for (const SpanRow& span : steps->second) {
      if (nanoseconds(span.start) >= nanoseconds(message.end)) return span.rank;
    }
    return std::nullopt;
  }

  void add_receives(int sender) {
    for (std::size_t i = 0; i < rank(sender).size(); ++i) {
      if (rank(sender)[i].type != NodeType::send) continue;
      const SpanRow message = rank(sender)[i].span;
      const auto to = receiver(message);
      if (!to) continue;
      const std::pair<int, int> ranks{sender, *to};
      rank(sender)[i].ranks = ranks;
      rank(*to).push_back({message, NodeType::receive, ranks, {}});
    }
  }

  // An optimizer waits for gradients; a forward or backward for its message, and its next piece for the
  // collectives inside it.
  static bool waits_for(const Node& node, const Node& before) {
    if (node.span.kind == SpanKind::optimizer) return before.type == NodeType::collective;
    return before.type != NodeType::compute && before.type != NodeType::send &&
           before.span.microbatch == node.span.microbatch;
  }

  static void connect(std::vector<Node>& nodes) {
    std::optional<std::size_t> last_compute;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      Node& node = nodes[i];
      const auto over = [&](const Node& before) {
        return nanoseconds(before.span.end) <= nanoseconds(node.span.start);
      };
      if (node.type == NodeType::receive) continue;
      if (last_compute && over(nodes[*last_compute])) node.needs.push_back(*last_compute);
      if (node.type != NodeType::compute) continue;
      for (std::size_t j = i; j-- > 0;) {
        if (waits_for(node, nodes[j]) && over(nodes[j])) node.needs.push_back(j);
      }
      last_compute = i;
    }
  }

  const Timeline& timeline_;
  std::vector<std::vector<Node>> nodes_;       // [rank]
  std::map<Key, std::vector<SpanRow>> steps_;  // by start
};

void member(std::string& out, const char* name, double value) {
  out += std::string(",\"") + name + "\":";
  append_json(out, value);
}

// Absent where the span does not say: tensor and context groups have collectives of several types.
std::optional<int> collective_type(SpanKind kind) {
  if (kind == SpanKind::all_reduce) return kAllReduce;
  if (kind == SpanKind::all_gather) return kAllGather;
  if (kind == SpanKind::reduce_scatter) return kReduceScatter;
  if (kind == SpanKind::expert_exchange) return kAllToAll;
  return std::nullopt;
}

std::string node_json(const Node& node, std::size_t id) {
  const SpanRow& span = node.span;
  std::string name(node.type == NodeType::receive ? "receive" : to_text(span.kind));
  if (span.microbatch >= 0) name += "_" + std::to_string(span.microbatch);
  const double start = std::round(span.start * 1e6), end = std::round(span.end * 1e6);
  std::string out = "{\"Id\":" + std::to_string(id) + ",\"Name\":\"" + name + "\"";
  member(out, "NodeType", static_cast<int>(node.type));
  out += ",\"is_cpu_op\":false,\"data_deps\":[";
  for (std::size_t i = 0; i < node.needs.size(); ++i)
    out += (i == 0 ? "" : ",") + std::to_string(node.needs[i]);
  out += "]";
  member(out, "runtime", end - start);
  member(out, "start_time_micros", start);
  member(out, "duration_micros", end - start);
  if (node.type != NodeType::compute) member(out, "comm_size", std::round(span.bytes));
  const auto type = node.type == NodeType::collective ? collective_type(span.kind) : std::nullopt;
  if (type) member(out, "comm_type", *type);
  if (node.ranks) {
    member(out, "comm_src", node.ranks->first);
    member(out, "comm_dst", node.ranks->second);
    member(out, "comm_tag", span.microbatch);
  }
  out += ",\"attr\":[{\"name\":\"start_s\",\"double_val\":";
  append_json(out, span.start);
  out += "},{\"name\":\"end_s\",\"double_val\":";
  append_json(out, span.end);
  if (span.flops > 0) {
    out += "},{\"name\":\"num_ops\",\"uint64_val\":";
    append_json(out, std::round(span.flops));
  }
  return out + "}]}";
}

}  // namespace

std::vector<std::string> export_chakra(const std::string& path, const Trace& trace) {
  refuse_folder(path);  // else files were written beside it, or hidden ones into it
  const Graph graph(trace.timeline);
  const std::filesystem::path whole(path);
  const std::string stem = (whole.parent_path() / whole.stem()).string();
  std::vector<std::string> paths;
  for (std::size_t rank = 0; rank < trace.timeline.ranks.size(); ++rank) {
    paths.push_back(stem + "." + std::to_string(rank) + whole.extension().string());
    OutputFile file(paths.back());
    file.write("{\"schema\":\"1.0.2-chakra.0.0.4\",\"workload_graph\":[");
    const std::vector<Node>& nodes = graph.nodes(rank);
    for (std::size_t id = 0; id < nodes.size(); ++id) {
      file.write((id == 0 ? "\n" : ",\n") + node_json(nodes[id], id));
    }
    file.write("\n]}\n");
    file.commit();
  }
  return paths;
}

}  // namespace orrery
