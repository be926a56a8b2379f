#include "costmodels/models/model_set.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "costmodels/models/features.hpp"
#include "costmodels/models/physical_bound.hpp"
#include "costmodels/models/sha256.hpp"
#include "platforms/errors.hpp"

namespace orrery {

namespace {

const ModelFile& file_named(const std::vector<ModelFile>& files, std::string_view name,
                            const std::string& place) {
  for (const auto& file : files) {
    if (file.name == name) return file;
  }
  throw InputError(place, "no " + std::string(name), "a folder that `orrery fit` wrote");
}

struct Provenance {
  std::vector<std::pair<std::string, std::string>> models;  // file name and digest
  std::map<ModelKind, UnseenGpuError> unseen_errors;
};

std::optional<UnseenGpuError> unseen_gpu_error(const nlohmann::json& provenance, std::string_view model) {
  constexpr std::string_view kLarge = "M >= 1024";
  std::optional<double> mean;
  std::vector<double> by_gpu;
  for (const auto& error : provenance.value("errors", nlohmann::json::array())) {
    if (error.value("model", "") != model || error.value("held_out", "") != "gpu") continue;
    if (!error.contains("mape") || !error["mape"].is_number()) continue;
    const std::string rows = error.value("rows", "");
    if (rows == kLarge)
      mean = error["mape"].get<double>();
    else if (rows.ends_with(kLarge))
      by_gpu.push_back(error["mape"].get<double>());
  }
  if (!mean) return std::nullopt;
  by_gpu.push_back(*mean);  // alone where a file of before says no more
  const auto [least, most] = std::minmax_element(by_gpu.begin(), by_gpu.end());
  return UnseenGpuError{*mean, *least, *most};
}

Provenance read_provenance(const ModelFile& file, const std::string& place) {
  try {
    const auto json = nlohmann::json::parse(file.content);
    Provenance provenance;
    for (const auto& model : json.at("models")) {
      provenance.models.emplace_back(model.at("file").get<std::string>(),
                                     model.at("sha256").get<std::string>());
    }
    for (const auto& [kind, model] :
         {std::pair(ModelKind::gemm_any, "gemm-any"), std::pair(ModelKind::gemm_fp32, "gemm-fp32")}) {
      if (const auto error = unseen_gpu_error(json, model)) provenance.unseen_errors[kind] = *error;
    }
    return provenance;
  } catch (const nlohmann::json::exception&) {
    throw InputError(place + "/" + file.name, "no list of models with their sha256",
                     "the file that `orrery fit` wrote");
  }
}

// No answer is faster than the best share of the roofline that was measured, in any pass.
double time_over_reference(float answer, double pass, double cap) {
  return 1.0 / std::min(std::exp(static_cast<double>(answer)) / pass, cap);
}

bool is_of_exchange(ModelKind kind) {
  return kind == ModelKind::collective || kind == ModelKind::network || kind == ModelKind::transfer;
}

std::string in_words(const ModelCard& card) {
  std::string text = std::string(to_text(card.kind)) + " of " + comma_list(card.gpus);
  if (card.m > 0)
    text +=
        ", up to " + std::to_string(card.m) + " x " + std::to_string(card.n) + " x " + std::to_string(card.k);
  return text;
}

constexpr std::int64_t kUsualAlignment = 64;  // of N and K in what was measured

// What the GEMM is asked as: its extents pulled into the measured domain, in the data type that was measured.
struct GemmQuestion {
  Gemm gemm;
  bool inside = true;
};
GemmQuestion question(const Gemm& gemm, DataType type, const ModelCard& card) {
  Gemm asked = gemm;
  asked.m = std::min(gemm.m, card.m);
  asked.n = std::min(gemm.n, card.n);
  asked.k = std::min(gemm.k, card.k);
  asked.type = type;
  const bool aligned = gemm.n % kUsualAlignment == 0 && gemm.k % kUsualAlignment == 0;
  return {asked, aligned && gemm.batch == 1 && asked.m == gemm.m && asked.n == gemm.n && asked.k == gemm.k};
}

// The GPU as a model of its chip sees it. Memory faster than that of the cards that taught the model helps
// GEMMs that wait for it less than it is faster: on H200 (4.8 TB/s) grouped ones that stream weights at 2.5
// TB/s and more on H100 (3.35) take 0.895 of the time (12 shapes of costmodels/measured/own).
constexpr double kFasterMemory = 0.31;  // of the logarithm
GpuSpec as_taught(GpuSpec gpu, const ModelCard& card) {
  if (card.kind != ModelKind::gemm) return gpu;
  BytesPerSecond known{};
  for (const GpuSpec& other : gpu_catalog()) {
    if (card.measured(other.name)) known = std::max(known, other.memory_bandwidth);
  }
  if (known.value() > 0 && gpu.memory_bandwidth > known)
    gpu.memory_bandwidth = known * std::pow(gpu.memory_bandwidth / known, kFasterMemory);
  return gpu;
}

}  // namespace

ModelSet::ModelSet(const std::vector<ModelFile>& files, const std::string& place, ModelOrigin origin)
    : attention_(
          AttentionTable::parse(file_named(files, "attention.yaml", place).content, "attention.yaml")) {
  std::string all = sha256_hex(file_named(files, "attention.yaml", place).content);
  const Provenance provenance = read_provenance(file_named(files, kProvenanceFile, place), place);
  for (const auto& [name, digest] : provenance.models) {
    const ModelFile& file = file_named(files, name, place);
    if (origin == ModelOrigin::folder && sha256_hex(file.content) != digest) {
      throw InputError(place + "/" + name, "other bytes than provenance.json lists",
                       "the files as `orrery fit` wrote them; fit again");
    }
    all += name + digest;
    XgboostModel model = XgboostModel::load(file.content, name);
    ModelCard card = read_card(model, name);
    models_.push_back(Fitted{std::move(card), std::move(model)});
  }
  digest_ = sha256_hex(all);
  unseen_errors_ = provenance.unseen_errors;
}

void ModelSet::complete_with(ModelSet&& other) {
  const std::size_t own = models_.size();
  for (const Fitted& mine : models_) {
    own_.held.push_back(in_words(mine.card));
    (is_of_exchange(mine.card.kind) ? own_.exchange : own_.compute) = true;
  }
  const auto covered = [&](const ModelCard& card) {
    return std::any_of(
        models_.begin(), models_.begin() + static_cast<std::ptrdiff_t>(own), [&](const Fitted& mine) {
          const bool every_gpu = std::all_of(card.gpus.begin(), card.gpus.end(),
                                             [&](const std::string& gpu) { return mine.card.measured(gpu); });
          return mine.card.kind == card.kind && every_gpu;
        });
  };
  for (auto& theirs : other.models_) {
    // After the own ones, which therefore win for a GPU that both know.
    if (!covered(theirs.card)) models_.push_back(std::move(theirs));
  }
  if (models_.size() > own) digest_ = sha256_hex(digest_ + other.digest_);
  unseen_errors_.merge(other.unseen_errors_);
}

// The first model of the kind whose card satisfies `knows`; else the one that was measured on most GPUs or
// systems.
template <class Knows>
std::size_t ModelSet::best(ModelKind kind, const Knows& knows) const {
  std::optional<std::size_t> widest;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const ModelCard& card = models_[i].card;
    if (card.kind != kind) continue;
    if (knows(card)) return i;
    if (!widest || card.gpus.size() > models_[*widest].card.gpus.size()) widest = i;
  }
  ORRERY_ENSURE(widest);
  return *widest;
}

std::size_t ModelSet::best_for(ModelKind kind, const GpuSpec& gpu) const {
  return best(kind, [&](const ModelCard& card) { return measured_chip(card, gpu); });
}

std::size_t ModelSet::best_for(ModelKind kind, const Collective& op) const {
  const MeasuredLinks links = links_of(op);
  return best(kind, [&](const ModelCard& card) {
    return card.has_configuration(links.configuration) && card.speaks_of(links);
  });
}

std::size_t ModelSet::best_for(const PointToPoint& op) const {
  const MeasuredLinks links = links_of(op);
  return best(ModelKind::transfer, [&](const ModelCard& card) { return card.speaks_of(links); });
}

std::vector<Prediction> ModelSet::predict(std::span<const GpuSpec> gpus,
                                          std::span<const OperatorQuery> queries) const {
  for (const auto& query : queries) {
    ORRERY_ENSURE(query.gpu >= 0 && static_cast<std::size_t>(query.gpu) < gpus.size());
  }
  std::vector<Prediction> answers(queries.size());
  predict_gemms(gpus, queries, answers);
  predict_attention(gpus, queries, answers);
  predict_kernels(gpus, queries, answers);
  predict_collectives(gpus, queries, answers);
  predict_transfers(gpus, queries, answers);
  return answers;
}

// The model of this GPU; else of a GPU with the same chip (A100 40 and 80 GB, H100 and H200), else the one
// for any GPU.
ModelSet::GemmChoice ModelSet::gemm_model(const GpuSpec& gpu, DataType computed) const {
  if (computed == DataType::fp32) {
    const std::size_t model = best_for(ModelKind::gemm_fp32, gpu);
    return {model, models_[model].card.measured(gpu.name)};
  }
  std::optional<std::size_t> same_chip;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const ModelCard& card = models_[i].card;
    if (card.kind != ModelKind::gemm) continue;
    if (card.measured(gpu.name)) return {i, true};
    if (measured_chip(card, gpu)) same_chip = i;
  }
  const std::size_t any = best_for(ModelKind::gemm_any, gpu);
  return {same_chip.value_or(any), !same_chip && models_[any].card.measured(gpu.name)};
}

bool ModelSet::measured_gpu(const GpuSpec& gpu) const {
  return std::any_of(models_.begin(), models_.end(), [&](const Fitted& fitted) {
    return fitted.card.kind == ModelKind::gemm && measured_chip(fitted.card, gpu);
  });
}

std::optional<UnseenGpuError> ModelSet::unseen_error(const GpuSpec& gpu, DataType type) const {
  const auto computed = matrix_peak(gpu, type);
  if (!computed) return std::nullopt;
  const ModelCard& card = models_[gemm_model(gpu, computed->type).model].card;
  const auto error = unseen_errors_.find(card.kind);
  if (error == unseen_errors_.end() || card.measured(gpu.name) || measured_chip(card, gpu))
    return std::nullopt;
  return error->second;
}

bool ModelSet::measured_gradients(const GpuSpec& gpu, DataType type) const {
  const auto computed = matrix_peak(gpu, type);
  if (!computed) return false;
  const ModelCard& card = models_[gemm_model(gpu, computed->type).model].card;
  return card.has_configuration(kGradients) && measured_chip(card, gpu);
}

struct ModelSet::GemmBatch {
  explicit GemmBatch(std::size_t columns) : features(columns) {}
  struct Row {
    std::size_t query;
    Seconds reference;
    double pass;  // factor of the gradient on the reference
    bool extrapolated, own;
  };
  FeatureMatrix features;
  std::vector<Row> rows;
};

void ModelSet::predict_gemms(std::span<const GpuSpec> gpus, std::span<const OperatorQuery> queries,
                             std::vector<Prediction>& answers) const {
  std::vector<GemmBatch> batches;
  for (const auto& fitted : models_) batches.emplace_back(fitted.model.features());
  // The choice depends on the GPU and the kind of arithmetic only, and searching the catalog for it costs.
  struct Choice : GemmChoice {
    GpuSpec gpu;
  };
  std::vector<std::optional<Choice>> choices(2 * gpus.size());
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto* gemm = std::get_if<Gemm>(&queries[i].op);
    if (gemm == nullptr) continue;
    const GpuSpec& asked_gpu = gpus[static_cast<std::size_t>(queries[i].gpu)];
    const auto real = matrix_peak(asked_gpu, gemm->type);
    ORRERY_ENSURE(real);
    const bool fp32 = real->type == DataType::fp32;
    auto& choice = choices[2 * static_cast<std::size_t>(queries[i].gpu) + (fp32 ? 1 : 0)];
    if (!choice) {
      const GemmChoice model = gemm_model(asked_gpu, real->type);
      choice = Choice{model, as_taught(asked_gpu, models_[model.model].card)};
    }
    const GpuSpec& gpu = choice->gpu;
    const ModelCard& card = models_[choice->model].card;
    // 8 and 4 bits that were not measured take the 16-bit model's efficiency, as far below it as the GPU's
    // shares say.
    const bool known = card.has_configuration(std::string(to_text(real->type)));
    const bool scaled = (real->type == DataType::fp8 || real->type == DataType::fp4) && !known;
    const double share = real->type == DataType::fp4 ? gpu.fp4_share : gpu.fp8_share;
    const auto learned = scaled ? matrix_peak(gpu, DataType::bf16) : real;
    const auto [asked, inside] = question(*gemm, learned->type, card);
    const auto timed = card.framework ? TimedAs::framework : TimedAs::kernel;
    const auto kind = card.kind == ModelKind::gemm ? GemmModelKind::one_gpu : GemmModelKind::any_gpu;
    GemmBatch& batch = batches[choice->model];
    batch.features.add(gemm_features(asked, gpu, learned->speed, timed, kind));
    const bool sixteen_bit = gemm->type == DataType::fp16 || gemm->type == DataType::bf16;
    batch.rows.push_back({i, roofline(*gemm, gpu, real->speed) * (scaled ? 1 / share : 1.0),
                          card.passes.of(gemm->pass),
                          !choice->measured || !inside || !(sixteen_bit || fp32 || known),
                          inside && is_own(choice->model) && measured_chip(card, gpu)});
  }
  for (std::size_t model = 0; model < models_.size(); ++model) {
    const auto efficiencies = models_[model].model.predict(batches[model].features);
    for (std::size_t i = 0; i < efficiencies.size(); ++i) {
      const auto& row = batches[model].rows[i];
      const double factor =
          time_over_reference(efficiencies[i], row.pass, models_[model].card.efficiency_cap);
      const auto& query = queries[row.query];
      const Seconds least = least_time(std::get<Gemm>(query.op), gpus[static_cast<std::size_t>(query.gpu)]);
      answers[row.query] = {std::max(row.reference * factor, least), row.extrapolated, row.own};
    }
  }
}

// The first model that measured this kernel and pass on this chip; a GPU that none measured keeps the bars.
std::optional<std::size_t> ModelSet::attention_model(Attention op, const GpuSpec& gpu) const {
  op.kernel = attention_.kernel_on(op, gpu);
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const ModelCard& card = models_[i].card;
    if (card.kind == ModelKind::attention && card.has_configuration(configuration_name(op)) &&
        measured_chip(card, gpu)) {
      return i;
    }
  }
  return std::nullopt;
}

void ModelSet::predict_attention(std::span<const GpuSpec> gpus, std::span<const OperatorQuery> queries,
                                 std::vector<Prediction>& answers) const {
  std::vector<FeatureMatrix> rows;
  for (const auto& fitted : models_) rows.emplace_back(fitted.model.features());
  std::vector<std::vector<std::size_t>> asked(models_.size());
  const auto ask = [&](std::size_t query) {
    Attention op = std::get<Attention>(queries[query].op);
    const GpuSpec& gpu = gpus[static_cast<std::size_t>(queries[query].gpu)];
    const auto model = attention_model(op, gpu);
    // A fitted model is relative to the bars of 2024, whatever kernel it measured.
    if (model && is_best_fused(op.kernel)) op.kernel = AttentionKernel::flash;
    const auto [time, measured] = attention_time(attention_, op, gpu);
    answers[query] = {std::max(time, least_time(op, gpu)), !measured};
    if (model) {
      rows[*model].add(attention_features(op, gpu));
      asked[*model].push_back(query);
    }
  };
  for (std::size_t i = 0; i < queries.size(); ++i) {
    if (std::holds_alternative<Attention>(queries[i].op)) ask(i);
  }
  for (std::size_t model = 0; model < models_.size(); ++model) {
    const auto over_bars = models_[model].model.predict(rows[model]);
    for (std::size_t i = 0; i < over_bars.size(); ++i) {
      const auto& query = queries[asked[model][i]];
      const double factor = time_over_reference(over_bars[i], 1, models_[model].card.efficiency_cap);
      Prediction& answer = answers[asked[model][i]];
      const Seconds least =
          least_time(std::get<Attention>(query.op), gpus[static_cast<std::size_t>(query.gpu)]);
      answer = {std::max(answer.time * factor, least), false, is_own(model)};
    }
  }
}

}  // namespace orrery
