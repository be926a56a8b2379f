// What the words of a published run change of its program's stack.
#include "sim/measured/said_kernels.hpp"

#include "costmodels/layers/stack_effects.hpp"
#include "costmodels/stacks/stack_file.hpp"
#include "tests/catch.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {

using test::stack_of;

TEST_CASE("gradients and moments in 16 bits are read where a row says them beside its type") {
  const auto of = [](const char* precision) {
    return stack_of({{"framework", "Megatron-Core (2026)"}, {"gpu", "H100"}, {"precision", precision}});
  };
  const SoftwareStack plain = of("bf16");
  REQUIRE(plain.gradient == 4);
  CHECK(of("bf16, bf16 gradients").gradient == 2);
  CHECK(of("bf16, bf16 gradients").reduced_gradient == 2);
  CHECK(of("bf16, bf16 gradients").states == plain.states);
  CHECK(of("bf16, bf16 gradients and moments").states.optimizer == 8);
  const auto sent = [](const char* precision) {
    return stack_of({{"framework", "Modalities (2024)"}, {"precision", precision}, {"gpu", "A100"}})
        .reduced_gradient;
  };
  CHECK(sent("bf16") == 2);
  CHECK(sent("bf16 mixed, fp32 gradient reduction") == 4);
  CHECK(of("bf16 mixed").gradient == 4);
  const auto noted = [](const char* framework, const char* note) {
    return stack_of({{"framework", framework}, {"note", note}, {"gpu", "H100"}}).gradient;
  };
  CHECK(noted("Megatron-LM (2025), precision-aware optimizer with bf16 main gradients", "") == 2);
  CHECK(noted("Megatron-Core (2025)", "mock data; grad reduce in bf16") == 2);
  CHECK(noted("Megatron-Core (2025)", "no grad reduce in bf16") == 4);
  CHECK(noted("Megatron-Core (2025)", "grad reduce fp32, mock data") == 4);
}

TEST_CASE("a flex dispatcher spares the host of programs of one's own what its kernels do at once") {
  const auto host = [](const char* framework) {
    return stack_of({{"framework", framework}, {"gpu", "H100"}, {"model", "OLMoE 1B-7B"}})
        .experts.layer.forward;
  };
  CHECK(host("Megatron-LM (2026), HybridEP") == read_stack("megatron-bridge-eager").experts.layer.forward);
  CHECK(host("Megatron-LM (2026), all-to-all") > host("Megatron-LM (2026), HybridEP"));
  CHECK(host("Megatron-Bridge (2026), DeepEP, eager") == host("Megatron-Bridge (2026), eager"));
}

TEST_CASE(
    "what the host of experts no longer waits for is what a row says of collection and synchronization") {
  const auto layer = [](const char* framework, const char* note) {
    return stack_of({{"framework", framework}, {"gpu", "GH200"}, {"model", "OLMoE 1B-7B"}, {"note", note}})
        .experts.layer;
  };
  const char* bridge = "Megatron-Bridge (2026)";
  const ExpertHost recipe = read_stack("megatron-core").experts.layer;
  REQUIRE(layer(bridge, "").forward > recipe.forward);
  CHECK(layer(bridge, "manual GC every 10") == recipe);
  CHECK(layer(bridge, "no manual GC") == layer(bridge, ""));
  CHECK(layer(bridge, "manual GC; sync-free grouped GEMM") == ExpertHost{});
  CHECK(layer("torchtitan (2026)", "manual GC") == layer("torchtitan (2026)", ""));
}

TEST_CASE("what Megatron-LM was told not to join runs by kernels of its own") {
  const auto of = [](const char* note, const char* framework = "Megatron-LM (January 2024)") {
    return stack_of({{"framework", framework}, {"gpu", "H100"}, {"note", note}});
  };
  const SoftwareStack plain = of("");
  REQUIRE_FALSE(plain.separate_accumulation);
  REQUIRE(plain.async_tensor_gradients);
  for (const char* note : {"--no-gradient-accumulation-fusion", "gradient accumulation fusion off"})
    CHECK(of(note).separate_accumulation);
  for (const char* note : {"no async tensor all-reduce", "--no-async-tensor-model-parallel-allreduce"})
    CHECK_FALSE(of(note).async_tensor_gradients);
  const SoftwareStack apart = of("no bias-gelu fusion, no bias-dropout fusion");
  // A bias (2 + 2), dropout (2 + 2 + 1) and a sum (2 + 2 + 2) for one kernel's 7 B of an element, and as much
  // backward; a bias (2 + 2) and GELU (2 + 2) for one kernel's 4 B.
  CHECK(apart.kernels.residual_time == Approx(plain.kernels.elementwise_time * (4 + 5 + 6 + 7) / (7.0 + 7)));
  CHECK(apart.kernels.elementwise_time == plain.kernels.elementwise_time);
  CHECK(apart.kernels.gelu == EagerGelu{.forward = 8, .backward = 6});
  CHECK(of("no masked-softmax fusion").softmax == SoftmaxKernel::eager);
  const char* examples = "Megatron-LM v1.1.5 with DeepSpeed (DeepSpeedExamples)";
  CHECK(of("no bias-gelu fusion", examples) == of("", examples));  // it has none of them
  CHECK(apart.dropout == plain.dropout);
  CHECK(of("gradient accumulation fusion, bias-dropout fusion") == plain);
  CHECK(of("no gradient accumulation fusion", "torchtitan (2024)") == of("", "torchtitan (2024)"));
}

TEST_CASE("apex's O2 keeps model, gradients and softmax in fp16") {
  const auto of = [](const char* framework) {
    return stack_of({{"framework", framework}, {"precision", "fp16"}, {"gpu", "V100-32GB"}});
  };
  const SoftwareStack autocast = of("PyTorch 1.9 eager"), apex = of("PyTorch 1.9 eager, apex amp O2");
  CHECK(autocast.reduced_gradient == 4);
  CHECK(autocast.softmax == SoftmaxKernel::stepwise_wide);
  CHECK(apex.reduced_gradient == 2);
  CHECK(apex.states == KeptStates{.weight = 2, .optimizer = 12});
  CHECK(apex.softmax == SoftmaxKernel::stepwise);
}

TEST_CASE("CUDA graphs that a row says hold what Megatron-Bridge's recipes with such graphs hold") {
  const auto of = [](const std::string& graphs) {
    return stack_of({{"framework", "Megatron-LM (2026), HybridEP" + graphs}, {"gpu", "GB200"}});
  };
  const SoftwareStack plain = of("");
  CHECK(of(", full-iteration CUDA graph").cuda_graphs == CudaGraphs::all);
  CHECK(of(", full-iteration CUDA graph").experts.layer.forward == Seconds(0));
  const ExpertCost part = read_stack("megatron-bridge").experts;
  CHECK(of(", partial CUDA graphs (attention, router)").cuda_graphs == CudaGraphs::experts);
  CHECK(of(", partial CUDA graphs (attention, router)").experts.layer.backward == part.layer.backward);
  CHECK(of(", no CUDA graphs").cuda_graphs == CudaGraphs::none);
  CHECK(of(", no CUDA graphs").experts.layer.forward == plain.experts.layer.forward);
  CHECK(stack_of({{"framework", "torchtitan (2026), full-iteration CUDA graph"}, {"gpu", "GB200"}})
            .cuda_graphs == CudaGraphs::none);
  // That there are none a note may say too, and that a recipe's flex dispatcher was left.
  const auto noted = [](const char* note) {
    return stack_of({{"framework", "Megatron-Bridge 26.08"},
                     {"model", "GPT-OSS-120B"},
                     {"gpu", "GB300"},
                     {"precision", "mxfp8"},
                     {"note", note}});
  };
  REQUIRE(noted("").cuda_graphs != CudaGraphs::none);
  CHECK(noted("").name == "megatron-bridge-26.06");
  CHECK(noted("real data, no CUDA graphs").cuda_graphs == CudaGraphs::none);
  CHECK(noted("real data, no CUDA graphs").name == "megatron-bridge");  // without the kernels that need them
  CHECK(noted("all-to-all dispatcher").name == "megatron-bridge-alltoall");
}

TEST_CASE("an exchange with experts runs under another microbatch where a row says so, and keeps the host") {
  const auto experts = [](const std::string& overlap) {
    return stack_of({{"framework", "Megatron-LM (2026), HybridEP" + overlap}, {"gpu", "GB200"}}).experts;
  };
  const ExpertCost known = read_stack("megatron-bridge-overlap").experts;
  CHECK(experts("").overlap == 0);
  CHECK(experts(", expert-communication overlap").overlap == known.overlap);
  CHECK(experts(", all-to-all overlap with 1F1B").layer.backward == known.layer.backward);
  CHECK(experts(", all-to-all overlap, full-iteration CUDA graph").layer.backward == Seconds(0));
  const auto bridge = [](const char* overlap) {
    return stack_of({{"framework", std::string("Megatron-Bridge (March 2026)") + overlap},
                     {"model", "GPT OSS 120B"},
                     {"precision", "bf16"},
                     {"gpu", "GB200"}})
        .experts.overlap;
  };
  CHECK(bridge("") == 0);
  CHECK(bridge(", EP communication overlap on") == known.overlap);
  CHECK(bridge(", no expert-communication overlap") == 0);
}

TEST_CASE("GELU of BERT and of GPTBigCode is one kernel of PyTorch's, GPT-2's is not") {
  const auto gelu = [](const char* model) {
    return stack_of({{"framework", "Hugging Face Trainer (2023)"}, {"model", model}, {"gpu", "A100"}})
        .kernels.gelu;
  };
  CHECK(gelu("GPT-2 124M") == read_stack("hf-trainer").kernels.gelu);
  for (const char* model : {"BERT-Large", "StarCoderBase 3B", "Pythia 1B"})
    CHECK_FALSE(gelu(model).has_value());
}

TEST_CASE("AutoModel reduces gradients of models with expert ways once a step") {
  const auto once = [](const char* ways) {
    return stack_of({{"framework", "NeMo AutoModel (2026), FSDP2"}, {"ep", ways}, {"gpu", "GB200"}})
        .adds_up_whole;
  };
  CHECK(once("16"));
  CHECK_FALSE(once("1"));
}

TEST_CASE("FSDP that wraps no layer has the model as one unit") {
  const auto unit = [](const char* framework, const char* note = "") {
    return stack_of({{"framework", framework}, {"note", note}, {"gpu", "A100"}}).root_unit;
  };
  CHECK(unit("PyTorch FSDP (2024)", "wrapping null: whole model in one FSDP unit") == RootUnit::all);
  CHECK(unit("PyTorch FSDP without auto-wrap (2024)") == RootUnit::all);
  CHECK(unit("PyTorch FSDP with auto-wrap (2024)") == RootUnit::embedding_and_head);
  CHECK(unit("PyTorch DDP (2024)", "in one unit") == RootUnit::embedding_and_head);
}

TEST_CASE("dropout is what a row says, and BERT's where none does") {
  const auto of = [](const char* framework, const char* model, const char* note) {
    return stack_of({{"framework", framework}, {"model", model}, {"gpu", "A100"}, {"note", note}}).dropout;
  };
  const char* own = "PyTorch (2024), eager";
  CHECK(of(own, "GPT-2", "") == Dropout::off);
  for (const char* on : {"AdamW; dropout 0.1 (the default)", "attention and hidden dropout 0.1",
                         "learned positions and dropout of 0.1", "dropout on"})
    CHECK(of(own, "GPT-2", on) == Dropout::of_model);
  CHECK(of(own, "BERT-Large", "") == Dropout::of_model);
  CHECK(of(own, "BERT-Large", "dropout 0.0") == Dropout::off);
  const char* megatron = "Megatron-LM (2023)";
  CHECK(of(megatron, "GPT", "") == Dropout::of_model);
  for (const char* off : {"no dropout (its script)", "dropout 0", "dropout off", "dropout=0"})
    CHECK(of(megatron, "GPT", off) == Dropout::off);
  CHECK(of(megatron, "GPT", "no bias-dropout fusion") == Dropout::of_model);
}

TEST_CASE("graphs of TensorFlow launch each operation, XLA's join them") {
  const auto of = [](const char* framework) {
    return stack_of({{"framework", framework}, {"model", "BERT-Base"}, {"gpu", "V100-16GB"}});
  };
  const SoftwareStack plain = of("TensorFlow 1.15, Horovod (2020)");
  CHECK(plain.name == "tensorflow");
  CHECK(plain.kernels.gelu.has_value());
  const SoftwareStack joined = of("TensorFlow 2.3 (2020), XLA");
  CHECK(joined.name == "tensorflow-xla");
  CHECK_FALSE(joined.kernels.gelu.has_value());
  CHECK(joined.kernels.elementwise_time < plain.kernels.elementwise_time);
  CHECK(joined.dropout == Dropout::of_model);
  CHECK(of("TensorFlow 2.3 (2020), no XLA").name == "tensorflow");
}

TEST_CASE("minGPT has GELU by its formula") {
  const auto gelu = [](const char* framework, const char* precision) {
    return stack_of({{"framework", framework}, {"gpu", "A100"}, {"precision", precision}}).kernels.gelu;
  };
  CHECK(gelu("PyTorch FSDP (minGPT, 2023)", "bf16") == read_stack("hf-trainer").kernels.gelu);
  CHECK(gelu("PyTorch FSDP (minGPT, 2023)", "bf16 mixed") == read_stack("hf-autocast").kernels.gelu);
  CHECK_FALSE(gelu("PyTorch FSDP (2023)", "bf16").has_value());
}

TEST_CASE("how 8-bit matrices are scaled is read where a row says it") {
  const auto recipe = [](const char* precision) {
    return stack_of({{"framework", "Megatron-Core"}, {"gpu", "H100"}, {"precision", precision}}).fp8_recipe;
  };
  CHECK(recipe("fp8") == read_stack("megatron-core").fp8_recipe);
  CHECK(recipe("fp8 delayed scaling (hybrid)") == Fp8Recipe::delayed);
  CHECK(recipe("fp8 tensorwise") == Fp8Recipe::tensorwise);
  CHECK(recipe("fp8, current scaling") == Fp8Recipe::tensorwise);
  CHECK(recipe("MXFP8") == Fp8Recipe::mxfp8);
  CHECK(recipe("fp8 blockwise") == Fp8Recipe::mxfp8);
}

TEST_CASE("libraries that exchange tokens with experts are read in the names of Megatron's programs") {
  const auto experts = [](const char* framework) {
    return stack_of({{"framework", framework}, {"gpu", "H100"}}).experts;
  };
  CHECK_FALSE(experts("Megatron-Core (2026)").deduplicated);
  for (const char* framework : {"Megatron-Core (2026), DeepEP", "Megatron-LM dev with HybridEP (2026)"}) {
    CHECK(experts(framework).deduplicated);
    CHECK(experts(framework).dispatch == read_stack("megatron-bridge").experts.dispatch);
    CHECK(experts(framework).layer.forward == read_stack("megatron-core").experts.layer.forward);
  }
  CHECK_FALSE(experts("torchtitan with DeepEP (2025)").deduplicated);
}

TEST_CASE(
    "PyTorch's first FSDP gathers in place, its second copies; one GPU that says neither shards nothing") {
  const auto copies = [](const char* framework, const char* sharding = "FSDP", const char* gpus = "8") {
    return stack_of({{"framework", framework},
                     {"gpu", "A100"},
                     {"n_gpus", gpus},
                     {"optimizer_sharding", sharding}})
        .shard_copies;
  };
  const ShardCopies second = read_stack("torchtitan").shard_copies;
  const ShardCopies first = read_stack("modalities").shard_copies;
  REQUIRE((second.gathered > 0 && first.gathered == 0 && first.scattering_time > 0));
  for (const char* framework :
       {"torchtitan (2024)", "torchtitan, eager (2025)", "OLMo-core v1.6 (PyTorch FSDP, 2024)",
        "KempnerForge (2026)", "NeMo AutoModel", "PyTorch FSDP2 (2025)",
        "Hugging Face Accelerate, PyTorch FSDP2 (2025)"})
    CHECK(copies(framework) == second);
  CHECK(copies("PyTorch (torch.compile, 2025)", "FSDP2") == second);
  for (const char* framework : {"PyTorch FSDP (2023)", "PyTorch FSDP, torch.compile (2024)",
                                "Modalities (2024)", "HF Trainer, PyTorch FSDP (2024)"})
    CHECK(copies(framework) == first);
  for (const char* framework : {"YaFSDP (PyTorch, 2024)", "Paxml (JAX, 2024)", "MaxText",
                                "TorchAcc (PyTorch/XLA FSDP)", "Megatron-LM (2024)"})
    CHECK(copies(framework) == ShardCopies{});
  CHECK(copies("DeepSpeed ZeRO-3 (2023)", "ZeRO-3").beside);
  CHECK(copies("torchtitan 2024, FSDP1") == first);
  CHECK(copies("torchtitan (2024)", "", "1") == ShardCopies{});
  CHECK(copies("torchtitan (2024)", "FSDP2", "1") == second);
}

TEST_CASE("kernels that permute tokens move nothing else, where a row names them or a recipe has them") {
  const auto eager = [](const char* framework) {
    return stack_of({{"framework", framework}, {"gpu", "H100"}}).experts.eager_forward;
  };
  CHECK(eager("Megatron-Core 0.14 (2025)") > 0);
  CHECK(eager("Megatron-LM (2026), without permute fusion") > 0);
  for (const char* fused :
       {"Megatron-Core 0.14 (2025), permute fusion", "Megatron-LM (--moe-permute-fusion, 2026)",
        "Megatron-Core (2025), fused permutation", "Megatron-Bridge 26.02", "NeMo 25.04"})
    CHECK(std::pair(fused, eager(fused)) == std::pair(fused, 0.0));
  // Of a named preset too, which knows nothing of it.
  const auto named = stack_of({{"framework", "Megatron-LM (2026), permute fusion"},
                               {"stack", "megatron-core-no-overlap"},
                               {"gpu", "H100"}});
  CHECK(named.experts.eager_forward == 0);
}

TEST_CASE("context ranks that exchange heads are read where a row names Ulysses, or has XTuner's") {
  const auto exchange = [](const char* framework, const char* note = "") {
    return stack_of({{"framework", framework}, {"gpu", "A100"}, {"note", note}}).context_exchange;
  };
  CHECK(exchange("Megatron-DeepSpeed (2023), Ulysses") == ContextExchange::heads);
  CHECK(exchange("Megatron-DeepSpeed (2023)", "DeepSpeed-Ulysses over eight GPUs") == ContextExchange::heads);
  CHECK(exchange("XTuner (Hugging Face transformers, DeepSpeed ZeRO-3, 2024)") == ContextExchange::heads);
  CHECK(exchange("Megatron-DeepSpeed (2023)", "without Ulysses") == ContextExchange::ring);
  CHECK(exchange("Megatron-Core (2024)") == ContextExchange::ring);
}

TEST_CASE("losses in chunks and checkpoints on the host are read where a row says them") {
  for (const char* framework : {"PyTorch DDP (2026)", "Hugging Face TRL (2026)"}) {
    const auto of = [&](const char* note) {
      return stack_of({{"framework", framework}, {"gpu", "H100"}, {"note", note}});
    };
    for (const char* note : {"chunked cross entropy", "cross entropy in chunks; one sequence a step",
                             "linear cross entropy recomputed in chunks of 128", "loss chunked_nll"}) {
      CAPTURE(framework, note);
      CHECK(of(note).chunked_loss);
    }
    CHECK_FALSE(of("experts in chunks; loss not chunked").chunked_loss);
    CHECK(of("activation checkpoints offloaded").saved_inputs == SavedInputs::host);
    CHECK(of("checkpoints kept on the GPU").saved_inputs == SavedInputs::gpu);
  }
}

// A ring of p ranks, each with 1 / p of the tokens in a row: rank r sees r shares of keys and half of its
// own, of which p / 2 are the mean.
TEST_CASE("a causal ring over consecutive shares waits for its last rank") {
  const auto attention = [](int ranks, const char* note) {
    return stack_of({{"framework", "PyTorch FSDP2 (2026)"},
                     {"gpu", "H100"},
                     {"cp", std::to_string(ranks)},
                     {"note", note}})
        .attention_time;
  };
  for (const int ranks : {2, 4, 8}) {
    double most = 0, sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      most = std::max(most, rank + 0.5);
      sum += rank + 0.5;
    }
    CHECK(attention(ranks, "contiguous causal shards") == Approx(most / (sum / ranks)));
    CHECK(attention(ranks, "ring attention without zigzag") == Approx(most / (sum / ranks)));
    CHECK(attention(ranks, "zigzag ring attention") == 1);
  }
  CHECK(attention(1, "contiguous causal shards") == 1);
}

TEST_CASE("room for gradients' buckets and the optimizer's lists is what a row says of its own program") {
  const auto of = [](const char* framework, const char* note) {
    return stack_of({{"framework", framework}, {"gpu", "T4"}, {"note", note}});
  };
  const SoftwareStack plain = of("PyTorch DDP, own trainer (2026), eager", "fused AdamW");
  CHECK(plain.copies_to_buckets);
  CHECK(plain.optimizer_copy == 0);
  CHECK(of("PyTorch DDP, own trainer (2026), eager", "torch AdamW (foreach)").optimizer_copy == 4);
  CHECK_FALSE(of("own script (PyTorch eager, DDP of its own, 2025)", "").copies_to_buckets);
}

TEST_CASE("AdamW by lists of tensors or by a loop of one's own moves what each of its operations does") {
  const auto of = [](const char* note, const char* precision = "fp32") {
    const auto optimizer = stack_of({{"framework", "PyTorch eager, own trainer (2026)"},
                                     {"gpu", "A100"},
                                     {"precision", precision},
                                     {"note", note}})
                               .optimizer;
    REQUIRE(optimizer);
    return *optimizer;
  };
  CHECK(of("torch AdamW (foreach)").bytes_per_parameter == 20 * 4);
  CHECK(of("torch AdamW (foreach)").uncached == 0);
  CHECK(of("torch AdamW (foreach)", "pure bf16").bytes_per_parameter == 20 * 2);
  CHECK(of("") == of("torch AdamW (foreach)"));
  CHECK(of("foreach=false") == of("fused AdamW"));
  for (const char* fused : {"fused AdamW", "FusedAdam of apex", "AdamW(fused=True)", "AdamW (fused)"})
    CHECK(of(fused) == *read_stack("pytorch-eager").optimizer);
  for (const char* lists : {"Unfused AdamW", "not a fused AdamW", "AdamW(fused=False)", "AdamW not fused"})
    CHECK(of(lists) == of("torch AdamW (foreach)"));
  for (const char* loop : {"AdamW of the starter code", "own AdamW", "AdamW (Python loop over parameters)",
                           "own unfused AdamW, a loop over tensors in Python"}) {
    CHECK(of(loop).bytes_per_parameter == 35 * 4);
    CHECK(of(loop).uncached == 7 * 4);
  }
}

TEST_CASE("tensor ranks that multiply pieces as they come put none in order") {
  const auto copies = [](const char* note, const char* given) {
    return stack_of({{"framework", "torchtitan (2024)"}, {"gpu", "H100"}, {"note", note}, {"stack", given}})
        .sequence_copies;
  };
  for (const char* given : {"", "torchtitan"}) {
    CHECK(copies("Float8 + Async TP", given) == SequenceCopies::none);
    CHECK(copies("2D with AsyncTP", given) == SequenceCopies::none);
    CHECK(copies("tensor parallelism without async TP", given) == SequenceCopies::all);
  }
}

TEST_CASE("GELU is one kernel of Hugging Face's GPT-2 where a row says that it is fused") {
  const auto gelu = [](const char* note) {
    return stack_of({{"framework", "Hugging Face Trainer (2026)"}, {"gpu", "H200"}, {"note", note}})
        .kernels.gelu;
  };
  CHECK(gelu("Fused tanh GELU, dropout 0.1") == read_stack("pytorch").kernels.gelu);
  CHECK(gelu("") == read_stack("hf-trainer").kernels.gelu);
  CHECK_FALSE(gelu("") == gelu("fused GELU"));
  const auto of_model = [](const char* model) {
    return stack_of({{"framework", "DeepSpeed ZeRO-2 (2026), eager"}, {"gpu", "H200"}, {"model", model}})
        .kernels.gelu;
  };
  CHECK(of_model("GPT of nanoGPT") == read_stack("pytorch").kernels.gelu);
  CHECK_FALSE(of_model("GPT-2") == of_model("GPT of nanoGPT"));
}

TEST_CASE("how evenly tokens are routed is read where a row says it") {
  const auto cv = [](const char* framework, const char* note, const char* model, const char* cell = "") {
    std::map<std::string, std::string> cells{{"framework", framework}, {"note", note}};
    if (*cell != 0) cells["expert_load_cv"] = cell;
    ExpertLoad load = stack_of({{"framework", framework}, {"gpu", "H100"}}).experts.load;
    use_said_loads(MeasuredRun(cells), read_model(model), load);
    return load.cv;
  };
  const double drawn = read_stack("torchtitan").experts.load.cv;
  CHECK(cv("Megatron-Core (2025)", "natural routing", "gpt-oss-20b") == drawn);
  CHECK(cv("Megatron-Core (2025)", "trained, routed naturally", "qwen3-30b-a3b") == drawn);
  CHECK(cv("Megatron-Core (2025)", "natural routing", "mixtral-8x7b") == 0);  // eight
  CHECK(cv("Megatron-Core (2025)", "natural routing", "gpt-oss-20b", "0.5") == 0.5);
  CHECK(cv("Megatron-Core (2025)", "", "gpt-oss-20b") == 0);
  CHECK(cv("torchtitan (2025)", "", "gpt-oss-20b") == drawn);
  for (const char* note : {"forced balance, mock data", "balance forced", "round-robin routing"})
    CHECK(cv("torchtitan (2025)", note, "gpt-oss-20b") == 0);
  CHECK(cv("torchtitan (2025)", "no forced balance", "gpt-oss-20b") == drawn);
}

TEST_CASE("8-bit matrices scaled by rows take longer than with one scale") {
  const auto recipe = [](const char* note) {
    return stack_of(
               {{"framework", "torchtitan (2025)"}, {"gpu", "H100"}, {"precision", "fp8"}, {"note", note}})
        .fp8_recipe;
  };
  CHECK(recipe("rowwise") == Fp8Recipe::rowwise);
  CHECK(recipe("") == Fp8Recipe::tensorwise);
  KernelFactors factors;
  factors.narrow = 1.3;
  CHECK(factors.of(Gemm{.type = DataType::fp8}) == 1.3);
  CHECK(factors.of(Gemm{.type = DataType::bf16}) == 1.0);
}

TEST_CASE("how experts are filled is read where a row says it, of programs that fill rows of a capacity") {
  const auto capacity = [](const char* framework, const char* note, const char* cell = "") {
    const MeasuredRun run({{"framework", framework}, {"note", note}, {"expert_capacity", cell}});
    ExpertLoad load = stack_of({{"framework", framework}, {"gpu", "H100"}, {"n_experts", "8"}}).experts.load;
    use_said_loads(run, {}, load);
    return load.capacity;
  };
  CHECK(capacity("MaxText (2025)", "capacity factor 1.25, full remat") == 1.25);
  CHECK(capacity("MaxText (2025)", "capacity_factor=1") == 1.0);
  CHECK(capacity("MaxText (2025)", "capacity_factor: -1, dropless") == std::nullopt);
  CHECK(capacity("MaxText (2025)", "") == std::nullopt);
  CHECK(capacity("Megatron-DeepSpeed (2023)", "--moe-train-capacity-factor 2.0") == 2.0);
  CHECK(capacity("Megatron-DeepSpeed (2023)", "") == 1.0);
  CHECK(capacity("Megatron-DeepSpeed (2023)", "capacity factor 2", "1.5") == 1.5);
  CHECK(capacity("Megatron-Core (2025)", "capacity factor 2") == std::nullopt);
  CHECK(capacity("Megatron-Core (2025)", "", "2") == 2.0);
  CHECK(capacity("MaxText (2025)", "capacity factor 1.25", "-1") == std::nullopt);
  CHECK(stack_of({{"framework", "DeepSpeed-MoE"}, {"gpu", "A100"}}).name == "deepspeed-moe");
  CHECK(stack_of({{"framework", "Megatron-DeepSpeed"}, {"gpu", "A100"}}).name == "megatron-deepspeed");
}

TEST_CASE("full recomputation of PyTorch's programs stops early from PyTorch 2.1 on") {
  const auto stops = [](const char* framework) {
    return stack_of({{"framework", framework}, {"gpu", "A100"}}).stops_recomputation;
  };
  CHECK(stops("torchtitan (2024)"));
  CHECK(stops("PyTorch FSDP (2024)"));
  CHECK_FALSE(stops("PyTorch FSDP (August 2023)"));
  CHECK_FALSE(stops("Megatron-LM (2024)"));
  CHECK_FALSE(stops("Transformer Engine with FSDP2 (2025)"));
}

}  // namespace orrery
