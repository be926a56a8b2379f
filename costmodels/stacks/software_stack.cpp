#include "costmodels/stacks/software_stack.hpp"

#include <algorithm>

#include "costmodels/operators/local_layer.hpp"
#include "platforms/errors.hpp"

namespace orrery {

HostCost at_pace(HostCost host, double pace) {
  for (const HostTime& one : kHostTimes) host.*one.time = host.*one.time * pace;
  return host;
}

ExpertCost at_pace(ExpertCost experts, double pace) {
  for (const ExpertHostTime& one : kExpertHostTimes) {
    experts.each.*one.time = experts.each.*one.time * pace;
    experts.layer.*one.time = experts.layer.*one.time * pace;
  }
  return experts;
}

double narrow_bytes(DataType type, Fp8Recipe recipe) {
  // Those of NVFP4 are in its size.
  const bool blocks = type == DataType::fp8 && recipe == Fp8Recipe::mxfp8;
  return size_of(type).value() + (blocks ? 1.0 / 32 : 0.0);
}

std::string_view to_text(MemoryFigure figure) {
  switch (figure) {
    case MemoryFigure::allocated:
      return "allocated";
    case MemoryFigure::reserved:
      return "reserved";
    case MemoryFigure::card:
      return "card";
  }
  ORRERY_ENSURE(false);
}

MemoryFigure parse_memory_figure(const std::string& name, const std::string& place) {
  for (const MemoryFigure figure : {MemoryFigure::allocated, MemoryFigure::reserved, MemoryFigure::card}) {
    if (name == to_text(figure)) return figure;
  }
  throw InputError(place, quote_for_message(name), "allocated, reserved or card");
}

bool chooses_types(const SoftwareStack& stack, DataType type) {
  const DataType wide = outside_fp8(type);
  return wide == DataType::bf16 || (wide == DataType::fp16 && stack.fp16_as_bf16);
}

double gradient_kept(const SoftwareStack& stack, DataType type) {
  return chooses_types(stack, type) ? stack.gradient.value_or(gradient_bytes(type)) : gradient_bytes(type);
}

double gradient_sent(const SoftwareStack& stack, DataType type) {
  const bool chosen = stored_bytes(type) < 4;
  return chosen ? stack.reduced_gradient.value_or(gradient_bytes(type)) : gradient_bytes(type);
}

double lacking_moments(const SoftwareStack& stack) {
  constexpr double kOfAdam = 8, kIn16Bits = 4;
  if (!stack.states.moments) return 0;
  const double adam = stack.states.optimizer.value_or(kOfAdam) < kOfAdam ? kIn16Bits : kOfAdam;
  return std::max(0.0, adam - *stack.states.moments);
}

bool drops_out(const LayerShape& shape, const SoftwareStack& stack) {
  return has_dropout(shape) && stack.dropout == Dropout::of_model;
}

SoftwareStack stack_for(const ModelSpec& model, SoftwareStack stack) {
  const bool llama = std::any_of(model.shapes.begin(), model.shapes.end(),
                                 [](const LayerShape& shape) { return shape.norm == NormKind::rms_norm; });
  if (llama && stack.llama_layers) {
    stack.kernels = *stack.llama_layers;
    stack.softmax = stack.kernels.softmax.value_or(stack.softmax);
  }
  return stack;
}

}  // namespace orrery
