#include "sim/measured/measured_trainers.hpp"

#include <regex>
#include <sstream>
#include <string>
#include <utility>

#include "costmodels/stacks/stack_file.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_attention.hpp"
#include "sim/measured/measured_dates.hpp"
#include "sim/measured/measured_words.hpp"

namespace orrery {
namespace {

bool is_trainer(const std::string& framework, double date) {
  const bool itself = framework.starts_with("hf ") ||
                      says_any(framework, {"hugging face", "huggingface", "transformers", "accelerate"});
  const bool since = says_any(framework, {"llama-factory", "llamafactory", "llama factory", "axolotl", "trl",
                                          "fastchat", "ms-swift"}) &&
                     !says(framework, "megatron");
  // Programs of one's own under DeepSpeed have PyTorch's kernels one by one too.
  constexpr double kOwnPrograms = 2023;
  const bool own = says(framework, "deepspeed") && date >= kOwnPrograms &&
                   !says_any(framework, {"megatron", "neox", "atorch", "torch.compile"});
  return since || own || (itself && date > 0);
}

// "bf16-mixed" of Lightning, "fp16 autocast", "AMP"; fp16 where nobody says "pure", whose steps in 16 bits
// would be lost (DeepSpeed has masters of its own).
bool is_autocast(const MeasuredRun& run) {
  const std::string precision = lower_case(run.text("precision"));
  if (says(lower_case(run.text("framework")), "nanogpt")) return true;  // karpathy/nanoGPT, train.py
  const bool half = precision == "fp16" && !says(lower_case(run.text("framework")), "deepspeed");
  return half || says_any(precision, {"mixed", "autocast", "amp"});
}

// "bf16-true" of Lightning, "pure bf16", "pure fp16"; elsewhere "parameters, gradients and AdamW states all
// bf16".
bool is_all_16_bits(const MeasuredRun& run) {
  if (says_any(lower_case(run.text("precision")), {"true", "pure"})) return true;
  static const std::regex kAll(
      R"((?:weights|parameters|params)\b.{0,40}\b(?:states|moments)(?: (?:are|is|all|also|both|in|kept))* (?:bf16|bfloat16)\b)"
      R"(|\bpure (?:bf16|bfloat16)\b|\bbf16-true\b)");
  constexpr std::size_t kLongest = 150;  // std::regex goes as deep as its text is long
  for (const char* cell : {"framework", "note"}) {
    std::istringstream text(lower_case(run.text(cell)));
    for (std::string part; std::getline(text, part, ';');)
      for (std::size_t at = 0; at < part.size(); at += kLongest / 2)
        if (std::regex_search(part.substr(at, kLongest), kAll)) return true;
  }
  return false;
}

// How a row says that its weights, gradients and optimizer are kept. The column goes before the name.
struct Keeping {
  bool optimizer = false, gradients = false, weights = false;  // sharded, the optimizer alone
  bool fsdp = false;                                           // by PyTorch, not DeepSpeed
  bool all_16_bits = false;                                    // shards too
  bool autocast = false;                                       // 16 bits are copies of fp32 weights

  [[nodiscard]] bool deepspeeds() const { return (gradients || weights) && !fsdp; }
};

Keeping keeping_of(const MeasuredRun& run, const std::string& framework) {
  const std::string column = lower_case(run.text("optimizer_sharding"));
  const auto sharding = said_sharding(column.empty() ? framework : column);
  return {.optimizer = sharding == Sharding::optimizer,
          .gradients = sharding == Sharding::gradients,
          .weights = sharding == Sharding::weights || sharding == Sharding::weights_in_node,
          .fsdp = affirms(clauses_of(column + "; " + framework), {"*fsdp*"}),
          .all_16_bits = is_all_16_bits(run),
          .autocast = is_autocast(run)};
}

const char* preset_of(const Keeping& keeping) {
  if (keeping.optimizer && !keeping.fsdp) return "hf-zero1";
  if (!keeping.gradients && !keeping.weights) return keeping.autocast ? "hf-autocast" : "hf-trainer";
  if (keeping.deepspeeds()) return keeping.weights ? "hf-zero3" : "hf-zero2";
  return keeping.all_16_bits ? "hf-fsdp-bf16-true" : "hf-fsdp";
}

void take_kernels(SoftwareStack& stack, const SoftwareStack& from) {
  stack.kernels = from.kernels;
  stack.llama_layers = from.llama_layers;
}

// Kernels of Liger, Transformer Engine or torch.compile in place of PyTorch's. The loss of unsloth, which
// foundation-model-stack has too, leaves its gradient in the place of fp32 logits, which were shifted into a
// copy (fast_cross_entropy_loss).
void set_kernels(SoftwareStack& stack, const std::string& framework) {
  const std::vector<Clause> clauses = clauses_of(framework);
  const bool liger = affirms(clauses, {"*liger*"});
  if (says_any(framework, {"unsloth", "fused kernels"})) {
    take_kernels(stack, read_stack("hf-liger"));
    stack.logit_peak = 8;
  }
  const bool matrices_alone = says_any(framework, {"te linear", "transformer engine linear"});
  if ((liger || says(framework, "transformer engine")) && !matrices_alone) {
    const SoftwareStack fused = read_stack("hf-liger");
    take_kernels(stack, fused);
    stack.cross_entropy = fused.cross_entropy;
    stack.logit_peak = fused.logit_peak;
  }
  if (is_compiled(framework)) {
    const SoftwareStack compiled = read_stack("torchtitan");
    take_kernels(stack, compiled);
    stack.elementwise = compiled.elementwise;
    stack.pads_vocabulary = compiled.pads_vocabulary;
  }
  stack.chunked_loss = liger;
}

// One kernel reads weight, gradient and two moments and writes all but the gradient.
void fuse_optimizer(SoftwareStack& stack, double bytes) {
  stack.optimizer->bytes_per_parameter = 7 * bytes;
  stack.optimizer_copy = 0;
}

}  // namespace

std::optional<SoftwareStack> trainer_stack(const MeasuredRun& run) {
  const std::string framework = lower_case(run.text("framework"));
  const double date = date_of_program(run);
  if (!is_trainer(framework, date)) return std::nullopt;
  const Keeping keeping = keeping_of(run, framework);
  SoftwareStack stack = read_stack(preset_of(keeping));
  if (keeping.all_16_bits && says(lower_case(run.text("precision")), "fp16")) stack.fp16_as_bf16 = true;
  if (keeping.gradients && keeping.fsdp) {
    keep_weights_whole(stack);
    if (!keeping.all_16_bits)
      stack.states = {.weight = 2, .optimizer = 12};  // the shard's own weight is in fp32
  }
  set_kernels(stack, framework);
  // SonicMoE's kernels gather rows themselves (arXiv 2512.14080).
  if (says(framework, "deepep") || affirms(framework_and_note(run), {"*sonicmoe*"}))
    stack.experts.eager_forward = stack.experts.eager_backward = stack.experts.indexed_biases = 0;
  // Attention that stores no scores is transformers' default since 4.36 of 11 December 2023.
  constexpr double kSdpa = 2024.1;
  if (date > 0 && date < kSdpa) stack.flash_attention = false;
  if (prefers_cudnn(run)) stack.attention = AttentionKernel::flash_2026;
  // Its checkpoints are not reentrant, and one kernel multiplies for all experts.
  constexpr double kTransformers5 = 2026;
  stack.stops_recomputation = date >= kTransformers5;
  const bool fetches_each = keeping.weights && keeping.deepspeeds();
  constexpr double kGuardedHooks = 2024.3;
  if (fetches_each && date > 0 && date < kGuardedHooks) stack.host = read_stack("hf-zero3-2023").host;
  if (date > 0 && date < kTransformers5)
    stack.experts = read_stack(fetches_each ? "hf-zero3-expert-loop" : "hf-expert-loop").experts;
  const bool shards = keeping.gradients || keeping.weights;
  if (affirms(framework_and_note(run), {"*fusedadam*"}) && !keeping.deepspeeds())
    fuse_optimizer(stack, (shards && !keeping.all_16_bits) || keeping.autocast ? 4 : 2);
  return stack;
}

bool runs_eager(std::string_view framework) {
  return says_any(framework,
                  {"eager", "without torch.compile", "no torch.compile", "not compiled", "uncompiled"});
}

bool is_compiled(std::string_view framework) {
  return says(framework, "torch.compile") && !runs_eager(framework);
}

bool is_of_pytorch(const SoftwareStack& stack) {
  return stack.family == read_stack("torchtitan").family;
}

void keep_weights_whole(SoftwareStack& stack) {
  stack.whole_weights = true;
  if (is_of_pytorch(stack) || stack.gathers_in_forward) stack.overlap_grad_reduce = true;  // as FSDP reduces
}

SoftwareStack in_16_bits(const MeasuredRun& run, SoftwareStack stack) {
  stack.states = {.weight = 2, .optimizer = 4};
  stack.fp16_as_bf16 = true;
  stack.gradient = 2;
  const std::string framework = lower_case(run.text("framework"));
  const bool library = framework.starts_with("torchtitan") || framework.starts_with("kempnerforge");
  if (!library) stack.reduced_gradient = 2;
  fuse_optimizer(stack, 2);
  // PyTorch's AdamW is not fused unless told: kernels over lists of tensors need room for one more of each.
  const std::string words = framework + "; " + lower_case(run.text("note"));
  const bool lists = !library && !says_any(words, {"fused adam", "jax", "maxtext"});
  if (lists) stack.optimizer_copy = 2;
  return stack;
}

SoftwareStack in_said_bits(const MeasuredRun& run, SoftwareStack stack) {
  if (is_autocast(run) && (stack.name == "cs336" || stack.name == "pytorch-eager"))
    stack = read_stack(stack.name == "cs336" ? "cs336-autocast" : "pytorch-autocast");
  // torch.nn.RMSNorm is one kernel since PyTorch 2.9 (aten/src/ATen/native/cuda/layer_norm_kernel.cu).
  constexpr double kPyTorch29 = 2025.8;
  if (stack.name.starts_with("pytorch-") && stack.llama_layers && date_of_program(run) >= kPyTorch29 &&
      affirms(clauses_of(run.text("framework")), {"*nnrmsnorm*"})) {
    stack.llama_layers->norm_time = stack.kernels.norm_time.value_or(1.0);
    stack.llama_layers->kept_by_norm = 0;
  }
  if (is_of_pytorch(stack) && is_autocast(run) && stack.softmax == SoftmaxKernel::eager)
    stack.softmax = SoftmaxKernel::stepwise_wide;
  return is_of_pytorch(stack) && is_all_16_bits(run) ? in_16_bits(run, std::move(stack)) : stack;
}

bool may_be_in_16_bits(const MeasuredRun& run, const SoftwareStack& stack) {
  return is_of_pytorch(read_stack(stack.preset)) && said_type(run.text("precision")) == DataType::bf16 &&
         !is_autocast(run);
}

}  // namespace orrery
