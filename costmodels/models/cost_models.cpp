#include "costmodels/models/cost_models.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "costmodels/models/model_set.hpp"
#include "costmodels/models/sha256.hpp"
#include "platforms/embedded.hpp"
#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"

extern "C" const orrery::EmbeddedRow orrery_embedded_costmodels[];

namespace orrery {

struct CostModels::Impl {
  ModelSet set;
};

CostModels::CostModels(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CostModels::CostModels(CostModels&&) noexcept = default;
CostModels& CostModels::operator=(CostModels&&) noexcept = default;
CostModels::~CostModels() = default;

namespace {

constexpr std::string_view kAttentionFile = "attention.yaml";

std::vector<ModelFile> embedded_models() {
  std::vector<ModelFile> files;
  for (const auto& file : embedded_files(orrery_embedded_costmodels)) {
    if (!file.name.starts_with("fitted/")) continue;
    files.push_back({std::filesystem::path(file.name).filename().string(), std::string(file.content)});
  }
  return files;
}

}  // namespace

CostModels CostModels::built_in() {
  return CostModels(
      std::make_unique<Impl>(Impl{ModelSet(embedded_models(), "built-in models", ModelOrigin::program)}));
}

CostModels CostModels::from_folder(const std::string& folder) {
  std::error_code error;
  std::vector<ModelFile> files;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".ubj") || name == kAttentionFile || name == kProvenanceFile) {
      files.push_back({name, read_text_file(it->path().string())});
    }
  }
  if (error) throw InputError(folder, "no readable folder", "a folder that `orrery fit` wrote");
  // Attention is not fitted: a folder without a table of its own uses the one that comes with Orrery.
  const auto is_attention = [](const ModelFile& file) { return file.name == kAttentionFile; };
  if (std::none_of(files.begin(), files.end(), is_attention)) {
    auto own = embedded_models();
    files.push_back(std::move(*std::find_if(own.begin(), own.end(), is_attention)));
  }
  std::sort(files.begin(), files.end(),
            [](const ModelFile& a, const ModelFile& b) { return a.name < b.name; });
  ModelSet set(files, folder, ModelOrigin::folder);
  set.complete_with(ModelSet(embedded_models(), "built-in models", ModelOrigin::program));
  return CostModels(std::make_unique<Impl>(Impl{std::move(set)}));
}

std::vector<Prediction> CostModels::predict(std::span<const GpuSpec> gpus,
                                            std::span<const OperatorQuery> queries) const {
  return impl_->set.predict(gpus, queries);
}

bool CostModels::measured(const GpuSpec& gpu) const {
  return impl_->set.measured_gpu(gpu);
}

bool CostModels::measured_gradients(const GpuSpec& gpu, DataType type) const {
  return impl_->set.measured_gradients(gpu, type);
}

std::optional<UnseenGpuError> CostModels::unseen_error(const GpuSpec& gpu, DataType type) const {
  return impl_->set.unseen_error(gpu, type);
}

const OwnModels& CostModels::own() const {
  return impl_->set.own();
}

void OwnAnswers::add(const OwnModels& own, const Operator& op, const Prediction& answer) {
  const bool is_exchange = std::holds_alternative<Collective>(op) || std::holds_alternative<PointToPoint>(op);
  if (is_exchange ? own.compute || !own.exchange : !own.compute) return;
  ++asked;
  answered += answer.own ? 1 : 0;
}

OwnAnswers& OwnAnswers::operator+=(const OwnAnswers& other) {
  asked += other.asked;
  answered += other.answered;
  return *this;
}

std::string CostModels::digest() const {
  return impl_->set.digest();
}

}  // namespace orrery
