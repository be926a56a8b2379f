// Every SimGrid call of a replay is in this file (xml_platform.cpp reads platform files). Written for
// SimGrid 3.32; it builds with 4.0 too.
#include <simgrid/s4u.hpp>
// The headers below need what s4u.hpp declares.
#include <simgrid/version.h>

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "platforms/errors.hpp"
#include "sim/replay/event_queue.hpp"
#include "sim/replay/fair_shares.hpp"
#include "sim/replay/network.hpp"
#include "traces/clean_up.hpp"

namespace orrery {
namespace {

namespace sg4 = simgrid::s4u;
namespace routing = simgrid::kernel::routing;

// A zone with two hosts that stand for every sender and every receiver: each flow brings its own links along,
// so there are no routing tables and no host a GPU, whatever the size of the cluster.
class FlowZone : public routing::NetZoneImpl {
 public:
  explicit FlowZone(const std::string& name) : NetZoneImpl(name) {}

  // By index; null where it is crossed by no flow.
  void set_links(std::vector<simgrid::kernel::resource::StandardLinkImpl*> links) {
    links_ = std::move(links);
  }
  // The links of the next flow that starts.
  void set_route(const orrery::Route& route) { next_ = &route; }

 private:
  void get_local_route(const routing::NetPoint* /*from*/, const routing::NetPoint* /*to*/,
                       routing::Route* into, double* /*latency*/) override {
    ORRERY_ENSURE(next_ != nullptr);
    for (int i = 0; i < next_->count; ++i) {
      auto* link = links_[static_cast<std::size_t>(next_->links[static_cast<std::size_t>(i)])];
      ORRERY_ENSURE(link != nullptr);
      into->link_list_.push_back(link);
    }
  }

  const orrery::Route* next_ = nullptr;
  std::vector<simgrid::kernel::resource::StandardLinkImpl*> links_;
};

// SimGrid's defaults model TCP: 9 GB over 900 GB/s and 5 us would take 22.2 ms instead of 10.005 ms. Dates
// are compared to a picosecond, or flows that end within 10 us of each other would end together.
void configure(sg4::Engine& engine) {
  engine.set_config("network/model:CM02");
  engine.set_config("network/crosstraffic:0");
  engine.set_config("network/TCP-gamma:0");
  engine.set_config("surf/precision:1e-12");
}

sg4::Engine& the_engine() {
  static sg4::Engine* engine = [] {
    static std::string name = "orrery";
    static std::string quiet = "--log=root.thresh:error";
    static std::vector<char*> arguments{name.data(), quiet.data(), nullptr};
    int count = 2;
    const HandlersKept
        kept;  // SimGrid's own for SIGINT leaves by exit(), with temporary files and children left
    return new sg4::Engine(&count, arguments.data());  // SimGrid's singleton lives as long as the process
  }();
  return *engine;
}

// SimGrid takes whole bytes. What is left of a flow when another joins it is not whole: SimGrid is told of
// bandwidths and bytes times this, so that what is lost is a picosecond at 1 GB/s.
constexpr double kPartsOfByte = 1024;
constexpr double kNoDate = std::numeric_limits<double>::infinity();
constexpr std::int32_t kNoBatch = -1;

}  // namespace

// A flow that has its links to itself needs no model of how links are shared: it ends after its bytes over
// the bandwidth. It becomes a communication of SimGrid when another flow comes to one of its links. Of very
// many flows that begin together on links of their own, as in an exchange among experts, the fair rates are
// found here too: SimGrid 3.32 goes through a list of all communications whenever one ends
// (CommImpl::finish). While there is no communication, events are taken from our own queue, ahead of
// SimGrid's clock; SimGrid is woken for the next of them, or for the start of communications.
struct Network::Impl {
  explicit Impl(const Topology& cluster) : topology(cluster), shares(cluster) {}

  struct Flow {
    Route route;
    BytesPerSecond bandwidth;  // of the narrowest link
    Bytes bytes;
    std::uint32_t tag = 0;
    sg4::CommPtr comm;  // while SimGrid shares its links
    double rate = 0;    // B/s of a flow that has them to itself, or is of a batch; 0 of others
    std::int32_t batch = kNoBatch;
    std::uint32_t times_ended = 0;  // or lost its rate, whatever flow had this place
    double since = 0;               // s, when `left` was true
    double left = 0;                // B, of a flow that is not a communication
    double payload_share = 1;       // of the bytes
    double unrecorded = 0;          // B not yet in the recorder
    bool is_moving = false;
  };
  // Of a link.
  struct Crossing {
    int flows = 0;                       // that move
    std::optional<std::uint32_t> alone;  // the one that has it to itself
    std::int32_t batch = kNoBatch;       // whose flows they are
  };
  using Batch = std::vector<std::uint32_t>;  // flows, those of them that still say so; empty: a free place

  void handle(const TimedEvent& event) {
    switch (event.kind) {
      case TimedEvent::Kind::heard:
        return sink->on_event(event.subject);
      case TimedEvent::Kind::flow_begins:
        return begin_transfer(event.subject);
      case TimedEvent::Kind::flow_ends:
        if (flows[event.subject].times_ended == event.version) ended_by_rate(event.subject);
        return;
      case TimedEvent::Kind::sample:
        return sample();
    }
  }

  // SimGrid was asked to call at this date.
  void wake_up(double date) {
    if (date == next_wake) next_wake = kNoDate;
    const bool in_time = date >= now;  // else of a wish that an earlier one has overtaken
    now = std::max({now, date, sg4::Engine::get_clock()});
    drop_ended();
    if (in_time) start_communications();
    // As long as SimGrid has nothing to do its clock may stay behind.
    while (true) {
      const bool has_more_now = !queue.empty() && queue.next() <= now;
      if (!has_more_now) rebatch();
      if (!has_more_now && (queue.empty() || communications > 0 || !waiting.empty())) break;
      now = std::max(now, queue.next());
      handle(queue.take());
    }
    if (now <= sg4::Engine::get_clock()) start_communications();
    wake_later();
  }

  void wake_later() {
    const double date = !waiting.empty() ? now : queue.empty() ? kNoDate : queue.next();
    if (date >= next_wake) return;
    next_wake = date;
    simgrid::kernel::timer::Timer::set(date, [this, date] { wake_up(date); });
  }

  std::uint32_t free_flow() {
    if (!free_flows.empty()) {
      const std::uint32_t index = free_flows.back();
      free_flows.pop_back();
      return index;
    }
    flows.emplace_back();
    return static_cast<std::uint32_t>(flows.size() - 1);
  }

  void begin_transfer(std::uint32_t index) {
    Flow& flow = flows[index];
    flow.left = flow.unrecorded = flow.bytes.value();
    flow.since = now;
    flow.is_moving = true;
    if (recorder != nullptr && !is_sampling) start_sampling();
    const bool is_alone = enter_links(index) || is_ideal;
    if (!is_alone) return waiting.push_back(index);
    move_at(index, flow.bandwidth.value());
  }

  void move_at(std::uint32_t index, double rate) {
    Flow& flow = flows[index];
    flow.rate = rate;
    flow.since = now;
    queue.add(now + flow.left / rate, {TimedEvent::Kind::flow_ends, index, flow.times_ended});
  }

  // It waits for another rate.
  void halt(std::uint32_t index) {
    Flow& flow = flows[index];
    flow.left = left_of(flow);
    flow.since = now;
    flow.rate = 0;
    ++flow.times_ended;
    waiting.push_back(index);
  }

  // Returns whether nobody else is on them; else those that were alone there share them from now on.
  bool enter_links(std::uint32_t index) {
    bool alone = true;
    const Route route = flows[index].route;
    for (int i = 0; i < route.count; ++i) {
      Crossing& link = crossing(route, i);
      const bool taken = link.flows++ > 0;
      alone = alone && !taken;
      if (is_ideal) continue;
      if (taken && link.alone) stop_being_alone(*link.alone);
      if (taken && link.batch != kNoBatch) dissolve(link.batch);
      if (taken) continue;
      link.alone = index;
      link.batch = kNoBatch;  // of one whose flows here have ended
    }
    return alone;
  }

  void leave_links(const Route& route) {
    for (int i = 0; i < route.count; ++i) --crossing(route, i).flows;
  }

  void stop_being_alone(std::uint32_t index) {
    const Route route = flows[index].route;
    for (int i = 0; i < route.count; ++i) crossing(route, i).alone.reset();
    if (flows[index].rate > 0) halt(index);  // else on its other links it was not, or it has yet to begin
  }

  // All events of this date have been heard: rates are those from now on.
  void rebatch() {
    for (const std::int32_t batch : batches_with_ends) dissolve(batch);
    batches_with_ends.clear();
    if (waiting.size() < many) return;
    many = 2;  // or the next of them would have to join communications of a few that went before
    std::vector<Route> routes;
    routes.reserve(waiting.size());
    for (const std::uint32_t index : waiting) routes.push_back(flows[index].route);
    shares.set_flows(std::move(routes));
    const auto flows_on = [&](int link) { return crossings[static_cast<std::size_t>(link)].flows; };
    if (!shares.are_all(flows_on)) return;
    const std::vector<double> rates = shares.rates();
    const std::int32_t batch = free_batch();
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const std::uint32_t index = waiting[i];
      Flow& flow = flows[index];
      flow.batch = batch;
      for (int at = 0; at < flow.route.count; ++at) {
        Crossing& link = crossing(flow.route, at);
        link.alone.reset();
        link.batch = batch;
      }
      move_at(index, rates[i]);
    }
    batches[static_cast<std::size_t>(batch)] = std::exchange(waiting, {});
  }

  std::int32_t free_batch() {
    const auto found =
        std::find_if(batches.begin(), batches.end(), [](const Batch& batch) { return batch.empty(); });
    if (found != batches.end()) return static_cast<std::int32_t>(found - batches.begin());
    batches.emplace_back();
    return static_cast<std::int32_t>(batches.size() - 1);
  }

  void dissolve(std::int32_t which) {
    for (const std::uint32_t index : std::exchange(batches[static_cast<std::size_t>(which)], {})) {
      Flow& flow = flows[index];
      if (flow.batch != which) continue;
      flow.batch = kNoBatch;
      for (int i = 0; i < flow.route.count; ++i) crossing(flow.route, i).batch = kNoBatch;
      halt(index);
    }
  }

  Crossing& crossing(const Route& route, int i) {
    return crossings[static_cast<std::size_t>(route.links[static_cast<std::size_t>(i)])];
  }

  [[nodiscard]] double left_of(const Flow& flow) const {
    if (flow.comm) return flow.comm->get_remaining() / kPartsOfByte;
    return std::max(0.0, flow.left - flow.rate * (now - flow.since));
  }

  // Of the flows that wait for SimGrid's clock to be as late as ours.
  void start_communications() {
    for (const std::uint32_t index : waiting) {
      Flow& flow = flows[index];
      zone->set_route(flow.route);
      flow.comm = sg4::Comm::sendto_init(sender, receiver);
      flow.comm->set_payload_size(
          static_cast<std::uint64_t>(std::max(1.0, std::round(flow.left * kPartsOfByte))));
      flow.comm->set_data(reinterpret_cast<void*>(static_cast<std::uintptr_t>(index) + 1));
      flow.comm->start();
      ++communications;
    }
    waiting.clear();
  }

  void ended_by_rate(std::uint32_t index) {
    flows[index].rate = 0;
    // The others of its batch may get more from now on.
    const std::int32_t batch = std::exchange(flows[index].batch, kNoBatch);
    if (batch != kNoBatch) batches_with_ends.push_back(batch);
    const std::uint32_t tag = end(index);
    free_flows.push_back(index);
    sink->on_event(tag);
  }

  std::uint32_t end(std::uint32_t index) {
    Flow& flow = flows[index];
    flow.is_moving = false;
    ++flow.times_ended;
    leave_links(flow.route);
    if (recorder != nullptr) record(flow, 0.0);
    return flow.tag;
  }

  // At the end of each time bin all that moves is asked how far it has come; a flow that ends says so itself.
  void start_sampling() {
    bin = static_cast<std::size_t>(now / recorder->width());
    while (recorder->end_of(bin) <= now) ++bin;
    is_sampling = true;
    sample_later();
  }

  void sample_later() { queue.add(recorder->end_of(bin), {TimedEvent::Kind::sample, 0, 0}); }

  void sample() {
    is_sampling = false;
    for (Flow& flow : flows) {
      if (!flow.is_moving) continue;
      is_sampling = true;
      record(flow, left_of(flow));
    }
    ++bin;
    if (is_sampling) sample_later();
  }

  void record(Flow& flow, double left) {
    recorder->add(flow.route, bin, (flow.unrecorded - left) * flow.payload_share);
    flow.unrecorded = left;
  }

  void completed(const sg4::Activity& activity) {
    const auto index = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(comm_data(activity)) - 1);
    now = std::max(now, sg4::Engine::get_clock());
    --communications;
    ended.push_back(index);
    sink->on_event(end(index));
    wake_later();
  }

  static void* comm_data(const sg4::Activity& activity) {
    return static_cast<const sg4::Comm&>(activity).get_data<void>();
  }

  // A handle may be dropped only after the callback that says its activity is over has returned.
  void drop_ended() {
    for (const std::uint32_t index : ended) {
      flows[index].comm.reset();
      free_flows.push_back(index);
    }
    ended.clear();
  }

  // Nobody shares links that are ideal.
  void tell_of_links() {
    const std::vector<TopologyLink>& all = topology.links();
    std::vector<simgrid::kernel::resource::StandardLinkImpl*> told(all.size(), nullptr);
    for (std::size_t i = 0; i < all.size() && !is_ideal; ++i) {
      if (!crossed.empty() && !crossed[i]) continue;
      told[i] = zone->get_iface()
                    ->create_link(all[i].name, all[i].spec.bandwidth.value() * kPartsOfByte)
                    ->seal()
                    ->get_impl();
    }
    zone->set_links(std::move(told));
    zone->get_iface()->seal();
  }

  const Topology& topology;
  std::vector<bool> crossed;  // by link; empty: all may be
  FlowZone* zone = nullptr;   // owned by the engine
  sg4::Host* sender = nullptr;
  sg4::Host* receiver = nullptr;
  double now = 0;  // s
  EventQueue queue;
  double next_wake = kNoDate;          // s, the earliest that SimGrid knows of
  std::vector<std::uint32_t> waiting;  // flows that share links, for SimGrid's clock
  std::size_t communications = 0;      // under way in SimGrid
  std::vector<Flow> flows;
  std::vector<std::uint32_t> free_flows;
  std::vector<std::uint32_t> ended;
  std::vector<Crossing> crossings;  // [link]
  FairShares shares;
  std::size_t many = 0;  // flows that make a batch
  std::vector<Batch> batches;
  std::vector<std::int32_t> batches_with_ends;  // at this date; one for each end
  bool is_ideal = false;                        // every flow gets the whole of its links
  EventSink* sink = nullptr;
  LinkRecorder* recorder = nullptr;
  std::size_t bin = 0;  // of the recorder, now
  bool is_sampling = false;
};

Network::Network(const Topology& topology, std::size_t many) : impl_(std::make_unique<Impl>(topology)) {
  static bool used = false;
  ORRERY_ENSURE(!used);
  used = true;
  configure(the_engine());
  impl_->zone = new FlowZone("cluster");
  sg4::NetZone* zone = impl_->zone->get_iface();
  // SimGrid 4 makes the root of all zones itself; before, the first zone is the root.
  sg4::NetZone* root = the_engine().get_netzone_root();
  if (root != nullptr && root != zone) impl_->zone->set_parent(root->get_impl());
  impl_->sender = zone->create_host("sender", 1.0);
  impl_->receiver = zone->create_host("receiver", 1.0);
  impl_->is_ideal = topology.cluster().contention == Contention::ideal;
  impl_->crossings.resize(topology.links().size());
  impl_->many = many;
}

Network::~Network() = default;

double Network::now() const {
  return impl_->now;
}

void Network::after(double delay, std::uint32_t tag) {
  impl_->queue.add(now() + delay, {TimedEvent::Kind::heard, tag, 0});
}

void Network::start_flow(const orrery::Flow& what, std::uint32_t tag) {
  if (what.route.count == 0) {
    after(what.path.latency.value(), tag);
    return;
  }
  const std::uint32_t index = impl_->free_flow();
  Impl::Flow& flow = impl_->flows[index];
  flow.route = what.route;
  flow.bandwidth = what.path.bandwidth;
  flow.bytes = Bytes(std::floor(what.wire.value()));
  flow.payload_share = what.wire.value() > 0 ? what.payload / what.wire : 1.0;
  flow.tag = tag;
  // The latency is waited for here: SimGrid's model would give less bandwidth to flows with a longer latency.
  impl_->queue.add(now() + what.path.latency.value(), {TimedEvent::Kind::flow_begins, index, 0});
}

void Network::only_links(std::vector<bool> crossed) {
  ORRERY_ENSURE(crossed.size() == impl_->topology.links().size());
  impl_->crossed = std::move(crossed);
}

void Network::watch(LinkRecorder& recorder) {
  impl_->recorder = &recorder;
}

void Network::run(EventSink& sink) {
  impl_->sink = &sink;
  impl_->tell_of_links();
  Impl* impl = impl_.get();
  sg4::Comm::on_completion_cb([impl](const sg4::Activity& activity) { impl->completed(activity); });
  impl->wake_later();
  the_engine().run();
  impl->drop_ended();
}

std::string simgrid_version() {
  return std::to_string(SIMGRID_VERSION_MAJOR) + "." + std::to_string(SIMGRID_VERSION_MINOR);
}

}  // namespace orrery
