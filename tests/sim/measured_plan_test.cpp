// Published runs as plans: on rows made up for the purpose.
#include "sim/measured_plan.hpp"

#include <algorithm>
#include <set>

#include "sim/measured_network.hpp"

#include "sim/measured_names.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {

using test::gpt;
using test::mapped;
using test::runs_of;
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

TEST_CASE("one InfiniBand card a node and Omni-Path slow collectives and not the card, one of Ethernet all") {
  const auto plan_over = [](const std::string& network) {
    std::string row = gpt("a", "2,4,2,1,2", "full,1.5,,ok");
    const std::string said = "8x200 Gbps per node";
    return mapped(runs_of(row.replace(row.find(said), said.size(), network)).front());
  };
  const MeasuredPlan own = plan_over("8x200 Gbps InfiniBand per node");
  CHECK(own.stack.network.collectives == 1.0);
  // What each of eight cards of a DGX A100 has.
  CHECK(plan_over("200 Gb/s HDR InfiniBand").cluster == own.cluster);
  CHECK(plan_over("200 Gb/s InfiniBand per node").cluster.groups.front().nics_per_node == 1);
  const MeasuredPlan shared = plan_over("InfiniBand 100 Gb/s");
  CHECK(shared.cluster.groups.front().nic.bandwidth == gigabits_per_second(100));
  // 6 GB/s, where the cost models expect 0.85 of 12.5 GB/s.
  CHECK(shared.stack.network.collectives == Approx(6 / (0.85 * 12.5)));
  CHECK(plan_over("InfiniBand 40 Gb/s").stack.network.collectives == 1.0);  // 0.85 of 5 GB/s
  // 40.6 Gb/s of a node, where the cost models expect 0.85 of its four cards.
  const MeasuredPlan omni_path = plan_over("4x100 Gbps Omni-Path per node");
  CHECK(omni_path.cluster.groups.front().nic.bandwidth == gigabits_per_second(100));
  CHECK(omni_path.cluster.groups.front().nics_per_node == 4);
  CHECK(omni_path.stack.network.collectives == Approx(40.6 / (0.85 * 400)));
  // No node has as many cards: the usual network of the GPU stands.
  for (const char* odd : {"0x200 Gbps", "99999999999999x200 Gbps", "8x99999999999999 Gbps"})
    CHECK(plan_over(odd).cluster.groups.front().nic.bandwidth == gigabits_per_second(200));
  const MeasuredPlan ethernet = plan_over("50 Gbps Ethernet");
  CHECK(ethernet.stack.network.collectives == 1.0);
  CHECK(ethernet.cluster.groups.front().nic.bandwidth.value() ==
        Approx(5e9 / 0.85));  // what sockets get through
  CHECK(plan_over("10 Gbps Ethernet").cluster.groups.front().nic.bandwidth.value() ==
        Approx(10e9 / 8 * 0.92 / 0.85));
}

TEST_CASE("a network is read however people write it") {
  const SaidNetwork usual{8, 400};
  const auto read = [&](const std::string& text) {
    const auto said = said_network(text, 8, usual);
    return said ? std::to_string(said->nics) + " x " + std::to_string(std::lround(said->gigabits)) : "none";
  };
  for (const char* eight :
       {"8x400 Gb/s", "8 x 400 Gb/s a node", "8 \u00d7 400 Gbps per node", "8x ConnectX-7 400Gb/s",
        "8 NICs of 400 Gbit/s", "400 Gb/s per GPU", "400 Gb/s/GPU", "400Gb/s RoCE per card",
        "3200 Gb/s EFA a node", "3.2 Tbps per node", "EFA 3200 Gb/s each node", "InfiniBand NDR 400 Gb/s",
        "600 Gbps NVLink; 8x400 Gbps RoCE", "NVLink intra; 400 Gb/s RDMA per GPU"})
    CHECK(std::pair(eight, read(eight)) == std::pair(eight, std::string("8 x 400")));
  CHECK(read("4 x 200 Gb/s a node") == "4 x 200");
  CHECK(read("800 Gb/s RDMA a node") == "8 x 100");
  CHECK(read("10 Gbps inter / 170 Gbps NVLink intra") == "1 x 10");
  CHECK(read("100GbE") == "1 x 100");
  CHECK(read("InfiniBand 200 Gb/s") == "1 x 200");  // not what the reference machine has
  CHECK(read("0 x 400 Gb/s") == "none");
  CHECK(read("NVSwitch 450 GB/s") == "none");
  for (const char* remote :
       {"RDMA", "8x400 RoCE", "IB", "EFAv2", "HDR", "Slingshot-11", "CX-7", "ConnectX-6"})
    CHECK(says_remote_memory(remote));
  for (const char* not_remote : {"Ethernet", "100 Gb/s", "distributed", "TCP"})
    CHECK(!says_remote_memory(not_remote));
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
  CHECK(unmapped(run("", "chimera")) == "schedule chimera");
  CHECK(mapped(run("", "none", "1,1,", ",4,")).strategies.front().schedule == ScheduleKind::one_f_one_b);
}

TEST_CASE("rows that cannot be expressed say why") {
  CHECK(unmapped(runs_of(gpt("a", "2,4,2,1,3", "full,1.5,,ok")).front()) ==
        "its ways do not multiply to its GPUs");
  CHECK(unmapped(runs_of(gpt("a", "2,,2,1,", "full,1.5,,ok")).front()) ==
        "tensor or pipeline ways not given");
  CHECK(contains(unmapped(runs_of(gpt("a", "2,4,2,1,2", "full,1.5,,suspect")).front()), "suspect"));
  CHECK(contains(
      unmapped(runs_of("a,g,A100,80,8,16,,OneFlow,GPT,24,2048,16,,2048,fp16,64,2,4,2,1,2,,1,,ok\n").front()),
      "OneFlow"));
  CHECK(contains(
      unmapped(runs_of("a,g,X1,,8,16,,Megatron-LM,GPT,24,2048,16,,2048,fp16,64,2,4,2,1,2,,1,,ok\n").front()),
      "X1"));
  CHECK(contains(
      unmapped(
          runs_of("a,g,H100,80,8,8,,Megatron-Bridge,L,24,2048,16,,2048,NVFP4,64,2,4,2,1,1,,1,,ok\n").front()),
      "no fp4 matrix units"));
}

TEST_CASE(
    "models that rows only name are the built-in ones, with further predictions where FLOPs tell them") {
  const auto model_of = [](const std::string& name) {
    return mapped(runs_of("a,g,GB300,,4,64,,Megatron-Bridge 26.06," + name +
                          ",,,,,4096,MXFP8,256,1,1,2,1,32,none,1,,ok\n")
                      .front())
        .model.name;
  };
  CHECK(model_of("DeepSeekV3 (w/o MTP)") == "deepseek-v3");
  CHECK(model_of("DeepSeekV3") == "deepseek-v3-mtp");
  CHECK(model_of("Kimi_K2") == "kimi-k2");
  CHECK(model_of("Nemotron_3_Super") == "nemotron-3-super-mtp");
  CHECK(
      unmapped(runs_of("a,g,V100,32,16,8,,Megatron-LM v1.0,GPT-2 8.7B,,,,,1024,fp16,8,8,8,1,1,1,full,1,,ok\n")
                   .front()) == "no shape of model GPT-2 8.7B");
  const MeasuredPlan first =
      mapped(runs_of("a,g,V100,32,16,4,,Megatron-LM v1.0,GPT-2 4.2B,,,,,1024,fp16,8,8,4,1,1,1,full,1,,ok\n")
                 .front());
  CHECK(first.model.layer_count() == 64);
  CHECK(first.model.hidden == 2304);
}

TEST_CASE("a model has the layers of its family, of the built-in one it names, or of what its widths tell") {
  const auto model = [](const std::string& name, const std::string& shape, const std::string& widths = ",,") {
    const auto rows = runs_of("a,g,H100,80,8,8,,Megatron-LM," + name + "," + shape +
                                  ",2048,bf16,8,1,1,1,,8,none,1,,ok" + widths + "\n",
                              ",kv_heads,ffn");
    return mapped(rows.front()).model;
  };
  const std::string shape = "16,2048,16,50432";
  for (const char* llama : {"Llama", "SmolLM3-3B", "Skywork-13B", "ChatGLM-6B", "InternLM"})
    CHECK(model(llama, shape).layer(0).mlp == MlpKind::gated);
  CHECK(model("SmolLM3-3B", shape).tied_embeddings);
  const ModelSpec pythia = model("Pythia-1B", shape), gpt = model("my GPT", shape);
  CHECK(pythia.layer(0).parallel_residual);
  CHECK(pythia.layer(0).rotary);
  CHECK(pythia.learned_positions == 0);
  CHECK(gpt.layer(0).mlp == MlpKind::gelu);
  CHECK(gpt.learned_positions == 2048);
  // Nobody's: an MLP that is not four times as wide, or shared keys where that is not said, are Llama's.
  CHECK(model("Thing", shape).layer(0).mlp == MlpKind::gelu);
  CHECK(model("Thing", shape, ",4,").layer(0).mlp == MlpKind::gated);
  CHECK(model("Thing", shape, ",,5632").layer(0).mlp == MlpKind::gated);
  CHECK(model("Thing", shape, ",,8192").layer(0).mlp == MlpKind::gelu);
  CHECK(model("Thing", shape, ",4,8192").layer(0).mlp == MlpKind::gelu);
  CHECK(model("Thing", shape, ",,11008").layer(0).mlp == MlpKind::gated);
  // GPT-NeoX-20B is built in; a row may print its numbers, and others for its vocabulary.
  const ModelSpec neox = read_model("gpt-neox-20b"), printed = model("GPT-NeoX-20B", "44,6144,64,50257");
  CHECK(printed.layer(0) == neox.layer(0));
  CHECK(printed.vocabulary == 50257);
  CHECK(printed.tied_embeddings == neox.tied_embeddings);
  CHECK(model("GPT-NeoX-20B", "44,6144,64,50257", ",,16384").layer(0).ffn == 16384);
  CHECK(model("GPT-NeoX 1B", "16,2048,16,50257").layer_count() == 16);
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

TEST_CASE(
    "a published model that a row only names has its published shape, and as many parameters as its name "
    "says") {
  const auto model = [](const std::string& name) {
    return mapped(runs_of("a,g,H100,80,8,512,,Megatron-LM," + name +
                          ",,,,,2048,bf16,512,1,4,2,1,64,full,1,,ok\n")
                      .front())
        .model;
  };
  // Of 1.3B, 13B and 175B none begins another's name, punctuation aside but points.
  using Row = std::pair<const char*, double>;
  for (const auto& [name, billions] :
       {Row{"GPT-3 1.3B", 1.3}, Row{"GPT-3 13B", 13}, Row{"GPT-3 6.7B", 6.7}, Row{"OPT-66B", 66},
        Row{"OPT 13B", 13}, Row{"BLOOM-7b1", 7.1}, Row{"LLaMA-7B", 6.7}, Row{"Llama 13B", 13},
        Row{"LLaMA 33B", 32.5}, Row{"MPT-30B", 30}, Row{"Pythia-1.4B", 1.4}, Row{"GPT-J 6B", 6.05},
        Row{"Falcon-180B", 180}, Row{"StarCoder 15.5B", 15.5}, Row{"Nemotron-4 15B", 15.6},
        Row{"Nemotron-4 340B", 341}}) {
    INFO(name);
    CHECK(static_cast<double>(total_parameters(model(name))) == Approx(billions * 1e9).epsilon(0.04));
  }
  CHECK(model("LLaMA-7B").layer(0).mlp == MlpKind::gated);
  CHECK(model("Falcon-180B").layer(0).kv_heads == 8);
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

TEST_CASE("ZeRO-3 shards weights over all replicas, whether or not tensor ways are printed") {
  const MeasuredPlan plan = mapped(
      runs_of("a,g,A100,80,8,16,,DeepSpeed ZeRO-3,GPT,24,2048,16,51200,2048,fp16,64,4,,1,,16,full,1,,ok\n")
          .front());
  CHECK(plan.stack.name == "deepspeed-zero3");
  CHECK(plan.strategies.front().fully_sharded);
  CHECK(plan.strategies.front().tensor(0) == 1);
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

TEST_CASE("a model's name may say whether its embeddings are tied, against the rule of its family") {
  const auto tied = [](const std::string& model) {
    return mapped(runs_of("a,g,H100,80,8,8,,nanotron (2024)," + model +
                          ",16,2048,32,32000,2048,bf16,8,1,1,1,,8,none,1,,ok\n")
                      .front())
        .model.tied_embeddings;
  };
  CHECK_FALSE(tied("Llama"));
  CHECK(tied("Llama (tied embeddings)"));
  CHECK(tied("GPT"));
  CHECK_FALSE(tied("GPT untied"));
}

TEST_CASE("ZeRO-2 shards gradients with the optimizer where there is no pipeline") {
  const auto of = [](const std::string& ways) {
    return mapped(
        parse_measured_runs("id,source_key,gpu,gpus_per_node,n_gpus,framework,model,seq,precision,gbs,mbs,"
                            "tp,pp,dp,optimizer_sharding\n"
                            "a,g,A100,8,16,Colossal-AI (2025),llama2-7b,4096,bf16,64,1," +
                                ways + ",ZeRO-2\n",
                            "made-up.csv")
            .front());
  };
  const MeasuredPlan flat = of("1,1,16"), piped = of("1,2,8");
  CHECK(flat.stack.whole_weights);
  CHECK(flat.strategies.front().fully_sharded);
  CHECK_FALSE(piped.strategies.front().fully_sharded);
  CHECK(piped.strategies.front().distributed_optimizer);
}

TEST_CASE("runs whose weights and states wait in the host's memory are left out") {
  const auto runs = parse_measured_runs(
      "id,source_key,source_location,gpu,n_gpus,framework,layers,hidden,heads,vocab,seq,gbs,tp,pp\n"
      "a,g,HF + Deepspeed Zero 3 + Full Offload,V100,8,DeepSpeed ZeRO-3,4,1024,16,50257,1024,8,1,1\n",
      "made-up.csv");
  CHECK(contains(unmapped(runs.front()), "offloaded"));
}

TEST_CASE("recipes of Megatron-Bridge differ in how tokens reach experts and what runs beside that") {
  struct Row {
    const char *release, *model, *gpu, *precision, *stack;
  };
  const auto row = GENERATE(values<Row>({
      {"25.09", "DeepSeekV3 (tokendrop)", "B200", "fp8", "megatron-bridge-25.09"},
      {"25.09", "DeepSeekV3 (dropless)", "H100", "fp8", "megatron-bridge-overlap"},
      {"25.11", "Qwen3_30B_a3B", "GB200", "FP8-MX", "megatron-bridge"},
      {"25.11", "GPT OSS 120B", "GB200", "BF16", "megatron-bridge-alltoall"},
      {"26.02", "Qwen3_235B_a22B", "B300", "MXFP8", "megatron-bridge-alltoall-overlap"},
      {"26.02.01", "Qwen3_30B_a3B", "B200", "MXFP8", "megatron-bridge"},
      {"26.04", "Qwen3_235B_a22B", "B300", "MXFP8", "megatron-bridge-alltoall"},
      {"26.04.01", "Qwen3_235B_a22B", "B300", "MXFP8", "megatron-bridge"},
      {"26.06", "Qwen3_30B_a3B", "GB200", "BF16", "megatron-bridge"},
      {"26.06.01", "Qwen3_30B_a3B", "GB200", "MXFP8", "megatron-bridge-26.06"},
      {"26.06", "Nemotron_3_Nano", "GB200", "MXFP8", "megatron-bridge"},
      {"26.08", "GPT OSS 120B", "GB300", "MXFP8", "megatron-bridge-26.06"},
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
  const std::string error = input_error([&] { modules("selective: mpl"); });
  CHECK(contains(error, "run a, recompute"));
  CHECK(contains(error, "'mpl'"));
}

TEST_CASE("cells that are no numbers name run and column") {
  const auto runs = runs_of(gpt("a", "two,4,2,1,2", "full,1.5,,ok"));
  CHECK(contains(input_error([&] { static_cast<void>(map_run(runs.front(), std::nullopt)); }), "run a, mbs"));
  for (const char* wrong : {"0", "-1", "1.5", "nan", "1e30"}) {
    const auto row = runs_of(gpt("a", std::string(wrong) + ",4,2,1,2", "full,1.5,,ok"));
    CHECK(
        contains(input_error([&] { static_cast<void>(map_run(row.front(), std::nullopt)); }), "run a, mbs"));
  }
  CHECK(contains(input_error([] { parse_measured_runs("id,gpu,n_gpus\n", "t.csv"); }), "source_key"));
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
                            ",5120,40,13824,128000,2048,64,1,1," + stages + ",,1\n";
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

TEST_CASE("published rates become times") {
  const auto plan_and_seconds = [](const std::string& model, const std::string& columns,
                                   const std::string& cells) {
    const auto runs =
        parse_measured_runs("id,source_key,gpu,n_gpus,framework,seq,gbs,mbs,tp,pp,model," + columns +
                                "\na,g,A100,8,Megatron-LM,2048,64,1,8,1," + model + "," + cells + "\n",
                            "t.csv");
    MeasuredPlan plan = mapped(runs.front());
    const double seconds = *measured_seconds(runs.front(), plan);
    return std::pair(std::move(plan), seconds);
  };
  const auto seconds = [&](const std::string& columns, const std::string& cells) {
    return plan_and_seconds("GPT", "layers,hidden,heads,vocab," + columns, "24,2048,16,51200," + cells)
        .second;
  };
  const ModelSpec model =
      plan_and_seconds("GPT", "layers,hidden,heads,vocab,mfu_pct", "24,2048,16,51200,50").first.model;
  // Biases and norms are in no formula.
  const auto at_100 = [](double work) { return Approx(work / (100e12 * 8)).epsilon(1e-3); };
  CHECK(seconds("tokens_per_s_per_gpu", "1000") == Approx(64.0 * 2048 / (1000 * 8)));
  CHECK(seconds("samples_per_s", "32") == Approx(2));
  const double full = model_flops(model, 64, 2048, AttentionCounting::full);
  CHECK(seconds("tflops_per_gpu", "100") == at_100(full));
  // Of the A100's dense peak in 16 bits.
  CHECK(seconds("mfu_pct", "50") == Approx(full / (312e12 * 0.5 * 8)));
  CHECK(seconds("tflops_per_gpu,flops_convention", "100,MFU with causal attention") ==
        at_100(model_flops(model, 64, 2048, AttentionCounting::causal)));
  // 96 B s l h^2 (1 + s / 6h + V / 16lh); of selective recomputation 4 B s^2 l h more than the model's.
  const double tokens = 64.0 * 2048, hidden = 2048, layers = 24;
  const double with_all =
      96 * tokens * layers * hidden * hidden * (1 + 1.0 / 6 + 51200.0 / (16 * layers * hidden));
  const double with_attention = full + 4 * tokens * 2048 * layers * hidden;
  const std::string hardware = "tflops_per_gpu,flops_convention,recompute";
  CHECK(seconds(hardware, "100,hardware FLOPs incl. recompute,") == at_100(with_all));
  CHECK(seconds(hardware, "100,HFU,full") == at_100(with_all));
  CHECK(seconds(hardware, "100,with recomputation,selective") == at_100(with_attention));
  CHECK(seconds(hardware, "100,Hardware FLOPs,none") == at_100(full));
  CHECK(seconds(hardware, "100,model FLOPs (no recomputation),full") == at_100(full));
  CHECK(seconds("hfu_pct,recompute", "50,full") == Approx(with_all / (312e12 * 0.5 * 8)).epsilon(1e-3));
  // Six for each parameter, those of the embedding too.
  const double parameters = 6.0 * tokens * static_cast<double>(total_parameters(model));
  CHECK(seconds("tflops_per_gpu,flops_convention", "100,6ND") == at_100(parameters));
  CHECK(seconds("tflops_per_gpu,flops_convention", "100,6 * N * tokens") == at_100(parameters));
  CHECK(seconds("tflops_per_gpu,flops_convention", "100,6N + 12LHQT") == at_100(full));
  // Shared keys and gated MLPs have other FLOPs than a GPT of their width: recomputed, a third more too.
  const auto [llama, of_llama] = plan_and_seconds("llama2-70b", hardware, "100,hardware FLOPs,full");
  const double head = 6.0 * tokens * static_cast<double>(llama.model.vocabulary * llama.model.hidden);
  CHECK(of_llama == at_100((model_flops(llama.model, 64, 2048, AttentionCounting::full) * 4 - head) / 3));
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

TEST_CASE("experts of a model nobody built in are as wide as the MLP that is printed") {
  const std::string header =
      "id,source_key,gpu,n_gpus,framework,model,layers,hidden,heads,ffn,n_experts,params_b,vocab,seq,gbs,tp,"
      "pp\n";
  const auto row = [&](const std::string& ffn, const std::string& billions) {
    return parse_measured_runs(header + "a,g,H100,8,Megatron-Core,MoE,4,1024,16," + ffn + ",8," + billions +
                                   ",50257,1024,8,1,1\n",
                               "made-up.csv")
        .front();
  };
  const MeasuredPlan plan = mapped(row("4096", ""));
  CHECK(plan.model.layer(0).experts == 8);
  CHECK(plan.model.layer(0).experts_per_token == 2);
  CHECK(plan.model.layer(0).ffn == 4096);
  CHECK(unmapped(row("", "")) == "experts without their width");
  // 4 layers of 4 h^2 and 8 experts of 8 h^2: 0.29 billion, and an embedding of 0.05.
  CHECK_NOTHROW(mapped(row("4096", "0.3")));
  CHECK(contains(unmapped(row("4096", "1.2")), "billion parameters, the row says 1.2"));
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
  // As many pieces as layers are layers.
  CHECK(parts_of("GPT-2", "24", "0;7;13;19;24") == std::vector<LayerRange>{{0, 7}, {7, 6}, {13, 6}, {19, 5}});
  // The last stage may have the head alone. A stage between without a layer is no partition that can be
  // played, and no other is put in its place.
  const LayerRange all_but_head{16, 8, false, true}, head{24, 0};
  const auto last = parts_of("GPT-2", "24", "0;9;18;26;30");
  CHECK(last.back() == head);
  CHECK(last[2] == all_but_head);
  CHECK(unmapped(run_of("GPT-2", "24", "0;9;9;18;30")) == "layer_partition 0;9;9;18;30");
}

}  // namespace orrery
