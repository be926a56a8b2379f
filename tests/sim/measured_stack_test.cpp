// The software stack that a published run is priced with.
#include "sim/measured/measured_stack.hpp"

#include "costmodels/stacks/stack_file.hpp"
#include "sim/measured/cell_text.hpp"
#include "tests/catch.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {
namespace {

// The preset that a row with these cells is priced with, and the family its residuals belong to.
std::string stack(std::map<std::string, std::string> cells, std::string* family = nullptr) {
  std::vector<std::string> assumptions;
  const std::string program = lower_case(cells["framework"]);
  const auto found = stack_of_run(MeasuredRun(std::move(cells)), assumptions);
  if (!found) return "none";
  if (family) *family = found->family;
  const bool own = program.starts_with(found->name);  // it is the preset's own program
  CHECK(assumptions.empty() == (own || read_stack(found->name).family == found->family));
  return found->name;
}

}  // namespace

TEST_CASE("Megatron-LM is the program of the year of its source, or of what a run uses") {
  const auto of = [](std::map<std::string, std::string> more) {
    more.insert({{"framework", "Megatron-LM"}, {"gpu", "A100"}});
    return stack(std::move(more));
  };
  CHECK(of({}) == "megatron-lm-2021");
  CHECK(of({{"source", "Narayanan et al. SC'21 (arXiv 2104.04473)"}}) == "megatron-lm-2021");
  CHECK(of({{"source", "arXiv 2205.05198"}}) == "megatron-lm-2022");
  CHECK(of({{"recompute", "selective"}}) == "megatron-lm-2022");
  CHECK(of({{"sequence_parallel", "yes"}}) == "megatron-lm-2022");
  CHECK(of({{"source", "a blog of 2024"}}) == "megatron-core-2024");
  CHECK(of({{"source", "a blog of 2025"}}) == "megatron-core-defaults");
  CHECK(of({{"source", "a blog of 2023"}}) == "megatron-lm-2023");
  CHECK(of({{"source", "arXiv 2402.15627"}}) == "megatron-lm-2023");  // of February
  CHECK(of({{"source", "arXiv 2407.00001"}}) == "megatron-core-2024");
  CHECK(of({{"framework", "Megatron-LM 2023"}, {"source", "arXiv 2407.00001"}}) == "megatron-lm-2023");
  CHECK(of({{"flash_attn", "yes"}}) == "megatron-core-defaults");
  CHECK(stack({{"framework", "Megatron-LM"}, {"gpu", "H100"}}) == "megatron-core-defaults");
}

TEST_CASE("DeepSpeed's examples have Megatron-LM of their own, which joins less") {
  const auto preset = [](const char* framework) {
    return stack({{"framework", framework}, {"gpu", "V100"}});
  };
  CHECK(preset("Megatron-DeepSpeed (DeepSpeedExamples Megatron-LM, 2020)") == "megatron-v0-deepspeed");
  CHECK(preset("DeepSpeed 0.3.0 with DeepSpeedExamples Megatron-LM") == "megatron-v0-deepspeed");
  CHECK(preset("Megatron-LM v1.1.5 with DeepSpeed (DeepSpeedExamples)") == "megatron-v1.1.5-deepspeed");
  CHECK(preset("DeepSpeed ZeRO-3, DeepSpeedExamples DeepSpeed-Chat (2023)") == "deepspeed-zero3-2022");
  CHECK(preset("Megatron-DeepSpeed (2020)") == "megatron-deepspeed");
}

TEST_CASE("programs have what they had in their year") {
  CHECK(stack({{"framework", "Megatron-Core 0.6.0 (2024)"}, {"gpu", "H100"}}) == "megatron-core-2024");
  CHECK(stack({{"framework", "Megatron-Core 0.12 (2025)"}, {"gpu", "H100"}}) == "megatron-core-defaults");
  CHECK(stack({{"framework", "Megatron-Core"}, {"gpu", "H100"}}) == "megatron-core-defaults");
  CHECK(stack({{"framework", "DeepSpeed ZeRO-3 0.11.1 (2023)"}, {"gpu", "A100"}}) == "deepspeed-zero3-2022");
  CHECK(stack({{"framework", "DeepSpeed ZeRO-3"}, {"gpu", "A100"}, {"source", "arXiv 2104.04473"}}) ==
        "deepspeed-zero3");
  CHECK(stack({{"framework", "FlagScale Megatron-LM (2023)"}, {"gpu", "A800"}}) == "flagscale");
  CHECK(stack({{"framework", "Modalities (PyTorch FSDP1, 2024)"}, {"gpu", "H100"}}) == "modalities");
  CHECK(stack({{"framework", "own script (PyTorch 2.8, torch.compile)"}, {"gpu", "A40"}}) ==
        "compiled-program");
  CHECK(stack({{"framework", "PyTorch FSDP, torch.compile"}, {"gpu", "A100"}}) == "torchtitan");
  CHECK(stack({{"framework", "Fast-LLM (PyTorch, 2025)"}, {"gpu", "H100"}}) == "fast-llm");
  CHECK(stack({{"framework", "metaseq (fairscale FSDP, 2022)"}, {"gpu", "A100"}}) == "metaseq");
  CHECK(stack({{"framework", "KempnerForge (2026)"}, {"gpu", "H200"}}) == "kempnerforge");
  CHECK(stack({{"framework", "KempnerForge, eager (2026)"}, {"gpu", "H200"}}) == "kempnerforge-eager");
}

TEST_CASE("programs of PyTorch that are all in bf16 keep no fp32 masters") {
  const auto of = [](const char* framework, const char* precision) {
    return test::stack_of({{"framework", framework}, {"gpu", "H100"}, {"precision", precision}});
  };
  for (const char* framework :
       {"torchtitan (2025)", "torchtitan, eager (2025)", "PyTorch FSDP2", "Unheard of"}) {
    CHECK(of(framework, "bf16-true").states == KeptStates{.weight = 2, .optimizer = 4});
    CHECK(of(framework, "bf16-true").gradient == 2);
    CHECK(of(framework, "bf16").states == KeptStates{});
  }
  CHECK(of("Fork of Megatron (2025)", "bf16-true").states == KeptStates{});
  // Room for a list of tensors beside Adam's, where nobody fuses it.
  CHECK(of("PyTorch FSDP2", "bf16-true").optimizer_copy == 2);
  CHECK(of("PyTorch FSDP2 with fused AdamW", "bf16-true").optimizer_copy == 0);
  CHECK(of("torchtitan (2025)", "bf16-true").optimizer_copy == 0);
}

TEST_CASE("that all is in 16 bits may stand in the note, or follow from a run that fitted its card") {
  const auto noted = [](const char* note) {
    return test::stack_of({{"framework", "PyTorch DDP (2025)"}, {"gpu", "GH200"}, {"note", note}}).states;
  };
  const KeptStates all{.weight = 2, .optimizer = 4};
  for (const char* note : {"Parameters, gradients and AdamW states all bf16 (--model-dtype bf16)",
                           "no clipping; weights, gradients and moments in bf16", "8B in pure bf16"})
    CHECK(noted(note) == all);
  for (const char* note :
       {"weights bf16; AdamW with fp32 moments", "parameters in bf16", "bf16 autocast", ""})
    CHECK(noted(note) == KeptStates{});
  // 8 billion parameters on one card of 80 GB: 128 GB of states in fp32, 64 in bf16.
  const auto fitted = [](const char* status, const char* precision, const char* framework) {
    return test::mapped(test::small_run({{"framework", framework},
                                         {"model", "Llama 3 8B"},
                                         {"layers", ""},
                                         {"hidden", ""},
                                         {"heads", ""},
                                         {"ffn", ""},
                                         {"vocab", ""},
                                         {"n_gpus", "1"},
                                         {"dp", "1"},
                                         {"gbs", "1"},
                                         {"mbs", "1"},
                                         {"recompute", "none"},
                                         {"precision", precision},
                                         {"status", status}}))
        .stack.states;
  };
  CHECK(fitted("ok", "bf16", "PyTorch (2025)") == all);
  CHECK(fitted("OOM", "bf16", "PyTorch (2025)") == KeptStates{});
  CHECK(fitted("ok", "bf16 mixed", "PyTorch (2025)") == KeptStates{});
  CHECK(fitted("ok", "bf16", "Megatron-Core (2025)") == KeptStates{});
}

TEST_CASE("PyTorch's ZeroRedundancyOptimizer leaves fp32 weights whole") {
  const auto states = [](const char* framework, const char* sharding) {
    return test::stack_of({{"framework", framework}, {"gpu", "A100"}, {"optimizer_sharding", sharding}})
        .states;
  };
  CHECK(states("PyTorch with torch.compile (2024)", "ZeRO-1") == KeptStates{.weight = 6, .optimizer = 8});
  CHECK(states("PyTorch with torch.compile (2024)", "DDP") == KeptStates{});
  CHECK(states("Fork of Megatron (PyTorch, 2024)", "ZeRO-1") == KeptStates{});
}

TEST_CASE("a program of PyTorch's that bears Megatron's name is PyTorch's") {
  CHECK(stack({{"framework", "PyTorch 2.10 eager (mini-megatron, 2026)"}, {"gpu", "L20"}}) ==
        "pytorch-eager");
  CHECK(stack({{"framework", "mini-megatron (2026)"}, {"gpu", "L20"}}) == "megatron-core-defaults");
}

TEST_CASE("what people write in PyTorch has a kernel for each operation, wider ones under autocast") {
  const auto of = [](const char* framework, const char* precision) {
    return test::stack_of({{"framework", framework}, {"gpu", "A100"}, {"precision", precision}});
  };
  const SoftwareStack pure = of("own script, PyTorch 2.6", "pure bf16");
  CHECK(pure.name == "pytorch-eager");
  CHECK(pure.states == KeptStates{.weight = 2, .optimizer = 4});
  const SoftwareStack autocast = of("own script, PyTorch 2.6", "bf16 mixed");
  CHECK(autocast.name == "pytorch-autocast");
  CHECK(autocast.llama_layers->norm_time == read_stack("hf-autocast").llama_layers->norm_time);
  CHECK(of("Unheard of (2025)", "bf16").name == "pytorch");
  // nn.RMSNorm is one kernel from PyTorch 2.9 on.
  const auto norm = [&](const char* framework) {
    return of(framework, "bf16 mixed").llama_layers->norm_time;
  };
  CHECK(norm("PyTorch 2.11 (nn.RMSNorm, 2026)") == autocast.kernels.norm_time);
  CHECK(norm("PyTorch 2.6 (nn.RMSNorm, 2025)") == autocast.llama_layers->norm_time);
  CHECK(norm("PyTorch 2.11 FSDP2 eager (nn.RMSNorm, 2026)") == 1);
  CHECK(norm("PyTorch 2.6 FSDP2 eager (nn.RMSNorm, 2025)") ==
        read_stack("pytorch-fsdp").llama_layers->norm_time);
}

TEST_CASE("LitGPT takes its loss of logits in 16 bits") {
  const auto peak = [](const char* framework) {
    return test::stack_of({{"framework", framework}, {"gpu", "H100"}}).logit_peak;
  };
  CHECK(peak("LitGPT benchmark script, PyTorch FSDP, torch.compile (2024)") == 8);
  CHECK(peak("benchmark script, PyTorch FSDP, torch.compile (2024)") == read_stack("torchtitan").logit_peak);
}

TEST_CASE("models of the course CS336 wait longer for their host, under autocast most") {
  const auto of = [](const char* framework, const char* precision) {
    return test::stack_of(
        {{"framework", framework}, {"model", "CS336 small"}, {"gpu", "A100"}, {"precision", precision}});
  };
  const SoftwareStack wide = of("plain PyTorch, own model (2026), eager", "fp32");
  const SoftwareStack autocast = of("plain PyTorch, own model (2026), eager", "bf16 mixed");
  CHECK(wide.name == "cs336");
  CHECK(autocast.name == "cs336-autocast");
  CHECK(wide.llama_layers->host_time > read_stack("pytorch-eager").llama_layers->host_time);
  CHECK(autocast.llama_layers->host_time > wide.llama_layers->host_time);
  CHECK(of("PyTorch, torch.compile (2026)", "fp32").name == "compiled-program");
}

TEST_CASE("a fused AdamW may stand in the note") {
  const auto bytes = [](const char* note) {
    return test::stack_of({{"framework", "Hugging Face transformers, own loop (2026)"},
                           {"gpu", "H100"},
                           {"precision", "pure bf16"},
                           {"note", note}})
        .optimizer->bytes_per_parameter;
  };
  CHECK(bytes("SDPA, fused AdamW") == 7 * 2);
  CHECK(bytes("AdamW not fused") == read_stack("hf-trainer").optimizer->bytes_per_parameter);
}

TEST_CASE("a program's layers are Transformer Engine's however that is spelled, unless it has none of them") {
  const auto name = [](const char* framework) { return stack({{"framework", framework}, {"gpu", "H100"}}); };
  CHECK(name("PyTorch 2.11, TransformerEngine 2.13 layers, eager (2026)") == "transformer-engine");
  CHECK(name("own program with Transformer Engine (2026)") == "transformer-engine");
  CHECK(name("PyTorch 2.11, eager without TransformerEngine (2026)") == "pytorch-eager");
  CHECK(name("MaxText (2026), Transformer Engine attention") == "maxtext");
}

TEST_CASE("softmax gives 32 bits under autocast, in programs of one's own as in Hugging Face's") {
  const auto softmax = [](const char* framework, const char* precision) {
    return test::stack_of({{"framework", framework}, {"precision", precision}, {"gpu", "A100"}}).softmax;
  };
  CHECK(softmax("PyTorch (own program, 2023)", "bf16 mixed") == SoftmaxKernel::stepwise_wide);
  CHECK(softmax("PyTorch (own program, 2023)", "bf16-true") == SoftmaxKernel::eager);
  CHECK(softmax("nanoGPT (PyTorch 2.0)", "bf16") == SoftmaxKernel::stepwise_wide);
  CHECK(softmax("HF Trainer (2022)", "fp16 mixed") == SoftmaxKernel::stepwise_wide);
  CHECK(softmax("HF Trainer (2022)", "bf16-true") == SoftmaxKernel::stepwise);
}

TEST_CASE("Megatron-Core's experts one after another are launched one by one") {
  const auto host = [](const char* framework, const char* note) {
    return test::stack_of({{"framework", framework}, {"note", note}, {"gpu", "A100"}})
        .experts.each.forward.value();
  };
  const double grouped = host("Megatron-Core (October 2024)", "grouped GEMM");
  CHECK(host("Megatron-Core (October 2024)", "") == grouped);
  for (const char* note : {"alltoall; no grouped GEMM", "SequentialMLP"})
    CHECK(host("Megatron-Core (October 2024)", note) == Approx(240e-6));
  CHECK(host("NeMo Automodel (2026)", "no grouped GEMM") != Approx(240e-6));
}

TEST_CASE("Megatron-Core's loss is in place where it is known to be of after June 2024") {
  const auto peak = [](const char* framework) {
    return test::stack_of({{"framework", framework}, {"gpu", "A100"}}).logit_peak;
  };
  CHECK(peak("Megatron-Core (May 2024)") == read_stack("megatron-core-2024").logit_peak);
  CHECK(peak("Megatron-Core (2024)") == read_stack("megatron-core-2024").logit_peak);
  CHECK(peak("Megatron-Core (October 2024)") == read_stack("megatron-core-defaults").logit_peak);
  CHECK(read_stack("megatron-core-defaults").logit_peak < read_stack("megatron-core-2024").logit_peak);
}

TEST_CASE("programs of before PyTorch 2 have no FlashAttention unless they say so") {
  const auto flash = [](const char* framework) {
    return test::stack_of({{"framework", framework}, {"gpu", "A100"}}).flash_attention;
  };
  CHECK_FALSE(flash("PyTorch Lightning DDP (2022)"));
  CHECK_FALSE(flash("Alpa (JAX, 2022)"));
  CHECK(flash("PyTorch Lightning DDP (2023)"));
  CHECK_FALSE(flash("HF Trainer (October 2023)"));
  CHECK(flash("HF Trainer (March 2024)"));
  CHECK(flash("PyTorch Lightning DDP"));
}

TEST_CASE("a run of Megatron-Bridge that says a month has the recipe of the last release until then") {
  const auto of = [](const std::string& framework) {
    return stack(
        {{"framework", framework}, {"gpu", "GB200"}, {"model", "GPT OSS 120B"}, {"precision", "MXFP8"}});
  };
  CHECK(of("Megatron-Bridge 26.08") == "megatron-bridge-26.06");
  CHECK(of("Megatron-Bridge (September 2026)") == "megatron-bridge-26.06");
  CHECK(of("Megatron-Bridge (March 2026)") == of("Megatron-Bridge 26.02"));
  CHECK(of("Megatron-Bridge (March 2026)") == "megatron-bridge-alltoall");
  CHECK(of("Megatron-Bridge") == "megatron-bridge");
}

TEST_CASE("a program without a preset is priced as what it is like, under a family of its own") {
  std::string family;
  CHECK(stack({{"framework", "NeMo 24.01"}, {"gpu", "A100"}}, &family) == "nemo-24.07");
  CHECK(family == "nemo");                                                       // whatever its release
  CHECK(stack({{"framework", "NeMo 24.05"}, {"gpu", "H100"}}) == "nemo-24.07");  // FlashAttention-2
  CHECK(stack({{"framework", "NeMo/Megatron-Core 24.12"}, {"gpu", "H100"}}) == "nemo-24.12");
  CHECK(stack({{"framework", "NeMo/Megatron-Core 25.04"}, {"gpu", "GB200"}}) == "nemo-graphs");
  CHECK(stack({{"framework", "NeMo 23.08"}, {"gpu", "A100"}}) == "megatron-lm-2023");
  CHECK(stack({{"framework", "NeMo 23.08"}, {"gpu", "H100"}}) == "nemo-24.07");
  CHECK(stack({{"framework", "NeMo"}, {"gpu", "A100"}, {"source", "README (2022)"}}) == "megatron-lm-2022");
  CHECK(stack({{"framework", "NeMo"}, {"gpu", "H100"}, {"source", "README (2023)"}}) == "nemo-24.07");
  CHECK(stack({{"framework", "PyTorch FSDP"}, {"gpu", "A100"}}, &family) == "pytorch-fsdp");
  CHECK(stack({{"framework", "PyTorch FSDP, torch.compile"}, {"gpu", "A100"}}, &family) == "torchtitan");
  CHECK(stack({{"framework", "Unheard of"}, {"gpu", "H100"}}, &family) == "pytorch");
  CHECK(family == "Unheard of");
  CHECK(stack({{"framework", "Unheard of"}, {"gpu", "A100"}, {"source", "README (2025)"}}) == "pytorch");
  CHECK(stack({{"framework", "Unheard of"}, {"gpu", "A100"}, {"source", "arXiv 2104.00001"}}) ==
        "megatron-lm-2021");
  CHECK(stack({{"framework", "Unheard of (PyTorch)"}, {"gpu", "A100"}, {"source", "README (2022)"}}) ==
        "pytorch-eager");
  CHECK(stack({{"framework", "Fork of Megatron"}, {"gpu", "H100"}}) == "megatron-core-defaults");
  CHECK(stack({{"framework", "NeMo Automodel (2026)"}, {"gpu", "B200"}}) == "nemo-automodel");
  CHECK(stack({{"framework", "ATorch DeepSpeed 3D (2023)"}, {"gpu", "A100"}}) == "atorch-3d");
  CHECK(stack({{"framework", "HF Trainer + DeepSpeed ZeRO"}, {"gpu", "V100"}}) == "deepspeed-zero3");
  CHECK(stack({{"framework", "DeepSpeed ZeRO-3 (2024), Hugging Face models"},
               {"gpu", "A100"},
               {"optimizer_sharding", "ZeRO-3"}}) == "hf-zero3");
  CHECK(stack({{"framework", "Hugging Face Trainer, transformers 4.12 (2021)"}, {"gpu", "V100"}}) ==
        "hf-trainer");
  // Overlaps of late 2023 are in a program of January 2024, not in what papers of that month ran.
  CHECK(stack({{"framework", "Megatron-LM (January 2024)"}, {"gpu", "A800"}}) == "megatron-core-2024");
  CHECK(stack({{"framework", "Megatron-LM"}, {"source", "arXiv 2401.00001"}, {"gpu", "A800"}}) ==
        "megatron-lm-2023");
  CHECK(stack({{"framework", "nanotron (July 2024)"}, {"gpu", "H100"}}) == "nanotron-2024");
  CHECK(stack({{"framework", "nanotron v0.5 (2025)"}, {"gpu", "H100"}}) == "nanotron");
  CHECK(stack({{"framework", "Megatron-Core (2026), local layers"}, {"gpu", "H100"}}) == "megatron-lm-2023");
  CHECK(stack({{"framework", "Megatron-LM (March 2024, --transformer-impl local)"}, {"gpu", "H100"}}) ==
        "megatron-lm-2023");
  CHECK(stack({{"framework", "GPT-NeoX"}, {"gpu", "A100"}}) == "megatron-deepspeed");
  for (const char* before : {"Megatron-DeepSpeed", "Megatron-DeepSpeed (2022)",
                             "Megatron-DeepSpeed (May 2023)", "DeepSpeed over a fork of Megatron (2022)"})
    CHECK(stack({{"framework", before}, {"gpu", "A100"}}) == "megatron-deepspeed");
  for (const char* rebased : {"Megatron-DeepSpeed (2023)", "Megatron-DeepSpeed (April 2024; PyTorch 2.2)",
                              "DeepSpeed over a fork of Megatron (2024)"})
    CHECK(stack({{"framework", rebased}, {"gpu", "A100"}}) == "megatron-deepspeed-2023");
  CHECK(stack({{"framework", "Megatron-DeepSpeed"}, {"gpu", "A100"}, {"source", "MICRO 2024"}}) ==
        "megatron-deepspeed-2023");
  CHECK(stack({{"framework", "Megatron-DeepSpeed"}, {"gpu", "A100"}, {"source", "arXiv 2309.00001"}}) ==
        "megatron-deepspeed");
  CHECK(stack({{"framework", "torchtune (2025)"}, {"gpu", "A100"}}) == "torchtune");
  CHECK(stack({{"framework", "Megatron-Bridge 26.06"}, {"model", "llama3-8b"}, {"gpu", "H100"}}) ==
        "megatron-bridge");
  CHECK(
      stack({{"framework", "Megatron-Bridge 26.06"}, {"model", "llama3-8b"}, {"gpu", "NVIDIA H100 80GB"}}) ==
      "megatron-bridge");
  CHECK(stack({{"framework", "Megatron-Bridge 26.06"}, {"model", "llama3-8b"}, {"gpu", "GH200"}}) ==
        "megatron-bridge-library");
  // Its GPT puts collectives on the stream of the kernels where there are other ways than data's.
  CHECK(stack({{"framework", "OneFlow v0.3"}, {"gpu", "V100"}}, &family) == "oneflow");
  CHECK(family == "oneflow");
  CHECK(stack({{"framework", "OneFlow"}, {"gpu", "V100"}, {"tp", "8"}, {"pp", "1"}}) == "oneflow-ways");
  CHECK(stack({{"framework", "OneFlow"}, {"gpu", "V100"}, {"pp", "2"}}, &family) == "oneflow-ways");
  CHECK(family == "oneflow");
  CHECK(stack({{"gpu", "V100"}}) == "none");
  CHECK(stack({{"framework", "OneFlow"}, {"stack", "amp"}}, &family) == "amp");
}

TEST_CASE("Hugging Face's Trainer has a preset for each way to shard what it trains") {
  std::string family;
  CHECK(stack({{"framework", "HF Trainer (accelerate DDP, 2024)"}, {"gpu", "A100"}}, &family) ==
        "hf-trainer");
  CHECK(family == "hf-trainer");
  CHECK(stack({{"framework", "HF Trainer + DeepSpeed ZeRO-2 (2025)"}, {"gpu", "A100"}}, &family) ==
        "hf-zero2");
  CHECK(family == "hf-trainer");
  const auto sharded = [](const char* as) {
    return stack(
        {{"framework", "Hugging Face transformers (2024)"}, {"optimizer_sharding", as}, {"gpu", "A100"}});
  };
  CHECK(sharded("ZeRO-3") == "hf-zero3");
  CHECK(sharded("FSDP") == "hf-fsdp");
  CHECK(sharded("ZeRO-2") == "hf-zero2");
  CHECK(sharded("ZeRO-1") == "hf-zero1");
  CHECK(sharded("FSDP2 (ZeRO-2)") == "hf-fsdp");  // PyTorch's, without resharding after the forward
  CHECK(sharded("") == "hf-trainer");
  CHECK(stack({{"framework", "PyTorch FSDP with Transformer Engine (2024)"}, {"gpu", "H100"}}) ==
        "transformer-engine");
  CHECK(read_stack("transformer-engine").context_exchange == ContextExchange::ring);
  CHECK(stack({{"framework", "LLaMA-Factory"}, {"gpu", "A100"}, {"optimizer_sharding", "zero3"}}) ==
        "hf-zero3");
  CHECK(stack({{"framework", "Axolotl + DeepSpeed ZeRO-2"}, {"gpu", "A100"}}) == "hf-zero2");
  CHECK(stack({{"framework", "MaxText (JAX)"}, {"gpu", "H100"}}) == "maxtext");
  CHECK(stack({{"framework", "PyTorch FSDP2 (KempnerForge, 2026)"}, {"gpu", "H200"}}) == "kempnerforge");
}

TEST_CASE("hooks of DeepSpeed's ZeRO-3 take longer since April 2024") {
  const auto host = [](const char* framework) {
    return test::stack_of({{"framework", framework}, {"optimizer_sharding", "ZeRO-3"}, {"gpu", "H100"}}).host;
  };
  CHECK(host("HF Trainer, DeepSpeed (2023)") == read_stack("hf-zero3-2023").host);
  CHECK(host("HF Trainer, DeepSpeed (2025)") == read_stack("hf-zero3").host);
  CHECK(read_stack("hf-zero3").host.gather_backward > read_stack("hf-zero3-2023").host.gather_backward);
}

TEST_CASE("transformers call experts one by one until their fifth version") {
  const auto host_of_expert = [](const char* framework, const char* sharding) {
    return test::stack_of({{"framework", framework}, {"optimizer_sharding", sharding}, {"gpu", "A100"}})
        .experts.each.forward;
  };
  const Seconds looped = read_stack("hf-expert-loop").experts.each.forward;
  CHECK(looped > Seconds(0));
  CHECK(host_of_expert("TRL (2025)", "FSDP2") == looped);
  CHECK(host_of_expert("ms-swift, DeepSpeed (2025)", "ZeRO-2") == looped);
  CHECK(host_of_expert("ms-swift, DeepSpeed (2025)", "ZeRO-3") > looped);  // which fetches each
  CHECK(host_of_expert("TRL (2026)", "FSDP2") == Seconds(0));
}

TEST_CASE("words in the name of a Hugging Face program say its kernels, its loss and its types") {
  const auto of = [](const char* framework, const char* sharding = "", const char* precision = "bf16") {
    const std::string row = std::string("a,g,A100,8,") + '"' + framework + "\"," + sharding + "," + precision;
    std::vector<std::string> assumptions;
    return *stack_of_run(
        parse_measured_runs("id,source_key,gpu,n_gpus,framework,optimizer_sharding,precision\n" + row,
                            "made-up")
            .front(),
        assumptions);
  };
  // Before transformers 5 experts are called one by one.
  const auto of_then = [](const char* preset) {
    SoftwareStack stack = read_stack(preset);
    stack.experts = read_stack("hf-expert-loop").experts;
    return stack;
  };
  const SoftwareStack plain = of("HF Trainer (2024)"), liger = read_stack("hf-liger");
  CHECK(plain == of_then("hf-trainer"));
  const SoftwareStack engine = of("HF accelerate with Transformer Engine layers (2024)");
  CHECK(engine.kernels == liger.kernels);
  CHECK(engine.cross_entropy == CrossEntropyKernel::online);
  CHECK_FALSE(engine.chunked_loss);
  const SoftwareStack unsloth = of("HF Trainer, fused kernels of unsloth (2024)");
  CHECK(unsloth.kernels == liger.kernels);
  CHECK(unsloth.cross_entropy == CrossEntropyKernel::separate);
  CHECK(of("HF Accelerate with torch.compile (2024)").elementwise == Fusion::fused);
  CHECK(unsloth.logit_peak == 8);
  CHECK(of("HF Trainer with Transformer Engine linear layers (2024)") == plain);
  CHECK(of("HF Accelerate without torch.compile (2024)") == plain);
  CHECK(of("HF Trainer with Liger (2024)").chunked_loss);
  CHECK(of("TRL, chunked loss (2024)").chunked_loss);
  CHECK(plain.attention == AttentionKernel::flash2);
  // The column of sharding goes before the name.
  CHECK(of("HF Trainer, PyTorch FSDP (2024)", "no") == plain);
  CHECK(of("HF Trainer, PyTorch FSDP (2024)") == of_then("hf-fsdp"));
  CHECK(of("HF Trainer (2024)", "FSDP", "bf16-true") == of_then("hf-fsdp-bf16-true"));
  // Copies of fp32 weights, where nothing is sharded.
  for (const char* precision : {"bf16 mixed", "fp16 autocast", "AMP fp16", "fp16"})
    CHECK(of("HF Trainer (2024)", "no", precision) == of_then("hf-autocast"));
  CHECK(of("HF Trainer with DeepSpeed (2024)", "no", "fp16").preset == "hf-trainer");
  CHECK(of("HF Trainer with fused AdamW (2024)", "no", "bf16 mixed").optimizer->bytes_per_parameter == 28);
  CHECK(of("HF Trainer, PyTorch FSDP (2024)", "FSDP", "bf16 mixed") == of_then("hf-fsdp"));
  // A library that brings tokens to their experts; all others gather and mask them by kernels of their own.
  CHECK(of("Hugging Face models (2026)").experts.eager_backward > 0);
  CHECK(of("Hugging Face models with DeepEP (2026)").experts.eager_backward == 0);
  const SoftwareStack loss = of("PyTorch FSDP2 (torch.compile, compiled loss, 2026)");
  CHECK(loss.cross_entropy == CrossEntropyKernel::online);
  CHECK(of("PyTorch FSDP2 (torch.compile, 2026)").cross_entropy == CrossEntropyKernel::separate);
  // Transformers 5: checkpoints without reentry.
  CHECK_FALSE(plain.stops_recomputation);
  CHECK(of("HF Trainer (2026)").stops_recomputation);
  const SoftwareStack fused = of("HF Trainer with fused AdamW (2024)", "FSDP");
  CHECK(fused.optimizer->bytes_per_parameter == 28);
  CHECK(fused.optimizer_copy == 0);
}

}  // namespace orrery
