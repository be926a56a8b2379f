#include "costmodels/models/model_card.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <sstream>
#include <utility>

#include "costmodels/models/features.hpp"
#include "platforms/errors.hpp"

namespace orrery {

namespace {

constexpr std::array<std::pair<ModelKind, std::string_view>, 9> kKinds{
    {{ModelKind::gemm, "gemm"},
     {ModelKind::gemm_any, "gemm_any"},
     {ModelKind::gemm_fp32, "gemm_fp32"},
     {ModelKind::attention, "attention"},
     {ModelKind::kernel, "kernel"},
     {ModelKind::training_kernel, "training_kernel"},
     {ModelKind::collective, "collective"},
     {ModelKind::network, "network"},
     {ModelKind::transfer, "transfer"}}};

std::size_t features_of(ModelKind kind) {
  switch (kind) {
    case ModelKind::gemm:
      return gemm_feature_names(GemmModelKind::one_gpu).size();
    case ModelKind::gemm_any:
    case ModelKind::gemm_fp32:
      return gemm_feature_names(GemmModelKind::any_gpu).size();
    case ModelKind::attention:
      return attention_feature_names().size();
    case ModelKind::kernel:
      return lone_kernel_feature_names().size();
    case ModelKind::training_kernel:
      return kernel_feature_names().size();
    case ModelKind::collective:
      return collective_feature_names().size();
    case ModelKind::network:
      return network_feature_names().size();
    case ModelKind::transfer:
      return transfer_feature_names().size();
  }
  throw Defect("a model kind without features");
}

std::string join(const std::vector<std::string>& parts) {
  std::string all;
  for (const auto& part : parts) all += (all.empty() ? "" : ",") + part;
  return all;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

std::string required(const XgboostModel& model, const std::string& key, const std::string& name) {
  if (const auto value = model.attribute(key)) return *value;
  throw InputError(name, "a model without the attribute '" + key + "'", "a file that `orrery fit` wrote");
}

template <class Number>
Number number(const XgboostModel& model, const std::string& key, const std::string& name) {
  const std::string text = required(model, key, name);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value > Number{0}) return value;
  throw InputError(name, "'" + text + "' as " + key, "a number above zero");
}

// "ring:16:8 300 25", one for each.
std::vector<std::string> texts_of(const std::vector<MeasuredLinks>& links) {
  std::vector<std::string> texts;
  for (const auto& one : links) {
    std::ostringstream text;
    text << one.configuration << ' ' << one.inside << ' ' << one.between;
    texts.push_back(text.str());
  }
  return texts;
}

std::vector<MeasuredLinks> parse_links(const std::string& text, const std::string& name) {
  std::vector<MeasuredLinks> links;
  for (const auto& part : split(text)) {
    std::istringstream stream(part);
    MeasuredLinks one;
    stream >> one.configuration >> one.inside >> one.between;
    if (!stream || one.inside < 0 || one.between < 0)
      throw InputError(name, "'" + part + "' as links", "a configuration and two bandwidths; fit again");
    links.push_back(std::move(one));
  }
  return links;
}

// Data sheets of one kind of link differ less, those of two kinds more (assumption).
bool alike(double bandwidth, double other) {
  constexpr double kTolerance = 0.1;
  return std::abs(bandwidth - other) <= kTolerance * std::max(bandwidth, other);
}

PassFactors parse_passes(const std::string& text, const std::string& name) {
  std::istringstream stream(text);
  PassFactors passes;
  stream >> passes.input_gradient >> passes.weight_gradient;
  if (stream && passes.input_gradient > 0 && passes.weight_gradient > 0) return passes;
  throw InputError(name, "'" + text + "' as passes", "two factors above zero; fit again");
}

}  // namespace

std::string_view to_text(ModelKind kind) {
  return std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& one) { return one.first == kind; })
      ->second;
}

double PassFactors::of(GemmPass pass) const {
  switch (pass) {
    case GemmPass::forward:
      return 1;
    case GemmPass::input_gradient:
      return input_gradient;
    case GemmPass::weight_gradient:
      return weight_gradient;
  }
  throw Defect("a pass without a factor");
}

bool ModelCard::measured(const std::string& gpu) const {
  return std::find(gpus.begin(), gpus.end(), gpu) != gpus.end();
}

bool ModelCard::has_configuration(const std::string& name) const {
  return std::find(configurations.begin(), configurations.end(), name) != configurations.end();
}

bool ModelCard::speaks_of(const MeasuredLinks& asked) const {
  return links.empty() || std::any_of(links.begin(), links.end(), [&](const MeasuredLinks& one) {
           return one.configuration == asked.configuration && alike(one.inside, asked.inside) &&
                  alike(one.between, asked.between);
         });
}

bool measured_chip(const ModelCard& card, const GpuSpec& gpu) {
  constexpr double kSameChip = 1.25;  // of the peak; forms of V100 differ by 1.12, of H100 by 1.18
  const auto& catalog = gpu_catalog();
  const auto is_faster = [&](const GpuSpec& other) {
    const auto own = matrix_peak(gpu, DataType::fp16), known = matrix_peak(other, DataType::fp16);
    return own && known && own->speed > known->speed * kSameChip;
  };
  return card.measured(gpu.name) || std::any_of(catalog.begin(), catalog.end(), [&](const GpuSpec& other) {
           return other.architecture == gpu.architecture && other.multiprocessors == gpu.multiprocessors &&
                  card.measured(other.name) && !is_faster(other);
         });
}

std::string configuration_name(const Collective& op) {
  return std::string(op.kind == CollectiveKind::all_to_all ? "all_to_all" : "ring") + ":" +
         std::to_string(op.ranks) + ":" + std::to_string(std::min(op.ranks, op.ranks_per_node));
}

MeasuredLinks links_of(const Collective& op) {
  const bool one_node = op.ranks <= op.ranks_per_node;
  return {configuration_name(op), op.ranks_per_node > 1 ? op.gpu_link.bandwidth.value() / kGiga : 0,
          one_node ? 0 : op.network.bandwidth.value() / kGiga};
}

MeasuredLinks links_of(const PointToPoint& op) {
  const double bandwidth = op.path.bandwidth.value() / kGiga;
  return {"send_recv", op.same_node ? bandwidth : 0, op.same_node ? 0 : bandwidth};
}

namespace {

std::string with_direction(std::string name, Direction direction) {
  return direction == Direction::backward ? name + " backward" : name;
}

}  // namespace

std::string configuration_name(const Attention& op) {
  // Whoever measures the best fused kernel says "flash".
  const AttentionKernel kernel = is_best_fused(op.kernel) ? AttentionKernel::flash : op.kernel;
  return with_direction(std::string(to_text(kernel)), op.direction);
}

std::string configuration_name(MemoryKernel kernel, Direction direction) {
  return with_direction(std::string(to_text(kernel)), direction);
}

void write_card(const ModelCard& card, XgboostModel& model) {
  std::ostringstream cap;
  cap << card.efficiency_cap;
  model.set_attribute("kind", std::string(to_text(card.kind)));
  model.set_attribute("gpus", join(card.gpus));
  model.set_attribute("configurations", join(card.configurations));
  model.set_attribute("m", std::to_string(std::max<std::int64_t>(card.m, 1)));
  model.set_attribute("n", std::to_string(std::max<std::int64_t>(card.n, 1)));
  model.set_attribute("k", std::to_string(std::max<std::int64_t>(card.k, 1)));
  model.set_attribute("efficiency_cap", cap.str());
  if (!card.links.empty()) model.set_attribute("links", join(texts_of(card.links)));
  model.set_attribute("paces", to_text(card.paces));
  if (card.kind == ModelKind::kernel) model.set_attribute("law", to_text(card.law));
  std::ostringstream passes;
  passes << card.passes.input_gradient << ' ' << card.passes.weight_gradient;
  model.set_attribute("passes", passes.str());
  model.set_attribute("timed", card.framework ? "framework" : "kernel");
}

ModelCard read_card(const XgboostModel& model, const std::string& name) {
  const std::string kind = required(model, "kind", name);
  const auto* found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& one) { return one.second == kind; });
  if (found == kKinds.end()) {
    throw InputError(name, "a model of kind '" + kind + "'", "a kind that this version of orrery knows");
  }
  if (model.features() != features_of(found->first)) {
    throw InputError(name, std::to_string(model.features()) + " features",
                     std::to_string(features_of(found->first)) + "; fit again with this version of orrery");
  }
  return {
      .kind = found->first,
      .gpus = split(required(model, "gpus", name)),
      .m = number<std::int64_t>(model, "m", name),
      .n = number<std::int64_t>(model, "n", name),
      .k = number<std::int64_t>(model, "k", name),
      .efficiency_cap = number<double>(model, "efficiency_cap", name),
      .framework = required(model, "timed", name) == "framework",
      .configurations = split(required(model, "configurations", name)),
      .links = parse_links(model.attribute("links").value_or(""), name),
      .paces = parse_paces(required(model, "paces", name), name),
      .law = found->first == ModelKind::kernel ? parse_law(required(model, "law", name), name) : KernelLaw{},
      .passes = parse_passes(required(model, "passes", name), name)};
}

}  // namespace orrery
