// What a fitted model says about itself; kept as attributes inside the model file.
#pragma once

#include <string>
#include <vector>

#include "costmodels/models/kernel_law.hpp"
#include "costmodels/models/kernel_pace.hpp"
#include "costmodels/models/xgboost_model.hpp"
#include "costmodels/operators/operator.hpp"
#include "traces/gemm_pass.hpp"

namespace orrery {

// `kernel`: memory-bound kernels timed alone; `training_kernel`: those of a training framework, timed through
// it. `collective`: in a node; `network`: over several nodes.
enum class ModelKind {
  gemm,
  gemm_any,
  gemm_fp32,
  attention,
  kernel,
  training_kernel,
  collective,
  network,
  transfer
};
std::string_view to_text(ModelKind);

// Where collectives or transfers were measured: `configuration` of one on links of these GB/s, inside a node
// of one GPU and between nodes of one rank; 0: it crosses none.
struct MeasuredLinks {
  std::string configuration;
  double inside = 0, between = 0;
  bool operator==(const MeasuredLinks&) const = default;
};
MeasuredLinks links_of(const Collective&);
MeasuredLinks links_of(const PointToPoint&);

// A configuration of GEMM models that were taught gradients.
inline constexpr const char* kGradients = "gradients";

// Gradient GEMMs over what the forward model says of their shapes (costmodels/fit/pass_factors.hpp). The
// defaults are what `orrery fit` found in sailor's and Aceso's profiles.
struct PassFactors {
  double input_gradient = 0.98, weight_gradient = 0.77;
  bool operator==(const PassFactors&) const = default;

  [[nodiscard]] double of(GemmPass) const;
};

struct ModelCard {
  ModelKind kind = ModelKind::gemm;
  std::vector<std::string> gpus{};   // catalog names measured; of a collective model: the systems
  std::int64_t m = 0, n = 0, k = 0;  // GEMM: largest extents measured
  double efficiency_cap = 1;  // the best share of the reference that was measured; no answer is above it
  bool framework = false;     // GEMM: most rows were timed through a framework
  std::vector<std::string>
      configurations{};  // GEMM: data types, kGradients; kernel, attention: names of what was measured, "norm
                         // backward"; collective: "ring:8:8", algorithm:ranks:per node
  std::vector<MeasuredLinks> links{};  // collective, network, transfer; empty: not recorded, the many
                                       // machines of the built-in models
  KernelPaces paces{};                 // training_kernel: what the efficiencies are relative to
  KernelLaw law{};                     // kernel: likewise
  PassFactors passes{};                // GEMM: likewise, of gradients
  bool operator==(const ModelCard&) const = default;

  [[nodiscard]] bool measured(const std::string& gpu) const;
  [[nodiscard]] bool has_configuration(const std::string& name) const;
  // Whether it was measured on links like these, of a bandwidth within 10 %, or on links that it does not
  // say.
  [[nodiscard]] bool speaks_of(const MeasuredLinks&) const;
};

// Whether a GPU of the card has this GPU's chip: the same architecture and multiprocessors and no higher a
// peak than its clock explains, whatever its memory (A100 with 40 and 80 GB, H100 and H200).
bool measured_chip(const ModelCard&, const GpuSpec&);

std::string configuration_name(const Collective&);
std::string configuration_name(const Attention&);
std::string configuration_name(MemoryKernel, Direction);

void write_card(const ModelCard&, XgboostModel&);
// Throws InputError{name, ...} when an attribute is missing or broken, or the features do not fit the kind.
ModelCard read_card(const XgboostModel&, const std::string& name);

}  // namespace orrery
