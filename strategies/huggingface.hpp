// Hugging Face config.json to ModelSpec, one row a `model_type`.
#pragma once

#include <string>
#include <vector>

#include "strategies/json_config.hpp"
#include "strategies/model.hpp"

namespace orrery {

// Throws InputError for an unknown `model_type`, naming the known ones, and for anything a row cannot express
// exactly.
ModelSpec model_from_config(const JsonConfig&);
std::vector<std::string> huggingface_model_types();

// The model with what changes none of its times (model_details.hpp).
ModelSpec with_details(const JsonConfig&, ModelSpec);

// Shared by the families. The tokens the model was published with; 0: the file does not say.
std::int64_t sequence_of(const JsonConfig&, const std::string& key);

// Appends `count` layers, reusing the shape when it is there already.
void append_layers(ModelSpec&, const LayerShape&, std::int64_t count);

// Layers that predict further tokens (DeepSeek-V3, GLM-4.5), each like `layer`, as many as
// num_nextn_predict_layers.
void append_predictions(const JsonConfig&, ModelSpec&, LayerShape layer);

// How a family names what its routed experts are.
struct ExpertKeys {
  const char* experts;
  const char* per_token;
  const char* ffn;
};
LayerShape with_experts(const JsonConfig&, LayerShape, const ExpertKeys&);

// Beside a layer with a plain MLP the same with experts: n_routed_experts of moe_intermediate_size and
// n_shared_experts that every token visits (DeepSeek-V2, GLM-4.5).
LayerShape with_routed_experts(const JsonConfig&, LayerShape dense);

// Its width and a gated MLP, normalised by RMSNorm, with rotary positions and no biases; attention is still
// to be said.
LayerShape modern_shape(const JsonConfig&);

// What a model since Llama has beside its layers, whose embeddings are not tied unless it says so.
ModelSpec modern_frame(const JsonConfig&);

// A dense layer of the Llama form.
LayerShape llama_shape(const JsonConfig&);

// The window of every layer, 0 for all tokens, from sliding_window and layer_types where the family heeds
// them; 0 too where it is not smaller than the frame's sequence, or not said.
std::vector<std::int64_t> attention_windows(const JsonConfig&, const ModelSpec& frame);

// Appends num_hidden_layers of this shape with their windows.
void append_windowed(const JsonConfig&, ModelSpec&, LayerShape);

// The families, one file each.
ModelSpec read_llama_like(const JsonConfig&);  // llama, mistral, qwen2, qwen3, phi3, gemma, gemma2, glm, ...
ModelSpec read_minicpm(const JsonConfig&);
ModelSpec read_olmo2(const JsonConfig&);
ModelSpec read_cohere(const JsonConfig&);
ModelSpec read_starcoder2(const JsonConfig&);
ModelSpec read_stablelm(const JsonConfig&);
ModelSpec read_phi(const JsonConfig&);
ModelSpec read_internlm(const JsonConfig&);
ModelSpec read_baichuan(const JsonConfig&);
ModelSpec read_smollm3(const JsonConfig&);
ModelSpec read_apertus(const JsonConfig&);
ModelSpec read_nemotron(const JsonConfig&);
ModelSpec read_exaone4(const JsonConfig&);
ModelSpec read_hunyuan_dense(const JsonConfig&);
ModelSpec read_ernie(const JsonConfig&);
ModelSpec read_first_qwen(const JsonConfig&);
ModelSpec read_olmoe(const JsonConfig&);
ModelSpec read_granite_moe(const JsonConfig&);
ModelSpec read_phimoe(const JsonConfig&);
ModelSpec read_dbrx(const JsonConfig&);
ModelSpec read_ernie_moe(const JsonConfig&);
ModelSpec read_bailing_moe(const JsonConfig&);
ModelSpec read_mixture(const JsonConfig&);   // mixtral, qwen2_moe, qwen3_moe
ModelSpec read_glm4_moe(const JsonConfig&);  // and dots1
ModelSpec read_gemma3(const JsonConfig&);
ModelSpec read_gpt_oss(const JsonConfig&);
ModelSpec read_llama4(const JsonConfig&);
ModelSpec read_deepseek(const JsonConfig&);  // deepseek, deepseek_v2, deepseek_v3, kimi_k2
ModelSpec read_nemotron_h(const JsonConfig&);
ModelSpec read_gpt2(const JsonConfig&);  // and gpt_bigcode
ModelSpec read_gptj(const JsonConfig&);
ModelSpec read_gpt_neo(const JsonConfig&);
ModelSpec read_mpt(const JsonConfig&);
ModelSpec read_gpt_neox(const JsonConfig&);
ModelSpec read_opt(const JsonConfig&);
ModelSpec read_bloom(const JsonConfig&);
ModelSpec read_falcon(const JsonConfig&);
ModelSpec read_chatglm(const JsonConfig&);

}  // namespace orrery
