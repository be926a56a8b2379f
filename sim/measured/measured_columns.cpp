#include "sim/measured/measured_columns.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "platforms/errors.hpp"
#include "sim/measured/cell_text.hpp"

namespace orrery {
namespace {

// Other names of columns, of small letters and digits, as programs and tables have them.
struct OtherNames {
  const char* column;
  std::string_view names;
};
constexpr std::array kOtherNames{
    OtherNames{"id", "name run runid runname"},
    OtherNames{"source_key", "group"},
    OtherNames{"gpu", "gputype gpumodel accelerator"},
    OtherNames{"n_gpus", "gpus numgpus ngpu gpucount worldsize numdevices"},
    OtherNames{"gpus_per_node", "gpuspernodes gpunode nprocpernode"},
    OtherNames{"interconnect", "network fabric"},
    OtherNames{"framework", "program software library"},
    OtherNames{"layers", "numlayers nlayers numhiddenlayers nlayer"},
    OtherNames{"hidden", "hiddensize dmodel nembd"},
    OtherNames{"heads", "numheads nheads numattentionheads nhead attentionheads"},
    OtherNames{"kv_heads", "numkvheads nkvheads numkeyvalueheads numquerygroups"},
    OtherNames{"head_dim", "headdimension kvchannels headsize"},
    OtherNames{"ffn", "ffnhiddensize intermediatesize ffnsize dff mlpsize"},
    OtherNames{"vocab", "vocabsize vocabulary vocabularysize paddedvocabsize"},
    OtherNames{"seq", "sequence seqlen seqlength sequencelength contextlength maxseqlen"},
    OtherNames{"n_experts", "experts numexperts nummoeexperts numlocalexperts"},
    OtherNames{"experts_per_token", "topk moeroutertopk numexpertspertoken"},
    OtherNames{"precision", "dtype datatype"},
    OtherNames{"gbs", "globalbatch globalbatchsize batch batchsize"},
    OtherNames{"mbs", "microbatch microbatchsize perdevicetrainbatchsize"},
    OtherNames{"tp",
               "tensor tensorparallel tensorparallelsize tensormodelparallelsize tpsize tensorparallelism"},
    OtherNames{"pp", "pipeline pipelineparallel pipelineparallelsize pipelinemodelparallelsize ppsize"},
    OtherNames{"vpp", "vp virtualpipeline virtualstages virtualpipelinemodelparallelsize"},
    OtherNames{"dp", "dataparallel dataparallelsize dpsize replicas"},
    OtherNames{"cp", "contextparallel contextparallelsize cpsize"},
    OtherNames{"ep", "expertparallel expertparallelsize expertmodelparallelsize epsize"},
    OtherNames{"etp", "experttensorparallel experttensorparallelsize"},
    OtherNames{"sequence_parallel", "sp sequenceparallelism"},
    OtherNames{"recompute",
               "recomputation recomputegranularity activationrecomputation activationrecompute "
               "activationcheckpointing activationcheckpoint gradientcheckpointing checkpointing ac"},
    OtherNames{"flash_attn", "flash flashattention useflashattn attentionbackend"},
    OtherNames{"optimizer_sharding",
               "zero zerostage sharding fsdp distributedoptimizer usedistributedoptimizer"},
    OtherNames{"schedule", "pipelineschedule ppschedule"},
    OtherNames{"iter_time_s",
               "itertime iterationtime iterationtimes steptime steptimes timeperiteration "
               "secondsperstep"},
    OtherNames{"tokens_per_s_per_gpu",
               "tokenspersecondpergpu tokenssgpu tps tpspergpu tokenspergpupersecond"},
    OtherNames{"samples_per_s", "samplespersecond throughput"},
    OtherNames{"tflops_per_gpu", "tflops tflopsgpu tflopspersecondpergpu tflopsspergpu"},
    OtherNames{"mfu_pct", "mfu"},
    OtherNames{"hfu_pct", "hfu"},
    OtherNames{"peak_mem_gb", "peakmem peakmemory memory peakmemorygb maxmemory mem memgb memorygb"},
    OtherNames{"gpu_mem_gb", "gpumem gpumemory gpumemorygb"},
};

bool has(const std::vector<std::string>& titles, const std::string& title) {
  return std::find(titles.begin(), titles.end(), title) != titles.end();
}

bool is_name_of(std::string_view names, const std::string& name) {
  return says(" " + std::string(names) + " ", " " + name + " ");
}

// The column that a title means; empty: none.
std::string column_meant_by(const std::string& title) {
  const std::string name = letters_and_digits(title);
  if (name.empty()) return {};
  for (const std::string& column : known_columns()) {
    if (letters_and_digits(column) == name) return column;
  }
  const auto other = std::find_if(kOtherNames.begin(), kOtherNames.end(),
                                  [&](const OtherNames& one) { return is_name_of(one.names, name); });
  return other == kOtherNames.end() ? "" : other->column;
}

constexpr std::size_t kTellingLetters = 3;  // a name of fewer is nearly any other of them

}  // namespace

const std::vector<std::string>& known_columns() {
  static const std::vector<std::string> kColumns{"id",
                                                 "source_location",
                                                 "source_key",
                                                 "source",
                                                 "gpu",
                                                 "gpu_mem_gb",
                                                 "gpus_per_node",
                                                 "n_gpus",
                                                 "cluster_desc",
                                                 "cluster",
                                                 "stage_groups",
                                                 "interconnect",
                                                 "framework",
                                                 "model",
                                                 "params_b",
                                                 "layers",
                                                 "hidden",
                                                 "heads",
                                                 "kv_heads",
                                                 "head_dim",
                                                 "expert_load_cv",
                                                 "expert_capacity",
                                                 "ffn",
                                                 "vocab",
                                                 "seq",
                                                 "n_experts",
                                                 "experts_per_token",
                                                 "precision",
                                                 "gbs",
                                                 "mbs",
                                                 "tp",
                                                 "pp",
                                                 "vpp",
                                                 "dp",
                                                 "cp",
                                                 "ep",
                                                 "etp",
                                                 "sequence_parallel",
                                                 "recompute",
                                                 "flash_attn",
                                                 "optimizer_sharding",
                                                 "optimizer_instances",
                                                 "schedule",
                                                 "layer_partition",
                                                 "iter_time_s",
                                                 "tflops_per_gpu",
                                                 "mfu_pct",
                                                 "hfu_pct",
                                                 "tokens_per_s_per_gpu",
                                                 "samples_per_s",
                                                 "peak_mem_gb",
                                                 "peak_mem_figure",
                                                 "status",
                                                 "flops_convention",
                                                 "note",
                                                 "stack"};
  return kColumns;
}

const std::vector<std::string>& needed_columns() {
  static const std::vector<std::string> kNeeded{"id", "source_key", "gpu", "n_gpus"};
  return kNeeded;
}

std::string title_meant_by(const std::string& column, const std::vector<std::string>& titles) {
  std::vector<std::string> unknown;
  for (const std::string& title : titles) {
    // Of a file in UTF-16 titles are no text.
    const bool is_text = std::all_of(title.begin(), title.end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (!is_text || has(known_columns(), title)) continue;
    if (column_meant_by(title) == column) return ", did you mean " + quote_for_message(title) + "?";
    unknown.push_back(title);
  }
  return column.size() < kTellingLetters ? std::string() : did_you_mean(column, unknown);
}

std::vector<std::string> remarks_on_titles(const std::vector<std::string>& titles) {
  std::vector<std::string> lacking, remarks;
  for (const std::string& column : known_columns()) {
    if (!has(titles, column)) lacking.push_back(column);
  }
  for (const std::string& title : titles) {
    if (has(known_columns(), title)) continue;
    const std::string column = column_meant_by(title);
    std::string meant;
    if (!column.empty() && has(lacking, column))
      meant = ", did you mean " + quote_for_message(column) + "?";
    else if (column.empty() && title.size() >= kTellingLetters)
      meant = did_you_mean(title, lacking);
    if (!meant.empty()) remarks.push_back("column " + quote_for_message(title) + " is not read" + meant);
  }
  return remarks;
}

}  // namespace orrery
