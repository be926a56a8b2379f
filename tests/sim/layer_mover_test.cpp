// Splits of layers that know of transfers and reductions.
#include "sim/search/layer_mover.hpp"

#include <algorithm>

#include "platforms/cluster.hpp"
#include "tests/catch.hpp"
#include "tests/sim/random_search.hpp"

namespace orrery {
namespace {

using test::PlanTimes;
using test::run;

// On two nodes of A100 and two of V100: stages of 2 ways and of 8.
SearchJob mixed_job() {
  SearchJob job;
  job.model = read_model("llama2-7b");
  job.cluster = read_cluster("mixed-p4d-p3");
  job.space.tensor = {2, 8};
  job.space.context = {1};
  job.space.chunks = {1};
  job.space.micro_batch = {2};
  job.space.most_stages = 5;
  job.space.recompute = {{}};
  job.space.sequence_parallel = {true};
  job.space.distributed_optimizer = {true};
  job.space.mix_replicas = false;
  job.mode = SearchMode::heterogeneous;
  job.type = DataType::fp16;
  job.global_batch = 128;
  job.sequence = 4096;
  job.total_tokens = 1e9;
  return job;
}

}  // namespace

// Four A100 stages of 2 ways reduce four times the parameters a GPU that the V100 stage of 8 ways does: the
// split with the least pipeline time gives them too many layers.
TEST_CASE("unlike stages are split by what transfers and reductions take, not by the pipeline alone") {
  SearchJob job = mixed_job();
  job.top = 1000;
  PriceBook book(job.model, job.cluster, {job.type, true, job.sequence});
  const SearchResult result = run(job, book);
  StageFitter fitter(book);
  PlanTimes times(book);
  std::size_t ahead_of_fitted = 0, equal = 0;
  for (const RatedPlan& plan : result.plans) {
    ParallelStrategy fitted = plan.strategy;
    REQUIRE(std::holds_alternative<FittedStages>(fitter.fit(fitted)));
    const Seconds time = times.played(fitted);
    CHECK(plan.iteration <= time);
    ahead_of_fitted += plan.iteration < time * 0.99 ? 1 : 0;
    if (const auto other = fitter.fit_equal(fitted)) {
      fitted.parts = other->parts;
      CHECK(plan.iteration <= times.played(fitted));
      ++equal;
    }
  }
  CHECK(ahead_of_fitted > 0);
  CHECK(equal > 10);

  SearchJob one = job;
  one.top = 1;
  PriceBook second(job.model, job.cluster, {job.type, true, job.sequence});
  CHECK(run(one, second).plans.front().strategy == result.plans.front().strategy);
}

// Virtual stages: the last part has the head, and V100 stages one part each side of the middle.
TEST_CASE("virtual stages get unequal numbers of layers where that is faster") {
  SearchJob job = mixed_job();
  job.space.chunks = {2};
  job.space.tensor = {8};
  job.top = 10;
  PriceBook book(job.model, job.cluster, {job.type, true, job.sequence});
  const SearchResult result = run(job, book);
  StageFitter fitter(book);
  PlanTimes times(book);
  REQUIRE(!result.plans.empty());
  std::size_t unequal = 0;
  for (const RatedPlan& plan : result.plans) {
    ParallelStrategy fitted = plan.strategy;
    REQUIRE(fitted.chunks == 2);
    REQUIRE(std::holds_alternative<FittedStages>(fitter.fit(fitted)));
    if (fitted.parts == plan.strategy.parts) continue;
    ++unequal;
    CHECK(plan.iteration < times.played(fitted));
  }
  CHECK(unequal > 0);
}

}  // namespace orrery
