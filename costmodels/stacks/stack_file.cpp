#include "costmodels/stacks/stack_file.hpp"

#include <algorithm>
#include <utility>

#include "platforms/embedded.hpp"
#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"

extern "C" const orrery::EmbeddedRow orrery_embedded_costmodels[];

namespace orrery {
namespace {

constexpr std::string_view kPresets = "stacks/stacks.yaml";

// A map whose keys are those that its reader asks for.
class KeyedMap {
 public:
  explicit KeyedMap(const YamlValue& map) : map_(map) {}
  std::optional<YamlValue> find(const std::string& key) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
    return map_.find(key);
  }
  // Throws InputError for any other key.
  void refuse_others() const { map_.allow_keys(known_); }

 private:
  const YamlValue& map_;
  std::vector<std::string> known_;
};

template <class Enum>
using Words = std::vector<std::pair<const char*, Enum>>;

template <class Enum, class Value>
void read_word(KeyedMap& map, const std::string& key, const Words<Enum>& words, Value& value) {
  const auto entry = map.find(key);
  if (!entry) return;
  std::vector<std::string> names;
  for (const auto& [word, meaning] : words) names.emplace_back(word);
  value = words[entry->one_of(names)].second;
}

void read_switch(KeyedMap& map, const std::string& key, bool& value) {
  if (const auto entry = map.find(key)) value = entry->boolean();
}

template <class Number>
void read_number(KeyedMap& map, const std::string& key, double low, double high, Number& value) {
  if (const auto entry = map.find(key)) value = entry->number(low, high);
}

void read_time(KeyedMap& map, const std::string& key, Seconds& value) {
  if (const auto entry = map.find(key)) value = entry->quantity<Seconds>();
}

void read_host(const YamlValue& given, HostCost& host) {
  KeyedMap map(given);
  for (const HostTime& one : kHostTimes) read_time(map, one.name, host.*one.time);
  map.refuse_others();
}

StatedRate read_rate(const YamlValue& map) {
  map.allow_keys({"inside", "between", "fixed"});
  return {map.at("inside").number(0.01, 1), map.at("between").number(0.01, 1),
          map.at("fixed").quantity<Seconds>()};
}

OneHotBytes read_one_hot(const YamlValue& map) {
  map.allow_keys({"forward", "backward", "kept"});
  return {map.at("forward").number(0, 1000), map.at("backward").number(0, 1000),
          map.at("kept").number(0, 1000)};
}

void read_expert_host(KeyedMap& map, const std::string& prefix, ExpertHost& host) {
  for (const ExpertHostTime& one : kExpertHostTimes) read_time(map, prefix + one.name, host.*one.time);
}

void read_experts(const YamlValue& given, ExpertCost& experts) {
  KeyedMap map(given);
  read_switch(map, "deduplicated", experts.deduplicated);
  if (const auto dispatch = map.find("dispatch")) experts.dispatch = read_rate(*dispatch);
  read_number(map, "overlap", 0, 1, experts.overlap);
  read_number(map, "load_cv", 0, 10, experts.load.cv);
  read_number(map, "capacity", 0.1, 100, experts.load.capacity);
  read_word<OneHotGroup>(map, "one_hot",
                         {{"none", OneHotGroup::none},
                          {"sequence", OneHotGroup::sequence},
                          {"microbatch", OneHotGroup::microbatch}},
                         experts.load.one_hot);
  read_switch(map, "one_length", experts.load.one_length);
  if (const auto bytes = map.find("one_hot_bytes")) experts.one_hot_bytes = read_one_hot(*bytes);
  read_expert_host(map, "", experts.each);
  read_expert_host(map, "layer_", experts.layer);
  read_word<LoneGathers>(map, "gathers_alone",
                         {{"never", LoneGathers::never},
                          {"on_blackwell", LoneGathers::on_blackwell},
                          {"always", LoneGathers::always}},
                         experts.gathers_alone);
  read_switch(map, "fused", experts.fused);
  read_number(map, "gathered_sums", 0, 4, experts.gathered_sums);
  read_switch(map, "keeps_outputs", experts.keeps_outputs);
  read_switch(map, "in_turn", experts.in_turn);
  read_switch(map, "pads_rows", experts.pads_rows);
  read_number(map, "eager_forward", 0, 10000, experts.eager_forward);
  read_number(map, "eager_backward", 0, 10000, experts.eager_backward);
  read_number(map, "indexed_biases", 0, 10000, experts.indexed_biases);
  read_number(map, "eager_memory", 0, 1000, experts.eager_memory);
  map.refuse_others();
}

ShardCopies read_shard_copies(const YamlValue& map) {
  map.allow_keys({"own", "gathered", "scattering_time", "beside"});
  ShardCopies copies{map.at("own").number(0, 100), map.at("gathered").number(0, 100),
                     map.at("scattering_time").number(0, 10)};
  if (const auto beside = map.find("beside")) copies.beside = beside->boolean();
  return copies;
}

MatrixGathers read_gathers(const YamlValue& map) {
  map.allow_keys({"host", "host_per_rank"});
  return {map.at("host").quantity<Seconds>(), map.at("host_per_rank").quantity<Seconds>()};
}

KeptStates read_states(const YamlValue& given) {
  KeyedMap map(given);
  KeptStates states;
  read_number(map, "weight", 1, 8, states.weight);
  read_number(map, "optimizer", 0, 32, states.optimizer);
  read_number(map, "moments", 0, 8, states.moments);
  map.refuse_others();
  return states;
}

OptimizerCost read_optimizer(const YamlValue& map) {
  map.allow_keys({"bytes_per_parameter", "bandwidth_share", "fixed", "uncached"});
  OptimizerCost cost{.bytes_per_parameter = map.at("bytes_per_parameter").number(1, 1000),
                     .bandwidth_share = map.at("bandwidth_share").number(0.01, 1),
                     .fixed = map.at("fixed").quantity<Seconds>()};
  if (const auto uncached = map.find("uncached"))
    cost.uncached = uncached->number(1, cost.bytes_per_parameter);
  return cost;
}

template <std::size_t N>
void read_calibrated(KeyedMap& map, const std::string& key, std::optional<Calibrated<N>>& calibrated) {
  const auto entry = map.find(key);
  if (!entry) return;
  entry->allow_keys({"runs", "scatter", "covariance", "gpus", "cost_models"});
  Calibrated<N>& known = calibrated.emplace();
  known.runs = static_cast<int>(entry->at("runs").integer(1, 1'000'000));
  known.scatter = entry->at("scatter").number(0, 10);
  if (const auto gpus = entry->find("gpus")) {
    for (const YamlValue& gpu : gpus->items()) known.gpus.push_back(gpu.text());
  }
  if (const auto digest = entry->find("cost_models")) known.cost_models = digest->text();
  const auto rows = entry->at("covariance").items();
  const std::string size = std::to_string(N);
  if (rows.size() != N) entry->at("covariance").fail(size + " rows of " + size + " numbers");
  for (std::size_t i = 0; i < N; ++i) {
    const auto row = rows[i].items();
    if (row.size() != N) rows[i].fail(size + " numbers");
    for (std::size_t j = 0; j < N; ++j) known.covariance[i][j] = row[j].number(i == j ? 0 : -100, 100);
  }
}

void read_network(const YamlValue& given, NetworkShare& network) {
  KeyedMap map(given);
  read_number(map, "collectives", 0.01, 100, network.collectives);
  read_number(map, "inside", 0.01, 100, network.inside);
  read_number(map, "between", 0.01, 100, network.between);
  map.refuse_others();
}

const Words<CrossEntropyKernel> kLosses{{"fused", CrossEntropyKernel::fused},
                                        {"online", CrossEntropyKernel::online},
                                        {"separate", CrossEntropyKernel::separate}};
const Words<SoftmaxKernel> kSoftmaxes{
    {"fused", SoftmaxKernel::fused},       {"eager", SoftmaxKernel::eager},
    {"wide", SoftmaxKernel::wide},         {"triangular", SoftmaxKernel::triangular},
    {"stepwise", SoftmaxKernel::stepwise}, {"stepwise_wide", SoftmaxKernel::stepwise_wide},
    {"formula", SoftmaxKernel::formula},   {"formula_wide", SoftmaxKernel::formula_wide}};
const Words<Fusion> kFusions{{"fused", Fusion::fused}, {"separate", Fusion::separate}};

EagerGelu read_gelu(const YamlValue& map) {
  map.allow_keys({"forward", "backward", "kept"});
  return {.forward = map.at("forward").number(0, 1000),
          .backward = map.at("backward").number(0, 1000),
          .kept = map.at("kept").number(0, 1000)};
}

void read_kernels(KeyedMap& map, LayerKernels& kernels) {
  read_word(map, "norm", kFusions, kernels.norm);
  read_number(map, "elementwise_time", 0.1, 10, kernels.elementwise_time);
  read_number(map, "norm_time", 0.1, 100, kernels.norm_time);
  read_number(map, "residual_time", 0.1, 10, kernels.residual_time);
  read_switch(map, "eager_kernels", kernels.keeps_unrotated);
  read_switch(map, "eager_kernels", kernels.keeps_activated);
  read_switch(map, "keeps_activated", kernels.keeps_activated);
  read_switch(map, "eager_activation", kernels.eager_activation);
  read_number(map, "host_time", 0.1, 10, kernels.host_time);
  read_number(map, "kept_by_norm", 0, 100, kernels.kept_by_norm);
  if (const auto gelu = map.find("gelu")) kernels.gelu = read_gelu(*gelu);
}

// A map of such keys, or the word "as_gpt": none differs.
std::optional<LayerKernels> read_llama_layers(const YamlValue& given) {
  if (given.kind() == YamlValue::Kind::scalar) {
    static_cast<void>(given.one_of({"as_gpt"}));
    return std::nullopt;
  }
  KeyedMap map(given);
  LayerKernels kernels;
  read_kernels(map, kernels);
  read_word(map, "softmax", kSoftmaxes, kernels.softmax);
  map.refuse_others();
  return kernels;
}

// The readers below follow the groups of SoftwareStack.

void read_layers(KeyedMap& map, SoftwareStack& stack) {
  if (const auto attention = map.find("attention"))
    stack.attention = attention->one_of_values(kAttentionKernels);
  read_word(map, "elementwise", kFusions, stack.elementwise);
  read_kernels(map, stack.kernels);
  if (const auto layers = map.find("llama_layers")) stack.llama_layers = read_llama_layers(*layers);
  read_word(map, "cross_entropy", kLosses, stack.cross_entropy);
  read_word<SoftmaxKernel>(map, "softmax", kSoftmaxes, stack.softmax);
  read_word<Dropout>(map, "dropout", {{"of_model", Dropout::of_model}, {"off", Dropout::off}}, stack.dropout);
  read_word<Fp8Recipe>(map, "fp8_recipe",
                       {{"delayed", Fp8Recipe::delayed},
                        {"tensorwise", Fp8Recipe::tensorwise},
                        {"rowwise", Fp8Recipe::rowwise},
                        {"mxfp8", Fp8Recipe::mxfp8}},
                       stack.fp8_recipe);
  read_switch(map, "casts_weights_once", stack.casts_weights_once);
  read_switch(map, "rotation_scales", stack.rotation_scales);
  read_switch(map, "repeated_keys", stack.repeated_keys);
  read_switch(map, "tiled_mlp", stack.tiled_mlp);
  read_switch(map, "chunked_loss", stack.chunked_loss);
  read_switch(map, "pads_vocabulary", stack.pads_vocabulary);
}

void read_pace(KeyedMap& map, SoftwareStack& stack) {
  read_number(map, "compute_time", 0.01, 100, stack.compute_time);
  read_number(map, "attention_time", 0.1, 10, stack.attention_time);
  read_number(map, "backward_gemm", 0.5, 2, stack.backward_gemm);
  read_number(map, "scan_backward", 0.1, 100, stack.scan_backward);
  read_time(map, "kernel_gap", stack.kernel_gap);
  if (const auto host = map.find("host")) read_host(*host, stack.host);
  read_switch(map, "host_in_python", stack.host_in_python);
  read_word<CudaGraphs>(
      map, "cuda_graphs",
      {{"none", CudaGraphs::none}, {"experts", CudaGraphs::experts}, {"all", CudaGraphs::all}},
      stack.cuda_graphs);
  if (const auto network = map.find("network")) read_network(*network, stack.network);
  if (const auto experts = map.find("experts")) read_experts(*experts, stack.experts);
}

void read_groups(KeyedMap& map, SoftwareStack& stack) {
  read_number(map, "tensor_overlap", 0, 1, stack.tensor_overlap);
  read_number(map, "overlap_slowdown", 1, 3, stack.overlap_slowdown);
  read_switch(map, "async_tensor_gradients", stack.async_tensor_gradients);
  read_switch(map, "separate_gate", stack.separate_gate);
  read_switch(map, "separate_inputs", stack.separate_inputs);
  read_word<SequenceCopies>(map, "sequence_copies",
                            {{"none", SequenceCopies::none},
                             {"of_several", SequenceCopies::of_several},
                             {"all", SequenceCopies::all}},
                            stack.sequence_copies);
  read_switch(map, "keeps_gathered", stack.keeps_gathered);
  read_switch(map, "gathered_logits", stack.gathered_logits);
  read_word<ContextExchange>(map, "context_exchange",
                             {{"ring", ContextExchange::ring},
                              {"gathered", ContextExchange::gathered},
                              {"heads", ContextExchange::heads}},
                             stack.context_exchange);
}

void read_weights_and_gradients(KeyedMap& map, SoftwareStack& stack) {
  read_word<RootUnit>(map, "root_unit",
                      {{"embedding_and_head", RootUnit::embedding_and_head},
                       {"head", RootUnit::head},
                       {"none", RootUnit::none},
                       {"all", RootUnit::all}},
                      stack.root_unit);
  if (const auto copies = map.find("shard_copies")) stack.shard_copies = read_shard_copies(*copies);
  if (const auto gathers = map.find("matrix_gathers")) stack.matrix_gathers = read_gathers(*gathers);
  read_switch(map, "gathers_wait", stack.gathers_wait);
  read_switch(map, "regathers_recomputed", stack.regathers_recomputed);
  read_switch(map, "whole_weights", stack.whole_weights);
  read_switch(map, "gathers_in_forward", stack.gathers_in_forward);
  if (const auto buffers = map.find("reduce_buffers")) stack.reduce_buffers = buffers->quantity<Bytes>();
  read_number(map, "gradient", 1, 8, stack.gradient);
  read_number(map, "reduced_gradient", 1, 4, stack.reduced_gradient);
  read_switch(map, "copies_to_buckets", stack.copies_to_buckets);
  read_number(map, "gradient_copy", 0, 4, stack.gradient_copy);
  read_number(map, "gradient_bucket", 1e5, 1e11, stack.gradient_bucket);
  read_switch(map, "adds_up_whole", stack.adds_up_whole);
  read_switch(map, "all_reduces_gradients", stack.all_reduces_gradients);
  read_number(map, "accumulation", 0, 100, stack.accumulation);
  read_switch(map, "separate_accumulation", stack.separate_accumulation);
  read_switch(map, "frees_gradients", stack.frees_gradients);
}

void read_optimizer_step(KeyedMap& map, SoftwareStack& stack) {
  if (const auto states = map.find("states")) stack.states = read_states(*states);
  read_switch(map, "fp16_as_bf16", stack.fp16_as_bf16);
  if (const auto optimizer = map.find("optimizer")) stack.optimizer = read_optimizer(*optimizer);
  read_switch(map, "flat_gradients", stack.flat_gradients);
  read_switch(map, "keeps_step_copies", stack.keeps_step_copies);
  read_number(map, "optimizer_copy", 0, 16, stack.optimizer_copy);
  read_switch(map, "gathers_for_each_optimizer", stack.gathers_for_each_optimizer);
  read_switch(map, "broadcasts_parameters", stack.broadcasts_parameters);
}

void read_memory(KeyedMap& map, SoftwareStack& stack) {
  read_word<SelectiveRecompute>(map, "selective",
                                {{"attention", SelectiveRecompute::attention},
                                 {"every_second_gemm", SelectiveRecompute::every_second_gemm},
                                 {"elementwise", SelectiveRecompute::elementwise}},
                                stack.selective);
  read_switch(map, "stops_recomputation", stack.stops_recomputation);
  read_word<SavedInputs>(
      map, "saved_inputs",
      {{"gpu", SavedInputs::gpu}, {"tensor_ranks", SavedInputs::tensor_ranks}, {"host", SavedInputs::host}},
      stack.saved_inputs);
  if (map.find("logit_peak")) stack.sharded_logit_peak.reset();  // of the row that this one is like
  read_number(map, "logit_peak", 2, 100, stack.logit_peak);
  read_number(map, "sharded_logit_peak", 2, 100, stack.sharded_logit_peak);
  read_number(map, "activation_memory", 0.01, 100, stack.activation_memory);
  if (const auto reserve = map.find("memory_reserve")) stack.memory_reserve = reserve->quantity<Bytes>();
  read_number(map, "cached_share", 0, 10, stack.cached_share);
  read_switch(map, "records_streams", stack.records_streams);
  if (const auto pieces = map.find("loss_pieces"))
    stack.loss_pieces = static_cast<int>(pieces->integer(1, 1024));
  if (const auto logits = map.find("stale_logits"))
    stack.stale_logits = static_cast<int>(logits->integer(0, 8));
  if (const auto connections = map.find("channel_connections"))
    stack.channel_connections = static_cast<int>(connections->integer(1, 8));
}

void read_pipeline(KeyedMap& map, SoftwareStack& stack) {
  read_switch(map, "scatter_gather", stack.scatter_gather);
  read_switch(map, "whole_gradient_messages", stack.whole_gradient_messages);
  read_switch(map, "receives_ahead", stack.receives_ahead);
  read_switch(map, "keeps_stage_outputs", stack.keeps_stage_outputs);
  read_switch(map, "embedding_counts", stack.embedding_counts);
  read_switch(map, "equal_pieces", stack.equal_pieces);
}

void read_reports(KeyedMap& map, SoftwareStack& stack) {
  read_word<MemoryFigure>(map, "memory_figure",
                          {{"allocated", MemoryFigure::allocated},
                           {"reserved", MemoryFigure::reserved},
                           {"card", MemoryFigure::card}},
                          stack.memory_figure);
  read_switch(map, "may_interleave", stack.may_interleave);
  read_switch(map, "may_drop_activations", stack.may_drop_activations);
}

void read_plan_switches(KeyedMap& map, SoftwareStack& stack) {
  read_switch(map, "flash_attention", stack.flash_attention);
  read_switch(map, "sequence_parallel", stack.sequence_parallel);
  read_switch(map, "distributed_optimizer", stack.distributed_optimizer);
  read_switch(map, "fully_sharded", stack.fully_sharded);
  read_switch(map, "overlap_grad_reduce", stack.overlap_grad_reduce);
  read_switch(map, "overlap_param_gather", stack.overlap_param_gather);
}

void apply(const YamlValue& given, SoftwareStack& stack) {
  KeyedMap map(given);
  static_cast<void>(map.find("like"));  // its reader's
  if (const auto name = map.find("name")) stack.name = name->text();
  for (const auto read : {read_layers, read_pace, read_groups, read_weights_and_gradients,
                          read_optimizer_step, read_memory, read_pipeline, read_reports, read_plan_switches})
    read(map, stack);
  read_calibrated(map, "calibrated", stack.calibrated);
  read_calibrated(map, "calibrated_memory", stack.calibrated_memory);
  map.refuse_others();
}

// A preset is like an earlier one, so that rows above it are all it can name.
const std::vector<SoftwareStack>& presets() {
  static const std::vector<SoftwareStack> all = [] {
    std::vector<SoftwareStack> stacks;
    const std::string file(kPresets);
    for (const YamlValue& row :
         YamlValue::parse(embedded_file(orrery_embedded_costmodels, kPresets), file).items()) {
      SoftwareStack stack;
      if (const auto like = row.find("like")) {
        const std::string base = like->text();
        for (const SoftwareStack& known : stacks) {
          if (known.name == base) stack = known;
        }
        if (stack.name != base) like->fail("the name of a row above");
      }
      apply(row, stack);
      stack.preset = stack.name;
      if (stack.family.empty()) stack.family = stack.name;
      stacks.push_back(std::move(stack));
    }
    return stacks;
  }();
  return all;
}

constexpr auto kPresetName = "a name of `orrery catalog stacks`";

const SoftwareStack& preset(const std::string& name, const std::string& place, const std::string& expected) {
  for (const SoftwareStack& stack : presets()) {
    if (same_name(stack.name, name)) return stack;
  }
  const auto names = builtin_stack_names();
  throw InputError(place, "the unknown software stack " + quote_for_message(name) + did_you_mean(name, names),
                   expected);
}

bool is_file(const std::string& path_or_name) {
  return path_or_name.ends_with(".yaml") || path_or_name.ends_with(".yml");
}

}  // namespace

std::string_view to_text(CrossEntropyKernel kernel) {
  const auto named =
      std::find_if(kLosses.begin(), kLosses.end(), [&](const auto& loss) { return loss.second == kernel; });
  ORRERY_ENSURE(named != kLosses.end());
  return named->first;
}

std::vector<std::string> builtin_stack_names() {
  std::vector<std::string> names;
  for (const SoftwareStack& stack : presets()) names.push_back(stack.name);
  return names;
}

SoftwareStack parse_stack(std::string_view yaml, const std::string& file) {
  const YamlValue map = YamlValue::parse(yaml, file);
  const auto like = map.find("like");
  SoftwareStack stack =
      preset(like ? like->text() : std::string(kDefaultStack), like ? like->place() : file, kPresetName);
  stack.name = file;
  apply(map, stack);
  return stack;
}

SoftwareStack read_stack(const std::string& path_or_name, const std::string& place) {
  if (is_file(path_or_name)) return parse_stack(read_text_file(path_or_name), path_or_name);
  return preset(path_or_name, place, std::string(kPresetName) + ", or a YAML file");
}

std::string read_stack_text(const std::string& path_or_name) {
  if (is_file(path_or_name)) return read_text_file(path_or_name);
  return std::string(embedded_file(orrery_embedded_costmodels, kPresets));
}

}  // namespace orrery
