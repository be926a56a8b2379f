#include "sim/measured/sixteen_bit_layers.hpp"

#include <algorithm>
#include <iterator>
#include <regex>

#include "sim/measured/bridge_recipes.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/measured_words.hpp"

namespace orrery {
namespace {

// Of the model's layers, but those that predict further tokens.
std::ptrdiff_t layers_before_predictions(const ModelSpec& model) {
  const auto predicts = [&](int shape) {
    return model.shapes[static_cast<std::size_t>(shape)].predicts_more();
  };
  return std::find_if(model.layers.begin(), model.layers.end(), predicts) - model.layers.begin();
}

void keep(ModelSpec& model, std::ptrdiff_t index) {
  int& layer = model.layers[static_cast<std::size_t>(index)];
  LayerShape shape = model.shapes[static_cast<std::size_t>(layer)];
  shape.sixteen_bit = true;
  const auto known = std::find(model.shapes.begin(), model.shapes.end(), shape);
  layer = static_cast<int>(known - model.shapes.begin());
  if (known == model.shapes.end()) model.shapes.push_back(shape);
}

// Nemotron 3 Super in NVFP4 (nemotron_3_super_bf16_with_nvfp4_mixed, configs/nemotronh/te_quant.cfg): the
// first and the last 14 layers, attention, and what predicts further tokens. Its projections to the narrower
// state of experts, in 16 bits too, and the state space's last matrix, in 8, are not told apart.
bool keeps_as_nemotron(const MeasuredRun& run) {
  return is_bridge(run) && run.text("precision") == "NVFP4" &&
         letters_and_digits(run.text("model")).starts_with("nemotron3super");
}

// How many at the end, 0: its note does not say.
std::ptrdiff_t said_last(const MeasuredRun& run) {
  static const std::regex kLast(R"((\d{1,3}) (?:of \d{1,3} )?layers (?:in )?(?:bf16|16 bits))");
  constexpr std::size_t kLongest = 400;  // std::regex goes as deep as its text is long
  const std::string note = lower_case(run.text("note")).substr(0, kLongest);
  std::smatch found;
  return std::regex_search(note, found, kLast) ? std::stol(found[1]) : 0;
}

}  // namespace

void keep_sixteen_bits(const MeasuredRun& run, ModelSpec& model) {
  const std::ptrdiff_t count = layers_before_predictions(model);
  if (keeps_as_nemotron(run)) {
    constexpr std::ptrdiff_t kAtEnd = 14;
    for (std::ptrdiff_t i = 0; i < std::ssize(model.layers); ++i) {
      const bool attends =
          model.shapes[static_cast<std::size_t>(model.layers[static_cast<std::size_t>(i)])].has_attention();
      if (i == 0 || i >= count - kAtEnd || attends) keep(model, i);
    }
    return;
  }
  if (said_type(run.text("precision")) != DataType::fp4) return;
  for (std::ptrdiff_t i = std::max<std::ptrdiff_t>(0, count - said_last(run)); i < count; ++i) keep(model, i);
}

}  // namespace orrery
