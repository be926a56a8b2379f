// The quick check of the search against the thorough one of plan files.
#include <array>

#include "platforms/errors.hpp"
#include "strategies/enumerate.hpp"
#include "strategies/obstacles.hpp"
#include "strategies/plan.hpp"
#include "tests/catch.hpp"
#include "tests/strategies/plan_fixture.hpp"
#include "tests/strategies/random_schedule.hpp"

namespace orrery {
namespace {

using test::between;

constexpr std::int64_t kSequence = 4096;

ModelSpec model_of(std::vector<LayerShape> shapes, int layers) {
  ModelSpec model;
  model.shapes = std::move(shapes);
  for (int i = 0; i < layers; ++i) model.layers.push_back(i % static_cast<int>(model.shapes.size()));
  model.vocabulary = 32'000;
  model.hidden = model.shapes.front().hidden;
  return model;
}

LayerShape layer() {
  LayerShape shape;
  shape.hidden = 4096;
  shape.heads = 32;
  shape.kv_heads = 8;
  shape.head_dim = 128;
  shape.ffn = 16'384;
  return shape;
}

struct Candidate {
  ModelSpec model = model_of({layer()}, 32);
  ClusterSpec cluster = test::two_kinds();
  Allocation allocation{8, 1, 1, 2, {{0, 2}, {1, 2}}, {4, 4}};
  Setting setting;
  std::int64_t batch = 64;
  std::int64_t sequence = kSequence;

  [[nodiscard]] Obstacle obstacle() const {
    return shape_obstacle(model, cluster, allocation, setting, batch, sequence);
  }
};

// What check_shape says of the candidate with its layers spread over its parts.
std::optional<Infeasible> thorough(const Candidate& c) {
  ParallelStrategy strategy = strategy_of(c.allocation, c.setting, c.batch, c.sequence, DataType::bf16);
  int next = 0;
  for (int part = 0; part < strategy.part_count(); ++part) {
    const int end = c.model.layer_count() * (part + 1) / strategy.part_count();
    strategy.parts.push_back({next, end - next});
    next = end;
  }
  return check_shape(c.model, strategy, c.cluster);
}

// Reasons of the search alone: plans that would run, and are not worth enumerating or not played.
bool search_only(std::string_view reason) {
  return reason == "a tensor group larger than a node" || reason == "a stage does not fill nodes evenly" ||
         reason == "sequence parallelism without tensor parallelism" ||
         reason == "more stages than layers";  // plans may have the embedding and the loss alone
}

LayerShape random_layer(std::mt19937& random) {
  LayerShape shape = layer();
  shape.heads = 4 * between(random, 1, 8);
  shape.hidden = shape.heads * shape.head_dim;
  shape.kv_heads = 1 << between(random, 0, 2);
  shape.ffn = 512 * between(random, 1, 8);
  if (between(random, 0, 2) == 0) shape.experts = 1 << between(random, 1, 3);
  if (between(random, 0, 3) == 0) shape.shared_ffn = between(random, 1, 8) * 3;
  if (between(random, 0, 5) == 0) shape.sequence = 4 * between(random, 1, 64);
  if (between(random, 0, 3) == 0)
    shape.state_space = {.heads = 8 * between(random, 1, 4),
                         .head_dim = 64,
                         .groups = 1 << between(random, 0, 3),
                         .state = 128,
                         .convolution = 4,
                         .chunk = 256};
  if (between(random, 0, 3) == 0) shape.latent.kv_rank = 512;
  return shape;
}

Candidate random_candidate(std::mt19937& random) {
  Candidate c;
  std::vector<LayerShape> shapes;
  for (int i = between(random, 1, 2); i > 0; --i) shapes.push_back(random_layer(random));
  c.model = model_of(shapes, between(random, 2, 16));
  if (between(random, 0, 5) == 0) c.model.learned_positions = 2048;
  Allocation& a = c.allocation;
  a.tensor = 1 << between(random, 0, 4);
  if (between(random, 0, 4) == 0) a.tensor = 3;
  a.context = between(random, 1, 3);
  a.expert = 1 << between(random, 0, 2);
  a.data = 1 << between(random, 0, 2);
  a.runs = {{1, between(random, 1, 3)}};
  for (NodeGroup& group : c.cluster.groups) {
    group.count = {0, 1000};
    group.gpus_per_node = std::array{4, 6, 8}[static_cast<std::size_t>(between(random, 0, 2))];
  }
  a.nodes = {0, 1000};
  c.setting.micro_batch = 1 << between(random, 0, 1);
  c.setting.sequence_parallel = between(random, 0, 1) == 1;
  if (between(random, 0, 3) == 0) {
    c.setting.recompute.granularity = RecomputeGranularity::selective;
    c.setting.recompute.modules = {kRecomputeModules[static_cast<std::size_t>(
        between(random, 0, static_cast<int>(kRecomputeModules.size()) - 1))]};
  }
  if (between(random, 0, 2) == 0) {
    c.setting.chunks = 2;
    c.setting.schedule = ScheduleKind::interleaved;
  }
  c.batch = 4 * between(random, 1, 16);
  c.sequence = between(random, 0, 3) == 0 ? 8 * between(random, 1, 100) : kSequence;
  return c;
}

std::string describe(const Candidate& c) {
  std::string text =
      "T " + std::to_string(c.allocation.tensor) + " C " + std::to_string(c.allocation.context) + " E " +
      std::to_string(c.allocation.expert) + " D " + std::to_string(c.allocation.data) + " P " +
      std::to_string(c.allocation.stages()) + " micro " + std::to_string(c.setting.micro_batch) + " chunks " +
      std::to_string(c.setting.chunks) + " sequence parallel " + std::to_string(c.setting.sequence_parallel) +
      " batch " + std::to_string(c.batch) + " sequence " + std::to_string(c.sequence) + " layers " +
      std::to_string(c.model.layer_count()) + " positions " + std::to_string(c.model.learned_positions);
  for (const LayerShape& s : c.model.shapes) {
    text += "\nheads " + std::to_string(s.heads) + " kv " + std::to_string(s.kv_heads) + " ffn " +
            std::to_string(s.ffn) + " shared " + std::to_string(s.shared_ffn) + " experts " +
            std::to_string(s.experts) + " sequence " + std::to_string(s.sequence);
  }
  return text;
}

}  // namespace

TEST_CASE("the search drops what a plan file could not say either, and only that") {
  std::mt19937 random(1);
  int fine = 0;
  for (int i = 0; i < 5000; ++i) {
    const Candidate c = random_candidate(random);
    const auto quick = c.obstacle();
    if (quick && search_only(*quick)) continue;
    const auto full = thorough(c);
    INFO(describe(c));
    INFO("search: " << quick.value_or("fine") << "; plan: " << (full ? full->reason : "fine"));
    REQUIRE(quick.has_value() == full.has_value());
    fine += quick ? 0 : 1;
  }
  CHECK(fine > 100);  // the property is not empty
}

TEST_CASE("a plain candidate has a shape") {
  CHECK(!Candidate{}.obstacle());
}

TEST_CASE("every obstacle has its words") {
  using Change = void (*)(Candidate&);
  struct Row {
    std::string reason;
    Change change;
  };
  const auto row = GENERATE(values<Row>({
      {"the batch does not divide", [](Candidate& c) { c.batch = 63; }},
      {"more stages than layers", [](Candidate& c) { c.model.layers.resize(3); }},
      {"sequence parallelism without tensor parallelism",
       [](Candidate& c) {
         c.allocation.tensor = 1;
         c.setting.sequence_parallel = true;
       }},
      {"the sequence does not divide",
       [](Candidate& c) {
         c.allocation.context = 2;
         c.sequence = 4098;  // two blocks for each of two ranks: a multiple of 4
       }},
      {"the sequence does not divide",
       [](Candidate& c) {
         c.setting.sequence_parallel = true;
         c.sequence = 4100;  // 8 tensor ranks
       }},
      {"expert ways do not divide the context and data ways", [](Candidate& c) { c.allocation.expert = 4; }},
      {"a tensor group larger than a node", [](Candidate& c) { c.allocation.tensor = 16; }},
      {"a stage does not fill nodes evenly",
       [](Candidate& c) {
         c.allocation.tensor = 4;  // 12 GPUs on nodes of 8
         c.allocation.context = 3;
         c.sequence = 4098;
       }},
      {"heads do not divide", [](Candidate& c) { c.model.shapes[0].heads = 20; }},
      {"key-value heads do not divide", [](Candidate& c) { c.model.shapes[0].kv_heads = 3; }},
      {"width does not divide", [](Candidate& c) { c.model.shapes[0].ffn = 12; }},
      {"width does not divide", [](Candidate& c) { c.model.shapes[0].shared_ffn = 12; }},
      {"experts do not divide", [](Candidate& c) { c.allocation.expert = 2; }},  // the model has none
      {"experts do not divide",
       [](Candidate& c) {
         c.allocation.expert = 2;
         c.model.shapes[0].experts = 3;
       }},
      {"expert_tensor_parallel_size with unequal tensor ways",
       [](Candidate& c) {
         c.allocation.tensors = {4, 8};
         c.setting.expert_tensor = 8;  // the ways of the stages that have the most
       }},
      {"the sequence is longer than the model's position table",
       [](Candidate& c) { c.model.learned_positions = 2048; }},
      {"too many microbatches", [](Candidate& c) { c.batch = 2 * 65'537; }},
      {"interleaved with one pipeline stage",
       [](Candidate& c) {
         c.setting = {1, 2, ScheduleKind::interleaved, {}, false, false};
         c.allocation.runs = {{0, 1}};
       }},
      {"interleaved: the microbatches do not divide over the stages",
       [](Candidate& c) {
         c.setting = {1, 2, ScheduleKind::interleaved, {}, false, false};
         c.allocation.runs = {{0, 3}};  // 64 / 2 = 32 microbatches
       }},
  }));
  Candidate candidate;
  row.change(candidate);
  CHECK(candidate.obstacle() == row.reason);
}

TEST_CASE("dense layers among layers with experts do not forbid expert parallelism") {
  Candidate candidate;
  LayerShape moe = layer();
  moe.experts = 8;
  candidate.model = model_of({layer(), moe}, 32);  // as DeepSeek's first layers
  candidate.allocation.expert = 2;
  CHECK(!candidate.obstacle());
}

}  // namespace orrery
