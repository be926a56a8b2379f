// What is the same for all stages of a candidate, and the strategy that it makes.
#include <algorithm>
#include <set>

#include "strategies/enumerate.hpp"
#include "strategies/obstacles.hpp"
#include "tests/catch.hpp"

namespace orrery {

TEST_CASE("zb-v has two chunks whatever the chunks of interleaved are; zero bubble needs a pipeline") {
  SearchSpace space;
  space.micro_batch = {1};
  space.chunks = {1, 4};
  space.schedules = {ScheduleKind::one_f_one_b, ScheduleKind::zb_h1, ScheduleKind::zb_v};
  std::set<std::pair<ScheduleKind, int>> found;
  for (const Setting& setting : settings(space)) found.emplace(setting.schedule, setting.chunks);
  CHECK(found == std::set<std::pair<ScheduleKind, int>>{{ScheduleKind::one_f_one_b, 1},
                                                        {ScheduleKind::interleaved, 4},
                                                        {ScheduleKind::zb_h1, 1},
                                                        {ScheduleKind::zb_v, 2}});
}

TEST_CASE("settings are the product of what is named, interleaved where there are chunks") {
  SearchSpace space;
  space.chunks = {1, 2, 4};
  space.micro_batch = {1, 2};
  space.schedules = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b};
  // 2 micro batches x (2 schedules of one chunk + 2 interleaved) x 2 recomputations x 2 x 2 switches.
  const std::vector<Setting> all = settings(space);
  CHECK(all.size() == 2 * (2 + 2) * 2 * 2 * 2);
  std::set<std::tuple<std::int64_t, int, ScheduleKind, RecomputeGranularity, bool, bool>> distinct;
  for (const Setting& s : all) {
    CHECK((s.chunks > 1) == (s.schedule == ScheduleKind::interleaved));
    distinct.emplace(s.micro_batch, s.chunks, s.schedule, s.recompute.granularity, s.sequence_parallel,
                     s.distributed_optimizer);
  }
  CHECK(distinct.size() == all.size());
}

TEST_CASE("layers to recompute and flash attention are choices of a setting") {
  const SearchSpace space = parse_space(
      "micro_batch_size: 1\nnum_virtual_stages_per_pipeline_rank: 1\nsequence_parallel: true\n"
      "use_distributed_optimizer: true\nrecompute_granularity: [none, full]\n"
      "recompute_method: [uniform, block]\nrecompute_num_layers: [1, 2, 3]\n"
      "use_flash_attn: [true, false]\n",
      "space.yaml");
  // none, and two methods of three.
  const std::vector<Setting> all = settings(space);
  CHECK(all.size() == (1 + 2 * 3) * 2);
  const ModelSpec model = read_model("llama2-7b");  // 32 layers
  Setting block = all.back();
  block.recompute = {RecomputeGranularity::full, RecomputeMethod::block, 29};
  CHECK(!stages_obstacle(model, block, 4, 8));  // 29 + 1 + 1 + 1
  block.recompute.layers = 30;
  CHECK(stages_obstacle(model, block, 4, 8) == "more layers to recompute than a part can have");
}

TEST_CASE(
    "fully sharded weights need copies, the distributed optimizer, one stage, and are on their way beside "
    "it") {
  const ModelSpec model = read_model("llama2-7b");
  Setting setting;
  setting.fully_sharded = true;
  const auto obstacle = [&](const Ways& ways) { return setting_obstacle(model, ways, setting, 64, 4096); };
  CHECK(obstacle({1, 1, 1, 8, {}}) == "use_megatron_fsdp without use_distributed_optimizer");
  setting.distributed_optimizer = true;
  CHECK(!obstacle({1, 1, 1, 8, {}}));
  CHECK(!obstacle({1, 2, 1, 1, {}}));
  CHECK(obstacle({2, 1, 1, 1, {}}) == "use_megatron_fsdp with one copy of the weights");
  CHECK(!stages_obstacle(model, setting, 1, 8));
  CHECK(stages_obstacle(model, setting, 2, 8) == "use_megatron_fsdp with pipeline stages");
  const Allocation allocation{1, 1, 1, 8, {{0, 1}}, {1}};
  const ParallelStrategy strategy = strategy_of(allocation, setting, 64, 4096, DataType::bf16);
  CHECK(strategy.fully_sharded);
  CHECK(with_overlaps(strategy, setting).size() == 1);  // nothing is left to overlap
  SearchSpace space;
  space.overlap_grad_reduce = {true, false};
  space.fully_sharded = {true, false};
  const std::vector<Setting> all = settings(space);
  const auto sharded =
      std::count_if(all.begin(), all.end(), [](const Setting& s) { return s.fully_sharded; });
  CHECK(static_cast<std::size_t>(3 * sharded) == all.size());
}

TEST_CASE("a strategy says what its allocation and setting say") {
  Allocation allocation{2, 4, 2, 8, {{1, 3}, {0, 2}}, {5, 7}};
  Setting setting{4, 1, ScheduleKind::one_f_one_b, {RecomputeGranularity::full}, true, true};
  const ParallelStrategy s = strategy_of(allocation, setting, 64, 4096, DataType::fp16);
  CHECK(s.pipeline == 5);
  CHECK(s.stages == std::vector<StageDevices>{{1, 2}, {1, 2}, {1, 2}, {0, 2}, {0, 2}});
  CHECK(std::tuple(s.data, s.context, s.expert, s.chunks) == std::tuple(8, 4, 2, 1));
  CHECK(std::tuple(s.micro_batch, s.global_batch, s.sequence) == std::tuple(4, 64, 4096));
  CHECK(s.microbatches() == 64 / (4 * 8));
  CHECK(s.gpus() == 5 * 2 * 4 * 8);
  CHECK(s.type == DataType::fp16);
  CHECK(s.recompute == setting.recompute);
  CHECK((s.sequence_parallel && s.distributed_optimizer));
  CHECK(s.flash_attention);
  CHECK(s.nodes == allocation.nodes);
  CHECK(s.transfers == TransferMode::blocking);
  setting.schedule = ScheduleKind::interleaved;
  CHECK(strategy_of(allocation, setting, 64, 4096, DataType::fp16).transfers == TransferMode::overlapped);
}

}  // namespace orrery
