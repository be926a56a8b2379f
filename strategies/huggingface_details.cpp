// What a config.json says that changes none of a model's times (model_details.hpp). Where it says nothing,
// what the configuration class of its `model_type` in Hugging Face transformers takes.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "strategies/huggingface.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {
namespace {

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& types, std::string_view type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

constexpr JsonConfig::Range kCoefficients{0, 1'000'000};

double number_or(const JsonConfig& config, const std::string& key, double absent) {
  return config.find_number(key, kCoefficients).value_or(absent);
}

// Groups of experts, where the choice is limited to the best of them.
void read_groups(const JsonConfig& config, ExpertRouter& router) {
  if (config.find_text("topk_method").value_or("") == "greedy") return;
  router.groups = config.find_integer("n_group", {1, kMostExperts}).value_or(1);
  router.chosen_groups = config.find_integer("topk_group", {1, router.groups}).value_or(1);
}

ExpertRouter router_of(const JsonConfig& config, std::string_view type) {
  constexpr std::array<std::string_view, 5> kSigmoid{"deepseek_v3", "glm4_moe", "kimi_k2", "llama4_text",
                                                     "nemotron_h"};
  constexpr std::array<std::string_view, 3> kPlainSum{"deepseek_v2", "qwen2_moe", "qwen3_moe"};
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
  if (model.has_experts()) model.router = router_of(config, type);
  return model;
}

}  // namespace orrery
