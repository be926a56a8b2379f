// Published runs as plans: on rows made up for the purpose.
#include "sim/measured/measured_plan.hpp"

#include <set>

#include "costmodels/stacks/stack_file.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {

using test::gpt;
using test::mapped;
using test::runs_of;
using test::small_run;
using test::unmapped;

TEST_CASE("a row becomes the plan it describes") {
  const MeasuredPlan plan = mapped(runs_of(gpt("a", "2,4,2,1,2", "full,1.5,,ok")).front());
  const ParallelStrategy& strategy = plan.strategies.front();
  CHECK(plan.strategies.size() == 1);
  CHECK(strategy.tensor(0) == 4);
  CHECK(strategy.pipeline == 2);
  CHECK(strategy.data == 2);
  CHECK(strategy.micro_batch == 2);
  CHECK(strategy.microbatches() == 16);
  CHECK(strategy.type == DataType::fp16);
  CHECK(strategy.recompute.granularity == RecomputeGranularity::full);
  CHECK(strategy.parts == std::vector<LayerRange>{{0, 12}, {12, 12}});
  CHECK(plan.stack == read_stack("megatron-lm-2021"));
  CHECK(plan.model.layer(0).ffn == 4 * 2048);
  CHECK(plan.model.tied_embeddings);
  const NodeGroup& group = plan.cluster.groups.front();
  CHECK(group.gpu.name == "A100-SXM4-80GB");
  CHECK(group.nics_per_node == 8);
  CHECK(group.nic.bandwidth == gigabits_per_second(200));
  CHECK(group.count.maximum == 2);
}

TEST_CASE("replicas reduce every microbatch where a row says that they go without no_sync") {
  const auto reduces = [](const std::string& framework, const std::string& note,
                          const std::string& sharding = "DDP") {
    return mapped(small_run({{"framework", framework},
                             {"note", note},
                             {"gbs", "64"},
                             {"mbs", "2"},
                             {"optimizer_sharding", sharding},
                             {"iter_time_s", "1"}}))
        .strategies.front()
        .reduce_each_microbatch;
  };
  CHECK(reduces("own script (PyTorch DDP without no_sync, eager, 2026)", ""));
  CHECK(reduces("plain PyTorch DDP", "gradient accumulation without no_sync: reduced every time"));
  CHECK_FALSE(reduces("plain PyTorch DDP", "64 accumulation steps, no_sync except the last"));
  CHECK_FALSE(reduces("plain PyTorch DDP", "6 accumulation steps of 5 (no_sync: whole gradients are kept)"));
  CHECK_FALSE(reduces("plain PyTorch DDP", ""));
  CHECK_FALSE(reduces("PyTorch FSDP2", "without no_sync", "FSDP"));
}

TEST_CASE("a row without a global batch has one microbatch a replica, where it tells a rate") {
  const auto run = [](std::map<std::string, std::string> cells) {
    cells.insert({{"gbs", ""}, {"mbs", "2"}, {"iter_time_s", ""}, {"tokens_per_s_per_gpu", "10000"}});
    return small_run(cells);
  };
  const MeasuredPlan plan = mapped(run({}));
  CHECK(plan.strategies.front().global_batch == 2 * plan.strategies.front().data);
  CHECK(plan.strategies.front().microbatches() == 1);
  CHECK(std::count(plan.assumptions.begin(), plan.assumptions.end(),
                   "one microbatch a replica, as no global batch is said") == 1);
  CHECK(mapped(run({{"gbs", "64"}})).strategies.front().global_batch == 64);
  CHECK(unmapped(run({{"mbs", ""}})) == "no global batch");
  CHECK(unmapped(run({{"iter_time_s", "1"}})) == "no global batch");
  CHECK(unmapped(run({{"pp", "2"}, {"dp", ""}})) == "no global batch");
}

TEST_CASE("a run has the schedule that its row names") {
  const auto run = [](const std::string& vpp, const std::string& schedule, const std::string& ways = "1,4,",
                      const std::string& data = ",1,") {
    return parse_measured_runs(
               "id,source_key,gpu,gpu_mem_gb,gpus_per_node,n_gpus,framework,model,layers,hidden,heads,vocab,"
               "seq,"
               "precision,gbs,mbs,tp,pp,vpp,dp,schedule,iter_time_s,status\n"
               "a,g,A100,80,8,4,Megatron-LM,GPT,8,1024,16,50304,1024,bf16,64,1," +
                   ways + vpp + data + schedule + ",1,ok\n",
               "made-up.csv")
        .front();
  };
  const auto kind = [&](const std::string& vpp, const std::string& schedule) {
    return mapped(run(vpp, schedule)).strategies.front().schedule;
  };
  CHECK(kind("1", "") == ScheduleKind::one_f_one_b);
  CHECK(kind("1", "1f1b") == ScheduleKind::one_f_one_b);
  CHECK(kind("2", "1F1B") == ScheduleKind::interleaved);
  CHECK(kind("2", "interleaved 1f1b") == ScheduleKind::interleaved);
  CHECK(kind("", "PipeDream-Flush") == ScheduleKind::one_f_one_b);
  CHECK(kind("1", "GPipe") == ScheduleKind::gpipe);
  CHECK(kind("1", "ZB-H1") == ScheduleKind::zb_h1);
  CHECK(kind("", "ZB-2p") == ScheduleKind::zb_h2);
  CHECK(kind("", "zbv") == ScheduleKind::zb_v);
  CHECK(kind("", "DualPipeV") == ScheduleKind::zb_v);
  CHECK(unmapped(run("", "chimera")) == "schedule chimera");
  CHECK(mapped(run("", "none", "1,1,", ",4,")).strategies.front().schedule == ScheduleKind::one_f_one_b);
}

TEST_CASE("rows that cannot be expressed say why") {
  CHECK(unmapped(runs_of(gpt("a", "2,4,2,1,3", "full,1.5,,ok")).front()) ==
        "its ways do not multiply to its GPUs");
  CHECK(unmapped(runs_of(gpt("a", "2,,2,1,", "full,,,OOM")).front()) == "tensor or pipeline ways not given");
  CHECK(contains(unmapped(runs_of(gpt("a", "2,4,2,1,2", "full,1.5,,suspect")).front()), "suspect"));
  CHECK(contains(
      unmapped(runs_of("a,g,A100,80,8,16,,,GPT,24,2048,16,,2048,fp16,64,2,4,2,1,2,,1,,ok\n").front()),
      "no framework"));
  CHECK(contains(
      unmapped(runs_of("a,g,X1,,8,16,,Megatron-LM,GPT,24,2048,16,,2048,fp16,64,2,4,2,1,2,,1,,ok\n").front()),
      "X1"));
  CHECK(contains(
      unmapped(
          runs_of("a,g,H100,80,8,8,,Megatron-Bridge,L,24,2048,16,,2048,NVFP4,64,2,4,2,1,1,,1,,ok\n").front()),
      "no fp4 matrix units"));
}

TEST_CASE("virtual stages that a row leaves open are of all that its layers, embedding and loss make") {
  const auto chunks = [](const std::string& framework, const std::string& layers) {
    const auto rows = runs_of("a,g,H100,80,8,128,," + framework + ",llama," + layers +
                              ",2048,16,32000,2048,bf16,128,1,8,16,,1,none,1,,ok\n");
    std::set<int> tried;
    const MeasuredPlan plan = mapped(rows.front());
    for (const ParallelStrategy& one : plan.strategies) tried.insert(one.chunks);
    CHECK(std::count(plan.assumptions.begin(), plan.assumptions.end(),
                     "virtual stages: 1 to 8, of the fastest") == (tried.size() > 1 ? 1 : 0));
    return tried;
  };
  // 126 layers, embedding and loss are 128 places: 1, 2, 4 or 8 for each of 16 stages.
  CHECK(chunks("A Lab (2024)", "126") == std::set{1, 2, 4, 8});
  CHECK(chunks("DeepSpeed (2024)", "126") == std::set{1});
  CHECK(chunks("Megatron-DeepSpeed", "126") == std::set{1});
}

TEST_CASE("experts are split over tensor ranks unless a run says otherwise or their ways leave no choice") {
  const auto runs = parse_measured_runs(
      "id,source_key,gpu,n_gpus,framework,model,seq,precision,gbs,mbs,tp,pp,dp,cp,ep,etp\n"
      "a,g,H100,64,NeMo 25.02,Mixtral-8x7B,4096,BF16,64,1,2,1,4,8,8,\n"   // the context ranks of a replica
      "b,g,H100,64,NeMo 25.02,Mixtral-8x7B,4096,BF16,64,1,2,1,4,8,8,1\n"  // as it says
      "c,g,H100,8,NeMo 25.02,Mixtral-8x7B,4096,BF16,64,1,2,1,4,1,8,\n",   // 8 ways are more than 4 replicas
      "made-up.csv");
  const auto ways = [&](std::size_t run) {
    return mapped(runs[run]).strategies.front().tensor_of_experts(0);
  };
  CHECK(ways(0) == 2);
  CHECK(ways(1) == 1);
  CHECK(ways(2) == 1);
}

TEST_CASE("expert ways are open where tensor and pipeline ways are, and one where these are known") {
  const auto runs = parse_measured_runs(
      "id,source_key,gpu,n_gpus,framework,model,seq,precision,gbs,mbs,tp,pp,vpp\n"
      "a,g,H100,64,Megatron-LM (2025),Mixtral-8x7B,4096,BF16,256,1,,,1\n"
      "b,g,H100,64,Megatron-LM (2025),Mixtral-8x7B,4096,BF16,256,1,2,4,1\n",
      "made-up.csv");
  const auto expert_ways = [&](std::size_t run) {
    std::set<int> ways;
    for (const ParallelStrategy& one : mapped(runs[run]).strategies) ways.insert(one.expert);
    return ways;
  };
  CHECK(expert_ways(0) == std::set{1, 8});  // of eight experts
  CHECK(expert_ways(1) == std::set{1});
}

TEST_CASE("ZeRO-3 shards weights over all replicas, whether or not tensor ways are printed") {
  const MeasuredPlan plan = mapped(
      runs_of("a,g,A100,80,8,16,,DeepSpeed ZeRO-3,GPT,24,2048,16,51200,2048,fp16,64,4,,1,,16,full,1,,ok\n")
          .front());
  CHECK(plan.stack.name == "deepspeed-zero3");
  CHECK(plan.strategies.front().fully_sharded);
  CHECK(plan.strategies.front().tensor(0) == 1);
  const auto assumes = [](const MeasuredPlan& of, const char* sentence) {
    return std::count(of.assumptions.begin(), of.assumptions.end(), sentence) == 1;
  };
  const MeasuredPlan sharded =
      mapped(runs_of(gpt("a", "2,,,1,", "full,1.5,,ok,FSDP"), ",optimizer_sharding").front());
  CHECK(assumes(sharded, "sharded weights in place of tensor and pipeline ways"));
  // An optimizer that is spread takes no weights apart.
  std::string row = gpt("a", "2,2,,1,", "full,1.5,,ok,ZeRO-1");
  row.replace(row.find("Megatron-LM"), 11, "DeepSpeed (2024)");
  const MeasuredPlan spread = mapped(runs_of(row, ",optimizer_sharding").front());
  CHECK(assumes(spread, "replicas in place of pipeline ways"));
  CHECK(spread.strategies.front().data == 8);
}

TEST_CASE("runs of torchtitan that do not say recompute selectively, as its configurations") {
  const auto of = [](const std::string& framework, const std::string& recompute) {
    return mapped(runs_of("a,g,H100,80,8,8,," + framework + ",llama3-8b,,,,,8192,bf16,8,1,1,1,,8," +
                          recompute + ",1,,ok\n")
                      .front())
        .strategies.front()
        .recompute.granularity;
  };
  CHECK(of("torchtitan (2026)", "") == RecomputeGranularity::selective);
  CHECK(of("torchtitan (2026)", "none") == RecomputeGranularity::none);
  CHECK(of("torchtitan (2026)", "full") == RecomputeGranularity::full);
  CHECK(of("nanotron (2024)", "") == RecomputeGranularity::none);
}

TEST_CASE("attention with sinks is fused since NVIDIA's programs of September 2025") {
  const auto fused = [](const std::string& framework, const std::string& model) {
    return mapped(runs_of("a,g,B200,180,8,8,," + framework + "," + model +
                          ",,,,,4096,bf16,8,1,1,1,,8,none,1,,ok\n")
                      .front())
        .strategies.front()
        .flash_attention;
  };
  CHECK_FALSE(fused("NeMo 2 (August 2025)", "GPT-OSS-20B"));
  CHECK(fused("NeMo 2 (October 2025)", "GPT-OSS-20B"));
  CHECK_FALSE(fused("NeMo 25.07", "GPT-OSS-20B"));
  CHECK(fused("Megatron-Bridge 26.02", "GPT-OSS-20B"));
  CHECK(fused("NeMo 2 (August 2025)", "Qwen3-30B-A3B"));
  CHECK(fused("torchtitan (August 2025)", "GPT-OSS-20B"));
}

TEST_CASE("ZeRO-2 shards gradients with the optimizer where there is no pipeline") {
  const auto of = [](const std::string& ways, const std::string& program = "Colossal-AI (2025)",
                     const std::string& sharding = "ZeRO-2") {
    return mapped(
        parse_measured_runs("id,source_key,gpu,gpus_per_node,n_gpus,framework,model,seq,precision,gbs,mbs,"
                            "tp,pp,dp,optimizer_sharding\n"
                            "a,g,A100,8,16," +
                                program + ",llama2-7b,4096,bf16,64,1," + ways + "," + sharding + "\n",
                            "made-up.csv")
            .front());
  };
  const MeasuredPlan flat = of("1,1,16"), piped = of("1,2,8");
  CHECK(flat.stack.whole_weights);
  CHECK(flat.strategies.front().fully_sharded);
  CHECK_FALSE(piped.strategies.front().fully_sharded);
  CHECK(piped.strategies.front().distributed_optimizer);
  CHECK_FALSE(flat.stack.gathers_in_forward);
  // FSDP that keeps what it gathered, whatever the program is called.
  for (const SoftwareStack& fsdp : {of("1,1,16", "LitGPT torch.compile (2024)", "FSDP2 (ZeRO-2)").stack,
                                    of("1,1,16", "HF Trainer (2024)", "FSDP SHARD_GRAD_OP").stack}) {
    CHECK(fsdp.whole_weights);
    CHECK(fsdp.gathers_in_forward);
    CHECK(fsdp.overlap_grad_reduce);
  }
}

TEST_CASE("how unevenly experts are loaded is the row's word, else the program's") {
  const auto load_cv = [](const std::string& framework, const std::string& cell) {
    return mapped(parse_measured_runs(
                      "id,source_key,gpu,gpus_per_node,n_gpus,framework,model,seq,precision,gbs,mbs,"
                      "tp,pp,dp,ep,expert_load_cv\n"
                      "a,g,H100,8,8," +
                          framework + ",mixtral-8x7b,4096,bf16,64,1,1,1,8,8," + cell + "\n",
                      "made-up.csv")
                      .front())
        .stack.experts.load.cv;
  };
  CHECK(load_cv("Megatron-Core (2025)", "") == 0);
  CHECK(load_cv("Megatron-Core (2025)", "0.6") == 0.6);
  CHECK(load_cv("torchtitan (October 2025)", "") == 1.7);
  CHECK(load_cv("torchtitan (October 2025)", "0") == 0);
}

TEST_CASE("an optimizer with one moment or none keeps and moves so much less, which is said") {
  const auto taken = [](const std::string& framework, const std::string& note) {
    const MeasuredPlan plan =
        mapped(test::small_run({{"framework", framework}, {"model", "Llama"}, {"note", note}}));
    const auto said = std::count_if(plan.assumptions.begin(), plan.assumptions.end(),
                                    [](const std::string& one) { return contains(one, "Adam's step"); });
    CHECK(said == (plan.stack.states.moments ? 1 : 0));
    return plan.stack.states.moments;
  };
  CHECK(taken("torchtitan (2025), Muon", "") == 4.0);
  CHECK(taken("torchtitan (2025)", "MuonH over 8 GPUs") == 4.0);
  CHECK(taken("torchtitan (2025)", "AdamW, not Muon") == std::nullopt);
  CHECK(taken("torchtitan (2025)", "SGD with momentum") == 4.0);
  CHECK(taken("torchtitan (2025), SGD", "") == 0.0);
  CHECK(taken("torchtitan (2025)", "Adafactor") == 0.0);
  CHECK(taken("torchtitan (2025)", "") == std::nullopt);
}

TEST_CASE("runs whose weights and states wait in the host's memory are left out") {
  const auto runs = parse_measured_runs(
      "id,source_key,source_location,gpu,n_gpus,framework,layers,hidden,heads,vocab,seq,gbs,tp,pp\n"
      "a,g,HF + Deepspeed Zero 3 + Full Offload,V100,8,DeepSpeed ZeRO-3,4,1024,16,50257,1024,8,1,1\n",
      "made-up.csv");
  CHECK(contains(unmapped(runs.front()), "offloaded"));
}

TEST_CASE("virtual stages that contradict the pipeline or the schedule leave a run out") {
  const auto reason = [](const std::string& layout, const std::string& schedule) {
    return unmapped(runs_of(gpt("a", layout, "full,1.5,,ok," + schedule), ",schedule").front());
  };
  CHECK(reason("2,4,1,4,4", "") == "vpp 4 without a pipeline (pp 1)");
  CHECK(reason("2,4,2,1,2", "interleaved 1F1B") ==
        "schedule 'interleaved 1F1B' with vpp 1: of how many virtual stages?");
  CHECK(reason("2,4,1,1,4", "interleaved").empty());  // without a pipeline there is no schedule
  CHECK(reason("2,4,2,2,2", "interleaved").empty());
}

TEST_CASE("a run may name the modules that it recomputes") {
  const auto modules = [](const std::string& recompute) {
    return mapped(runs_of(gpt("a", "2,4,2,1,2", recompute + ",1.5,,ok")).front())
        .strategies.front()
        .recompute;
  };
  const auto selective = RecomputeGranularity::selective;
  CHECK(modules("selective") == Recompute{.granularity = selective});
  CHECK(modules("selective: layernorm mlp") ==
        Recompute{.granularity = selective, .modules = {RecomputeModule::layernorm, RecomputeModule::mlp}});
  const std::string why = unmapped(runs_of(gpt("a", "2,4,2,1,2", "selective: mpl,1.5,,ok")).front());
  CHECK(contains(
      why, "recompute 'selective: mpl', not none, full, full of N layers by block or uniform, or selective"));
  CHECK(contains(why, "core_attn, layernorm, mla_up_proj, mlp, moe_act, shared_experts, moe"));
}

TEST_CASE("a cell that is no number leaves its run out by name") {
  const auto reason = [](const std::string& mbs) {
    return unmapped(runs_of(gpt("a", mbs + ",4,2,1,2", "full,1.5,,ok")).front());
  };
  CHECK(reason("two") == "mbs: found 'two', expected a number above zero, from 1e-9 to 1e15");
  for (const char* wrong : {"0", "-1", "1.5", "nan", "1e30", "4k", "1,02", "1,0000"})
    CHECK(contains(reason('"' + std::string(wrong) + '"'), "mbs: "));
  // Of what is printed too, which nothing but an error needs.
  CHECK(contains(unmapped(runs_of(gpt("a", "2,4,2,1,2", "full,fast,,ok")).front()),
                 "iter_time_s: found 'fast'"));
  CHECK(contains(input_error([] { parse_measured_runs("id,gpu,n_gpus\n", "t.csv"); }), "source_key"));
}

TEST_CASE("numbers may have thousands apart, and ways that a run does not have may be 0") {
  const auto runs = parse_measured_runs(
      "id,source_key,gpu,n_gpus,gbs,seq,vpp,ep,tp\na,g,A100,\"1,024\",\"1,048,576\",\"4,096.0\",0,0,0\n",
      "t.csv");
  const MeasuredRun& run = runs.front();
  CHECK(run.integer("n_gpus") == 1024);
  CHECK(run.integer("gbs") == 1'048'576);
  CHECK(run.number("seq") == 4096);
  CHECK_FALSE(run.number("vpp"));
  CHECK_FALSE(run.number("ep"));
  CHECK_FALSE(run.number("tp"));
}

TEST_CASE("layers that do not divide count embedding and loss as layers where the stack does so") {
  const std::string row =
      "a,g,H100,80,8,16,,NeMo/Megatron-Core "
      "24.07,LLAMA,14,2048,16,32000,2048,bf16,64,1,2,4,2,2,none,1,,ok,5632\n";
  const auto parts = mapped(runs_of(row, ",ffn").front()).strategies.front().parts;
  REQUIRE(parts.size() == 8);
  CHECK(parts.front().count == 1);
  CHECK(parts.back().count == 1);
  CHECK(parts[3].count == 2);
}

TEST_CASE("equal pieces count embedding, final norm and head, and the first stages have one more") {
  const auto counts = [](const std::string& layers, const std::string& stages) {
    const std::string header =
        "id,source_key,gpu,gpus_per_node,n_gpus,framework,model,layers,hidden,heads,ffn,vocab,seq,gbs,mbs,tp,"
        "pp,"
        "dp,iter_time_s\n";
    const std::string row = "a,layouts,A100,8,32,Aleph Alpha,Llama," + layers +
                            ",5120,40,13824,128000,2048,64,1,1," + stages + ",,10\n";
    std::vector<int> found;
    const auto run = parse_measured_runs(header + row, "made-up.csv").front();
    const MeasuredPlan plan = mapped(run);
    for (const LayerRange& part : plan.strategies.front().parts) found.push_back(part.count);
    return found;
  };
  CHECK(counts("40", "1") == std::vector{40});
  CHECK(counts("40", "2") == std::vector{21, 19});         // 43 pieces: 22, 21
  CHECK(counts("40", "4") == std::vector{10, 11, 11, 8});  // 11, 11, 11, 10
  CHECK(counts("5", "4") == std::vector{1, 2, 1, 1});      // 2, 2, 2, 2 would leave the last no layer
}

TEST_CASE("DeepSpeed's ZeRO-3 runs of Megatron keep their checkpoints in the host's memory") {
  const std::string header =
      "id,source_key,gpu,n_gpus,framework,layers,hidden,heads,vocab,seq,gbs,tp,pp,optimizer_sharding\n";
  const auto stack = [&](const std::string& sharding) {
    return mapped(parse_measured_runs(header + "a,g,V100,8,Megatron + DeepSpeed,4,1024,16,50257,1024,8,1,1," +
                                          sharding + "\n",
                                      "made-up.csv")
                      .front())
        .stack;
  };
  CHECK(stack("ZeRO-3").saved_inputs == SavedInputs::host);
  CHECK(stack("ZeRO-1") == read_stack("megatron-deepspeed"));
}

// Two replicas of four tensor ways are on a node of 8, so that 32 GPUs of FSDP are in four sets.
TEST_CASE("weights of a hybrid run are sharded within a node, those of others as its table says") {
  const std::string header =
      "id,source_key,gpu,n_gpus,framework,layers,hidden,heads,vocab,seq,gbs,tp,pp,optimizer_sharding,"
      "optimizer_instances\n";
  const auto instances = [&](const std::string& ways) {
    const auto runs = parse_measured_runs(header + "a,g,A100,32," + ways + "\n", "made-up.csv");
    const ParallelStrategy strategy = mapped(runs.front()).strategies.front();
    return std::pair(strategy.fully_sharded, strategy.optimizer_instances);
  };
  const std::string shape = ",4,1024,16,50257,1024,32,";
  CHECK(instances("PyTorch FSDP" + shape + "1,1,HSDP,") == std::pair(true, 4));
  CHECK(instances("PyTorch FSDP" + shape + "4,1,HYBRID_SHARD,") == std::pair(true, 4));
  CHECK(instances("PyTorch FSDP" + shape + "1,1,HSDP,2") == std::pair(true, 2));
  CHECK(instances("PyTorch FSDP" + shape + "1,1,FSDP,") == std::pair(true, 1));
  CHECK(instances("Megatron-Core" + shape + "1,1,ZeRO-1,4") == std::pair(false, 4));
}

TEST_CASE("cuts between DeepSpeed's pieces are cuts between layers") {
  const auto run_of = [](const std::string& model, const std::string& layers, const std::string& cuts) {
    const std::string header =
        "id,source_key,gpu,gpus_per_node,n_gpus,framework,model,layers,hidden,vocab,seq,gbs,mbs,tp,pp,dp,"
        "layer_partition,iter_time_s\n";
    const auto runs =
        parse_measured_runs(header + "a,amp,V100,4,16,DeepSpeed Megatron-LM v1.1.5 3D," + model + "," +
                                layers + ",1024,52256,1024,64,1,1,4,4," + cuts + ",1\n",
                            "made-up.csv");
    return runs.front();
  };
  const auto parts_of = [&](const std::string& model, const std::string& layers, const std::string& cuts) {
    return mapped(run_of(model, layers, cuts)).strategies.front().parts;
  };
  // Embedding and a marker come before the first of 24 layers, four pieces after the last.
  CHECK(parts_of("GPT-2", "24", "0;9;15;21;30") == std::vector<LayerRange>{{0, 7}, {7, 6}, {13, 6}, {19, 5}});
  // Of 56 pieces of TransGAN 3 to 14 and 41 to 52 are layers: 12 to 43 holds three of the first half, two of
  // the other.
  CHECK(parts_of("TransGAN generator", "24", "0;12;43;49;56") ==
        std::vector<LayerRange>{{0, 9}, {9, 5}, {14, 6}, {20, 4}});
  // The layers of each stage, however they are listed, and as even as they divide.
  const std::vector<LayerRange> listed{{0, 7}, {7, 6}, {13, 6}, {19, 5}};
  for (const char* counts : {"7;6;6;5", "[7; 6; 6; 5]", "7|6|6|5", "\"7,6,6,5\""})
    CHECK(parts_of("GPT-2", "24", counts) == listed);
  CHECK(parts_of("GPT-2", "24", "uniform") == parts_of("GPT-2", "24", ""));
  CHECK(contains(unmapped(run_of("GPT-2", "24", "7;6;6;6")), "layer_partition '7;6;6;6'"));
  // As many pieces as layers are layers.
  CHECK(parts_of("GPT-2", "24", "0;7;13;19;24") == std::vector<LayerRange>{{0, 7}, {7, 6}, {13, 6}, {19, 5}});
  // The last stage may have the head alone. A stage between without a layer is no partition that can be
  // played, and no other is put in its place.
  const LayerRange all_but_head{16, 8, false, true}, head{24, 0};
  const auto last = parts_of("GPT-2", "24", "0;9;18;26;30");
  CHECK(last.back() == head);
  CHECK(last[2] == all_but_head);
  CHECK(unmapped(run_of("GPT-2", "24", "0;9;9;18;30")) ==
        "layer_partition '0;9;9;18;30', not the layers of each part ('20,12'), nor those before each and all "
        "('0;20;32'), nor a layout as Megatron-LM's ('Et*20|t*12L')");
}

TEST_CASE("a layout in Megatron-LM's letters says layers and virtual stages") {
  const auto run_of = [](const std::string& layout) {
    return parse_measured_runs(
               "id,source_key,gpu,gpus_per_node,n_gpus,framework,model,layers,hidden,vocab,seq,gbs,mbs,tp,"
               "pp,dp,layer_partition,iter_time_s\na,g,H100,8,16,Megatron-LM (2026),GPT,14,1024,51200,1024,"
               "64,1,1,4,4,\"" +
                   layout + "\",1\n",
               "made-up.csv")
        .front();
  };
  const auto counts_of = [&](const std::string& layout) {
    std::vector<int> counts;
    const MeasuredPlan plan = mapped(run_of(layout));
    for (const LayerRange& part : plan.strategies.front().parts) counts.push_back(part.count);
    return counts;
  };
  CHECK(counts_of("Ettt|tttt|tttt|tttL") == std::vector{3, 4, 4, 3});
  CHECK(counts_of("Et*3|(t*4|)*2,t*3L") == std::vector{3, 4, 4, 3});
  CHECK(counts_of("E|(t*7|)*2L") == std::vector{0, 7, 7, 0});
  // Eight parts of four stages are two virtual stages each; m is none of the layers.
  CHECK(counts_of("Ett|(tt|)*6mL") == std::vector{2, 2, 2, 2, 2, 2, 2, 0});
  CHECK(mapped(run_of("Ett|(tt|)*6mL")).strategies.front().chunks == 2);
  for (const char* wrong : {"Ett|tt|tt|ttL", "Et*0|t*7|t*7|L", "E|t*14||L", "Et*|t|t|L", "Ex|t*14|t|L",
                            "Et*14L", "E(((|)*999)*999)*999,t*14L"})
    CHECK(contains(unmapped(run_of(wrong)), "layer_partition '"));
}

}  // namespace orrery
