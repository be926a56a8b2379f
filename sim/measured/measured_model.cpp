// The model of a published run, from its printed shape or its name.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <regex>

#include "sim/measured/bridge_recipes.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_families.hpp"
#include "sim/measured/measured_head.hpp"
#include "sim/measured/measured_names.hpp"
#include "sim/measured/measured_plan.hpp"
#include "sim/measured/said_shape.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
namespace {

// Where the name alone is another built-in model's. The FLOPs a token that Megatron-Bridge's tables imply
// tell multi-token prediction where the name does not: 260 GFLOP of DeepSeek-V3 with it, 250 without; 84 of
// Nemotron 3 Super with two depths of it, 76 without.
struct NamedModel {
  const char* start;  // of the row's name, in lower case
  const char* model;  // built-in
};
constexpr std::array kNamed{
    // A flavour of torchtitan's (models/deepseek_v3/__init__.py), of DeepSeek-V2-Lite's widths.
    NamedModel{"deepseek-v3 16b", "deepseek-v2-lite"},      NamedModel{"deepseek_v3 16b", "deepseek-v2-lite"},
    NamedModel{"deepseekv3 16b", "deepseek-v2-lite"},       NamedModel{"deepseek v3 16b", "deepseek-v2-lite"},
    NamedModel{"deepseekv3 (w/o mtp)", "deepseek-v3"},      NamedModel{"deepseekv3", "deepseek-v3-mtp"},
    NamedModel{"nemotron_3_super", "nemotron-3-super-mtp"},
};

// Billions of parameters that a name says: 30 of "Qwen3-30B-A3B", the most of several; 0 of "Mixtral 8x7B"
// and of "17B-16E", those that a token meets.
double billions_said(const std::string& name) {
  static const std::regex kSize(R"((?:^|[^a-z0-9.])(\d{1,4}(?:\.\d{1,3})?) ?b(?![a-z0-9]|[ -]\d+e\b))",
                                std::regex::icase);
  double most = 0;
  for (std::sregex_iterator found(name.begin(), name.end(), kSize), end; found != end; ++found)
    most = std::max(most, std::stod((*found)[1]));
  return most;
}

// Sizes in names are rounded, and may leave out or add the embedding.
bool differs_in_size(const ModelSpec& model, double billions) {
  constexpr double kMostOff = 1.5;
  const double counted = static_cast<double>(total_parameters(model)) / kGiga;
  return billions > 0 && std::abs(std::log(counted / billions)) > std::log(kMostOff);
}

// DeepSeek-V3 predicts several tokens in the recipes of NeMo and Megatron-Bridge (use_mtp of pretrain_recipe,
// nemo/collections/llm/recipes/deepseek_v3.py; mtp_num_layers, recipes/deepseek/deepseek_v3.py, v0.3.0 to
// v0.4.2); a row that prints layers counts those of its program.
std::optional<std::string> name_of_builtin(const MeasuredRun& run) {
  const std::string name = run.text("model");
  if (const NamedModel* known = row_starting(kNamed, lower_case(name))) return known->model;
  auto builtin = builtin_model_called(name);
  const std::string framework = run.text("framework");
  const bool by_recipe = is_bridge(run) || framework.starts_with("NeMo/") || framework.starts_with("NeMo 2");
  const bool recipe = builtin == "deepseek-v3" && by_recipe && run.text("layers").empty();
  const bool said = builtin && (affirms(clauses_of(name), {"mtp", "multitokenprediction"}) ||
                                affirms(clauses_of(run.text("note")), {"mtplayer", "mtp1"}));
  const std::vector<std::string> known = builtin_model_names();
  const bool predicts = (recipe || said) && std::count(known.begin(), known.end(), *builtin + "-mtp") > 0;
  return predicts ? *builtin + "-mtp" : builtin;
}

// Not stacks of equal layers that attend to themselves.
constexpr std::array kOtherKinds{"t5", "vit", "swin", "whisper", "unet", "diffusion"};
// Layers whose attention is linear, anywhere in a name.
constexpr std::array kLinearAttention{"deltanet", "qwen3.5", "qwen3-next", "kimi-linear",
                                      "lightning attention"};

const char* other_kind(const std::string& name) {
  const std::string low = lower_case(name);
  const auto linear = std::find_if(kLinearAttention.begin(), kLinearAttention.end(),
                                   [&](const char* kind) { return says(low, kind); });
  if (linear != kLinearAttention.end()) return "linear attention";
  const auto found = std::find_if(kOtherKinds.begin(), kOtherKinds.end(),
                                  [&](const char* kind) { return low.rfind(kind, 0) == 0; });
  return found == kOtherKinds.end() ? nullptr : *found;
}

bool has_equal_dense_layers(const ModelSpec& model) {
  return model.shapes.size() == 1 && model.layer(0).experts <= 1;
}

// What a built-in model has otherwise than the row prints: "heads 16, not 32". Of equal dense layers the
// row's widths are taken; of others each must be that of some layer. Empty: nothing, and it is the row's
// model.
std::string contradiction(const SaidShape& said, const ModelSpec& model) {
  std::string found;
  const auto check = [&](const char* column, std::optional<std::int64_t> printed,
                         std::initializer_list<std::int64_t> own) {
    if (!found.empty() || !printed || std::find(own.begin(), own.end(), *printed) != own.end()) return;
    found = std::string(column) + " " + std::to_string(*printed) + ", not " + std::to_string(*own.begin());
  };
  const auto check_layers = [&](const char* column, std::optional<std::int64_t> printed,
                                std::initializer_list<std::int64_t LayerShape::*> members) {
    std::int64_t own = 0;
    for (const LayerShape& shape : model.shapes) {
      for (const auto member : members) {
        if (printed == shape.*member) return;
        own = std::max(own, shape.*member);
      }
    }
    check(column, printed, {own});
  };
  check("layers", said.layers, {model.main_layers(), model.layer_count()});
  check("hidden", said.hidden, {model.hidden});
  check_layers("heads", said.heads, {&LayerShape::heads});
  std::int64_t experts = 1;
  for (const LayerShape& shape : model.shapes) experts = std::max(experts, shape.experts);
  check("n_experts", said.experts, {experts});
  check_layers("experts_per_token", said.experts_per_token, {&LayerShape::experts_per_token});
  if (has_equal_dense_layers(model)) return found;
  check_layers("kv_heads", said.kv_heads, {&LayerShape::kv_heads});
  check_layers("head_dim", said.head_dim, {&LayerShape::head_dim});
  check_layers("ffn", said.ffn, {&LayerShape::ffn, &LayerShape::shared_ffn});
  return found;
}

// The built-in model, or what `cut` says is left of it ("layers 16, not 61"), with what the row prints
// otherwise of equal dense layers.
ModelSpec with_said_widths(const MeasuredRun& run, const SaidShape& said, ModelSpec model,
                           const std::string& cut, std::vector<std::string>& assumptions) {
  const std::string shape_of = "shape of the built-in model " + model.name + (cut.empty() ? "" : ", " + cut);
  if (!has_equal_dense_layers(model)) {
    const bool replaced = said.vocabulary && *said.vocabulary != model.vocabulary;
    assumptions.push_back(shape_of + (replaced ? ", but vocab " + std::to_string(*said.vocabulary) +
                                                     " and not " + std::to_string(model.vocabulary)
                                               : ""));
    if (!replaced) return model;
    model.vocabulary = *said.vocabulary;
    for (LayerShape& shape : model.shapes) {
      if (shape.predicted_vocabulary > 0) shape.predicted_vocabulary = model.vocabulary;
    }
    return model;
  }
  std::string replaced;
  const auto take = [&](const char* column, std::optional<std::int64_t> printed, std::int64_t& own) {
    if (!printed || *printed == own) return;
    replaced += std::string(replaced.empty() ? ", but " : ", ") + column + " " + std::to_string(*printed) +
                " and not " + std::to_string(own);
    own = *printed;
  };
  LayerShape& shape = model.shapes.front();
  take("kv_heads", said.kv_heads, shape.kv_heads);
  take("head_dim", said.head_dim, shape.head_dim);
  take("ffn", said.ffn, shape.ffn);
  take("vocab", said.vocabulary, model.vocabulary);
  assumptions.push_back(shape_of + replaced);
  if (model.learned_positions > 0)
    model.learned_positions = run.integer("seq", kMostSequence).value_or(model.learned_positions);
  return model;
}

std::optional<ModelSpec> builtin_of_run(const MeasuredRun& run) {
  const auto name = name_of_builtin(run);
  return name ? std::optional(read_model(*name)) : std::nullopt;
}

// The built-in model with fewer layers, or another number of experts, as those run it who have not the GPUs
// of all of it: its first layers, of which dense ones ahead of experts are a quarter at most, and one at
// least, or none where every layer is said to have experts.
ModelSpec cut_model(ModelSpec model, const SaidShape& said) {
  const auto has_experts = [&](int shape) {
    return model.shapes[static_cast<std::size_t>(shape)].experts > 1;
  };
  for (LayerShape& shape : model.shapes)
    if (said.experts && *said.experts > shape.experts_per_token && shape.experts > 1)
      shape.experts = *said.experts;
  if (!said.layers || *said.layers >= model.main_layers()) return model;
  const auto left = static_cast<std::ptrdiff_t>(*said.layers);
  std::vector<int>& layers = model.layers;
  const std::vector<int> predicting(layers.begin() + model.main_layers(), layers.end());
  layers.resize(layers.size() - predicting.size());
  if (model.has_experts()) {
    const auto dense = std::find_if(layers.begin(), layers.end(), has_experts) - layers.begin();
    const std::ptrdiff_t most = said.all_experts ? 0 : std::max<std::ptrdiff_t>(1, left / 4);
    layers.erase(layers.begin(), layers.begin() + std::max<std::ptrdiff_t>(0, dense - most));
  }
  if (left < std::ssize(layers)) layers.resize(static_cast<std::size_t>(left));
  layers.insert(layers.end(), predicting.begin(), predicting.end());
  return model;
}

// As said; else as in the model that the name is of; else GShard's choice (arXiv 2006.16668), and Mixtral's.
std::int64_t chosen_experts(const SaidShape& said, const std::optional<ModelSpec>& known,
                            std::vector<std::string>& assumptions) {
  const std::int64_t experts = *said.experts;
  const std::string each =
      std::string("each as wide as the MLP") + (said.ffn ? " that is printed" : "") +
      (said.expert_interval == 1 ? ", in every layer"
                                 : ", one of " + std::to_string(said.expert_interval) + " layers");
  if (said.experts_per_token) {
    assumptions.push_back("experts " + each);
    return *said.experts_per_token;
  }
  std::int64_t own = 1;
  for (const LayerShape& shape : known ? known->shapes : std::vector<LayerShape>{})
    own = std::max(own, shape.experts > 1 ? shape.experts_per_token : 1);
  if (own > 1 && own <= experts) {
    assumptions.push_back(std::to_string(own) + " experts a token as in the built-in model " + known->name +
                          ", " + each);
    return own;
  }
  assumptions.push_back("two experts a token, " + each);
  return 2;
}

constexpr std::int64_t kGptVocabulary = 50304;  // of GPT-2's tokenizer, 50257, padded by whatever program

// Two thirds of 4 h, up to the next multiple of 256 (FeedForward of Meta's llama/model.py, multiple_of).
constexpr std::int64_t llama_width(std::int64_t hidden) {
  constexpr std::int64_t kMultiple = 256;
  return (8 * hidden / 3 + kMultiple - 1) / kMultiple * kMultiple;
}

// A row has no columns for its ranks and widths.
void use_latent_attention(LayerShape& shape, std::vector<std::string>& assumptions) {
  const ModelSpec known = read_model("deepseek-v3");
  const LayerShape& its = known.shapes.front();
  assumptions.emplace_back("latent attention of DeepSeek-V3's ranks and head widths");
  shape.latent = its.latent;
  shape.kv_heads = shape.heads;
  shape.head_dim = its.head_dim;
  shape.value_dim = its.value_dim;
  shape.rotary = true;
}

// A layer of a family; `known`: the built-in model of the row's name, which is not its own.
std::variant<LayerShape, Unmapped> layer_of(const SaidShape& said, const LayerFamily& family,
                                            const std::optional<ModelSpec>& known,
                                            std::vector<std::string>& assumptions) {
  LayerShape shape;
  shape.hidden = *said.hidden;
  if (!said.heads) assumptions.emplace_back("heads of 64");
  shape.heads = said.heads.value_or(std::max<std::int64_t>(1, shape.hidden / 64));
  if (!said.head_dim && !said.latent && shape.hidden % shape.heads != 0)
    return Unmapped{"heads that do not divide the hidden size"};
  shape.head_dim = said.head_dim.value_or(shape.hidden / shape.heads);
  if (!said.kv_heads) assumptions.emplace_back("keys and values of every head");
  shape.kv_heads = said.kv_heads.value_or(shape.heads);
  shape.mlp = family.mlp;
  shape.norm = family.norm;
  shape.linear_bias = family.bias;
  shape.rotary = family.rotary;
  shape.parallel_residual = family.parallel_residual;
  shape.norms = family.norms;
  shape.qk_norm = family.qk_norm;
  shape.wide_qk_norm = family.wide_qk_norm;
  shape.capped_scores = family.capped_scores;
  const bool gated = family.mlp == MlpKind::gated;
  if (!said.ffn)
    assumptions.emplace_back(gated ? "gated MLPs as wide as Llama's of that size"
                                   : "MLPs of four times the hidden size");
  if (said.latent) use_latent_attention(shape, assumptions);
  shape.ffn = said.ffn.value_or(gated ? llama_width(shape.hidden) : 4 * shape.hidden);
  shape.experts = said.experts.value_or(1);
  shape.experts_per_token = 1;
  if (said.experts_per_token.value_or(1) > shape.experts)
    return Unmapped{std::to_string(*said.experts_per_token) + " experts a token, n_experts " +
                    (said.experts ? std::to_string(*said.experts) : "not given")};
  if (shape.experts > 1) {
    shape.experts_per_token = chosen_experts(said, known, assumptions);
  }
  return shape;
}

// Layers with experts, and before each of them dense ones of the same width (Megatron-DeepSpeed's
// --expert-interval).
void set_layers(const LayerShape& layer, const SaidShape& said, ModelSpec& model) {
  model.shapes = {layer};
  model.layers.assign(static_cast<std::size_t>(*said.layers), 0);
  if (layer.experts <= 1 || said.expert_interval == 1) return;
  LayerShape dense = layer;
  dense.experts = dense.experts_per_token = 1;
  model.shapes.push_back(dense);
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    if ((static_cast<std::int64_t>(i) + 1) % said.expert_interval != 0) model.layers[i] = 1;
}

// What a name or a note says of norms and positions.
void take_norms(const std::vector<Clause>& words, LayerFamily& family) {
  if (affirms(words, {"rotary", "rope"})) family.rotary = true;
  if (affirms(words, {"alibi"})) family.rotary = false;
  if (affirms(words, {"rotary", "rope", "alibi"})) family.learned_positions = false;
  if (affirms(words, {"rmsnorm"})) family.norm = NormKind::rms_norm;
  if (affirms(words, {"layernorm"})) family.norm = NormKind::layer_norm;
  if (const Said normalised = said(words, {"qknorm", "qklayernorm"}); normalised != Said::nothing) {
    family.qk_norm = normalised == Said::yes;
    family.wide_qk_norm = family.wide_qk_norm && family.qk_norm;
  }
}

// "RMSNorm, no biases, squared ReLU": what the name says beside its family. A note says biases and GELU in
// other senses too.
void take_words(const std::string& name, const std::string& note, LayerFamily& family) {
  take_norms(clauses_of(note), family);
  const auto words = clauses_of(name);
  take_norms(words, family);
  if (affirms(words, {"swiglu", "geglu"})) family.mlp = MlpKind::gated;
  if (affirms(words, {"gelu", "relu", "squaredrelu", "relusquared", "relu2"})) family.mlp = MlpKind::gelu;
  if (affirms(words, {"biases"})) family.bias = true;
  if (said(words, {"bias", "biases"}) == Said::no) family.bias = false;
}

std::variant<ModelSpec, Unmapped> shaped_model(const MeasuredRun& run,
                                               std::vector<std::string>& assumptions) {
  const std::string name = run.text("model");
  const SaidShape printed = printed_shape(run);
  std::string other;  // why the named model is not the row's
  const double billions = billions_said(name);
  auto known = builtin_of_run(run);
  if (known) {
    // The name's size is that of all of it, or of what is left.
    const ModelSpec cut = cut_model(*known, printed);
    const bool whole = !differs_in_size(*known, billions);
    other = contradiction(printed, *known);
    if ((whole || !differs_in_size(cut, billions)) && contradiction(printed, cut).empty())
      return with_said_widths(run, printed, cut, other, assumptions);
    other = whole ? other + " as in the built-in model " + known->name : "";
    if (!whole) known.reset();
  }
  if (const char* kind = other_kind(name)) return Unmapped{std::string("a model of another kind: ") + kind};
  const SaidShape said = said_shape(run, printed, assumptions);
  if (!said.layers || !said.hidden) {
    if (other.empty()) return Unmapped{"no shape of model " + name};
    return Unmapped{other + ": another model needs its layers and hidden size"};
  }
  if (!other.empty()) assumptions.push_back("a model of its own: " + other);
  LayerFamily family = family_of(run, *said.hidden);
  // Experts in groups have none: "bias not supported in TEGroupedMLP yet" (Megatron-LM
  // core/transformer/moe/experts.py, core_v0.14.0). Read after the error of a tutorial's run had been seen,
  // whose script has --disable-bias-linear.
  if (said.experts.value_or(1) > 1) family.bias = false;
  family.tied = ties_embeddings(run, family.tied);
  take_words(name, run.text("note"), family);
  assumptions.push_back(to_text(family));
  const auto layer = layer_of(said, family, known, assumptions);
  if (const auto* trouble = std::get_if<Unmapped>(&layer)) return *trouble;
  ModelSpec model;
  model.name = name;
  set_layers(std::get<LayerShape>(layer), said, model);
  model.hidden = *said.hidden;
  if (!said.vocabulary) assumptions.emplace_back("vocabulary 50304");
  model.vocabulary = said.vocabulary.value_or(kGptVocabulary);
  model.default_sequence = run.integer("seq", kMostSequence).value_or(0);
  if (model.default_sequence == 0) return Unmapped{"no sequence length"};
  model.learned_positions = family.learned_positions ? model.default_sequence : 0;
  model.tied_embeddings = family.tied;
  model.causal = !family.both_ways;
  model.capped_logits = family.capped_logits;
  model.final_norm = family.norm;
  return model;
}

// Where the row says how large its model is, its shape must agree: some sources print a shape that is wrong
// by their own words.
std::optional<Unmapped> disagreement(const MeasuredRun& run, const ModelSpec& model) {
  const auto said = run.number("params_b");
  if (!said || !differs_in_size(model, *said)) return std::nullopt;
  std::array<char, 96> text;
  std::snprintf(text.data(), text.size(), "its shape has %.3g billion parameters, the row says %.3g",
                static_cast<double>(total_parameters(model)) / kGiga, *said);
  return Unmapped{text.data()};
}

}  // namespace

std::variant<ModelSpec, Unmapped> model_of_run(const MeasuredRun& run,
                                               std::vector<std::string>& assumptions) {
  auto model = shaped_model(run, assumptions);
  if (auto* shaped = std::get_if<ModelSpec>(&model)) {
    take_head(run, *shaped, assumptions);
    const LayerShape& first = shaped->shapes.front();
    if (first.kv_heads > 0 && first.heads % first.kv_heads != 0)
      return Unmapped{"kv_heads that do not divide the heads"};
    if (auto trouble = disagreement(run, *shaped)) return *std::move(trouble);
  }
  return model;
}

}  // namespace orrery
