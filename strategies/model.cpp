#include "strategies/model.hpp"

#include <algorithm>

namespace orrery {
namespace {

// LayerNorm has a weight and a bias, RMSNorm a weight.
std::int64_t norm_parameters(NormKind kind, std::int64_t width) {
  return kind == NormKind::layer_norm ? 2 * width : width;
}

// The projections to queries, keys and values.
std::int64_t latent_parameters(const LayerShape& shape) {
  const LatentAttention& latent = shape.latent;
  const std::int64_t query = shape.heads * shape.head_dim;
  const std::int64_t key_value = shape.heads * (shape.head_dim - latent.rope_dim + shape.value_width());
  std::int64_t count = shape.hidden * (latent.kv_rank + latent.rope_dim) + latent.kv_rank * key_value;
  count += norm_parameters(shape.norm, latent.kv_rank);
  if (latent.query_rank == 0) return count + shape.hidden * query;
  return count + latent.query_rank * (shape.hidden + query) + norm_parameters(shape.norm, latent.query_rank);
}

std::int64_t attention_parameters(const LayerShape& shape) {
  const std::int64_t query = shape.heads * shape.head_dim;
  const std::int64_t key_value = shape.kv_heads * (shape.head_dim + shape.value_width());
  const bool latent = shape.latent.kv_rank > 0;
  std::int64_t count = latent ? latent_parameters(shape) : shape.hidden * (query + key_value);
  count += shape.heads * shape.value_width() * shape.hidden;
  if (shape.linear_bias || shape.qkv_bias) count += query + key_value;
  if (shape.linear_bias || shape.projection_bias) count += shape.hidden;
  if (shape.wide_qk_norm) {
    count += query + shape.kv_heads * shape.head_dim;
  } else if (shape.qk_norm) {
    count += 2 * norm_parameters(shape.norm, shape.head_dim);
  }
  if (shape.attention_sinks) count += shape.heads;
  return count;
}

// The convolution has a bias; each head a time-step bias, a decay and a skip weight (arXiv 2405.21060,
// section 7).
std::int64_t state_space_parameters(const LayerShape& shape) {
  const StateSpace& space = shape.state_space;
  const std::int64_t matrices = shape.hidden * (space.projected() + space.inner());
  return matrices + space.convolved() * (space.convolution + 1) + 3 * space.heads + space.inner();
}

// One MLP of `width` on tokens of `hidden`.
std::int64_t mlp_parameters(const LayerShape& shape, std::int64_t hidden, std::int64_t width) {
  const std::int64_t inputs = shape.mlp == MlpKind::gated ? 2 : 1;
  std::int64_t count = (inputs + 1) * hidden * width;
  if (shape.linear_bias || shape.mlp_bias) count += inputs * width + hidden;
  return count;
}

std::int64_t router_parameters(const LayerShape& shape) {
  std::int64_t count = shape.hidden * shape.experts + (shape.router_bias ? shape.experts : 0);
  if (shape.expert_hidden > 0) count += 2 * shape.hidden * shape.expert_hidden;
  return count;
}

std::int64_t layer_parameters_with(const LayerShape& shape, std::int64_t experts) {
  std::int64_t count = shape.norms * norm_parameters(shape.norm, shape.hidden);
  if (shape.has_attention()) count += attention_parameters(shape);
  if (shape.has_state_space()) count += state_space_parameters(shape);
  if (shape.has_mlp()) count += experts * mlp_parameters(shape, shape.routed_hidden(), shape.ffn);
  if (shape.experts > 1) count += router_parameters(shape);
  if (shape.shared_ffn > 0) count += mlp_parameters(shape, shape.hidden, shape.shared_ffn);
  if (shape.shared_gate) count += shape.hidden;
  if (shape.joins_embedding)
    count += 2 * shape.hidden * shape.hidden + 2 * norm_parameters(shape.norm, shape.hidden);
  if (shape.predicted_vocabulary > 0) count += norm_parameters(shape.norm, shape.hidden);
  return count;
}

double layer_flops(const LayerShape& shape, std::int64_t sequences, std::int64_t model_sequence,
                   double causal_factor) {
  const std::int64_t sequence = shape.sequence > 0 ? shape.sequence : model_sequence;
  const std::int64_t attended =
      shape.attention_window > 0 ? std::min(shape.attention_window, sequence) : sequence;
  const double tokens = static_cast<double>(sequences) * static_cast<double>(sequence);
  const double widths = static_cast<double>(shape.heads * (shape.head_dim + shape.value_width()));
  const double head = 6.0 * static_cast<double>(shape.predicted_vocabulary * shape.hidden);
  const double scan = static_cast<double>(shape.state_space.inner() * shape.state_space.state);
  return tokens * (6.0 * static_cast<double>(active_layer_parameters(shape)) +
                   6.0 * widths * static_cast<double>(attended) * causal_factor + 21.0 * scan + head);
}

}  // namespace

int ModelSpec::main_layers() const {
  int count = layer_count();
  while (count > 0 && layer(count - 1).predicts_more()) --count;
  return count;
}

bool ModelSpec::has_experts() const {
  return std::any_of(shapes.begin(), shapes.end(), [](const LayerShape& shape) { return shape.experts > 1; });
}

bool ModelSpec::has_latent_attention() const {
  return std::any_of(shapes.begin(), shapes.end(),
                     [](const LayerShape& shape) { return shape.latent.kv_rank > 0; });
}

bool ModelSpec::is_hybrid() const {
  return std::any_of(shapes.begin(), shapes.end(),
                     [](const LayerShape& shape) { return shape.has_state_space(); });
}

bool ModelSpec::has_second_word_table() const {
  return vocabulary > 0 &&
         (tied_embeddings || std::any_of(shapes.begin(), shapes.end(),
                                         [](const LayerShape& shape) { return shape.joins_embedding; }));
}

std::int64_t layer_parameters(const LayerShape& shape) {
  return layer_parameters_with(shape, shape.experts);
}

std::int64_t active_layer_parameters(const LayerShape& shape) {
  return layer_parameters_with(shape, shape.experts > 1 ? shape.experts_per_token : 1);
}

std::int64_t embedding_parameters(const ModelSpec& model) {
  std::int64_t count = (model.vocabulary + model.learned_positions) * model.hidden + model.input_parameters;
  if (model.embedding_norm) count += norm_parameters(model.final_norm, model.hidden);
  return count;
}

std::int64_t head_parameters(const ModelSpec& model) {
  if (model.vocabulary == 0) return 0;
  const std::int64_t matrix = model.tied_embeddings ? 0 : model.head_width() * model.hidden;
  const std::int64_t bias = model.head_bias ? model.head_width() : 0;
  return norm_parameters(model.final_norm, model.hidden) + matrix + bias;
}

std::int64_t padded_vocabulary(std::int64_t vocabulary, int tensor) {
  const std::int64_t multiple = 128 * static_cast<std::int64_t>(tensor);
  return (vocabulary + multiple - 1) / multiple * multiple;
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
  return flops + head_flops(model, sequences, sequence);
}

double head_flops(const ModelSpec& model, std::int64_t sequences, std::int64_t sequence) {
  const double matrix = static_cast<double>(model.head_width()) * static_cast<double>(model.hidden);
  return 6.0 * matrix * static_cast<double>(sequences) * static_cast<double>(model.head_tokens(sequence));
}

double utilisation_flops(const ModelSpec& model, std::int64_t sequences, std::int64_t sequence,
                         AttentionCounting counting) {
  const std::int64_t counted = model.head_width() * model.hidden;  // as the head's
  const std::int64_t more = embedding_parameters(model) + head_parameters(model) - counted;
  return model_flops(model, sequences, sequence, counting) +
         6.0 * static_cast<double>(more) * static_cast<double>(sequences) * static_cast<double>(sequence);
}

}  // namespace orrery
