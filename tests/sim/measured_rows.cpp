#include "tests/sim/measured_rows.hpp"

#include "sim/measured/measured_stack.hpp"
#include "tests/catch.hpp"

namespace orrery::test {
namespace {

constexpr const char* kHeader =
    "id,source_key,gpu,gpu_mem_gb,gpus_per_node,n_gpus,interconnect,framework,model,layers,hidden,heads,"
    "vocab,seq,precision,gbs,mbs,tp,pp,vpp,dp,recompute,iter_time_s,peak_mem_gb,status";

}  // namespace

std::vector<MeasuredRun> runs_of(const std::string& rows, const std::string& columns) {
  return parse_measured_runs(kHeader + columns + "\n" + rows, "made-up.csv");
}

std::string gpt(const std::string& id, const std::string& layout, const std::string& end) {
  return id + ",group,A100,80,8,16,8x200 Gbps per node,Megatron-LM,GPT,24,2048,16,51200,2048,fp16,64," +
         layout + "," + end + "\n";
}

MeasuredPlan mapped(const MeasuredRun& run) {
  auto plan = map_run(run, std::nullopt);
  if (const auto* trouble = std::get_if<Unmapped>(&plan)) FAIL(trouble->reason);
  return std::get<MeasuredPlan>(plan);
}

std::string unmapped(const MeasuredRun& run) {
  const auto plan = map_run(run, std::nullopt);
  const auto* trouble = std::get_if<Unmapped>(&plan);
  return trouble == nullptr ? "" : trouble->reason;
}

MeasuredRun small_run(std::map<std::string, std::string> cells) {
  cells.insert({{"id", "a"},
                {"source_key", "g"},
                {"gpu", "H100"},
                {"n_gpus", "8"},
                {"framework", "Megatron-Core"},
                {"layers", "4"},
                {"hidden", "1024"},
                {"heads", "16"},
                {"ffn", "4096"},
                {"vocab", "50257"},
                {"seq", "1024"},
                {"gbs", "8"},
                {"tp", "1"},
                {"pp", "1"}});
  std::erase_if(cells, [](const auto& cell) { return cell.second.empty(); });
  return MeasuredRun(std::move(cells));
}

SoftwareStack stack_of(std::map<std::string, std::string> cells) {
  std::vector<std::string> assumptions;
  const auto stack = stack_of_run(MeasuredRun(std::move(cells)), assumptions);
  REQUIRE(stack);
  return *stack;
}

}  // namespace orrery::test
