#include "costmodels/fit.hpp"

#include <filesystem>
#include <fstream>
#include <utility>

#include "costmodels/cross_validation.hpp"
#include "costmodels/model_set.hpp"
#include "costmodels/sha256.hpp"
#include "costmodels/training_set.hpp"
#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"

namespace orrery {

namespace {

namespace fs = std::filesystem;

template <class Row>
void append(std::vector<Row>& all, std::vector<Row>&& more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

Profiles read_all(const std::vector<std::string>& folders, FitReport& report) {
  Profiles all;
  for (const auto& folder : folders) {
    Profiles one = read_profiles(folder);
    for (const auto& file : one.files) {
      report.inputs.push_back({.file = file.name,
                               .sha256 = sha256_hex(read_text_file((fs::path(folder) / file.name).string())),
                               .rows = file.rows,
                               .used = file.used,
                               .skipped = file.skipped});
    }
    append(all.gemms, std::move(one.gemms));
    append(all.kernels, std::move(one.kernels));
    append(all.collectives, std::move(one.collectives));
  }
  return all;
}

// Under another name first, so that a run that ends early leaves no half-written file.
void write_file(const fs::path& path, const std::string& content) {
  fs::path unfinished = path;
  unfinished += ".part";
  std::ofstream stream(unfinished, std::ios::binary);
  stream.write(content.data(), static_cast<std::streamsize>(content.size()));
  stream.close();
  std::error_code error;
  if (stream) fs::rename(unfinished, path, error);
  if (!stream || error)
    throw InputError(path.string(), "a file that cannot be written", "a folder with room and permission");
}

void fit_one(const TrainingSet& set, const Profiles& profiles, const fs::path& folder, FitReport& report) {
  XgboostModel model = XgboostModel::train(set.features, set.targets, set.weights, set.options);
  write_card(set.card, model);
  const std::string bytes = model.save();
  const std::string file = set.name + ".ubj";
  write_file(folder / file, bytes);
  report.models.push_back({.file = file,
                           .kind = std::string(to_text(set.card.kind)),
                           .sha256 = sha256_hex(bytes),
                           .gpus = set.card.gpus,
                           .rows = static_cast<std::int64_t>(set.targets.size()),
                           .features = set.features.columns(),
                           .trees = set.options.trees,
                           .leaves = set.options.leaves,
                           .learning_rate = set.options.learning_rate});
  append(report.errors, cross_validate(set));
  if (auto backward = backward_error(profiles, set, model)) report.errors.push_back(std::move(*backward));
}

}  // namespace

FitReport fit(const FitOptions& options) {
  FitReport report{.xgboost = xgboost_version(), .seed = options.seed};
  const Profiles profiles = read_all(options.profiles, report);
  auto [sets, left_out] = training_sets(profiles, options.seed);
  report.left_out = std::move(left_out);
  std::error_code error;
  fs::create_directories(options.output, error);
  if (error) throw InputError(options.output, error.message(), "a folder that can be created");
  for (const auto& set : sets) fit_one(set, profiles, options.output, report);
  write_file(fs::path(options.output) / kProvenanceFile, to_json(report));
  return report;
}

}  // namespace orrery
