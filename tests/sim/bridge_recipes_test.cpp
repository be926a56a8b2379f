// What Megatron-Bridge's recipes say of a run where its row does not.
#include <string>
#include <vector>

#include "costmodels/stacks/stack_file.hpp"
#include "sim/measured/measured_plan.hpp"
#include "sim/measured/measured_stack.hpp"
#include "tests/catch.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {

using test::mapped;

TEST_CASE("recipes of Megatron-Bridge say what is recomputed, sharded and kept in 16 bits") {
  const auto runs = parse_measured_runs(
      "id,source_key,gpu,n_gpus,framework,model,seq,precision,gbs,mbs,tp,pp,ep\n"
      "a,g,H100,16,Megatron-Bridge 26.04,Nemotron_3_Nano,8192,FP8,1024,1,1,1,8\n"
      "b,g,GB200,64,Megatron-Bridge 26.04,Nemotron_3_Super,8192,NVFP4,512,1,2,1,64\n"
      "c,g,GB200,64,Megatron-Bridge 26.04,LLAMA3_70B,8192,FP8,256,2,1,1,\n"
      "d,g,GB200,64,Megatron-Bridge 26.04,LLAMA3_70B,8192,MXFP8,256,1,2,4,\n",
      "made-up.csv");
  const MeasuredPlan nano = mapped(runs[0]), super = mapped(runs[1]), alone = mapped(runs[2]),
                     piped = mapped(runs[3]);
  const Recompute& recompute = nano.strategies.front().recompute;
  CHECK(recompute.granularity == RecomputeGranularity::selective);
  CHECK(recompute.modules.repeats(RecomputeModule::moe));
  CHECK(super.strategies.front().recompute.granularity == RecomputeGranularity::none);
  // 64 expert ways over two tensor ranks of 32 replicas.
  CHECK(super.strategies.front().tensor_of_experts(0) == 1);
  CHECK(super.strategies.front().replicas_sharing_experts() == 32);
  CHECK(alone.strategies.front().fully_sharded);
  CHECK_FALSE(piped.strategies.front().fully_sharded);
  CHECK(alone.stack.fp8_recipe == Fp8Recipe::tensorwise);
  CHECK(piped.stack.fp8_recipe == Fp8Recipe::mxfp8);
  // Of 88 layers the first, the last 14 and the eight of attention, one of them in the last 14; two more for
  // further predictions.
  int wide = 0;
  for (int layer = 0; layer < super.model.layer_count(); ++layer) {
    const LayerShape& shape = super.model.layer(layer);
    wide += shape.sixteen_bit ? 1 : 0;
    if (shape.has_attention()) CHECK(shape.sixteen_bit);
  }
  CHECK(wide == 1 + 14 + 7 + super.model.layer_count() - 88);
  CHECK_FALSE(super.model.layer(1).sixteen_bit);
}

TEST_CASE("a note's last layers in 16 bits stay there where the others multiply in 4") {
  const auto wide = [](const std::string& precision, const std::string& note) {
    const std::string row =
        "r,g,GB200,4,torchtitan (August 2026),Llama 3 8B,2048," + precision + ",128,32," + note;
    const MeasuredPlan plan =
        mapped(parse_measured_runs(
                   "id,source_key,gpu,n_gpus,framework,model,seq,precision,gbs,mbs,note\n" + row + "\n",
                   "made-up.csv")
                   .front());
    std::vector<int> layers;
    for (int layer = 0; layer < plan.model.layer_count(); ++layer)
      if (plan.model.layer(layer).sixteen_bit) layers.push_back(layer);
    return layers;
  };
  CHECK(wide("NVFP4", "compiled; 5 of 32 layers bf16") == std::vector{27, 28, 29, 30, 31});
  CHECK(wide("NVFP4", "last 2 layers in bf16 with NVFP4") == std::vector{30, 31});
  CHECK(wide("NVFP4", "last 99 layers in bf16").size() == 32);
  CHECK(wide("NVFP4", "").empty());
  CHECK(wide("MXFP8", "5 of 32 layers bf16").empty());
}

TEST_CASE("DeepSeek-V3 under Megatron-Bridge has the stages of its recipe, unless its row says them") {
  const auto parts = [](const std::string& framework, const std::string& ways) {
    const MeasuredPlan plan = mapped(
        parse_measured_runs("id,source_key,gpu,n_gpus,framework,model,seq,precision,gbs,mbs,tp,pp,vpp,ep\n"
                            "a,g,GB200,256," +
                                framework + ",DeepSeekV3,4096,MXFP8,4096,1,1," + ways + "\n",
                            "made-up.csv")
            .front());
    std::vector<int> counts;
    for (const LayerRange& part : plan.strategies.front().parts) counts.push_back(part.count);
    return counts;
  };
  // The last has one layer, and what predicts a second token.
  std::vector<int> sixteen(16, 4);
  sixteen.back() = 2;
  CHECK(parts("Megatron-Bridge 26.06", "4,4,64") == sixteen);
  CHECK(parts("Megatron-Bridge 26.06", "16,1,16") == sixteen);
  CHECK(parts("Megatron-Bridge 26.06", "4,2,64") == std::vector{8, 8, 8, 8, 8, 8, 8, 6});
  std::vector<int> of_two(32, 2);
  of_two.front() = of_two.back() = 1;
  CHECK(parts("Megatron-Bridge 26.06", "8,4,32") == of_two);
  CHECK(parts("Megatron-Core", "4,4,64") != sixteen);
}

TEST_CASE("recipes of Megatron-Bridge differ in how tokens reach experts and what runs beside that") {
  struct Row {
    const char *release, *model, *gpu, *precision, *stack;
  };
  const auto row = GENERATE(values<Row>({
      {"25.09", "DeepSeekV3 (tokendrop)", "B200", "fp8", "megatron-bridge-25.09"},
      {"25.09", "DeepSeekV3 (dropless)", "H100", "fp8", "megatron-bridge-deepep-overlap"},
      {"25.11", "Qwen3_235B_a22B", "H100", "FP8-CS", "megatron-bridge-alltoall-overlap"},
      {"25.11", "Qwen3_30B_a3B", "GB200", "FP8-MX", "megatron-bridge"},
      {"25.11", "GPT OSS 120B", "GB200", "BF16", "megatron-bridge-alltoall"},
      {"26.02", "Qwen3_235B_a22B", "B300", "MXFP8", "megatron-bridge-alltoall-overlap"},
      {"26.02.01", "Qwen3_30B_a3B", "B200", "MXFP8", "megatron-bridge-deepep"},
      {"26.04", "Qwen3_235B_a22B", "B300", "MXFP8", "megatron-bridge-alltoall"},
      {"26.04.01", "Qwen3_235B_a22B", "B300", "MXFP8", "megatron-bridge-eager"},
      {"26.04.01", "DeepSeekV3", "B200", "MXFP8", "megatron-bridge-graphs-overlap"},
      {"26.04.01", "DeepSeekV3", "B200", "NVFP4", "megatron-bridge-deepep-overlap"},
      {"26.04", "GPT OSS 120B", "GB200", "BF16", "megatron-bridge-overlap"},
      {"26.06", "Qwen3_30B_a3B", "GB200", "BF16", "megatron-bridge"},
      {"26.06.01", "Qwen3_30B_a3B", "GB200", "MXFP8", "megatron-bridge-26.06"},
      {"26.06.01 with all-to-all", "Qwen3_30B_a3B", "GB200", "MXFP8", "megatron-bridge-alltoall"},
      {"26.02 with all-to-all", "Qwen2.5-72B", "GB200", "bf16", "megatron-bridge-library-qwen"},
      {"26.06", "Nemotron_3_Nano", "GB200", "MXFP8", "megatron-bridge"},
      {"26.08", "GPT OSS 120B", "GB300", "MXFP8", "megatron-bridge-26.06"},
      {"26.08", "gpt-oss-120b", "GB300", "MXFP8", "megatron-bridge-26.06"},
      {"26.08", "gpt-oss-120b", "GB300", "mxfp8", "megatron-bridge-26.06"},
      {"26.08 (partial CUDA graphs)", "gpt-oss-120b", "GB300", "mxfp8", "megatron-bridge"},
      {"26.08 (no CUDA graphs)", "gpt-oss-120b", "GB300", "mxfp8", "megatron-bridge"},
      {"26.04", "DeepSeek-V3", "H100", "BF16", "megatron-bridge-eager"},
      {"26.02", "Llama 3.1 70B", "B200", "MXFP8", "megatron-bridge"},
      {"26.02", "Qwen2.5-72B", "GB200", "bf16", "megatron-bridge-library-qwen"},
      {"26.02", "Mistral-7B", "GB200", "bf16", "megatron-bridge-library"},
  }));
  const auto runs = parse_measured_runs("id,source_key,gpu,n_gpus,framework,model,precision\na,g," +
                                            std::string(row.gpu) + ",8,Megatron-Bridge " + row.release + "," +
                                            row.model + "," + row.precision + "\n",
                                        "made-up.csv");
  std::vector<std::string> assumptions;
  CAPTURE(row.release, row.model, row.gpu);
  CHECK(stack_of_run(runs.front(), assumptions)->name == row.stack);
  const auto overlap = [](const char* name) { return read_stack(name).experts.overlap; };
  CHECK(overlap("megatron-bridge-26.06") == overlap("megatron-bridge-overlap"));
  CHECK_FALSE(read_stack("megatron-bridge-alltoall").experts.dispatch.has_value());
  CHECK(read_stack("megatron-bridge-26.06").experts.fused);
  // HybridEP and capacities align the rows of experts, NCCL's all-to-all and DeepEP do not.
  const auto pads = [](const char* name) { return read_stack(name).experts.pads_rows; };
  for (const char* name : {"megatron-bridge", "megatron-bridge-25.09", "megatron-bridge-26.06"})
    CHECK_FALSE(pads(name));
  for (const char* name : {"megatron-core", "megatron-bridge-alltoall", "megatron-bridge-deepep"})
    CHECK(pads(name));
}

}  // namespace orrery
