// What a fitter remembers of one plan for the next.
#include "sim/bounds/feasibility.hpp"

#include "tests/sim/search_tests.hpp"

namespace orrery {
namespace {

NodeGroup nodes_of(const std::string& gpu, std::mt19937& random) {
  NodeGroup group;
  group.name = gpu;
  group.gpu = find_gpu(gpu, "test");
  group.gpu.memory = group.gpu.memory * (between(random, 20, 60) / 100.0);
  group.gpus_per_node = group.nics_per_node = 4;
  group.count = {0, 4};
  group.gpu_link = {group.gpu.link_bandwidth, microseconds(2)};
  group.nic = {gigabits_per_second(200), microseconds(3)};
  group.host.memory = gibibytes(1024);
  return group;
}

// Of settings that all differ in memory.
SearchJob mixture_job(std::mt19937& random) {
  SearchJob job;
  job.model = read_model("mixtral-8x7b");
  job.model.layers.resize(24);
  for (LayerShape& shape : job.model.shapes) shape.ffn = 2048;  // layers so thin that a card holds several
  job.cluster.name = "two";
  job.cluster.groups = {nodes_of("H100-SXM5-80GB", random), nodes_of("A100-SXM4-40GB", random)};
  const auto full = RecomputeGranularity::full;
  SearchSpace& space = job.space;
  space.tensor = {1, 2};
  space.context = {1, 2};
  space.expert = {1, 2, 4};
  space.expert_tensor = {std::nullopt, 1};
  space.chunks = {1};
  space.micro_batch = {1, 2};
  space.most_stages = 6;
  space.schedules = {ScheduleKind::one_f_one_b, ScheduleKind::gpipe};
  space.recompute = {{},
                     {full, RecomputeMethod::block, 1},
                     {full, RecomputeMethod::block, 2},
                     {full, RecomputeMethod::uniform, 1}};
  if (between(random, 0, 1) == 1) space.flash_attention = {true, false};
  if (between(random, 0, 1) == 1) space.optimizer_offload = {0.0, 0.5};
  if (between(random, 0, 1) == 1) space.optimizer_instances = {1, 2};
  job.mode = SearchMode::heterogeneous;
  job.global_batch = 32;
  job.sequence = 2048;
  job.total_tokens = job.tokens_per_iteration();
  job.top = 1;
  job.pruning = Pruning::always;
  return job;
}

}  // namespace

TEST_CASE("a plan is fitted the same whatever was fitted before it", "[slow]") {
  constexpr int kTriedOfAJob = 3000;
  std::mt19937 random(11);
  int tight = 0;  // plans that fit as equal layers would not
  for (int i = 0; i < 3; ++i) {
    const SearchJob job = mixture_job(random);
    INFO(describe(job));
    PriceBook book = priced_book_of(job);
    StageFitter fitter(book);
    int count = 0;
    for_each_candidate(job, [&](const auto&...) { ++count; });
    for_each_candidate(job, [&](const StageCounts&, const Allocation& allocation, const Setting& setting) {
      if (between(random, 1, std::max(count, 1)) > kTriedOfAJob) return;
      ParallelStrategy plan = strategy_of(allocation, setting, job.global_batch, job.sequence, job.type);
      ParallelStrategy again = plan;
      const auto fitted = fitter.fit(plan);
      const auto expected = StageFitter(book).fit(again);
      CAPTURE(again.pipeline, again.data, again.context, again.expert, again.micro_batch);
      REQUIRE(plan == again);
      REQUIRE(fitted.index() == expected.index());
      const auto* fit = std::get_if<FittedStages>(&fitted);
      if (fit == nullptr) return;
      REQUIRE(fit->parts == std::get<FittedStages>(expected).parts);
      REQUIRE(fit->memory == std::get<FittedStages>(expected).memory);
      const bool is_equal = plan.parts == equal_parts(job.model.layer_count(), plan.part_count());
      tight += is_equal || fitter.fit_equal(plan) ? 0 : 1;
    });
  }
  CHECK(tight > 50);
}

}  // namespace orrery
