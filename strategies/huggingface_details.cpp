// What a config.json says that changes none of a model's times (model_details.hpp). Where it says nothing,
// what the configuration class of its `model_type` in Hugging Face transformers takes.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "platforms/errors.hpp"
#include "strategies/huggingface.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
namespace {

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& types, std::string_view type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

constexpr JsonConfig::Range kCoefficients{0, 1'000'000'000'000};

double number_or(const JsonConfig& config, const std::string& key, double absent) {
  return config.find_number(key, kCoefficients).value_or(absent);
}

// Groups of experts, where the choice is limited to the best of them.
void read_groups(const JsonConfig& config, ExpertRouter& router) {
  if (config.find_text("topk_method").value_or("") == "greedy") return;
  router.groups = config.find_integer("n_group", {1, kMostExperts}).value_or(1);
  router.chosen_groups = config.find_integer("topk_group", {1, router.groups}).value_or(1);
}

// The name by which a family calls it, and what it is where it is not said.
Activation activation_of(const JsonConfig& config, std::string_view type, MlpKind mlp) {
  struct Named {
    std::string_view name;
    Activation activation;
  };
  // The names of ACT2FN in transformers, activations.py, and two that remote code uses. Approximations of
  // GELU are GELU.
  constexpr std::array kNames{Named{"silu", Activation::silu},
                              Named{"swish", Activation::silu},
                              Named{"swiglu", Activation::silu},
                              Named{"gelu", Activation::gelu},
                              Named{"gelu_new", Activation::gelu},
                              Named{"gelu_fast", Activation::gelu},
                              Named{"gelu_accurate", Activation::gelu},
                              Named{"gelu_python", Activation::gelu},
                              Named{"gelu_pytorch_tanh", Activation::gelu},
                              Named{"gelu_python_tanh", Activation::gelu},
                              Named{"geglu", Activation::gelu},
                              Named{"relu", Activation::relu},
                              Named{"relu2", Activation::squared_relu},
                              Named{"gelu_10", Activation::other},
                              Named{"quick_gelu", Activation::other},
                              Named{"laplace", Activation::other},
                              Named{"leaky_relu", Activation::other},
                              Named{"linear", Activation::other},
                              Named{"mish", Activation::other},
                              Named{"prelu", Activation::other},
                              Named{"relu6", Activation::other},
                              Named{"sigmoid", Activation::other},
                              Named{"tanh", Activation::other},
                              Named{"xielu", Activation::other}};
  if (type == "gpt_oss") return Activation::other;  // clamped, and its gate has an offset
  for (const char* key :
       {"hidden_activation", "hidden_act", "activation_function", "mlp_hidden_act", "activation"}) {
    const auto text = config.find_text(key);
    if (!text) continue;
    const auto named =
        std::find_if(kNames.begin(), kNames.end(), [&](const Named& row) { return row.name == *text; });
    if (named != kNames.end()) return named->activation;
    std::vector<std::string> known;
    for (const Named& row : kNames) known.emplace_back(row.name);
    config.fail(key, "one of " + comma_list(known) + did_you_mean(*text, known));
  }
  if (type == "opt") return Activation::relu;
  if (type == "nemotron_h") return Activation::squared_relu;
  const bool geglu = type.substr(0, 5) == "gemma";
  return mlp == MlpKind::gated && !geglu ? Activation::silu : Activation::gelu;
}

bool is(const JsonConfig& config, const std::string& key, double usual) {
  return number_or(config, key, usual) == usual;
}

// "rope_scaling", or in transformers 5 "rope_parameters", which are of all rotary positions.
void read_stretch(const JsonConfig& config, RotaryPositions& rotary) {
  const std::string type =
      config.find_text(config.has("rope_type") ? "rope_type" : "type").value_or("default");
  if (type == "default") return;
  rotary.factor = number_or(config, "factor", 1);
  const double tokens = number_or(config, "original_max_position_embeddings", 0);
  const bool llama3 = type == "llama3" && tokens == 8192 && is(config, "low_freq_factor", 1) &&
                      is(config, "high_freq_factor", 4);
  const bool yarn =
      type == "yarn" && tokens == 4096 && is(config, "beta_fast", 32) && is(config, "beta_slow", 1);
  rotary.stretch = llama3 ? RotaryStretch::llama3 : yarn ? RotaryStretch::yarn : RotaryStretch::other;
  rotary.mscale = number_or(config, "mscale", 1);
  rotary.mscale_all_dim = number_or(config, "mscale_all_dim", 0);
}

RotaryPositions rotary_of(const JsonConfig& config, std::string_view type) {
  struct Usual {
    std::string_view type;
    double base, share;
  };
  constexpr std::array kUsual{
      Usual{"chatglm", 1e4, 0.5},   Usual{"gemma3_text", 1e6, 1},     Usual{"glm", 1e4, 0.5},
      Usual{"glm4", 1e4, 0.5},      Usual{"glm4_moe", 1e4, 0.5},      Usual{"gpt_neox", 1e4, 0.25},
      Usual{"gpt_oss", 150'000, 1}, Usual{"llama4_text", 500'000, 1}, Usual{"mixtral", 1'000'000, 1},
      Usual{"nemotron", 1e4, 0.5},  Usual{"phi", 1e4, 0.5},           Usual{"stablelm", 1e4, 0.25}};
  const auto row =
      std::find_if(kUsual.begin(), kUsual.end(), [&](const Usual& one) { return one.type == type; });
  const Usual usual = row == kUsual.end() ? Usual{type, 1e4, 1} : *row;
  RotaryPositions rotary;
  // GPT-NeoX has names of its own, ChatGLM a factor.
  rotary.base = number_or(config, "rope_theta", number_or(config, "rotary_emb_base", usual.base)) *
                number_or(config, "rope_ratio", 1);
  rotary.share = number_or(config, "partial_rotary_factor", number_or(config, "rotary_pct", usual.share));
  if (const auto scaling = config.find_object("rope_scaling")) read_stretch(*scaling, rotary);
  if (const auto parameters = config.find_object("rope_parameters")) {
    rotary.base = number_or(*parameters, "rope_theta", rotary.base);
    rotary.share = number_or(*parameters, "partial_rotary_factor", rotary.share);
    read_stretch(*parameters, rotary);
  }
  // ChatGLM-6B, the first, turns by two positions.
  if (config.has("inner_hidden_size")) rotary.stretch = RotaryStretch::other;
  return rotary;
}

ExpertRouter router_of(const JsonConfig& config, std::string_view type) {
  constexpr std::array<std::string_view, 6> kSigmoid{"deepseek_v3", "dots1",       "glm4_moe",
                                                     "kimi_k2",     "llama4_text", "nemotron_h"};
  constexpr std::array<std::string_view, 5> kPlainSum{"deepseek", "deepseek_v2", "olmoe", "qwen2_moe",
                                                      "qwen3_moe"};
  ExpertRouter router;
  router.sigmoid = is_one_of(kSigmoid, type);
  if (const auto function = config.find_text("scoring_func")) router.sigmoid = *function == "sigmoid";
  router.normalised = config.find_boolean("norm_topk_prob").value_or(!is_one_of(kPlainSum, type));
  router.scaling = number_or(config, "routed_scaling_factor", 1);
  read_groups(config, router);
  router.balance_loss = number_or(config, "router_aux_loss_coef", number_or(config, "aux_loss_alpha", 0));
  router.balances_sequences = config.find_boolean("seq_aux").value_or(false);
  return router;
}

}  // namespace

ModelSpec with_details(const JsonConfig& config, ModelSpec model) {
  const std::string type = config.text("model_type");
  for (LayerShape& shape : model.shapes) shape.activation = activation_of(config, type, shape.mlp);
  model.alibi =
      model.alibi || type == "bloom" || (type == "falcon" && config.find_boolean("alibi").value_or(false));
  const bool turns = std::any_of(model.shapes.begin(), model.shapes.end(),
                                 [](const LayerShape& shape) { return shape.rotary; });
  if (turns) model.rotary_positions = rotary_of(config, type);
  if (model.has_experts()) model.router = router_of(config, type);
  return model;
}

}  // namespace orrery
