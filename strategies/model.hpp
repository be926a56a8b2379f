// What is trained: a stack of layers, equal or not, between an embedding and a head.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/model_details.hpp"

namespace orrery {

enum class NormKind { layer_norm, rms_norm };
enum class MlpKind { gelu, gated };  // two matrices (GELU, ReLU), or three (SwiGLU, GeGLU)

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): queries, and keys with values,
// come from narrow vectors that are normalised before they are projected up to all heads.
struct LatentAttention {
  std::int64_t query_rank = 0;  // width of the queries' vector; 0: they come straight from the hidden state
  std::int64_t kv_rank = 0;     // width of the keys' and values'; 0: the layer has no latent attention
  std::int64_t rope_dim = 0;    // rotary part of each query's head_dim; its key is one for all heads
  bool operator==(const LatentAttention&) const = default;
};

// Mamba-2 mixer in the place of attention (arXiv 2405.21060, section 7): one projection to gate, values, B, C
// and time steps, a short convolution, the scan over a state of head_dim x state for each head, a gated norm,
// and a projection back. `groups` heads share B and C as query groups share keys.
struct StateSpace {
  std::int64_t heads = 0;  // 0: the layer has none
  std::int64_t head_dim = 0;
  std::int64_t groups = 0;
  std::int64_t state = 0;
  std::int64_t convolution = 0;  // tokens its kernel reaches
  std::int64_t chunk = 0;        // tokens that are scanned together
  [[nodiscard]] std::int64_t inner() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t convolved() const { return inner() + 2 * groups * state; }
  [[nodiscard]] std::int64_t projected() const { return inner() + convolved() + heads; }
  bool operator==(const StateSpace&) const = default;
};

// The shape of one transformer layer. All counts are of the whole model, before any split. Hybrid models have
// layers of one part only: without `heads` there is no attention, without `ffn` no MLP.
struct LayerShape {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;   // = heads without grouped queries
  std::int64_t head_dim = 0;   // of queries and keys
  std::int64_t value_dim = 0;  // of values where that differs; 0: head_dim
  LatentAttention latent = {};
  StateSpace state_space = {};
  std::int64_t ffn = 0;  // of one expert where there are experts
  MlpKind mlp = MlpKind::gelu;
  Activation activation = Activation::gelu;
  NormKind norm = NormKind::layer_norm;
  bool linear_bias = true;       // of every linear layer; the next three add to it where it is false
  bool qkv_bias = false;         // of the QKV projection (Qwen2)
  bool projection_bias = false;  // of the projection after attention
  bool mlp_bias = false;         // of the MLP matrices
  bool qk_norm = false;          // queries and keys are normalised, one weight per head dimension (Qwen3)
  bool wide_qk_norm = false;     // those weights, without biases, span all heads (OLMo 2)
  bool attention_sinks = false;  // beside the scores of each head a learned one (gpt-oss)
  // A kernel adds to every score a number that its head has learned for the relative position (Swin, arXiv
  // 2103.14030, equation 4). Only unfused attention takes time for it; these few parameters are not counted.
  bool position_bias = false;
  // Scores are cap x tanh(score / cap) (Gemma 2). Only unfused attention takes time and memory for it: fused
  // kernels that can do it (FlashAttention since 2.6, FlexAttention) do it as they go.
  bool capped_scores = false;
  int norms = 2;  // of width `hidden`: 1 (Falcon-7B: attention and MLP share it), 2, or 4 (GLM-4-0414)
  bool parallel_residual = false;  // attention and MLP both read the layer's input (GPT-NeoX, Falcon)
  bool rotary = false;
  std::int64_t experts = 1;  // 1: dense
  std::int64_t experts_per_token = 1;
  std::int64_t expert_hidden = 0;  // width at which tokens visit experts, projected down and up again around
                                   // them (Nemotron-3 Super); 0: hidden
  bool router_bias = false;        // one for each expert, often to balance their load (DeepSeek-V3)
  std::int64_t shared_ffn = 0;     // width of the expert every token visits; 0: none
  bool shared_gate = false;        // a learned scalar gate on that expert (Qwen2-MoE)
  // Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): the first layer of a depth joins the
  // hidden state with the embedding of the next token, the last one predicts through the model's own norm and
  // head.
  bool joins_embedding = false;           // two norms and a projection from 2 x hidden before the layer
  std::int64_t predicted_vocabulary = 0;  // a norm, the logits and their loss after the layer; 0: none
  // Tensor ranks have all heads, each a share of their width, and so all attention scores (AMP's TransGAN).
  bool splits_head_width = false;
  std::int64_t sequence = 0;  // tokens of this layer where layers differ (TransGAN); 0: the model's sequence
  std::int64_t attention_window =
      0;  // attention stays within blocks of this many tokens; 0: the whole sequence
  // Its matrices stay in 16 bits where others are multiplied in 8 or 4 (Megatron-LM
  // --first-last-layers-bf16, --num-layers-at-end-in-bf16).
  bool sixteen_bit = false;
  [[nodiscard]] bool has_attention() const { return heads > 0; }
  [[nodiscard]] bool has_state_space() const { return state_space.heads > 0; }
  [[nodiscard]] bool predicts_more() const { return joins_embedding || predicted_vocabulary > 0; }
  [[nodiscard]] bool has_mlp() const { return ffn > 0; }
  [[nodiscard]] std::int64_t value_width() const { return value_dim > 0 ? value_dim : head_dim; }
  [[nodiscard]] std::int64_t routed_hidden() const { return expert_hidden > 0 ? expert_hidden : hidden; }
  bool operator==(const LayerShape&) const = default;
};

struct ModelSpec {
  std::string name;
  std::vector<LayerShape> shapes;  // distinct shapes
  std::vector<int> layers;         // layer i has shapes[layers[i]]
  std::int64_t vocabulary = 0;     // 0: no embedding and no head
  // Of the last matrix where it is not for words: labels, spans, a reward (transformers'
  // ...ForSequenceClassification and its like); `give_outputs` sets it. 0: the vocabulary.
  std::int64_t outputs = 0;
  std::int64_t predicted_tokens = 0;   // of each sequence, that the head sees (BERT's masked ones); 0: all
  std::int64_t hidden = 0;             // of embedding and head
  std::int64_t learned_positions = 0;  // rows of the learned position table; 0: none
  // Ahead of the first layer and in no table (TransGAN's projection of its noise), on every tensor rank:
  // kept, reduced and stepped; its time is nothing.
  std::int64_t input_parameters = 0;
  std::int64_t default_sequence = 0;  // the context length the model was published with; 0: not said
  bool tied_embeddings = false;
  bool embedding_norm = false;  // a norm between embedding and first layer (BLOOM)
  bool head_bias = false;       // of the logits (GPT-J)
  bool capped_logits = false;   // cap x tanh(logit / cap) before the loss (Gemma 2)
  bool causal = true;
  // What neither count nor time show, and launch files do not say to Megatron-LM ("ALiBi"); empty: nothing.
  std::string beyond_megatron;
  NormKind final_norm = NormKind::layer_norm;
  bool alibi = false;                     // scores fall with distance, in the place of positions (BLOOM)
  RotaryPositions rotary_positions = {};  // of the layers that are `rotary`
  ExpertRouter router = {};
  bool operator==(const ModelSpec&) const = default;

  [[nodiscard]] const LayerShape& layer(int index) const {
    return shapes[static_cast<std::size_t>(layers[static_cast<std::size_t>(index)])];
  }
  [[nodiscard]] std::int64_t head_width() const { return outputs > 0 ? outputs : vocabulary; }
  // The matrix of such a head is its own, not the embedding's.
  void give_outputs(std::int64_t count) {
    outputs = count;
    tied_embeddings = false;
  }
  // Those that the head sees of a sequence of so many tokens.
  [[nodiscard]] std::int64_t head_tokens(std::int64_t sequence) const {
    return predicted_tokens > 0 ? std::min(predicted_tokens, sequence) : sequence;
  }
  [[nodiscard]] int layer_count() const { return static_cast<int>(layers.size()); }
  [[nodiscard]] int main_layers() const;   // less those of multi-token prediction, which come last
  [[nodiscard]] bool has_experts() const;  // in some layer, and so the next two
  [[nodiscard]] bool has_latent_attention() const;
  [[nodiscard]] bool is_hybrid() const;  // a state space
  // Whether the first and the last stage of a pipeline each have the word table, whose gradients they sum:
  // the head's where embeddings are tied, or multi-token prediction's.
  [[nodiscard]] bool has_second_word_table() const;
};

// Reads a Hugging Face config.json, a YAML list of blocks, or the name of a built-in model (told apart by the
// extension .json, .yaml/.yml, or neither). Throws InputError.
ModelSpec read_model(const std::string& path_or_name);
ModelSpec parse_huggingface_config(std::string_view json, const std::string& file);
ModelSpec parse_model_blocks(std::string_view yaml, const std::string& file);
std::vector<std::string> builtin_model_names();
// The file, or the built-in model's content, that `read_model` reads. Throws InputError alike.
std::string read_model_text(const std::string& path_or_name);

// Parameter counts, exact for the published models (checked against their published totals in the tests).
std::int64_t layer_parameters(const LayerShape&);
std::int64_t active_layer_parameters(
    const LayerShape&);                               // touched by one token (experts_per_token of experts)
std::int64_t embedding_parameters(const ModelSpec&);  // all ahead of the first layer: tables, a norm (BLOOM)
std::int64_t head_parameters(const ModelSpec&);       // final norm, and the output matrix where not tied
std::int64_t total_parameters(const ModelSpec&);
// Megatron-LM pads the vocabulary to a multiple of 128 x tensor ways (--make-vocab-size-divisible-by).
std::int64_t padded_vocabulary(std::int64_t vocabulary, int tensor);

// Model FLOPs of one iteration of `sequences` sequences: 6 x active parameters x tokens + 6 x layers x heads
// x (head_dim + value_dim) x sequence x tokens, no recompute (SEMANTICS 5). The scan of a state space counts
// as Megatron-LM counts it: 3 x 7 x inner width x state a token (megatron/training/training.py,
// mamba_layer_flops). Input embedding excluded, head included. A layer with its own `sequence` counts its own
// tokens, and one with an `attention_window` attends to that many, or to the sequence where that is shorter.
enum class AttentionCounting { full, causal };  // causal halves the attention part of a causal model
double model_flops(const ModelSpec&, std::int64_t sequences, std::int64_t sequence, AttentionCounting);

// The head's part of it, whether or not its matrix is the embedding's.
double head_flops(const ModelSpec&, std::int64_t sequences, std::int64_t sequence);

// What the MFU of a plan counts (SEMANTICS 5): 6 x all parameters that a token is passed through x tokens,
// the input embedding and norms among them, and the attention of model_flops.
double utilisation_flops(const ModelSpec&, std::int64_t sequences, std::int64_t sequence, AttentionCounting);

}  // namespace orrery
