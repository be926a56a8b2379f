// What the model readers accept, and what they say about what they do not.
#include <string>

#include "platforms/errors.hpp"
#include "strategies/model.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/replaced.hpp"
#include "tests/strategies/tiny_llama.hpp"

using namespace orrery;
using test::kTinyLlama;
using test::replaced;

namespace {

std::string error_of(const std::string& json) {
  return input_error_parts([&] { parse_huggingface_config(json, "config.json"); });
}

std::string yaml_error_of(const std::string& yaml) {
  return input_error_parts([&] { parse_model_blocks(yaml, "model.yaml"); });
}

std::int64_t parameters(const std::string& json) {
  return total_parameters(parse_huggingface_config(json, "config.json"));
}

std::vector<std::int64_t> windows(const std::string& json) {
  const ModelSpec model = parse_huggingface_config(json, "config.json");
  std::vector<std::int64_t> all;
  for (int i = 0; i < model.layer_count(); ++i) all.push_back(model.layer(i).attention_window);
  return all;
}

}  // namespace

TEST_CASE("every built-in model reads and bears its name") {
  const auto names = builtin_model_names();
  CHECK(names.size() >= 20);
  for (const std::string& name : names) {
    INFO(name);
    const ModelSpec model = read_model(name);
    CHECK(model.name == name);
    CHECK(total_parameters(model) > 0);
    CHECK(model.default_sequence > 0);
  }
}

TEST_CASE("a wrong model name gives the nearest one") {
  try {
    read_model("llama2-70");
    FAIL("accepted");
  } catch (const InputError& error) {
    CHECK(contains(error.expected, "llama2-7"));
    CHECK(contains(error.found, "llama2-70"));
  }
}

TEST_CASE("other families count as published") {
  struct Row {
    const char* json;
    std::int64_t parameters;
  };
  const auto row = GENERATE(values<Row>({
      // openai-community/gpt2
      {R"({"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,"n_positions":1024,"vocab_size":50257,
           "n_inner":null})",
       124'439'808},
      // facebook/opt-125m: 12 x (12 h^2 + 13 h) + (50272 + 2050 + 2) h, h = 768
      {R"({"model_type":"opt","hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"ffn_dim":3072,
           "vocab_size":50272,"max_position_embeddings":2048,"word_embed_proj_dim":768})",
       125'239'296},
      // bigscience/bloom-560m
      {R"({"model_type":"bloom","n_embed":1024,"n_layer":24,"num_attention_heads":16,"vocab_size":250880})",
       559'214'592},
      // microsoft/Phi-3-mini-4k-instruct
      {R"({"model_type":"phi3","hidden_size":3072,"num_hidden_layers":32,"num_attention_heads":32,
           "num_key_value_heads":32,"intermediate_size":8192,"vocab_size":32064,"max_position_embeddings":4096})",
       3'821'079'552},
      // google/gemma-2b
      {R"({"model_type":"gemma","hidden_size":2048,"num_hidden_layers":18,"num_attention_heads":8,
           "num_key_value_heads":1,"head_dim":256,"intermediate_size":16384,"vocab_size":256000,
           "max_position_embeddings":8192})",
       2'506'172'416},
      // google/gemma-2-2b
      {R"({"model_type":"gemma2","hidden_size":2304,"num_hidden_layers":26,"num_attention_heads":8,
           "num_key_value_heads":4,"head_dim":256,"intermediate_size":9216,"vocab_size":256000,
           "max_position_embeddings":8192})",
       2'614'341'888},
      // zai-org/glm-4-9b-hf
      {R"({"model_type":"glm","hidden_size":4096,"num_hidden_layers":40,"num_attention_heads":32,
           "num_key_value_heads":2,"head_dim":128,"intermediate_size":13696,"vocab_size":151552,
           "attention_bias":true,"max_position_embeddings":131072})",
       9'399'951'360},
      // zai-org/GLM-4-9B-0414: two more norms a layer
      {R"({"model_type":"glm4","hidden_size":4096,"num_hidden_layers":40,"num_attention_heads":32,
           "num_key_value_heads":2,"head_dim":128,"intermediate_size":13696,"vocab_size":151552,
           "attention_bias":true,"max_position_embeddings":32768})",
       9'399'951'360 + 40 * 2 * 4096},
      // THUDM/chatglm-6b
      {R"({"model_type":"chatglm","hidden_size":4096,"inner_hidden_size":16384,"num_layers":28,
           "num_attention_heads":32,"vocab_size":130528,"max_sequence_length":2048})",
       6'173'286'400},
      // Qwen/Qwen1.5-MoE-A2.7B: 60 experts, a shared one of width 5632 behind a gate
      {R"({"model_type":"qwen2_moe","hidden_size":2048,"num_hidden_layers":24,"num_attention_heads":16,
           "num_key_value_heads":16,"intermediate_size":5632,"moe_intermediate_size":1408,
           "shared_expert_intermediate_size":5632,"num_experts":60,"num_experts_per_tok":4,"decoder_sparse_step":1,
           "vocab_size":151936,"max_position_embeddings":8192})",
       14'315'784'192},
      // google/gemma-3-1b-pt
      {R"({"model_type":"gemma3_text","hidden_size":1152,"num_hidden_layers":26,"num_attention_heads":4,
           "num_key_value_heads":1,"head_dim":256,"intermediate_size":6912,"vocab_size":262144,"sliding_window":512,
           "sliding_window_pattern":6,"max_position_embeddings":32768})",
       999'885'952},
      // ibm-granite/granite-3.1-8b-base
      {R"({"model_type":"granite","hidden_size":4096,"num_hidden_layers":40,"num_attention_heads":32,
           "num_key_value_heads":8,"intermediate_size":12800,"vocab_size":49155,"tie_word_embeddings":true,
           "attention_bias":false,"max_position_embeddings":131072})",
       8'170'848'256},
      // ByteDance-Seed/Seed-OSS-36B: 64 x (two of 5120 x 10240 and two of 5120 x 1024, biases of all but the
      // last, MLP, two norms), tables and a norm
      {R"({"model_type":"seed_oss","hidden_size":5120,"num_hidden_layers":64,"num_attention_heads":80,
           "num_key_value_heads":8,"head_dim":128,"intermediate_size":27648,"vocab_size":155136,
           "attention_bias":true,"attention_out_bias":false,"tie_word_embeddings":false,
           "max_position_embeddings":524288})",
       64LL * (2 * 5120 * 10240 + 2 * 5120 * 1024 + 10240 + 2 * 1024 + 3 * 5120 * 27648 + 2 * 5120) +
           2 * 155136LL * 5120 + 5120},
      // tiiuae/falcon-rw-1b: neither parallel nor multi-query, biases
      {R"({"model_type":"falcon","hidden_size":2048,"num_hidden_layers":24,"num_attention_heads":32,"alibi":true,
           "bias":true,"multi_query":false,"parallel_attn":false,"new_decoder_architecture":false,"vocab_size":50304})",
       1'311'625'216},
  }));
  INFO(row.json);
  CHECK(parameters(row.json) == row.parameters);
}

TEST_CASE("of a model that also sees the text model is read") {
  const std::string text = replaced(kTinyLlama, "\"llama\"", "\"mistral\"");
  const ModelSpec alone = parse_huggingface_config(text, "tiny.json");
  ModelSpec within = parse_huggingface_config(
      R"({"model_type": "mistral3", "vision_config": {"hidden_size": 8}, "text_config": )" + text + "}",
      "tiny.json");
  CHECK(within == alone);
  // google/gemma-3-4b-pt leaves out what Gemma3TextConfig has by default.
  CHECK(parameters(R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text","hidden_size":2560,
      "intermediate_size":10240,"num_hidden_layers":34,"sliding_window":1024}})") ==
        34LL * (2 * 2560 * 2048 + 2 * 2560 * 1024 + 3 * 2560 * 10240 + 4 * 2560 + 2 * 256) + 262208LL * 2560 +
            2560);
  CHECK(contains(error_of(R"({"model_type":"llava","text_config":{"model_type":"lama"}})"),
                 "config.json: text_config: model_type | \"lama\" | one of apertus,"));
  CHECK(contains(error_of(R"({"model_type":"llava","text_config":"llama"})"),
                 "config.json: text_config | \"llama\""));
}

TEST_CASE("layers that slide are those the file lists, else all but every so many") {
  const std::string gemma = R"({"model_type":"gemma3_text","hidden_size":64,"intermediate_size":128,
      "num_hidden_layers":6,"sliding_window":16})";
  // Causal pairs of a band of 16 are those of blocks of 32: 32 x 32 / 2 for 32 tokens.
  CHECK(windows(gemma) == std::vector<std::int64_t>{32, 32, 32, 32, 32, 0});
  const auto with = [&](const std::string& more) {
    return gemma.substr(0, gemma.size() - 1) + "," + more + "}";
  };
  CHECK(windows(with(R"("sliding_window_pattern":2)")) == std::vector<std::int64_t>{32, 0, 32, 0, 32, 0});
  const std::string listed =
      R"("layer_types":["full_attention","full_attention","sliding_attention","full_attention","full_attention"])";
  CHECK(contains(error_of(with(listed)),
                 "config.json: layer_types | a list | one for each of num_hidden_layers = 6"));
  CHECK(windows(replaced(with(listed), "\"num_hidden_layers\":6", "\"num_hidden_layers\":5")) ==
        std::vector<std::int64_t>{0, 0, 32, 0, 0});
  CHECK(contains(error_of(with(R"("layer_types":["linear_attention"])")),
                 "sliding_attention and full_attention"));
  CHECK(contains(error_of(with(R"("layer_types":[1])")), "a list of texts"));
  const std::string llama = R"({"model_type":"llama4_text","hidden_size":64,"num_hidden_layers":4,
      "num_attention_heads":4,"intermediate_size":128,"intermediate_size_mlp":256,"num_local_experts":4,
      "num_experts_per_tok":1,"attention_chunk_size":16,"vocab_size":100,"max_position_embeddings":32})";
  CHECK(windows(llama) == std::vector<std::int64_t>{16, 16, 16, 0});
  CHECK(windows(replaced(llama, "\"vocab", "\"no_rope_layers\":[0,1,0,1],\"vocab")) ==
        std::vector<std::int64_t>{0, 16, 0, 16});
}

TEST_CASE("families heed a sliding window below the sequence as their configuration files do") {
  using Windows = std::vector<std::int64_t>;
  const auto of = [](const std::string& type, const std::string& more) {
    return windows(R"({"model_type":")" + type + R"(","hidden_size":64,"num_hidden_layers":4,
      "num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"max_position_embeddings":64,)" +
                   more + "}");
  };
  // Causal pairs of a band of 16 are those of blocks of 32.
  const Windows all{32, 32, 32, 32}, none{0, 0, 0, 0};
  const std::string experts = R"("num_local_experts":4,"num_experts":4,"num_experts_per_tok":2,
      "moe_intermediate_size":32,)";
  CHECK(of("mistral", R"("sliding_window":16)") == all);
  CHECK(of("phi3", R"("sliding_window":16)") == all);
  CHECK(of("mixtral", experts + R"("sliding_window":16)") == all);
  CHECK(of("gemma2", R"("sliding_window":16)") == Windows{32, 0, 32, 0});
  const std::string asked = R"("sliding_window":16,"use_sliding_window":true)";
  CHECK(of("qwen2", asked + R"(,"max_window_layers":3)") == Windows{0, 0, 0, 32});
  CHECK(of("qwen2", asked) == none);  // 28 of four layers see all by default
  CHECK(of("qwen3", asked + R"(,"max_window_layers":0)") == all);
  CHECK(of("qwen3_moe", experts + asked) == all);
  CHECK(of("qwen3", asked + R"(,"layer_types":["full_attention","sliding_attention","full_attention",
      "full_attention"])") == Windows{0, 32, 0, 0});
  CHECK(of("qwen2", R"("sliding_window":16,"use_sliding_window":false,"max_window_layers":0)") == none);
  CHECK(of("mistral", R"("sliding_window":null)") == none);
  CHECK(of("mistral", R"("sliding_window":64)") == none);
  CHECK(of("llama", R"("sliding_window":16)") == none);  // has none, whatever the file says
}

TEST_CASE("mixed dense and sparse layers keep their places") {
  const ModelSpec model = parse_huggingface_config(
      R"({"model_type":"qwen3_moe","hidden_size":64,"num_hidden_layers":4,"num_attention_heads":4,
          "intermediate_size":128,"moe_intermediate_size":32,"num_experts":8,"num_experts_per_tok":2,
          "decoder_sparse_step":2,"mlp_only_layers":[3],"vocab_size":100,"max_position_embeddings":32})",
      "config.json");
  REQUIRE(model.shapes.size() == 2);
  CHECK(model.layer(0).experts == 1);
  CHECK(model.layer(1).experts == 8);
  CHECK(model.layer(2).experts == 1);
  CHECK(model.layer(3).experts == 1);
}

TEST_CASE("a model takes the name it was published under, else that of its file") {
  const std::string named = replaced(kTinyLlama, "{", R"({"_name_or_path": "meta-llama/Llama-2-7b-hf", )");
  CHECK(parse_huggingface_config(named, "config.json").name == "Llama-2-7b-hf");
  CHECK(parse_huggingface_config(kTinyLlama, "models/tiny.json").name == "tiny");
  CHECK(parse_huggingface_config(kTinyLlama, "tiny/config.json").name == "tiny");
}

TEST_CASE("a config need not say a sequence, unless it has a table of positions") {
  const std::string silent = replaced(kTinyLlama, "\"max_position_embeddings\": 32", "\"bos_token_id\": 1");
  CHECK(parse_huggingface_config(silent, "config.json").default_sequence == 0);
  CHECK(parameters(silent) == parameters(kTinyLlama));
  CHECK(contains(error_of(R"({"model_type":"gpt2","n_embd":64,"n_layer":2,"n_head":4,"vocab_size":100})"),
                 "config.json: n_positions | nothing"));
}

TEST_CASE("unknown keys of a config are ignored") {
  CHECK(parameters(
            replaced(kTinyLlama, "{", R"({"torch_dtype": "bfloat16", "rope_scaling": {"factor": 8.0}, )")) ==
        parameters(kTinyLlama));
}

TEST_CASE("null where a config needs a value is named as what is there, not as a key that is missing") {
  const std::string null = error_of(replaced(kTinyLlama, "\"hidden_size\": 64", "\"hidden_size\": null"));
  CHECK(contains(null, "config.json: hidden_size | null | a whole number"));
  CHECK(!contains(null, "did you mean"));
  const std::string other = error_of(replaced(kTinyLlama, "\"hidden_size\": 64", "\"hidden_sise\": 64"));
  CHECK(contains(other, "config.json: hidden_size | nothing | a whole number"));
  CHECK(contains(other, "did you mean 'hidden_sise'?"));
}

TEST_CASE("a wrong config names the file, the key, what is there and what should be") {
  CHECK(contains(error_of(replaced(kTinyLlama, "\"hidden_size\": 64,", "")),
                 "config.json: hidden_size | nothing"));
  CHECK(contains(error_of(replaced(kTinyLlama, "\"hidden_size\": 64", "\"hidden_size\": \"64\"")),
                 "| \"64\" |"));
  CHECK(contains(error_of(replaced(kTinyLlama, "\"hidden_size\": 64", "\"hidden_size\": 64.5")), "| 64.5 |"));
  CHECK(contains(error_of(replaced(kTinyLlama, "\"hidden_size\": 64", "\"hidden_size\": -64")), "| -64 |"));
  CHECK(
      contains(error_of(replaced(kTinyLlama, "\"hidden_size\": 64", "\"hidden_size\": 99999999999999999999")),
               "a whole number"));
  CHECK(contains(error_of(replaced(kTinyLlama, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 0")),
                 "| 0 |"));
  CHECK(contains(
      error_of(replaced(kTinyLlama, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1000000000")),
      "num_hidden_layers | 1000000000 | a whole number from 1 to 4096"));
  CHECK(contains(error_of(replaced(kTinyLlama, "\"num_attention_heads\": 4", "\"num_attention_heads\": 5")),
                 "num_key_value_heads"));
  CHECK(contains(
      error_of(replaced(replaced(kTinyLlama, "\"num_attention_heads\": 4", "\"num_attention_heads\": 6"),
                        "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3")),
      "a divisor of hidden_size 64"));
  CHECK(contains(error_of(replaced(kTinyLlama, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3")),
                 "a divisor of num_attention_heads 4"));
}

TEST_CASE("an unknown model_type lists the known ones and the nearest") {
  const std::string error = error_of(replaced(kTinyLlama, "\"llama\"", "\"lama\""));
  CHECK(contains(error, "bloom"));
  CHECK(contains(error, "qwen3_moe"));
  CHECK(contains(error, "llama"));
}

TEST_CASE("a DeepSeek file without its ranks is refused") {
  CHECK(contains(error_of(replaced(kTinyLlama, "\"llama\"", "\"deepseek_v3\"")), "kv_lora_rank"));
}

TEST_CASE("a hybrid pattern names its characters and its length") {
  const std::string hybrid = R"({"model_type":"nemotron_h","hidden_size":64,"num_hidden_layers":3,
      "hybrid_override_pattern":"M*-","mamba_num_heads":4,"mamba_head_dim":16,"n_groups":2,"ssm_state_size":8,
      "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"intermediate_size":128,"vocab_size":100,
      "max_position_embeddings":64})";
  const ModelSpec model = parse_huggingface_config(hybrid, "config.json");
  CHECK(model.layer(0).has_state_space());
  CHECK_FALSE(model.layer(0).has_attention());
  CHECK(model.layer(1).has_attention());
  CHECK_FALSE(model.layer(1).has_mlp());
  CHECK(model.layer(2).ffn == 128);
  CHECK(contains(error_of(replaced(hybrid, "M*-", "M*x")), "M (Mamba-2)"));
  CHECK(contains(error_of(replaced(hybrid, "M*-", "M*")), "3 characters"));
  CHECK(contains(error_of(replaced(hybrid, "\"n_groups\":2", "\"n_groups\":3")),
                 "a divisor of mamba_num_heads 4"));
}

TEST_CASE("blocks of a list may have latent attention, a state space, or one part only") {
  const std::string head = "name: x\nsequence: 8\nvocabulary: 16\nhidden: 64\nblocks:\n";
  const std::string latent =
      "  - {hidden: 64, heads: 4, head_dim: 24, value_dim: 16, latent: {query_rank: 32, kv_rank: 16, "
      "rope_dim: 8},\n"
      "     ffn: 8, mlp: gelu, norm: rms_norm}\n";
  const std::string mamba =
      "  - {hidden: 64, norms: 1, norm: rms_norm,\n"
      "     state_space: {heads: 4, head_dim: 16, groups: 2, state: 8, convolution: 4, chunk: 16}}\n";
  const ModelSpec model = parse_model_blocks(head + latent + mamba, "model.yaml");
  CHECK(model.layer(0).latent.kv_rank == 16);
  CHECK(model.layer(0).value_width() == 16);
  CHECK(model.layer(1).state_space.projected() == 64 + (64 + 2 * 2 * 8) + 4);
  CHECK(contains(yaml_error_of(head + replaced(latent, "rope_dim: 8", "rope_dim: 24")),
                 "less than head_dim 24"));
  CHECK(contains(yaml_error_of(head + replaced(mamba, "groups: 2", "groups: 3")), "a divisor of heads 4"));
  CHECK(
      contains(yaml_error_of(head + "  - {hidden: 64, norm: rms_norm}\n"), "heads, a state_space or an ffn"));
}

TEST_CASE("a class for labels or spans has as many outputs, in the place of words") {
  const auto of = [](const std::string& architecture, const std::string& more = "") {
    const std::string top = R"({"architectures": [")" + architecture + "\"], " + more;
    return parse_huggingface_config(replaced(kTinyLlama, "{", top), "config.json");
  };
  const ModelSpec words = of("LlamaForCausalLM");
  CHECK(words.outputs == 0);
  const ModelSpec reward =
      of("LlamaForSequenceClassification", R"("tie_word_embeddings": true, "id2label": {"0": "reward"}, )");
  CHECK(reward.outputs == 1);
  CHECK_FALSE(reward.tied_embeddings);
  // 100 words and one output, each of 64 wide rows.
  CHECK(total_parameters(words) - total_parameters(reward) == 99 * 64);
  const double tokens = 3 * 32;
  CHECK(model_flops(words, 3, 32, AttentionCounting::full) -
            model_flops(reward, 3, 32, AttentionCounting::full) ==
        6.0 * 99 * 64 * tokens);
  CHECK(of("LlamaForTokenClassification", R"("num_labels": 9, )").outputs == 9);
  CHECK(of("LlamaForTokenClassification").outputs == 2);
  CHECK(of("LlamaForTokenClassification", R"("id2label": {}, )").outputs == 2);
  CHECK(of("LlamaForQuestionAnswering", R"("id2label": {"0": "a"}, )").outputs == 2);
}

TEST_CASE("a list of blocks may end in few outputs, which are no words") {
  const std::string blocks =
      "hidden: 64\noutputs: 3\nblocks:\n  - {hidden: 64, heads: 4, ffn: 64, mlp: gelu, norm: rms_norm}\n";
  const ModelSpec model = parse_model_blocks("name: x\nsequence: 8\nvocabulary: 16\n" + blocks, "model.yaml");
  CHECK(head_parameters(model) == 64 * 3 + 64);
  CHECK(embedding_parameters(model) == 16 * 64);
  CHECK(contains(yaml_error_of("name: x\nsequence: 8\n" + blocks), "a vocabulary beside it"));
  CHECK(contains(yaml_error_of("name: x\nsequence: 8\nvocabulary: 16\ntied_embeddings: true\n" + blocks),
                 "not tied"));
}

TEST_CASE("broken JSON is placed by line and column") {
  CHECK(contains(error_of("{\n  \"a\": 1,\n  oops\n}"), "config.json:3:3"));
  CHECK(contains(error_of(""), "broken JSON"));
  CHECK(contains(error_of("[1, 2]"), "a list"));
  CHECK(contains(error_of("7"), "a JSON object"));
  CHECK(contains(error_of("{\"model_type\": 1e999}"), "config.json"));
  CHECK(contains(error_of("{\"model_type\": \"\xff\"}"), "config.json"));
}

TEST_CASE("a key that stands twice is refused by its name") {
  const std::string twice = replaced(kTinyLlama, "{", R"({"hidden_size": 32, )");
  CHECK(error_of(twice) == "config.json | the key 'hidden_size' a second time | each key once in an object");
  CHECK(
      contains(error_of(replaced(kTinyLlama, "{", R"({"a": [{"b": {"c": 1, "d": {}, "c": 1}}], )")), "'c'"));
  const std::string apart = R"({"a": {"x": 1}, "b": [{"x": 1}, {"x": 1}], )";
  CHECK(parameters(replaced(kTinyLlama, "{", apart)) == parameters(kTinyLlama));
}

TEST_CASE("numbers that only Python's JSON has do no harm where nobody reads them") {
  const std::string more = R"({"time_step_limit": [0.0, Infinity], "a": NaN, "b": -Infinity,
      "c": "\"NaN, Infinity", )";
  CHECK(parameters(replaced(kTinyLlama, "{", more)) == parameters(kTinyLlama));
  CHECK(contains(error_of(replaced(kTinyLlama, "64", "Infinity")), "hidden_size | \"Infinity\" | a whole"));
  CHECK(contains(error_of("{\"a\": NaN,\n oops}"), "config.json:2:2"));
}

TEST_CASE("deeply nested input is refused without a crash") {
  CHECK(error_of(std::string(200'000, '[')) != "no error");
  CHECK(error_of(std::string(200'000, '[') + std::string(200'000, ']')) != "no error");
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  CHECK(parameters(replaced(kTinyLlama, "{", "{\"deep\": " + deep + ", ")) == parameters(kTinyLlama));
  CHECK(contains(error_of(replaced(kTinyLlama, "64", deep)), "hidden_size | a list"));
}

TEST_CASE("a list of blocks reads in order") {
  const ModelSpec model = parse_model_blocks(R"(
name: uneven
sequence: 128
vocabulary: 1000
hidden: 64
blocks:
  - {repeat: 2, hidden: 64, heads: 4, kv_heads: 2, ffn: 256, mlp: swiglu, norm: rms_norm, bias: false, rotary: true}
  - {hidden: 32, heads: 4, ffn: 128, mlp: gelu, norm: layer_norm, sequence: 512}
  - {hidden: 64, heads: 4, ffn: 64, mlp: gated, norm: rms_norm, experts: 8, experts_per_token: 2}
)",
                                             "model.yaml");
  CHECK(model.layers == std::vector<int>{0, 0, 1, 2});
  CHECK(model.layer(0).kv_heads == 2);
  CHECK(model.layer(2).sequence == 512);
  CHECK(model.layer(3).experts == 8);
  CHECK(model.final_norm == NormKind::rms_norm);
}

TEST_CASE("a wrong list of blocks names the line") {
  const std::string head = "name: x\nsequence: 8\nhidden: 64\nblocks:\n";
  CHECK(contains(yaml_error_of(head + "  - {hidden: 64, heads: 5, ffn: 8, mlp: gelu, norm: layer_norm}\n"),
                 "a divisor of hidden 64"));
  CHECK(contains(yaml_error_of(head + "  - {hidden: 64, heads: 4, ffn: 8, mlp: tanh, norm: layer_norm}\n"),
                 "gelu"));
  CHECK(contains(yaml_error_of(head + "  - {hidden: 64, heads: 4, fnn: 8, mlp: gelu, norm: layer_norm}\n"),
                 "ffn"));
  CHECK(contains(yaml_error_of(head + "  - {hidden: 64, heads: 4, ffn: 0, mlp: gelu, norm: layer_norm}\n"),
                 "model.yaml:5"));
  CHECK(contains(yaml_error_of("name: x\nsequence: 8\nhidden: 64\nblocks: []\n"), "at least one block"));
  CHECK(contains(
      yaml_error_of(head + "  - {repeat: 4096, hidden: 64, heads: 4, ffn: 8, mlp: gelu, norm: layer_norm}\n"
                           "  - {repeat: 4096, hidden: 64, heads: 4, ffn: 8, mlp: gelu, norm: layer_norm}\n"),
      "4096 layers"));
}
