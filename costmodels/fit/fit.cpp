#include "costmodels/fit/fit.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "costmodels/fit/cross_validation.hpp"
#include "costmodels/fit/pass_factors.hpp"
#include "costmodels/fit/training_set.hpp"
#include "costmodels/models/model_set.hpp"
#include "costmodels/models/sha256.hpp"
#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"
#include "traces/measured_once.hpp"
#include "traces/output_file.hpp"

namespace orrery {

namespace {

namespace fs = std::filesystem;

template <class Row>
void append(std::vector<Row>& all, std::vector<Row>&& more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

void set_counts(FitInput& input, const ProfileFile& file) {
  input.rows = file.rows;
  input.used = file.used;
  input.skipped = file.skipped;
  input.first_line = file.first_line;
  input.first_found = file.first_found;
  input.gemms_not_read = file.gemms_not_read;
  input.doubts = file.doubts;
}

Profiles read_all(const FitOptions& options, FitReport& report) {
  Profiles all;
  all.own_gpus = options.own_gpus;
  MeasuredOnce known;
  for (const auto& folder : options.profiles) {
    Profiles one = read_profiles(folder, known, options.invented, options.own_gpus);
    for (const auto& file : one.files) {
      const std::string path = (fs::path(folder) / file.name).string();
      report.inputs.push_back({.file = file.name, .sha256 = sha256_hex(read_text_file(path)), .path = path});
      set_counts(report.inputs.back(), file);
    }
    append(all, std::move(one));
  }
  report.not_read = all.not_read;
  return all;
}

struct Trained {
  const TrainingSet* set;
  ModelCard card;
  XgboostModel model;
};

bool is_gemm(const Trained& one) {
  return one.card.kind == ModelKind::gemm || one.card.kind == ModelKind::gemm_any;
}

// Gradients that were timed beside their forward GEMM, as the model of their own GPU says, else that for any
// GPU.
std::vector<GradientPair> all_pairs(const Profiles& profiles, const std::vector<Trained>& trained) {
  std::vector<GradientPair> pairs;
  std::set<std::string> done;
  for (const auto& one : trained) {  // the models of one chip come before gemm-any
    if (!is_gemm(one)) continue;
    std::vector<std::string> gpus;
    for (const auto& gpu : one.card.gpus) {
      if (done.insert(gpu).second) gpus.push_back(gpu);
    }
    const auto kind = one.card.kind == ModelKind::gemm ? GemmModelKind::one_gpu : GemmModelKind::any_gpu;
    append(pairs, gradient_pairs(profiles, gpus, kind, one.model));
  }
  return pairs;
}

// What forward GEMMs cannot teach about gradients; models that saw gradients need none of it.
void set_passes(const Profiles& profiles, std::vector<Trained>& trained, FitReport& report) {
  const auto pairs = all_pairs(profiles, trained);
  const PassFactors factors = fit_pass_factors(pairs).value_or(PassFactors{});
  for (auto& one : trained) {
    if (is_gemm(one) && !one.card.has_configuration(kGradients)) one.card.passes = factors;
  }
  report.passes = factors;
  append(report.errors, pass_errors(pairs));
}

void write_model(Trained& one, const fs::path& folder, FitReport& report) {
  const TrainingSet& set = *one.set;
  write_card(one.card, one.model);
  const std::string bytes = one.model.save();
  const std::string file = set.name + ".ubj";
  write_file((folder / file).string(), bytes);
  report.models.push_back({.file = file,
                           .kind = std::string(to_text(set.card.kind)),
                           .sha256 = sha256_hex(bytes),
                           .gpus = set.card.gpus,
                           .rows = static_cast<std::int64_t>(set.targets.size()),
                           .features = set.features.columns(),
                           .trees = set.options.trees,
                           .leaves = set.options.leaves,
                           .learning_rate = set.options.learning_rate,
                           .row_share = set.options.row_share,
                           .column_share = set.options.column_share});
}

// File name and digest of each model that a provenance.json lists; nothing where it is not one.
std::vector<std::pair<std::string, std::string>> models_of_provenance(const std::string& content) {
  std::vector<std::pair<std::string, std::string>> models;
  const auto json = nlohmann::json::parse(content, nullptr, false);
  if (!json.is_object() || !json.contains("models") || !json["models"].is_array()) return models;
  for (const auto& model : json["models"]) {
    if (model.is_object() && model.value("file", nlohmann::json()).is_string() &&
        model.value("sha256", nlohmann::json()).is_string())
      models.emplace_back(model["file"].get<std::string>(), model["sha256"].get<std::string>());
  }
  return models;
}

// A folder of an earlier fit loses the models that this one did not make: they would lie beside a
// provenance.json that does not know them. Files that no fit wrote stay.
void remove_models_of_earlier_fit(const fs::path& folder, const FitReport& report) {
  const fs::path provenance = folder / kProvenanceFile;
  std::error_code error;
  if (!fs::is_regular_file(provenance, error)) return;
  for (const auto& listed : models_of_provenance(read_text_file(provenance.string()))) {
    const std::string &name = listed.first, &digest = listed.second;
    const fs::path file = folder / name;
    const auto made_now = [&](const FittedModel& model) { return model.file == name; };
    if (std::any_of(report.models.begin(), report.models.end(), made_now)) continue;
    if (fs::path(name).filename() != name || !name.ends_with(".ubj") || !fs::is_regular_file(file, error))
      continue;
    if (sha256_hex(read_text_file(file.string())) == digest) fs::remove(file, error);
  }
}

// Says why, if no row of any table could be used.
void require_some_row(const std::vector<FitInput>& inputs) {
  std::string reasons;
  for (const FitInput& input : inputs) {
    if (input.used > 0) return;
    for (const auto& [reason, rows] : input.skipped)
      reasons +=
          "; " + std::to_string(rows) + " of " + input.path + ": " + reason + first_line(input, reason);
  }
  if (!reasons.empty())
    throw InputError(
        "profiles", "no usable row" + reasons,
        "measured operators of GPUs that the catalog has, or a cluster file describes (--cluster)");
}

}  // namespace

FitReport fit(const FitOptions& options) {
  FitReport report{.xgboost = xgboost_version(), .seed = options.seed};
  const Profiles profiles = read_all(options, report);
  require_some_row(report.inputs);
  const AttentionTable bars = AttentionTable::published();
  auto [sets, files, left_out] = training_sets(profiles, bars, options.seed);
  report.left_out = std::move(left_out);
  for (std::size_t i = 0; i < files.size(); ++i) set_counts(report.inputs[i], files[i]);
  std::error_code error;
  fs::create_directories(options.output, error);
  if (error) throw InputError(options.output, error.message(), "a folder that can be created");
  std::vector<Trained> trained;
  for (const auto& set : sets) {
    trained.push_back({&set, set.card, train(set)});
    append(report.errors, cross_validate(set));
  }
  TaughtFiles counted_already(profiles.files);
  append(report.errors, reference_errors(attention_set(profiles, bars, counted_already), "bars"));
  set_passes(profiles, trained, report);
  for (auto& one : trained) write_model(one, options.output, report);
  remove_models_of_earlier_fit(options.output, report);
  write_file((fs::path(options.output) / kProvenanceFile).string(), to_json(report));
  return report;
}

}  // namespace orrery
