// Recomputed layers: how many are just enough, and what a search makes of them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/bounds/feasibility.hpp"
#include "tests/catch.hpp"
#include "tests/costmodels/priced_clusters.hpp"
#include "tests/sim/run_program.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;

constexpr Recompute kFewest{RecomputeGranularity::full, RecomputeMethod::block, 0};

ParallelStrategy pipeline(int stages, int chunks) {
  ParallelStrategy strategy;
  strategy.pipeline = stages;
  strategy.chunks = chunks;
  strategy.schedule = chunks > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
  strategy.transfers = default_transfers(strategy.schedule);
  strategy.micro_batch = 2;
  strategy.global_batch = 32;
  strategy.sequence = 4096;
  strategy.sequence_parallel = true;
  strategy.distributed_optimizer = true;
  strategy.stages.assign(static_cast<std::size_t>(stages), {0, 2});
  strategy.nodes = {(2 * stages + 7) / 8, 0};
  return strategy;
}

// Llama-2-7B on two tensor ways; cards of so many GiB.
PriceBook book_on(double gibibytes_of_card) {
  ClusterSpec cluster = test::two_priced_kinds();
  cluster.groups[0].gpu.memory = gibibytes(gibibytes_of_card);
  PriceBook book(read_model("llama2-7b"), cluster, {DataType::bf16, true, 4096});
  for (const int stages : {2, 4}) book.need(pipeline(stages, 1));
  book.predict(test::cost_models());
  return book;
}

bool fits(const PriceBook& book, ParallelStrategy strategy) {
  return std::holds_alternative<FittedStages>(StageFitter(book).fit(strategy));
}

}  // namespace

TEST_CASE("the fewest layers recomputed are enough, and one less is not") {
  const auto [stages, chunks, card] = GENERATE(table<int, int, double>({{2, 1, 45}, {4, 1, 24}, {4, 2, 32}}));
  const PriceBook book = book_on(card);
  ParallelStrategy fewest = pipeline(stages, chunks);
  fewest.recompute = kFewest;
  StageFitter fitter(book);
  REQUIRE(std::holds_alternative<FittedStages>(fitter.fit(fewest)));
  CAPTURE(fewest.recompute.layers);
  REQUIRE(fewest.recompute.layers > 1);
  CHECK(!fitter.too_full(fewest, fitter.memory_of(fewest)));
  // The same split with one less, and any split with far less.
  ParallelStrategy less = fewest;
  --less.recompute.layers;
  CHECK(fitter.too_full(less, fitter.memory_of(less)));
  less.recompute = {};
  CHECK(!fits(book, less));
}

TEST_CASE("blocks that the allocator keeps end where the card does") {
  ParallelStrategy plan = pipeline(2, 1);
  plan.parts = equal_parts(32, 2);
  const auto first_stage = [&](double card) {
    const PriceBook book = book_on(card);
    return StageFitter(book).memory_of(plan).front();
  };
  const StageMemory roomy = first_stage(80);
  REQUIRE(to_gibibytes(roomy.cached) > 0.2);
  const Bytes in_use = roomy.total() - roomy.cached;
  const StageMemory tight = first_stage(to_gibibytes(in_use) + 0.1),
                    none = first_stage(to_gibibytes(in_use) - 0.1);
  CHECK(to_gibibytes(tight.cached) == Approx(0.1));
  CHECK(none.cached == Bytes(0));
  CHECK(tight.must_fit() == roomy.must_fit());
}

TEST_CASE("where nothing needs to be recomputed one layer is, and where all is not enough nothing fits") {
  ParallelStrategy roomy = pipeline(4, 1), tight = roomy;
  roomy.recompute = tight.recompute = kFewest;
  const PriceBook large = book_on(80), small = book_on(12);
  CHECK(fits(large, roomy));
  StageFitter(large).fit(roomy);
  CHECK(roomy.recompute.layers == 1);
  CHECK(!fits(small, tight));
}

// From the command line to the plan file, its replay, the launch file and the JSON.
TEST_CASE("a search that may recompute just enough does, is faster for it, and says how many layers") {
  const Workplace place;
  place.write("c.yaml",
              "name: c\ngroups:\n  - {name: a, gpu: A100-SXM4-40GB, gpus_per_node: 4, count: 1, "
              "nics_per_node: 1, nic_bandwidth: 100Gbps}\n");
  const auto found = [&](const std::string& recompute) {
    place.write("space.yaml",
                "tensor_model_parallel_size: 4\ncontext_parallel_size: 1\nmicro_batch_size: [2]\n"
                "num_virtual_stages_per_pipeline_rank: 1\nrecompute_granularity: [none, full]\n" +
                    recompute);
    const ProgramResult result = place.run(small_search(
        {"--model", "llama2-7b", "--cluster", "c.yaml", "--sequence", "4096", "--json", "--quiet"}));
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    return Json::parse(result.out).at("plans").at(0);
  };
  const Json all = found("recompute_method: uniform\n");
  const Json fewest = found("recompute_method: [uniform, block]\nrecompute_num_layers: auto\n");
  REQUIRE(all.at("strategy").at("recompute_granularity") == "full");
  REQUIRE(fewest.at("strategy").at("recompute_method") == "block");
  const int layers = fewest.at("strategy").at("recompute_num_layers");
  CHECK(layers > 1);
  CHECK(layers < 32);
  CHECK(fewest.at("replay").at("iteration_s").get<double>() <
        all.at("replay").at("iteration_s").get<double>());
  CHECK(place.read("out/plan-01.yaml").find("method: block, layers: " + std::to_string(layers)) !=
        std::string::npos);
  CHECK(place.read("out/launch-01.args").find("--recompute-num-layers " + std::to_string(layers) + "\n") !=
        std::string::npos);
  const ProgramResult replayed = place.run({"replay", "--plan", "out/plan-01.yaml", "--json", "--quiet"});
  REQUIRE(replayed.code == 0);
  CHECK(Json::parse(replayed.out).at("iteration_s").get<double>() ==
        Approx(fewest.at("replay").at("iteration_s").get<double>()).epsilon(1e-9));
}

}  // namespace orrery
