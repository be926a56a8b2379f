// Models of published runs: on rows made up for the purpose.
#include "sim/measured/measured_plan.hpp"

#include <algorithm>
#include <set>

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {

using test::mapped;
using test::runs_of;
using test::small_run;
using test::unmapped;

namespace {

// Of a row that prints the shape of a dense model, with a note.
ModelSpec noted(const std::string& model, const std::string& note = "") {
  return mapped(runs_of("a,g,V100,32,8,8,,PyTorch (2022)," + model +
                            ",16,2048,32,32000,512,fp16,8,1,1,1,,8,none,1,,ok,\"" + note + "\"\n",
                        ",note")
                    .front())
      .model;
}

}  // namespace

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

TEST_CASE("what a row prints otherwise than the built-in model is said beside its name") {
  const auto said = [](const std::string& widths) {
    return mapped(
               runs_of("a,g,H100,80,8,8,,Megatron-LM,llama3-8b,32,4096,32,,2048,bf16,8,1,8,1,,1,none,9,,ok" +
                           widths + "\n",
                       ",kv_heads,ffn")
                   .front())
        .assumptions.front();
  };
  CHECK(said(",,") == "shape of the built-in model llama3-8b");
  CHECK(said(",8,14336") == "shape of the built-in model llama3-8b");
  CHECK(said(",32,11008") ==
        "shape of the built-in model llama3-8b, but kv_heads 32 and not 8, ffn 11008 and not 14336");
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

TEST_CASE("each Gemma has its own norms and caps, and the first the size in its name") {
  const auto gemma = [](const std::string& name) {
    return mapped(runs_of("a,g,H100,80,8,8,,Hugging Face Trainer (2024)," + name +
                          ",26,2304,8,256000,2048,bf16,8,1,1,1,,8,none,1,,ok\n")
                      .front())
        .model;
  };
  for (const char* second : {"Gemma 2 2B", "gemma-2-27b", "gemma2-9b"}) {
    CHECK(gemma(second).layer(0).capped_scores);
    CHECK(gemma(second).capped_logits);
    CHECK(gemma(second).layer(0).norms == 4);
  }
  CHECK_FALSE(gemma("Gemma 4 31B").layer(0).capped_scores);
  CHECK(gemma("Gemma 4 31B").capped_logits);
  CHECK(gemma("Gemma 3 1B").layer(0).qk_norm);
  CHECK_FALSE(gemma("Gemma 3 1B").capped_logits);
  for (const char* first : {"Gemma 2B", "gemma-7b"}) {
    CHECK_FALSE(gemma(first).capped_logits);
    CHECK(gemma(first).layer(0).norms == 2);
    CHECK(gemma(first).tied_embeddings);
  }
}

TEST_CASE(
    "a published model that a row only names has its published shape, and as many parameters as its name "
    "says") {
  const auto model = [](const std::string& name) {
    return mapped(runs_of("a,g,H100,80,8,512,,Megatron-LM," + name +
                          ",,,,,2048,bf16,512,1,4,2,1,64,full,10,,ok\n")
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
        Row{"Nemotron-4 340B", 341}, Row{"baichuan-inc/Baichuan2-13B-Base", 13.9},
        Row{"qwen/qwen-7b", 7.7}}) {
    INFO(name);
    CHECK(static_cast<double>(total_parameters(model(name))) == Approx(billions * 1e9).epsilon(0.04));
  }
  CHECK(model("LLaMA-7B").layer(0).mlp == MlpKind::gated);
  CHECK(model("Falcon-180B").layer(0).kv_heads == 8);
}

TEST_CASE("a model's name may say whether its embeddings are tied, against the rule of its family") {
  const auto tied = [](const std::string& model, const std::string& note = "") {
    return noted(model, note).tied_embeddings;
  };
  CHECK_FALSE(tied("Llama"));
  CHECK(tied("Llama (tied embeddings)"));
  CHECK(tied("GPT"));
  CHECK_FALSE(tied("GPT untied"));
  // The note speaks where the name does not.
  CHECK_FALSE(tied("GPT", "learned positions, untied head"));
  CHECK(tied("Llama", "SwiGLU; tied embeddings"));
  CHECK_FALSE(tied("GPT untied", "tied embeddings in the paper"));
}

TEST_CASE("spans and labels are two outputs of a head of its own") {
  CHECK(noted("BERT", "").outputs == 0);
  CHECK(noted("BERT", "").tied_embeddings);
  for (const ModelSpec& few : {noted("BERT (SQuAD)", ""), noted("BERT", "a 2-logit span head: no words"),
                               noted("BERT", "one GPU; sequence classification")}) {
    CHECK(few.outputs == 2);
    CHECK_FALSE(few.tied_embeddings);
  }
  CHECK(noted("Llama", "fine-tuning on SQuAD").outputs == 0);  // answers are texts
}

TEST_CASE("BERT's head sees the masked positions that a row counts") {
  const auto tokens = [](const std::string& note) { return noted("BERT", note).predicted_tokens; };
  CHECK(tokens("head only on 20 masked positions per sequence") == 20);
  CHECK(tokens("Head on masked positions only (20 of 128)") == 20);
  CHECK(tokens("Head on masked positions only. LAMB") == 80);  // of 512
  CHECK(tokens("one masked position a cell") == 1);
  CHECK(tokens("masked language modelling") == 0);
}

TEST_CASE("a size in a model's name tells the built-in model from another of that name") {
  const auto row = [](const std::string& model, const std::string& shape = ",,,") {
    return runs_of("a,g,H100,80,8,8,,torchtitan (2025)," + model + "," + shape +
                   ",2048,bf16,8,1,1,1,,8,none,1,,ok\n")
        .front();
  };
  const auto name = [&](const std::string& model) { return mapped(row(model)).model.name; };
  CHECK(name("DeepSeek-V3") == "deepseek-v3");
  CHECK(name("DeepSeek-V3 671B") == "deepseek-v3");
  for (const char* small : {"DeepSeek-V3 16B", "DeepSeek V3 16B (as DeepSeek-V2-Lite)"})
    CHECK(name(small) == "deepseek-v2-lite");
  CHECK(name("Qwen3-30B-A3B") == "qwen3-30b-a3b");
  CHECK(name("Mixtral-8x7B") == "mixtral-8x7b");
  CHECK(unmapped(row("DeepSeek-V3 37B")) == "no shape of model DeepSeek-V3 37B");
  CHECK(unmapped(row("Qwen3.5 9B (hybrid Gated DeltaNet)", "32,4096,32,152064")) ==
        "a model of another kind: linear attention");
}

TEST_CASE("a model's name may say its positions, against the rule of its family") {
  const auto model = [](const std::string& name) {
    return mapped(runs_of("a,g,H100,80,8,8,,Megatron-LM (2023)," + name +
                          ",16,2048,32,32000,4096,bf16,8,1,1,1,,8,none,1,,ok\n")
                      .front())
        .model;
  };
  CHECK(model("GPT").learned_positions == 4096);
  CHECK(model("European GPT").learned_positions == 4096);
  for (const char* rotary : {"GPT (rotary)", "GPT with RoPE"}) {
    CHECK(model(rotary).learned_positions == 0);
    CHECK(model(rotary).layer(0).rotary);
  }
  CHECK(model("GPT (ALiBi)").learned_positions == 0);
  CHECK_FALSE(model("GPT (ALiBi)").layer(0).rotary);
}

TEST_CASE("queries and keys are normalised in families that do, and where a row says it") {
  const auto layer = [](const std::string& name, const std::string& note = "") {
    return noted(name, note).layer(0);
  };
  for (const char* name : {"Qwen3-like 1.8B", "Apertus 8B", "GPT (QK norm)", "Llama with QK-norm"}) {
    CAPTURE(name);
    CHECK(layer(name).qk_norm);
    CHECK_FALSE(layer(name).wide_qk_norm);
  }
  CHECK(layer("Llama-like", "SwiGLU; QK norm").qk_norm);
  CHECK(layer("OLMo 2 1B").wide_qk_norm);
  for (const char* name :
       {"Llama-like 1.8B", "Qwen2-like 1.8B", "Qwen3-like 47M without QK norm", "OLMo-1B"}) {
    CAPTURE(name);
    CHECK_FALSE(layer(name).qk_norm);
  }
}

TEST_CASE("what a row prints against the built-in model it names is its model's, or leaves it out") {
  const auto row = [](const std::string& model, const std::string& shape, const std::string& cells) {
    return runs_of("a,g,H100,80,8,8,,Megatron-Core," + model + "," + shape +
                       ",2048,bf16,8,1,1,1,,8,none,1,,ok," + cells + "\n",
                   ",kv_heads,head_dim,ffn,n_experts")
        .front();
  };
  const std::string none = ",,,";  // layers, hidden, heads, vocab: of the built-in model
  // Mixtral 8x7B has 32 layers of 4096 with 32 heads, 8 of keys, and 8 experts of 14336; Llama 2 7B none.
  CHECK(mapped(row("mixtral-8x7b", none, "8,128,14336,8")).model ==
        mapped(row("mixtral-8x7b", none, ",,,")).model);
  using Row = std::pair<const char*, const char*>;
  for (const auto& [cells, reason] : {Row{",,,1", "n_experts 1, not 8"}, Row{",,,2", "n_experts 2, not 8"},
                                      Row{"4,,,", "kv_heads 4, not 8"}, Row{",64,,", "head_dim 64, not 128"},
                                      Row{",,4096,", "ffn 4096, not 14336"}}) {
    CHECK(unmapped(row("mixtral-8x7b", none, cells)) ==
          std::string(reason) +
              " as in the built-in model mixtral-8x7b: another model needs its layers and hidden size");
  }
  CHECK(contains(unmapped(row("llama2-7b", none, ",,,8")),
                 "n_experts 8, not 1 as in the built-in model llama2-7b"));
  CHECK(contains(unmapped(row("mixtral-8x7b", ",,16,", ",,,")), "heads 16, not 32"));
  // With a shape of its own it is that model; of equal dense layers widths alone are the row's.
  const MeasuredPlan own = mapped(row("mixtral-8x7b", "32,4096,32,32000", "8,,7168,16"));
  CHECK(own.model.layer(0).ffn == 7168);
  CHECK(std::count(own.assumptions.begin(), own.assumptions.end(),
                   "a model of its own: n_experts 16, not 8 as in the built-in model mixtral-8x7b") == 1);
  CHECK(mapped(row("llama2-7b", none, ",64,,")).model.layer(0).head_dim == 64);
  // A vocabulary does not make another model of a mixture.
  const MeasuredPlan padded = mapped(row("mixtral-8x7b", ",,,32768", ",,,"));
  CHECK(padded.model.vocabulary == 32768);
  CHECK(std::count(padded.assumptions.begin(), padded.assumptions.end(),
                   "shape of the built-in model mixtral-8x7b, but vocab 32768 and not 32000") == 1);
  const MeasuredPlan more = mapped(row("deepseek-v3-mtp", ",,,50304", ",,,"));
  CHECK(more.model.layer(more.model.layer_count() - 1).predicted_vocabulary == 50304);
}

TEST_CASE("a cell of the shape that is no number leaves its run out, whatever its model takes from it") {
  for (const char* model : {"llama2-7b", "mixtral-8x7b", "GPT"}) {
    for (const std::string column : {"kv_heads", "head_dim", "ffn", "n_experts"}) {
      const std::string reason = unmapped(runs_of(std::string("a,g,H100,80,8,8,,Megatron-Core,") + model +
                                                      ",,,,,2048,bf16,8,1,1,1,,8,none,1,,ok,foo\n",
                                                  "," + column)
                                              .front());
      CHECK(contains(reason, column + ": found 'foo', expected a number"));
    }
  }
}

TEST_CASE("DeepSeek-V3 predicts several tokens under NeMo and Megatron-Bridge, whose recipes do") {
  const auto name = [](const std::string& framework, const std::string& model) {
    return mapped(parse_measured_runs(
                      "id,source_key,gpu,n_gpus,framework,model,seq,precision,gbs,mbs,tp,pp,dp,ep\n"
                      "a,g,B200,256," +
                          framework + "," + model + ",4096,MXFP8,4096,1,1,16,16,8\n",
                      "made-up.csv")
                      .front())
        .model.name;
  };
  CHECK(name("Megatron-Bridge 26.02", "DeepSeek-V3") == "deepseek-v3-mtp");
  CHECK(name("Megatron-Bridge 26.02", "DeepSeekV3 (w/o MTP)") == "deepseek-v3");
  CHECK(name("NeMo/Megatron-Core 25.04", "DeepSeek-V3") == "deepseek-v3-mtp");
  CHECK(name("NeMo AutoModel", "DeepSeek-V3") == "deepseek-v3");
  CHECK(name("Megatron-Core (2025)", "DeepSeek-V3") == "deepseek-v3");
  CHECK(name("torchtitan (2025)", "Llama4-Scout-17B-16E") == "llama4-scout");
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
  CHECK_FALSE(plan.model.layer(0).linear_bias);
  const MeasuredPlan unsaid = mapped(row("", ""));
  CHECK(unsaid.model.layer(0).ffn == 4 * unsaid.model.hidden);
  CHECK(std::count(unsaid.assumptions.begin(), unsaid.assumptions.end(),
                   "two experts a token, each as wide as the MLP, in every layer") == 1);
  // 4 layers of 4 h^2 and 8 experts of 8 h^2: 0.29 billion, and an embedding of 0.05.
  CHECK_NOTHROW(mapped(row("4096", "0.3")));
  CHECK(contains(unmapped(row("4096", "1.2")), "billion parameters, the row says 1.2"));
}

TEST_CASE("a built-in model with fewer layers or experts keeps the shapes of those that are left") {
  const auto cut = [](const char* model, const char* layers, const char* experts, const char* hidden,
                      const char* note = "") {
    return mapped(small_run({{"model", model},
                             {"layers", layers},
                             {"hidden", hidden},
                             {"heads", ""},
                             {"ffn", ""},
                             {"vocab", ""},
                             {"n_experts", experts},
                             {"note", note}}));
  };
  const auto dense_of = [](const ModelSpec& model) {
    return std::count_if(model.layers.begin(), model.layers.end(), [&](int shape) {
      return model.shapes[static_cast<std::size_t>(shape)].experts <= 1;
    });
  };
  const ModelSpec whole = read_model("deepseek-v3");  // three dense layers, then experts
  const MeasuredPlan sixteen = cut("DeepSeek-V3 (16 layers)", "16", "", "7168");
  CHECK(sixteen.model.layer_count() == 16);
  CHECK(dense_of(sixteen.model) == 3);
  CHECK(sixteen.model.layer(15) == whole.layer(60));
  CHECK(sixteen.assumptions.front() == "shape of the built-in model deepseek-v3, layers 16, not 61");
  // Multi-token prediction, which a name or a note may say, comes after the layers that are counted.
  const ModelSpec predicting = cut("DeepSeek-V3 (14 layers, with MTP)", "14", "", "7168").model;
  CHECK(predicting.layer_count() == 15);
  CHECK(predicting.layer(14).predicts_more());
  CHECK_FALSE(predicting.layer(13).predicts_more());
  CHECK_FALSE(cut("DeepSeek-V3 (without MTP)", "14", "", "7168").model.layer(13).predicts_more());
  CHECK(cut("DeepSeek-V3", "14", "", "7168", "one MTP layer in addition").model.layers == predicting.layers);
  CHECK_FALSE(cut("DeepSeek-V3", "14", "", "7168", "no MTP layer").model.layer(13).predicts_more());
  CHECK(dense_of(cut("DeepSeek-V3, moe_layer_freq 1", "4", "", "7168").model) == 0);
  for (const char* note : {"4 MoE layers", "all 4 layers MoE", "all of them MoE"})
    CHECK(dense_of(cut("DeepSeek-V3", "4", "", "7168", note).model) == 0);
  CHECK(dense_of(cut("DeepSeek-V3", "4", "", "7168", "1 dense + 3 MoE layers").model) == 1);
  const ModelSpec four = cut("DeepSeek-V3", "4", "64", "7168").model;
  CHECK(dense_of(four) == 1);
  CHECK(four.layer(3).experts == 64);
  CHECK(four.layer(3).shared_ffn == whole.layer(60).shared_ffn);
  CHECK(cut("DeepSeek-V3", "1", "", "7168").model.layer(0) == whole.layer(0));
  // Experts in every second layer; queries and keys that are normalised.
  const ModelSpec maverick = cut("Llama-4-Maverick", "6", "", "").model;
  CHECK(dense_of(maverick) == 3);
  CHECK(cut("Qwen3-8B", "4", "", "").model.layer(0).qk_norm);
  // Another width is another model, and so are more layers.
  CHECK(cut("DeepSeek-V3", "16", "", "4096").model.layer(0).latent.kv_rank == 0);
  CHECK(cut("Mixtral-8x7B", "40", "8", "4096").assumptions.front() ==
        "a model of its own: layers 40, not 32 as in the built-in model mixtral-8x7b");
}

TEST_CASE("every so manyth layer has experts where a row says so, the others an MLP as wide") {
  const auto layers = [](const std::string& model, const std::string& note) {
    const MeasuredPlan plan =
        mapped(small_run({{"model", model}, {"layers", "8"}, {"n_experts", "16"}, {"note", note}}));
    std::string experts;
    for (int layer = 0; layer < 8; ++layer) {
      CHECK(plan.model.layer(layer).ffn == 4096);
      experts += plan.model.layer(layer).experts == 16 ? "e" : "d";
    }
    return experts;
  };
  CHECK(layers("GPT MoE", "") == "eeeeeeee");
  for (const char* note : {"experts in every second layer", "every other layer has experts",
                           "MoE in every 2nd layer", "--expert-interval 2", "moe_frequency=2"})
    CHECK(std::pair(note, layers("GPT MoE", note)) == std::pair(note, std::string("dededede")));
  CHECK(layers("GPT with experts in every fourth layer", "") == "dddeddde");
  CHECK(layers("GPT MoE", "moe-layer-freq 1") == "eeeeeeee");
  for (const char* note : {"a checkpoint in every second layer", "MoE; every second layer is recomputed"})
    CHECK(std::pair(note, layers("GPT MoE", note)) == std::pair(note, std::string("eeeeeeee")));
  CHECK(layers("GPT MoE", "every second layer is a MoE") == "dededede");
}

TEST_CASE("norms, activations, positions and biases are those that the model's name says beside its family") {
  const auto assumed = [](const std::string& model) {
    return mapped(small_run({{"model", model}})).assumptions.front();
  };
  CHECK(assumed("GPT 124M") == "GPT: GELU or ReLU, LayerNorm, learned positions, tied, biases");
  CHECK(assumed("GPT 124M (RMSNorm, rotary, no biases, ReLU squared, untied)") ==
        "GPT: GELU or ReLU, RMSNorm, rotary, untied, no biases");
  CHECK(assumed("GPT 124M without biases") ==
        "GPT: GELU or ReLU, LayerNorm, learned positions, tied, no biases");
  CHECK(assumed("Llama-like, LayerNorm, GELU, biases") ==
        "Llama: GELU or ReLU, LayerNorm, rotary, untied, biases");
  CHECK(assumed("Baichuan-13B (ALiBi)") == "Llama: gated MLP, RMSNorm, ALiBi, untied, no biases");
  CHECK(assumed("Qwen-like, QKV bias") == "Llama: gated MLP, RMSNorm, rotary, untied, no biases");
  // Of a note norms and positions alone: "bias-GELU fusion off" says nothing of the model.
  const MeasuredPlan noted = mapped(small_run(
      {{"model", "GPT 11M"}, {"note", "hand-written RMSNorm, RoPE, bias-GELU fusion off, no biases"}}));
  CHECK(noted.assumptions.front() == "GPT: GELU or ReLU, RMSNorm, rotary, tied, biases");
}

TEST_CASE("latent attention of a model of one's own has DeepSeek-V3's widths") {
  const MeasuredPlan plan =
      mapped(small_run({{"model", "own model (MLA)"}, {"hidden", "1536"}, {"heads", "12"}}));
  const LayerShape& layer = plan.model.layer(0);
  CHECK((layer.latent.query_rank == 1536 && layer.latent.kv_rank == 512 && layer.latent.rope_dim == 64));
  CHECK((layer.heads == 12 && layer.head_dim == 192 && layer.value_dim == 128));
  CHECK(std::count(plan.assumptions.begin(), plan.assumptions.end(),
                   "latent attention of DeepSeek-V3's ranks and head widths") == 1);
}

// Sixteen layers of 64 experts of 3 x 4096 x 2048: 26 billion parameters, of 4 bytes at the least.
TEST_CASE("experts that nobody spreads are spread as far as their weights need it") {
  const auto ways = [](const std::string& gpus, const std::string& ep, const std::string& status) {
    const MeasuredPlan plan = mapped(small_run({{"n_gpus", gpus},
                                                {"model", "Llama MoE"},
                                                {"layers", "16"},
                                                {"hidden", "4096"},
                                                {"heads", "32"},
                                                {"ffn", "2048"},
                                                {"n_experts", "64"},
                                                {"experts_per_token", "2"},
                                                {"gbs", "32"},
                                                {"ep", ep},
                                                {"status", status}}));
    std::set<int> all;
    for (const ParallelStrategy& strategy : plan.strategies) all.insert(strategy.expert);
    return all;
  };
  CHECK(ways("8", "", "ok") == std::set{2, 4, 8});
  CHECK(ways("8", "1", "ok") == std::set{1});
  CHECK(ways("8", "", "OOM") == std::set{1});  // one of these, which nobody knows
  CHECK(ways("1", "", "ok") == std::set{1});
}

TEST_CASE(
    "experts a token are those of their column, of the model's name, or of the built-in model it names") {
  const auto row = [](const std::string& model, const std::string& experts, const std::string& per_token,
                      const std::string& layers = "4") {
    return parse_measured_runs(
               "id,source_key,gpu,n_gpus,framework,model,layers,hidden,heads,kv_heads,head_dim,ffn,n_experts,"
               "experts_per_token,vocab,seq,gbs,tp,pp\na,g,H100,8,Megatron-Core,\"" +
                   model + "\"," + layers + ",2048,32,4,128,768," + experts + "," + per_token +
                   ",151936,1024,8,1,1\n",
               "made-up.csv")
        .front();
  };
  const auto chosen = [&](const std::string& model, const std::string& per_token = "") {
    return mapped(row(model, "64", per_token)).model.layer(0).experts_per_token;
  };
  CHECK(chosen("MoE", "6") == 6);
  CHECK(chosen("MoE, top-2", "6") == 6);
  for (const char* name : {"GPT MoE, 8 experts a token", "GPT MoE top-8", "MoE, 64 experts top 8",
                           "MoE top_k=8", "MoE (top-k 8)", "MoE, 8 active experts per token"}) {
    INFO(name);
    CHECK(chosen(name) == 8);
  }
  CHECK(chosen("MoE") == 2);
  // Qwen3-30B-A3B has 48 layers, and 8 of 128 experts for a token.
  const MeasuredPlan more = mapped(row("Qwen3-30B-A3B", "64", "", "60"));
  CHECK(more.model.layer(0).experts == 64);
  CHECK(more.model.layer(0).experts_per_token == 8);
  CHECK(
      std::count(more.assumptions.begin(), more.assumptions.end(),
                 "8 experts a token as in the built-in model qwen3-30b-a3b, each as wide as the MLP that is "
                 "printed, in every layer") == 1);
  CHECK(mapped(row("Qwen3-30B-A3B", "128", "4", "48")).model.layer(0).experts_per_token == 4);
  CHECK(unmapped(row("MoE", "4", "8")) == "8 experts a token, n_experts 4");
  CHECK(unmapped(row("MoE, top-8", "", "")) == "8 experts a token, n_experts not given");
}

}  // namespace orrery
