#include "sim/measured/measured_head.hpp"

#include <regex>

#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_words.hpp"

namespace orrery {
namespace {

// BERT's head on masked positions alone: "20 masked positions per sequence", "masked positions only (20 of
// 128)"; where nobody says how many, 20 of 128 or 80 of 512 (max_predictions_per_seq of its examples).
std::int64_t predicted_tokens(const MeasuredRun& run) {
  static const std::regex kMasked(
      R"((\d{1,4}|one) masked positions?\b|masked positions only(?: \((\d{1,4}))?)", std::regex::icase);
  const std::string note = run.text("note");
  std::smatch found;
  if (!std::regex_search(note, found, kMasked)) return 0;
  const std::string count = found[1].matched ? found[1] : found[2];
  if (count.empty()) return run.integer("seq").value_or(0) * 5 / 32;
  return lower_case(count) == "one" ? 1 : std::stoll(count);
}

// Spans, labels of a sequence or its reward: few outputs, of a matrix of their own. Of SQuAD an encoder
// learns spans, a causal model texts.
void take_outputs(const MeasuredRun& run, ModelSpec& model, std::vector<std::string>& assumptions) {
  constexpr std::int64_t kUsual = 2;
  const std::vector<Clause> words = model_and_note(run);
  const bool few =
      affirms(words, {"*spanhead*", "*sequenceclassification*", "*classificationhead*", "*rewardhead*"}) ||
      (!model.causal && affirms(words, {"squad"}));
  if (!few) return;
  model.give_outputs(kUsual);
  assumptions.emplace_back("a head of two outputs");
}

}  // namespace

bool ties_embeddings(const MeasuredRun& run, bool of_family) {
  const std::string name = lower_case(run.text("model"));
  if (says(name, "tied")) return !says(name, "untied");
  const auto words = clauses_of(run.text("note"));
  if (affirms(words, {"untied*"})) return false;
  if (affirms(words, {"tied*"})) return true;
  return of_family;
}

void take_head(const MeasuredRun& run, ModelSpec& model, std::vector<std::string>& assumptions) {
  take_outputs(run, model, assumptions);
  model.predicted_tokens = predicted_tokens(run);
}

}  // namespace orrery
