// Families of Hugging Face models by their published number of parameters, and what they have besides.
#include <string>

#include "strategies/model.hpp"
#include "tests/catch.hpp"

using namespace orrery;

namespace {

ModelSpec parsed(const std::string& json) {
  return parse_huggingface_config(json, "config.json");
}

}  // namespace

TEST_CASE("families beside Llama's and GPT's count as published") {
  struct Row {
    const char* json;
    std::int64_t parameters;
  };
  const auto row = GENERATE(values<Row>({
      // allenai/OLMo-2-1124-7B
      {R"({"model_type":"olmo2", "hidden_size":4096, "num_hidden_layers":32, "num_attention_heads":32,
           "num_key_value_heads":32, "intermediate_size":11008, "vocab_size":100352,
           "max_position_embeddings":4096, "tie_word_embeddings":false})",
       7'298'617'344},
      // allenai/OLMo-2-0325-32B: groups of five heads
      {R"({"model_type":"olmo2", "hidden_size":5120, "num_hidden_layers":64, "num_attention_heads":40,
           "num_key_value_heads":8, "intermediate_size":27648, "vocab_size":100352,
           "max_position_embeddings":4096, "tie_word_embeddings":false})",
       32'234'279'936},
      // allenai/OLMoE-1B-7B-0924
      {R"({"model_type":"olmoe", "hidden_size":2048, "num_hidden_layers":16, "num_attention_heads":16,
           "num_key_value_heads":16, "intermediate_size":1024, "num_experts":64, "num_experts_per_tok":8,
           "vocab_size":50304, "max_position_embeddings":4096, "tie_word_embeddings":false})",
       6'919'161'856},
      // CohereForAI/c4ai-command-r-v01
      {R"({"model_type":"cohere", "hidden_size":8192, "num_hidden_layers":40, "num_attention_heads":64,
           "num_key_value_heads":64, "intermediate_size":22528, "vocab_size":256000,
           "max_position_embeddings":8192, "use_qk_norm":false})",
       34'980'831'232},
      // CohereForAI/c4ai-command-r-plus: norms of queries and keys over all heads
      {R"({"model_type":"cohere", "hidden_size":12288, "num_hidden_layers":64, "num_attention_heads":96,
           "num_key_value_heads":8, "intermediate_size":33792, "vocab_size":256000,
           "max_position_embeddings":8192, "use_qk_norm":true})",
       103'810'674'688},
      // CohereForAI/c4ai-command-r7b-12-2024
      {R"({"model_type":"cohere2", "hidden_size":4096, "num_hidden_layers":32, "num_attention_heads":32,
           "num_key_value_heads":8, "head_dim":128, "intermediate_size":14336, "vocab_size":256000,
           "max_position_embeddings":8192, "sliding_window":4096})",
       8'028'033'024},
      // bigcode/starcoder2-7b
      {R"({"model_type":"starcoder2", "hidden_size":4608, "num_hidden_layers":32, "num_attention_heads":36,
           "num_key_value_heads":4, "intermediate_size":18432, "vocab_size":49152,
           "max_position_embeddings":16384, "use_bias":true, "sliding_window":4096})",
       7'173'923'840},
      // bigcode/starcoderbase: one head of keys and values
      {R"({"model_type":"gpt_bigcode", "n_embd":6144, "n_layer":40, "n_head":48, "n_inner":24576,
           "n_positions":8192, "vocab_size":49152, "multi_query":true})",
       15'517'456'384},
      // stabilityai/stablelm-3b-4e1t
      {R"({"model_type":"stablelm", "hidden_size":2560, "num_hidden_layers":32, "num_attention_heads":32,
           "num_key_value_heads":32, "intermediate_size":6912, "vocab_size":50304,
           "max_position_embeddings":4096, "use_qkv_bias":false, "tie_word_embeddings":false})",
       2'795'443'200},
      // stabilityai/stablelm-2-12b: side by side, a norm for each head
      {R"({"model_type":"stablelm", "hidden_size":5120, "num_hidden_layers":40, "num_attention_heads":32,
           "num_key_value_heads":8, "intermediate_size":13824, "vocab_size":100352,
           "max_position_embeddings":4096, "use_qkv_bias":false, "qk_layernorm":true,
           "use_parallel_residual":true, "tie_word_embeddings":false})",
       12'143'185'920},
      // microsoft/phi-2
      {R"({"model_type":"phi", "hidden_size":2560, "num_hidden_layers":32, "num_attention_heads":32,
           "num_key_value_heads":32, "intermediate_size":10240, "vocab_size":51200,
           "max_position_embeddings":2048, "tie_word_embeddings":false, "qk_layernorm":false})",
       2'779'683'840},
      // internlm/internlm2-7b
      {R"({"model_type":"internlm2", "hidden_size":4096, "num_hidden_layers":32, "num_attention_heads":32,
           "num_key_value_heads":8, "intermediate_size":14336, "vocab_size":92544, "bias":false,
           "max_position_embeddings":32768, "tie_word_embeddings":false})",
       7'737'708'544},
      // internlm/internlm-7b: biases of all four matrices of attention
      {R"({"model_type":"internlm", "hidden_size":4096, "num_hidden_layers":32, "num_attention_heads":32,
           "intermediate_size":11008, "vocab_size":103168, "bias":true, "max_position_embeddings":2048,
           "tie_word_embeddings":false})",
       7'321'948'160},
      // baichuan-inc/Baichuan2-7B-Base
      {R"({"model_type":"baichuan", "hidden_size":4096, "num_hidden_layers":32, "num_attention_heads":32,
           "intermediate_size":11008, "vocab_size":125696, "max_position_embeddings":4096,
           "model_max_length":4096, "tie_word_embeddings":false})",
       7'505'973'248},
      // baichuan-inc/Baichuan2-13B-Base
      {R"({"model_type":"baichuan", "hidden_size":5120, "num_hidden_layers":40, "num_attention_heads":40,
           "intermediate_size":13696, "vocab_size":125696, "model_max_length":4096,
           "tie_word_embeddings":false})",
       13'896'668'160},
      // openbmb/MiniCPM-2B-sft-bf16
      {R"({"model_type":"minicpm", "hidden_size":2304, "num_hidden_layers":40, "num_attention_heads":36,
           "num_key_value_heads":36, "intermediate_size":5760, "vocab_size":122753,
           "max_position_embeddings":4096})",
       2'724'880'896},
      // HuggingFaceTB/SmolLM3-3B
      {R"({"model_type":"smollm3", "hidden_size":2048, "num_hidden_layers":36, "num_attention_heads":16,
           "num_key_value_heads":4, "intermediate_size":11008, "vocab_size":128256,
           "max_position_embeddings":65536, "no_rope_layer_interval":4})",
       3'075'098'624},
      // swiss-ai/Apertus-8B-2509, but for two numbers a layer of its activation
      {R"({"model_type":"apertus", "hidden_size":4096, "num_hidden_layers":32, "num_attention_heads":32,
           "num_key_value_heads":8, "intermediate_size":21504, "vocab_size":131072,
           "max_position_embeddings":65536, "tie_word_embeddings":false})",
       8'053'338'176 - 32 * 2},
      // baidu/ERNIE-4.5-0.3B-PT
      {R"({"model_type":"ernie4_5", "hidden_size":1024, "num_hidden_layers":18, "num_attention_heads":16,
           "num_key_value_heads":2, "head_dim":128, "intermediate_size":3072, "vocab_size":103424,
           "max_position_embeddings":131072, "use_bias":false, "tie_word_embeddings":true})",
       360'748'032},
      // baidu/ERNIE-4.5-21B-A3B-PT
      {R"({"model_type":"ernie4_5_moe", "hidden_size":2560, "num_hidden_layers":28,
           "num_attention_heads":20, "num_key_value_heads":4, "intermediate_size":12288,
           "moe_num_experts":64, "moe_k":6, "moe_intermediate_size":1536, "moe_num_shared_experts":2,
           "moe_layer_start_index":1, "moe_layer_end_index":-1, "moe_layer_interval":1, "vocab_size":103424,
           "max_position_embeddings":131072, "use_bias":false, "tie_word_embeddings":true})",
       21'825'437'888},
      // databricks/dbrx-base
      {R"({"model_type":"dbrx", "d_model":6144, "n_layers":40, "n_heads":48, "max_seq_len":32768,
           "vocab_size":100352, "attn_config":{"kv_n_heads":8, "clip_qkv":8},
           "ffn_config":{"ffn_hidden_size":10752, "moe_num_experts":16, "moe_top_k":4},
           "tie_word_embeddings":false})",
       131'596'523'520},
      // microsoft/Phi-3.5-MoE-instruct
      {R"({"model_type":"phimoe", "hidden_size":4096, "num_hidden_layers":32, "num_attention_heads":32,
           "num_key_value_heads":8, "intermediate_size":6400, "num_local_experts":16,
           "num_experts_per_tok":2, "attention_bias":true, "lm_head_bias":true, "vocab_size":32064,
           "max_position_embeddings":131072, "sliding_window":131072, "tie_word_embeddings":false})",
       41'873'153'344},
      // ibm-granite/granite-3.0-1b-a400m-base
      {R"({"model_type":"granitemoe", "hidden_size":1024, "num_hidden_layers":24, "num_attention_heads":16,
           "num_key_value_heads":8, "intermediate_size":512, "num_local_experts":32, "num_experts_per_tok":8,
           "vocab_size":49155, "max_position_embeddings":4096, "tie_word_embeddings":true})",
       1'334'628'352},
      // nvidia/Minitron-4B-Base
      {R"({"model_type":"nemotron", "hidden_size":3072, "num_hidden_layers":32, "num_attention_heads":24,
           "num_key_value_heads":8, "head_dim":128, "intermediate_size":9216, "vocab_size":256000,
           "max_position_embeddings":4096, "tie_word_embeddings":false})",
       4'190'509'056},
      // EleutherAI/gpt-j-6b
      {R"({"model_type":"gptj", "n_embd":4096, "n_layer":28, "n_head":16, "n_inner":null,
           "n_positions":2048, "vocab_size":50400, "tie_word_embeddings":false})",
       6'050'882'784},
      // EleutherAI/gpt-neo-2.7B
      {R"({"model_type":"gpt_neo", "hidden_size":2560, "num_layers":32, "num_heads":20,
           "intermediate_size":null, "window_size":256, "vocab_size":50257, "max_position_embeddings":2048})",
       2'651'307'520},
      // mosaicml/mpt-7b
      {R"({"model_type":"mpt", "d_model":4096, "n_layers":32, "n_heads":32, "expansion_ratio":4,
           "max_seq_len":2048, "no_bias":true, "attn_config":{"alibi":true,
           "attn_type":"multihead_attention", "qk_ln":false}, "vocab_size":50432})",
       6'649'286'656},
      // Qwen/Qwen-7B
      {R"({"model_type":"qwen", "hidden_size":4096, "num_hidden_layers":32, "num_attention_heads":32,
           "kv_channels":128, "intermediate_size":22016, "no_bias":true, "vocab_size":151936,
           "max_position_embeddings":32768, "tie_word_embeddings":false})",
       7'721'324'544},
      // deepseek-ai/deepseek-moe-16b-base
      {R"({"model_type":"deepseek", "hidden_size":2048, "num_hidden_layers":28, "num_attention_heads":16,
           "num_key_value_heads":16, "intermediate_size":10944, "moe_intermediate_size":1408,
           "n_routed_experts":64, "n_shared_experts":2, "num_experts_per_tok":6, "first_k_dense_replace":1,
           "moe_layer_freq":1, "vocab_size":102400, "max_position_embeddings":4096,
           "tie_word_embeddings":false})",
       16'375'728'128},
      // rednote-hilab/dots.llm1.base
      {R"({"model_type":"dots1", "hidden_size":4096, "num_hidden_layers":62, "num_attention_heads":32,
           "num_key_value_heads":32, "intermediate_size":10944, "moe_intermediate_size":1408,
           "n_routed_experts":128, "n_shared_experts":2, "num_experts_per_tok":6, "first_k_dense_replace":1,
           "vocab_size":152064, "max_position_embeddings":32768, "tie_word_embeddings":false})",
       142'774'381'696},
      // inclusionAI/Ling-lite
      {R"({"model_type":"bailing_moe", "hidden_size":2048, "num_hidden_layers":28, "num_attention_heads":16,
           "num_key_value_heads":4, "head_dim":128, "intermediate_size":5632, "moe_intermediate_size":1408,
           "num_experts":64, "num_shared_experts":2, "num_experts_per_tok":6, "first_k_dense_replace":0,
           "vocab_size":126464, "max_position_embeddings":16384, "use_bias":false, "use_qkv_bias":false,
           "tie_word_embeddings":false})",
       16'801'974'272},
      // Qwen/Qwen2-VL-2B-Instruct, its text model
      {R"({"model_type":"qwen2_vl", "hidden_size":1536, "num_hidden_layers":28, "num_attention_heads":12,
           "num_key_value_heads":2, "intermediate_size":8960, "vocab_size":151936,
           "max_position_embeddings":32768, "use_sliding_window":false, "sliding_window":32768,
           "max_window_layers":28, "tie_word_embeddings":true, "vision_config":{"hidden_size":1536}})",
       1'543'714'304},
  }));
  INFO(row.json);
  CHECK(total_parameters(parsed(row.json)) == row.parameters);
}

TEST_CASE("a count of EXAONE 4 and of Hunyuan follows from Llama's and two norms a layer") {
  // 64 x (two of 5120 x 5120 and two of 5120 x 1024, MLP, two norms, two of 128), tables and a norm: "32B".
  const std::string exaone = R"({"model_type":"exaone4","hidden_size":5120,"num_hidden_layers":64,
      "num_attention_heads":40,"num_key_value_heads":8,"intermediate_size":27392,"vocab_size":102400,
      "max_position_embeddings":131072,"sliding_window":null})";
  const std::int64_t h = 5120;
  CHECK(total_parameters(parsed(exaone)) ==
        64 * (2 * h * h + 2 * h * 1024 + 3 * h * 27392 + 2 * h + 2 * 128) + 2 * 102400 * h + h);
  const std::string hunyuan = R"({"model_type":"hunyuan_v1_dense","hidden_size":4096,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"intermediate_size":14336,
      "vocab_size":128167,"max_position_embeddings":32768,"tie_word_embeddings":true})";
  const std::int64_t w = 4096;
  CHECK(total_parameters(parsed(hunyuan)) ==
        32 * (2 * w * w + 2 * w * 1024 + 3 * w * 14336 + 2 * w + 2 * 128) + 128167 * w + w);
}

TEST_CASE("layers of OLMo 3, Cohere 2, EXAONE 4 and GPT-Neo slide in threes, as listed, by turns") {
  const auto of = [](const std::string& type, const std::string& more) {
    return parsed(R"({"model_type":")" + type + R"(","hidden_size":64,"num_hidden_layers":4,"num_layers":4,
      "num_attention_heads":4,"num_heads":4,"intermediate_size":128,"vocab_size":100,
      "max_position_embeddings":64,)" +
                  more + "}");
  };
  const auto windows = [](const ModelSpec& model) {
    std::vector<std::int64_t> all;
    for (int i = 0; i < model.layer_count(); ++i) all.push_back(model.layer(i).attention_window);
    return all;
  };
  using Windows = std::vector<std::int64_t>;
  // Causal pairs of a band of 16 are those of blocks of 32.
  CHECK(windows(of("olmo3", R"("sliding_window":16)")) == Windows{32, 32, 32, 0});
  const ModelSpec cohere = of("cohere2", R"("sliding_window":16)");
  CHECK(windows(cohere) == Windows{32, 32, 32, 0});
  CHECK(cohere.layer(0).rotary);
  CHECK_FALSE(cohere.layer(3).rotary);
  const ModelSpec wide = of("cohere2", R"("sliding_window":64)");
  CHECK(windows(wide) == Windows{0, 0, 0, 0});
  CHECK(wide.layer(0).rotary);
  const ModelSpec exaone = of("exaone4", R"("sliding_window":16,"sliding_window_pattern":"LG",
      "layer_types":["sliding_attention","full_attention","sliding_attention","full_attention"])");
  CHECK(windows(exaone) == Windows{32, 0, 32, 0});
  CHECK_THROWS(of("exaone4", R"("sliding_window":16)"));
  CHECK(windows(of("gpt_neo", R"("window_size":16)")) == Windows{0, 32, 0, 32});
  CHECK(
      windows(of("gpt_neo", R"("window_size":16,"attention_layers":["local","global","global","global"])")) ==
      Windows{32, 0, 0, 0});
}

TEST_CASE("the layers of ERNIE 4.5 that have experts are those between its two indices") {
  const ModelSpec model = parsed(R"({"model_type":"ernie4_5_moe","hidden_size":64,"num_hidden_layers":6,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":128,"moe_num_experts":4,"moe_k":2,
      "moe_intermediate_size":32,"moe_layer_start_index":1,"moe_layer_end_index":4,"moe_layer_interval":2,
      "vocab_size":100,"max_position_embeddings":64})");
  for (int i = 0; i < 6; ++i) CHECK(model.layer(i).experts == (i == 1 || i == 3 ? 4 : 1));
}

TEST_CASE("of Qwen2-VL the text model is read, wherever its keys stand") {
  const std::string keys = R"("hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,
      "intermediate_size":128,"vocab_size":100,"max_position_embeddings":64)";
  const ModelSpec flat = parsed(R"({"model_type":"qwen2_5_vl",)" + keys + "}");
  CHECK(flat.layer(0).qkv_bias);
  CHECK(flat ==
        parsed(R"({"model_type":"qwen2_5_vl","text_config":{"model_type":"qwen2_5_vl_text",)" + keys + "}}"));
}
