#include "sim/measured/measured_attention.hpp"

#include <charconv>
#include <optional>
#include <string>

#include "costmodels/stacks/stack_file.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_dates.hpp"
#include "sim/measured/measured_names.hpp"
#include "sim/measured/measured_words.hpp"

namespace orrery {
namespace {

// N of "PyTorch 2.N", "torch 2.N".
std::optional<int> minor_of_pytorch_2(const std::string& framework) {
  constexpr std::string_view kName = "torch 2.";
  const std::string low = lower_case(framework);
  const std::size_t name = low.find(kName);
  if (name == std::string::npos) return std::nullopt;
  int minor = 0;
  const char* digits = low.data() + name + kName.size();
  if (std::from_chars(digits, low.data() + low.size(), minor).ec != std::errc{}) return std::nullopt;
  return minor;
}

// "FlashAttention-2", "flash_attn==2.5.8", "FA2".
bool names_version(const std::vector<Clause>& clauses, const std::string& version) {
  for (const char* name : {"*flashattention", "*flashattn"}) {
    const std::string one = name + version;
    if (affirms(clauses, {one, one + ".*"})) return true;
  }
  return affirms(clauses, {"fa" + version});
}

enum class Named { nothing, first, masked, second, best };
Named named_attention(const MeasuredRun& run) {
  const std::vector<Clause> column = clauses_of(run.text("flash_attn"));
  const std::vector<Clause> clauses = clauses_of(run.text("flash_attn") + "; " + run.text("framework"));
  if (affirms(column, {"*mask*"})) return Named::masked;
  if (names_version(clauses, "1") || affirms(column, {"*memoryefficient*", "xformers"})) return Named::first;
  // Transformer Engine then calls the flash-attn package, whose second version NVIDIA's containers have.
  if (names_version(clauses, "2") || affirms(clauses, {"*attentionbackendflash"})) return Named::second;
  if (names_version(clauses, "3") || names_version(clauses, "4") || affirms(clauses, {"cudnn"}))
    return Named::best;
  // FlashAttention has a kernel in Triton of its first version alone.
  const bool triton = affirms(column, {"*triton*"}) && affirms(column, {"*flash*"});
  return triton ? Named::first : Named::nothing;
}

// arXiv 2307.08691, section 4.1: 1.7 to 3 times; as long as xFormers' and PyTorch's memory-efficient kernels
// (its figures 4 to 6).
constexpr double kFirstOverSecond = 2.3;
constexpr double kWithoutCausalHalf = 2.0;  // a mask that is given is not known to be causal

// What was measured as cuDNN 9.19 came with 9.17 (fitted/attention.yaml), in NVIDIA's containers of November
// 2025. Hopper's was faster than that of 2024 before. PyTorch's own packages, which torchtitan takes, have
// older ones. FlashAttention-2 came in July 2023, 1.7 to 3 times as fast as the first (arXiv 2307.08691,
// section 4.1): until then programs whose presets do not say more ran the first; of Megatron-LM's 2023, whose
// preset is the mean of both, the last quarter ran the second.
void use_attention_of_then(const MeasuredRun& run, SoftwareStack& stack) {
  constexpr double kFlashAttention2 = 2023.5, kSecondInMegatron = 2023.75, kFlashOf2026 = 2025.85;
  const double date = date_of_program(run);
  // Where the preset has none and the run says it had, flash2 is taken (price_book.cpp).
  const bool takes_second = stack.attention == AttentionKernel::flash ||
                            stack.attention == AttentionKernel::flash2 ||
                            stack.attention == AttentionKernel::unfused;
  if (date > 0 && date < kFlashAttention2 && takes_second && stack.attention_time == 1.0)
    stack.attention_time = kFirstOverSecond;
  if (date >= kSecondInMegatron && stack.attention_time == read_stack("megatron-lm-2023").attention_time)
    stack.attention_time = 1.0;
  if (run.text("framework").starts_with("torchtitan")) return;
  const bool named = minor_of_pytorch_2(run.text("framework")).has_value();
  if (named && stack.attention == AttentionKernel::flash2 && prefers_cudnn(run))
    stack.attention = AttentionKernel::flash_2026;
  const bool blackwell = architecture_of(run).starts_with("Blackwell");
  if (date >= kFlashOf2026 && stack.attention == AttentionKernel::flash)
    stack.attention = AttentionKernel::flash_2026;
  if (date > 0 && date < kFlashOf2026 && blackwell && stack.attention == AttentionKernel::flash_2026)
    stack.attention = AttentionKernel::flash;
}

// cuDNN's kernel takes masks too. NVIDIA's containers ask for it first on Hopper and Blackwell: one program's
// runs there (H100, GB200) are 22 to 65 % faster than with the memory-efficient kernel, those under PyTorch's
// own packages (jeanzay-fsdp2) and on A100 are not; read after these errors had been seen.
bool masks_by_cudnn(const MeasuredRun& run) {
  const std::string_view architecture = architecture_of(run);
  return (architecture == "Hopper" || architecture.starts_with("Blackwell")) &&
         affirms(framework_and_note(run), {"ngc", "*containernemo*", "*nemocontainer*", "*nvidiacontainer*"});
}

}  // namespace

bool prefers_cudnn(const MeasuredRun& run) {
  constexpr int kMinor = 11;
  constexpr double kFlashOf2026 = 2026;
  if (const auto minor = minor_of_pytorch_2(run.text("framework"))) return *minor >= kMinor;
  return date_of_program(run) >= kFlashOf2026;
}

void use_attention_of_run(const MeasuredRun& run, SoftwareStack& stack) {
  const Named named = named_attention(run);
  const bool by_cudnn = named == Named::masked && masks_by_cudnn(run);
  // FlashAttention-3 and 4 are taken for cuDNN of their year.
  const bool best = named == Named::best || by_cudnn;
  if (best && !is_best_fused(stack.attention)) stack.attention = AttentionKernel::flash;
  use_attention_of_then(run, stack);
  if (by_cudnn) stack.attention_time = kWithoutCausalHalf;
  if (named == Named::nothing || best) return;
  stack.attention = AttentionKernel::flash2;
  stack.attention_time = named == Named::second ? 1.0 : kFirstOverSecond;
  // PyTorch's scaled_dot_product_attention takes no other kernel elsewhere where it is given a mask.
  if (named == Named::masked) stack.attention_time *= kWithoutCausalHalf;
}

}  // namespace orrery
