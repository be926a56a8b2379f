#include "tests/sim/random_search.hpp"

#include "costmodels/estimate/estimate.hpp"
#include "tests/strategies/random_schedule.hpp"

namespace orrery::test {
namespace {

NodeGroup random_group(std::mt19937& random, const std::string& name) {
  const std::vector<std::string> kinds{"A100-SXM4-80GB", "H100-SXM5-80GB", "A100-SXM4-40GB"};
  NodeGroup group;
  group.name = name;
  group.gpu = find_gpu(kinds[static_cast<std::size_t>(between(random, 0, 2))], "test");
  group.gpu.memory = group.gpu.memory / (1 << between(random, 0, 3));  // few layers: small cards, too
  group.gpus_per_node = 1 << between(random, 0, 2);
  group.count = {between(random, 0, 3) == 0 ? 1 : 0, between(random, 1, 3)};
  group.gpu_link = {group.gpu.link_bandwidth, microseconds(2)};
  group.nics_per_node = between(random, 0, 1) == 0 ? 1 : group.gpus_per_node;
  group.nic = {gigabits_per_second(between(random, 0, 1) == 0 ? 10 : 200), microseconds(3)};
  if (between(random, 0, 4) > 0) group.price = DollarsPerHour(between(random, 1, 9));
  return group;
}

ModelSpec random_model(std::mt19937& random) {
  const std::vector<std::string> names{"llama2-7b", "gpt2-345m", "mixtral-8x7b", "transgan"};
  const std::string name = names[static_cast<std::size_t>(between(random, 0, 3))];
  ModelSpec model = read_model(name);
  const auto most =
      std::min<std::size_t>(model.layers.size(), static_cast<std::size_t>(between(random, 2, 9)));
  model.layers.resize(most);
  return model;
}

// None, and all of it: by groups, by the first layers of each part, by as few of them as fit.
std::vector<Recompute> random_recompute(std::mt19937& random) {
  const auto full = RecomputeGranularity::full;
  std::vector<Recompute> all{{}, {full, RecomputeMethod::uniform, between(random, 1, 2)}};
  if (between(random, 0, 1) == 0) all.push_back({full, RecomputeMethod::block, between(random, 1, 3)});
  if (between(random, 0, 1) == 0) all.push_back({full, RecomputeMethod::block, 0});
  return all;
}

// One of them or none, since each multiplies the space.
void add_switches(SearchJob& job, std::mt19937& random) {
  const int which = between(random, 0, 5);
  if (which == 0) {
    job.space.sequence_parallel = {true, false};
    job.space.tensor_overlap = {std::nullopt, between(random, 0, 3) > 0};
  } else if (which == 1) {
    job.space.optimizer_offload = {0.0, between(random, 0, 1) == 0 ? 0.5 : 1.0};
    for (NodeGroup& group : job.cluster.groups) group.host.memory = gibibytes(1 << between(random, 0, 6));
  } else if (which == 2) {
    job.space.overlap_p2p = {true, false};
  } else if (which == 3) {
    job.space.optimizer_instances = {1, between(random, 2, 4)};
  } else if (which == 4) {
    job.space.fully_sharded = {true, false};
  }
}

// Left to the search, said, or both tried as candidates of their own.
void add_overlaps(SearchJob& job, std::mt19937& random) {
  const auto choices = [&]() -> std::vector<std::optional<bool>> {
    const int which = between(random, 0, 7);
    if (which == 0) return {true, false};
    if (which == 1) return {true};
    if (which == 2) return {false};
    return {std::nullopt};
  };
  job.space.overlap_grad_reduce = choices();
  job.space.overlap_param_gather = choices();
}

}  // namespace

SearchJob random_job(std::mt19937& random) {
  SearchJob job;
  job.model = random_model(random);
  const int groups = between(random, 1, 3);
  for (int i = 0; i < groups; ++i) {
    job.cluster.groups.push_back(random_group(random, "g" + std::to_string(i)));
  }
  job.cluster.name = "random";
  job.space.tensor = {1, 2};
  job.space.context = {1, between(random, 2, 3)};
  job.space.chunks = {1, 2};
  job.space.micro_batch = {1, 2};
  job.space.most_stages = between(random, 2, 5);
  if (between(random, 0, 3) == 0) job.space.stages = {job.space.most_stages / 2, job.space.most_stages};
  job.space.recompute = random_recompute(random);
  job.space.flash_attention = {true};
  if (between(random, 0, 3) == 0) job.space.flash_attention.push_back(false);
  job.space.sequence_parallel = {false};
  add_overlaps(job, random);
  job.space.schedules = {ScheduleKind::one_f_one_b, ScheduleKind::gpipe};
  if (between(random, 0, 2) == 0) job.space.orders = {RankOrder::cp_dp_pp, RankOrder::cp_pp_dp};
  job.mode = static_cast<SearchMode>(between(random, 0, 1));
  job.global_batch = 4 * between(random, 1, 6);
  job.sequence = 256 * between(random, 1, 8);
  job.model.learned_positions = 0;
  job.total_tokens = job.tokens_per_iteration() * 10;
  job.top = between(random, 1, 5);
  add_switches(job, random);
  return job;
}

std::string describe(const SearchJob& job) {
  std::string text = job.model.name + " of " + std::to_string(job.model.layer_count()) + " layers, batch " +
                     std::to_string(job.global_batch) + ", sequence " + std::to_string(job.sequence) +
                     ", at most " + std::to_string(job.space.most_stages) + " stages, best " +
                     std::to_string(job.top) + "\n";
  return text + to_yaml(job.cluster);
}

PriceBook book_of(const SearchJob& job) {
  SoftwareStack stack;
  stack.overlap_grad_reduce = stack.overlap_param_gather = true;
  stack.overlap_slowdown = 1.1256;
  return PriceBook(job.model, job.cluster, {job.type, true, job.sequence, stack});
}

SearchResult run(const SearchJob& job, PriceBook& book) {
  std::vector<Rule> rules;
  return search(job, rules, CostModels::built_in(), book,
                [](const std::string&, std::size_t, std::size_t) {});
}

const Topology& PlanTimes::topology_of(const ParallelStrategy& strategy) {
  const auto known = topologies_.find(strategy.nodes);
  if (known != topologies_.end()) return known->second;
  return topologies_.emplace(strategy.nodes, Topology(book_.cluster(), strategy.nodes)).first->second;
}

PricedPlan PlanTimes::priced(const ParallelStrategy& strategy) {
  return book_.price(strategy, topology_of(strategy));
}

Seconds PlanTimes::played(const ParallelStrategy& strategy) {
  const PricedPlan plan = priced(strategy);
  return estimate_iteration(plan, make_programs(plan), topology_of(strategy));
}

}  // namespace orrery::test
