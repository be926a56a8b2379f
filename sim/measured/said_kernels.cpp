#include "sim/measured/said_kernels.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "costmodels/stacks/stack_file.hpp"
#include "sim/measured/bridge_recipes.hpp"
#include "sim/measured/cell_text.hpp"
#include "sim/measured/cell_words.hpp"
#include "sim/measured/measured_words.hpp"

namespace orrery {
namespace {

// The host of a layer of experts, no longer than that of a known one.
void wait_no_longer(const ExpertHost& known, SoftwareStack& stack) {
  ExpertHost& own = stack.experts.layer;
  own.forward = std::min(own.forward, known.forward);
  own.backward = std::min(own.backward, known.backward);
}

// This and the next three: of Megatron's programs alone. Libraries of Megatron-Core's flex dispatcher, which
// send a token to a node, or GPU, once. Of PyTorch's own programs nobody measured what they leave of that.
void use_said_dispatch(const std::string& framework, SoftwareStack& stack) {
  const std::string low = lower_case(framework);
  const std::vector<Clause> clauses = clauses_of(framework);
  if (affirms(clauses, {"*allgatherdispatcher*", "*dispatchertypeallgather*"}))
    stack.experts.gathered_sums = affirms(clauses, {"*fp32router*", "*routerdtypefp32*"}) ? 4 : 2;
  if (!says(low, "deepep") && !says(low, "hybridep")) return;
  const ExpertCost library = read_stack("megatron-bridge").experts;
  stack.experts.deduplicated = library.deduplicated;
  stack.experts.dispatch = library.dispatch;
  // They sort and bring rows in one kernel. What a library's recipes take with them was fitted for itself.
  if (says(low, "bridge")) return;
  wait_no_longer(read_stack("megatron-bridge-eager").experts.layer, stack);
}

// Whether the exchange with experts runs under another microbatch of Megatron-Core
// (overlap_moe_expert_parallel_comm), which keeps the host longer.
void use_said_overlap(const std::string& framework, SoftwareStack& stack) {
  const Said overlap =
      said(clauses_of(framework),
           {"*expertcommunicationoverlap*", "*epcommunicationoverlap*", "epoverlap", "*alltoalloverlap*"});
  if (overlap == Said::nothing) return;
  const ExpertCost known = read_stack("megatron-bridge-overlap").experts;
  stack.experts.overlap = overlap == Said::yes ? known.overlap : 0;
  if (overlap == Said::no) return;
  stack.experts.layer.forward = std::max(stack.experts.layer.forward, known.layer.forward);
  stack.experts.layer.backward = std::max(stack.experts.layer.backward, known.layer.backward);
}

// What CUDA graphs hold of Megatron-Core's layers with experts, where a row says it beside its program: all
// of an iteration; attention, routing and what prepares the dispatch (cuda_graph_scope); or nothing.
void use_said_graphs(const MeasuredRun& run, SoftwareStack& stack) {
  const SaidGraphs graphs = said_graphs(run);
  if (graphs == SaidGraphs::nothing) return;
  const bool none = graphs == SaidGraphs::none;
  const SoftwareStack known = read_stack(none                          ? "megatron-bridge-eager"
                                         : graphs == SaidGraphs::parts ? "megatron-bridge"
                                                                       : "megatron-bridge-26.06");
  stack.cuda_graphs = known.cuda_graphs;
  stack.experts.each = known.experts.each;
  // Whose recipes are not NVIDIA's wait longer than its own without graphs.
  if (!none) stack.experts.layer = known.experts.layer;
}

// What the host of experts waits for under Megatron: nothing is left of Python's garbage collection where it
// is said to be done by hand (--manual-gc), as NVIDIA's recipes have it, and nothing at all where the kernels
// take the routing on the GPU ("sync-free"), as where tokens are dropped.
void use_said_waits(const MeasuredRun& run, SoftwareStack& stack) {
  const std::vector<Clause> words = framework_and_note(run);
  const bool by_hand = affirms(words, {"manualgc*", "*manualgarbagecollection*"});
  const bool never = affirms(words, {"syncfree*"});
  if (!by_hand && !never) return;
  wait_no_longer(read_stack(never ? "megatron-core-token-drop" : "megatron-core").experts.layer, stack);
}

// What Megatron-LM joins unless told not to (--no-gradient-accumulation-fusion,
// --no-async-tensor-model-parallel-allreduce, --no-masked-softmax-fusion, --no-bias-gelu-fusion and
// --no-bias-dropout-fusion of megatron/training/arguments.py). DeepSpeed's examples of it join none of it.
void use_said_fusions(const MeasuredRun& run, SoftwareStack& stack) {
  if (stack.preset.starts_with("megatron-v")) return;
  const std::vector<Clause> words = framework_and_note(run);
  const auto denied = [&](std::initializer_list<std::string_view> spellings) {
    return said(words, spellings) == Said::no;
  };
  if (denied({"gradientaccumulationfusion", "gradaccumulationfusion"})) stack.separate_accumulation = true;
  if (denied({"asynctensor*", "asynchronoustensor*"})) stack.async_tensor_gradients = false;
  if (denied({"maskedsoftmaxfusion"}) && stack.softmax == SoftmaxKernel::fused)
    stack.softmax = SoftmaxKernel::eager;
  constexpr EagerGelu kBiasApart{.forward = 4 + 4, .backward = 6};  // added, then activated
  if (denied({"biasgelufusion"}) && !stack.kernels.gelu) stack.kernels.gelu = kBiasApart;
  if (denied({"biasdropoutfusion"})) {
    // Of an element of the residual stream, forward 4 B of a bias, 5 of dropout and 6 of a sum where one
    // kernel moves 7, backward 5 and 2 in either.
    constexpr double kApart = (4.0 + 5 + 6 + 7) / (7 + 7);
    LayerKernels& kernels = stack.kernels;
    kernels.residual_time = kApart * kernels.residual_time.value_or(kernels.elementwise_time);
  }
}

// minGPT has GELU by its formula, as GPT-2 of Hugging Face's (karpathy/minGPT, NewGELU of mingpt/model.py);
// autocast keeps its powers in fp32. "Fused GELU" is one kernel, as is nanoGPT's (nn.GELU of model.py) and
// what BERT, GPTBigCode, GPT-NeoX and Falcon of transformers call ("gelu" and "gelu_pytorch_tanh" of
// activations.py).
void use_said_gelu(const MeasuredRun& run, SoftwareStack& stack) {
  if (says(lower_case(run.text("framework")), "tensorflow")) return;  // as its preset: by BERT's formula
  const std::string program = lower_case(run.text("framework") + run.text("model"));
  if (affirms(framework_and_note(run), {"fusedgelu", "fusedtanhgelu"}) || says(program, "nanogpt") ||
      says_any(lower_case(run.text("model")),
               {"bert", "santacoder", "starcoder", "bigcode", "neox", "pythia", "falcon"}))
    stack.kernels.gelu.reset();
  if (!says(program, "mingpt")) return;
  const bool casts = says_any(lower_case(run.text("precision")), {"mixed", "autocast", "amp"});
  stack.kernels.gelu = read_stack(casts ? "hf-autocast" : "hf-trainer").kernels.gelu;
}

// "dropout 0.1", "dropout on"; "no dropout", "dropout 0". BERT has it where nobody says so
// (attention_probs_dropout_prob and hidden_dropout_prob 0.1 of its bert_config.json).
void use_said_dropout(const MeasuredRun& run, SoftwareStack& stack) {
  const std::vector<Clause> words = framework_and_note(run);
  const bool denied = affirms(words, {"dropout0.0", "dropoutof0.0"}) || said(words, {"dropout"}) == Said::no;
  const bool of_kernels =
      said(words, {"biasdropout*", "dropoutadd*"}) != Said::nothing;  // "no bias-dropout fusion"
  const bool affirmed = affirms(words, {"dropout0.*", "dropoutof0.*", "dropouton"});
  if (denied && !of_kernels) {
    stack.dropout = Dropout::off;
  } else if (affirmed || says(lower_case(run.text("model")), "bert")) {
    stack.dropout = Dropout::of_model;
  }
}

// Gradients in 16 or 32 bits, and Adam's moments beside fp32 masters in 16, where a row says so
// (--main-grads-dtype and --exp-avg-dtype of Megatron-LM; reduce_dtype of PyTorch's FSDP).
void use_said_states(const MeasuredRun& run, SoftwareStack& stack) {
  const std::string low = lower_case(run.text("precision") + "; " + run.text("optimizer_sharding"));
  const bool moments =
      says_any(low, {"bf16 moments", "gradients and moments in bf16", "bf16 gradients and moments"});
  if (says_any(low, {"bf16 gradients", "gradients in bf16", "gradients and moments in bf16"}))
    stack.gradient = stack.reduced_gradient = 2;
  if (says_any(low, {"fp32 gradient", "gradients in fp32", "fp32 reduc", "reduced in fp32"}))
    stack.gradient = stack.reduced_gradient = 4;
  const std::vector<Clause> clauses = framework_and_note(run);
  if (affirms(clauses, {"*bf16maingrad*", "*maingradsdtypebf16*", "*gradreduceinbf16*", "*gradreduceinfp16*",
                        "*gradientsreducedinbf16*", "*gradientsreducedinfp16*"}))
    stack.gradient = stack.reduced_gradient = 2;
  if (affirms(clauses, {"*fp32maingrad*", "*gradreduceinfp32*", "*gradreducefp32*"}))
    stack.gradient = stack.reduced_gradient = 4;
  if (moments) stack.states.optimizer = 8;
  // apex's O2 makes the model itself fp16, softmax too, beside fp32 weights of the optimizer's.
  if (affirms(clauses, {"*ampo2*", "*apexo2*"})) {
    stack.gradient = stack.reduced_gradient = 2;
    stack.states = {.weight = 2, .optimizer = 12};
    if (stack.softmax == SoftmaxKernel::stepwise_wide) stack.softmax = SoftmaxKernel::stepwise;
    if (stack.softmax == SoftmaxKernel::formula_wide) stack.softmax = SoftmaxKernel::formula;
  }
  // PyTorch's ZeroRedundancyOptimizer has shares of moments; weights in fp32 stay whole.
  const std::string program = lower_case(run.text("framework"));
  const bool of_pytorch = says(program, "pytorch") && !says_any(program, {"deepspeed", "megatron"});
  const std::string sharding = run.text("optimizer_sharding");
  if (of_pytorch && !stack.fully_sharded && stack.states == KeptStates{} &&
      said_sharding(sharding) == Sharding::optimizer && says(lower_case(sharding), "zero"))
    stack.states = {.weight = 6, .optimizer = 8};
}

// One kernel, which keeps no more than its input (apex, flash-attn's ops), in place of PyTorch's.
void use_said_norm(const MeasuredRun& run, SoftwareStack& stack) {
  if (!affirms(framework_and_note(run), {"*fusedrmsnorm*", "*fusedlayernorm*"})) return;
  for (LayerKernels* kernels : {&stack.kernels, stack.llama_layers ? &*stack.llama_layers : nullptr}) {
    if (kernels == nullptr) continue;
    kernels->norm = Fusion::fused;
    kernels->norm_time = std::min(kernels->norm_time.value_or(kernels->elementwise_time), 1.0);
    kernels->kept_by_norm = 0;
  }
}

// torchtitan's own date and framework tell its pieces (titan_stack.cpp).
void use_said_loss(const MeasuredRun& run, SoftwareStack& stack) {
  if (run.text("framework").starts_with("torchtitan")) return;
  if (affirms(framework_and_note(run),
              {"*chunkedloss*", "*chunkedcrossentropy*", "*chunkedlinearcrossentropy*", "*chunkednll*",
               "*lossinchunks", "*crossentropyinchunks", "*computedinchunks"}))
    stack.chunked_loss = true;
}

}  // namespace

// How 8-bit matrices are scaled, where a row says so; blocks of 128 (DeepSeek-V3's) are cast like blocks of
// 32 (an assumption).
void use_said_scales(const MeasuredRun& run, SoftwareStack& stack) {
  if (is_bridge(run)) return;
  const std::vector<Clause> clauses = clauses_of(run.text("precision"));
  if (affirms(clauses, {"*delayed*"})) stack.fp8_recipe = Fp8Recipe::delayed;
  if (affirms(clauses, {"*tensorwise*", "*currentscaling*"})) stack.fp8_recipe = Fp8Recipe::tensorwise;
  if (affirms(clauses, {"*mxfp8*", "*blockwise*"})) stack.fp8_recipe = Fp8Recipe::mxfp8;
  if (affirms(clauses, {"*rowwise*"}) || affirms(framework_and_note(run), {"*rowwise*"}))
    stack.fp8_recipe = Fp8Recipe::rowwise;
}

void use_said_experts(const MeasuredRun& run, SoftwareStack& stack) {
  const auto words = framework_and_note(run);
  const bool apart = said(words, {"*groupedgemm*"}) == Said::no || affirms(words, {"sequentialmlp"});
  if (!apart || !says(lower_case(run.text("framework")), "megatron")) return;
  // SequentialMLP (Megatron-LM core/transformer/moe/experts.py): six kernels of each expert forward, twice as
  // many backward, at 40 us each (stacks.yaml, megatron-core).
  stack.experts.each.forward = Seconds(240e-6);
  stack.experts.each.backward = Seconds(480e-6);
}

void use_said_permutation(const MeasuredRun& run, SoftwareStack& stack) {
  const auto clauses = clauses_of(run.text("framework"));
  if (affirms(clauses, {"*permutefusion*", "*fusedpermut*", "*permutationfusion*"}))
    stack.experts.eager_forward = stack.experts.eager_backward = 0;
}

void use_said_exchange(const MeasuredRun& run, SoftwareStack& stack) {
  if (affirms(framework_and_note(run), {"*ulysses*", "xtuner"}))
    stack.context_exchange = ContextExchange::heads;
}

void use_said_optimizer(const MeasuredRun& run, SoftwareStack& stack, std::vector<std::string>& assumptions) {
  const auto words = framework_and_note(run);
  const auto take = [&](double moments, const char* assumption) {
    stack.states.moments = moments;
    assumptions.emplace_back(assumption);
  };
  if (affirms(words, {"adafactor"}))  // a row and a column of each matrix (arXiv 1804.04235)
    take(0, "Adafactor: Adam's step without its moments");
  else if (affirms(words, {"sgd*"}) && affirms(words, {"momentum"}))
    take(4, "SGD: Adam's step with one moment");
  else if (affirms(words, {"sgd*"}))
    take(0, "SGD: Adam's step without moments");
  else if (affirms(words, {"muon*"}))
    take(4, "Muon: Adam's step with one moment, its iterations not counted");
}

std::optional<double> said_load(const MeasuredRun& run, const ModelSpec& model) {
  constexpr std::int64_t kMany = 32;
  if (run.text("expert_load_cv") == "0") return 0.0;
  if (const auto cv = run.number("expert_load_cv")) return cv;
  const auto words = framework_and_note(run);
  if (affirms(words, {"*forcedbalance*", "balanceforced", "*roundrobinrouting*"})) return 0.0;
  const bool many = std::any_of(model.shapes.begin(), model.shapes.end(),
                                [](const LayerShape& shape) { return shape.experts >= kMany; });
  if (many && affirms(words, {"naturalrouting", "routednaturally"}))
    return read_stack("torchtitan").experts.load.cv;
  return std::nullopt;
}

void use_said_loads(const MeasuredRun& run, const ModelSpec& model, ExpertLoad& load) {
  load.cv = said_load(run, model).value_or(load.cv);
  if (const std::string cell = run.text("expert_capacity"); !cell.empty()) {
    load.capacity = cell == "-1" ? std::nullopt : run.number("expert_capacity");  // MaxText's: none
    return;
  }
  if (load.one_hot == OneHotGroup::none) return;
  for (const char* cell : {"framework", "model", "note"})
    if (const auto said = said_expert_capacity(run.text(cell))) load.capacity = said;
}

void use_said_sharding(const MeasuredRun& run, SoftwareStack& stack) {
  if (stack.shard_copies == ShardCopies{} || stack.shard_copies.beside) return;
  const std::string low = lower_case(run.text("framework") + "; " + run.text("optimizer_sharding"));
  const bool fsdp = says(low, "fsdp") || says(low, "hsdp");
  const bool second = !says(low, "fsdp1") && says_any(low, {"fsdp2", "fully_shard", "torchtitan", "olmo-core",
                                                            "kempnerforge", "automodel"});
  // enable_fsdp_optimizations of AutoModel's benchmarks with experts (components/moe/fsdp_mixin.py).
  if (stack.name == "nemo-automodel" && run.integer("ep").value_or(1) > 1) stack.adds_up_whole = true;
  if (fsdp) stack.gathers_in_forward = true;
  const std::vector<Clause> clauses = framework_and_note(run);
  if (fsdp && (affirms(clauses, {"*oneunit*", "*onefsdpunit*"}) || said(clauses, {"*autowrap*"}) == Said::no))
    stack.root_unit = RootUnit::all;
  if (says_any(low, {"yafsdp", "jax", "xla"}) || (run.text("n_gpus") == "1" && !fsdp)) {
    stack.shard_copies = {};
  } else if (second) {
    stack.shard_copies = read_stack("torchtitan").shard_copies;
  } else if (fsdp) {
    stack.shard_copies = read_stack("modalities").shard_copies;
  }
}

// Where context ranks have consecutive shares of the tokens, the last of p sees all keys but half of its own,
// p - 1/2 shares, and the mean rank p / 2.
void use_said_shares(const MeasuredRun& run, SoftwareStack& stack) {
  const double ranks = static_cast<double>(run.integer("cp").value_or(1));
  const std::vector<Clause> words = framework_and_note(run);
  const bool consecutive = affirms(words, {"*contiguouscausalshards*", "*contiguouscontextshards*"}) ||
                           said(words, {"*zigzag*"}) == Said::no;
  if (ranks > 1 && consecutive) stack.attention_time *= (2 * ranks - 1) / ranks;
}

void use_said_async_tensors(const MeasuredRun& run, SoftwareStack& stack) {
  if (affirms(framework_and_note(run), {"*asynctp*", "*asynctensorparallel*"}))
    stack.sequence_copies = SequenceCopies::none;
}

// Passes over all parameters, a read or a write each: of torch.optim's `foreach` 20 (_multi_tensor_adamw of
// torch/optim/adamw.py), which also "uses about sizeof(params) more peak memory" and is what it does on GPUs
// unless told (_default_to_fused_or_foreach of optimizer.py); of Stanford's CS336
// (cs336_basics/optimizer.py of assignment 2, an expression for each line) 35, of which a single kernel needs
// 7. Their share of the bandwidth: as its steps take it on A800 (enzo-cs336-a800, whose runs set nothing
// else).
void use_said_adam(const MeasuredRun& run, SoftwareStack& stack) {
  constexpr int kLists = 20, kLoop = 35, kOneKernel = 7;
  constexpr double kBandwidthShare = 0.8;
  const std::vector<Clause> words = framework_and_note(run);
  const bool loops = affirms(
      words, {"*loopoverparameters*", "*loopovertensors*", "*adamwloop*", "ownadamw*", "*startercode*"});
  const Said foreach = said(words, {"foreach"});
  const bool fused = affirms(words, {"fusedadam*", "adamwfused", "torchfused", "fusedtrue"}) ||
                     says(lower_case(run.text("note")), "adamw (fused)");
  const bool eager = stack.name.starts_with("pytorch-") || stack.name.starts_with("cs336");
  const bool lists = !loops && (foreach == Said::yes || (eager && !fused && foreach == Said::nothing));
  if (!(loops || lists) || !stack.optimizer) return;
  const double element = stack.states.step_in_16_bits() ? 2 : 4;
  stack.optimizer = {.bytes_per_parameter = element * (loops ? kLoop : kLists),
                     .bandwidth_share = kBandwidthShare,
                     .fixed = stack.optimizer->fixed,
                     .uncached = loops ? element * kOneKernel : 0};
  stack.optimizer_copy = lists ? std::max(stack.optimizer_copy, element) : 0;
}

void use_said_kernels(const MeasuredRun& run, SoftwareStack& stack) {
  use_said_states(run, stack);
  use_said_gelu(run, stack);
  use_said_dropout(run, stack);
  use_said_norm(run, stack);
  use_said_loss(run, stack);
  const std::vector<Clause> words = framework_and_note(run);
  if (affirms(words, {"*tiledmlp*", "*mlptiled*"})) stack.tiled_mlp = true;
  if (affirms(words, {"*checkpointsoffloaded*"})) stack.saved_inputs = SavedInputs::host;
  const std::string framework = run.text("framework");
  if (!says(lower_case(framework), "megatron")) return;
  use_said_fusions(run, stack);
  use_said_dispatch(framework, stack);
  use_said_overlap(framework, stack);
  use_said_graphs(run, stack);
  use_said_waits(run, stack);
}

}  // namespace orrery
