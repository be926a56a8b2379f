#include "strategies/recompute.hpp"

#include <vector>

#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"

namespace orrery {

std::string_view to_text(RecomputeGranularity granularity) {
  switch (granularity) {
    case RecomputeGranularity::none:
      return "none";
    case RecomputeGranularity::selective:
      return "selective";
    case RecomputeGranularity::full:
      return "full";
  }
  return "";
}

std::string_view to_text(RecomputeModule module) {
  switch (module) {
    case RecomputeModule::core_attn:
      return "core_attn";
    case RecomputeModule::layernorm:
      return "layernorm";
    case RecomputeModule::mla_up_proj:
      return "mla_up_proj";
    case RecomputeModule::mlp:
      return "mlp";
    case RecomputeModule::moe_act:
      return "moe_act";
    case RecomputeModule::shared_experts:
      return "shared_experts";
    case RecomputeModule::moe:
      return "moe";
  }
  ORRERY_ENSURE(false);
}

std::string to_text(const RecomputeModules& modules) {
  std::string text;
  for (const RecomputeModule module : kRecomputeModules) {
    if (!modules.has(module)) continue;
    if (!text.empty()) text += " ";
    text += to_text(module);
  }
  return text;
}

std::string_view to_text(RecomputeMethod method) {
  switch (method) {
    case RecomputeMethod::uniform:
      return "uniform";
    case RecomputeMethod::block:
      return "block";
  }
  return "";
}

RecomputeModules read_recompute_modules(const YamlValue& value) {
  RecomputeModules modules(std::initializer_list<RecomputeModule>{});
  const auto add = [&](const YamlValue& item) { modules.add(item.one_of_values(kRecomputeModules)); };
  if (value.kind() != YamlValue::Kind::list) {
    add(value);
    return modules;
  }
  for (const YamlValue& item : value.items()) add(item);
  if (modules.empty()) value.fail("at least one module to recompute");
  return modules;
}

}  // namespace orrery
