#include "sim/measured/said_shape.hpp"

#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_sizes.hpp"
#include "sim/measured/measured_words.hpp"
#include "strategies/model_limits.hpp"

namespace orrery {

SaidShape printed_shape(const MeasuredRun& run) {
  std::optional<std::int64_t> interval;
  for (const char* cell : {"model", "framework", "note"})
    if (!interval) interval = said_expert_interval(run.text(cell));
  const std::string layers = run.text("layers");
  const bool all =
      affirms(model_and_note(run), {layers + "moelayers", "all" + layers + "layersmoe", "allofthemmoe"});
  const auto per_token = run.integer("experts_per_token", kMostExperts);
  return {.layers = run.integer("layers", kMostLayers),
          .hidden = run.integer("hidden", kMostHidden),
          .heads = run.integer("heads", kMostHeads),
          .kv_heads = run.integer("kv_heads", kMostHeads),
          .head_dim = run.integer("head_dim", kMostHeadDim),
          .ffn = run.integer("ffn", kMostFfn),
          .vocabulary = run.integer("vocab", kMostVocabulary),
          .experts = run.integer("n_experts", kMostExperts),
          .experts_per_token = per_token ? per_token : said_experts_per_token(run.text("model")),
          .expert_interval = interval.value_or(1),
          .all_experts = interval == 1 || all,
          .latent = affirms(clauses_of(run.text("model")), {"mla", "latentattention"})};
}

SaidShape said_shape(const MeasuredRun& run, SaidShape said, std::vector<std::string>& assumptions) {
  if (said.layers || said.hidden) return said;
  // "qwen/qwen-7b"
  const std::string model = run.text("model");
  const std::size_t slash = model.find('/');
  const bool has_owner = slash != std::string::npos && slash < model.find(' ');
  const std::string name = letters_and_digits(has_owner ? model.substr(slash + 1) : model, ".");
  for (const SizedModel& known : kSizedModels) {
    if (!name.starts_with(known.name)) continue;
    assumptions.push_back(std::string("its shape in ") + known.source);
    const auto unless_said = [](std::optional<std::int64_t>& value, std::int64_t otherwise) {
      if (!value && otherwise > 0) value = otherwise;
    };
    said.layers = known.layers;
    said.hidden = known.hidden;
    unless_said(said.heads, known.heads);
    unless_said(said.kv_heads, known.kv_heads > 0 ? known.kv_heads : known.heads);
    unless_said(said.ffn, known.ffn);
    unless_said(said.vocabulary, known.vocabulary);
    break;
  }
  return said;
}

}  // namespace orrery
