#include "strategies/model.hpp"

namespace orrery {
namespace {

// LayerNorm has a weight and a bias, RMSNorm a weight.
std::int64_t norm_parameters(NormKind kind, std::int64_t width) {
  return kind == NormKind::layer_norm ? 2 * width : width;
}

std::int64_t attention_parameters(const LayerShape& shape) {
  const std::int64_t query = shape.heads * shape.head_dim;
  const std::int64_t key_value = 2 * shape.kv_heads * shape.head_dim;
  std::int64_t count = shape.hidden * (query + key_value) + query * shape.hidden;
  if (shape.linear_bias || shape.qkv_bias) count += query + key_value;
  if (shape.linear_bias || shape.projection_bias) count += shape.hidden;
  if (shape.qk_norm) count += 2 * norm_parameters(shape.norm, shape.head_dim);
  return count;
}

std::int64_t mlp_parameters(const LayerShape& shape, std::int64_t width) {
  const std::int64_t inputs = shape.mlp == MlpKind::gated ? 2 : 1;
  std::int64_t count = (inputs + 1) * shape.hidden * width;
  if (shape.linear_bias || shape.mlp_bias) count += inputs * width + shape.hidden;
  return count;
}

std::int64_t layer_parameters_with(const LayerShape& shape, std::int64_t experts) {
  std::int64_t count = shape.norms * norm_parameters(shape.norm, shape.hidden);
  count += attention_parameters(shape);
  count += experts * mlp_parameters(shape, shape.ffn);
  if (shape.experts > 1) count += shape.hidden * shape.experts;  // the router
  if (shape.shared_ffn > 0) count += mlp_parameters(shape, shape.shared_ffn);
  if (shape.shared_gate) count += shape.hidden;
  return count;
}

double layer_flops(const LayerShape& shape, std::int64_t sequences, std::int64_t model_sequence,
                   double causal_factor) {
  const std::int64_t sequence = shape.sequence > 0 ? shape.sequence : model_sequence;
  const std::int64_t attended = shape.attention_window > 0 ? shape.attention_window : sequence;
  const double tokens = static_cast<double>(sequences) * static_cast<double>(sequence);
  const double width = static_cast<double>(shape.heads * shape.head_dim);
  return tokens * (6.0 * static_cast<double>(active_layer_parameters(shape)) +
                   12.0 * width * static_cast<double>(attended) * causal_factor);
}

}  // namespace

std::int64_t layer_parameters(const LayerShape& shape) {
  return layer_parameters_with(shape, shape.experts);
}

std::int64_t active_layer_parameters(const LayerShape& shape) {
  return layer_parameters_with(shape, shape.experts > 1 ? shape.experts_per_token : 1);
}

std::int64_t embedding_parameters(const ModelSpec& model) {
  std::int64_t count = (model.vocabulary + model.learned_positions) * model.hidden;
  if (model.embedding_norm) count += norm_parameters(model.final_norm, model.hidden);
  return count;
}

std::int64_t head_parameters(const ModelSpec& model) {
  if (model.vocabulary == 0) return 0;
  const std::int64_t matrix = model.tied_embeddings ? 0 : model.vocabulary * model.hidden;
  return norm_parameters(model.final_norm, model.hidden) + matrix;
}

std::int64_t total_parameters(const ModelSpec& model) {
  std::int64_t count = embedding_parameters(model) + head_parameters(model);
  for (int i = 0; i < model.layer_count(); ++i) count += layer_parameters(model.layer(i));
  return count;
}

double model_flops(const ModelSpec& model, std::int64_t sequences, std::int64_t sequence,
                   AttentionCounting counting) {
  const bool halved = counting == AttentionCounting::causal && model.causal;
  const double causal_factor = halved ? 0.5 : 1.0;
  double flops = 0;
  for (int i = 0; i < model.layer_count(); ++i)
    flops += layer_flops(model.layer(i), sequences, sequence, causal_factor);
  // The head multiplies by the output matrix whether or not it is the embedding's.
  const double head = static_cast<double>(model.vocabulary) * static_cast<double>(model.hidden);
  return flops + 6.0 * head * static_cast<double>(sequences) * static_cast<double>(sequence);
}

}  // namespace orrery
