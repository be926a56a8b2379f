// What the backward computes again in place of keeping it.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace orrery {

enum class RecomputeGranularity { none, selective, full };
enum class RecomputeMethod { uniform, block };
std::string_view to_text(RecomputeGranularity);
std::string_view to_text(RecomputeMethod);

// Parts of a layer that selective recomputation can repeat (Megatron-LM --recompute-modules,
// core/transformer/transformer_config.py): the attention core; norms that are kernels of their own, before
// latent attention and before experts; latent attention's projections up and rope; the dense MLP; of experts
// what activates, what every token visits, and all of them with their dispatch.
enum class RecomputeModule { core_attn, layernorm, mla_up_proj, mlp, moe_act, shared_experts, moe };
inline constexpr std::array kRecomputeModules{RecomputeModule::core_attn,   RecomputeModule::layernorm,
                                              RecomputeModule::mla_up_proj, RecomputeModule::mlp,
                                              RecomputeModule::moe_act,     RecomputeModule::shared_experts,
                                              RecomputeModule::moe};
std::string_view to_text(RecomputeModule);

// One value for each module.
template <class Value>
using OfModules = std::array<Value, kRecomputeModules.size()>;
constexpr std::size_t index_of(RecomputeModule module) {
  return static_cast<std::size_t>(module);
}

// A set of them; Megatron-LM's own where nothing is said.
class RecomputeModules {
 public:
  constexpr RecomputeModules() = default;
  constexpr RecomputeModules(std::initializer_list<RecomputeModule> modules) : bits_(0) {
    for (const RecomputeModule module : modules) add(module);
  }
  constexpr void add(RecomputeModule module) { bits_ |= bit(module); }
  [[nodiscard]] constexpr bool has(RecomputeModule module) const { return (bits_ & bit(module)) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  // Whether it is repeated for itself: experts as a whole take in what of them activates and is shared.
  [[nodiscard]] constexpr bool repeats(RecomputeModule module) const {
    const bool inside = module == RecomputeModule::moe_act || module == RecomputeModule::shared_experts;
    return has(module) && !(inside && has(RecomputeModule::moe));
  }
  [[nodiscard]] constexpr unsigned code() const { return bits_; }  // one number for each set
  auto operator<=>(const RecomputeModules&) const = default;

 private:
  static constexpr unsigned bit(RecomputeModule module) { return 1U << index_of(module); }
  unsigned bits_ = bit(RecomputeModule::core_attn);
};
class YamlValue;
RecomputeModules read_recompute_modules(const YamlValue&);  // a module or a list of them; throws InputError
std::string to_text(const RecomputeModules&);  // "core_attn moe_act", as on Megatron-LM's command line

struct Recompute {
  RecomputeGranularity granularity = RecomputeGranularity::none;
  RecomputeMethod method = RecomputeMethod::uniform;
  // full only. block: the first `layers` layers of each part are recomputed. uniform: all are, in groups of
  // `layers`.
  int layers = 1;
  RecomputeModules modules = {};  // selective only
  bool operator==(const Recompute&) const = default;

  // What decides how much of one layer is repeated.
  struct OfLayer {
    RecomputeGranularity granularity = RecomputeGranularity::none;
    RecomputeModules modules = {};
    auto operator<=>(const OfLayer&) const = default;
  };
  [[nodiscard]] constexpr OfLayer of_layer() const { return {granularity, modules}; }
};

}  // namespace orrery
