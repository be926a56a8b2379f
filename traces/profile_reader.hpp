// Measured operator tables: GEMMs, memory-bound kernels and collectives, as a sweep or a framework timed
// them.
//
// Known tables, by file name (each plain or gzipped; columns by header, in any order, further columns
// ignored):
//   gemm_long.csv          source,gpu,dtype,op,model,tp,batch,M,N,K,time_us[,direction]   (fwd alone)
//   kernels_long.csv       source,gpu,model,op,bytes,time_us      (op: to_text(MemoryKernel))
//   collectives_long.csv
//   source,system,collective,n_ranks,ranks_per_node,bytes,time_us,status
//   [,link_GBps,network_GBps,network_latency_us]   of one GPU, in one direction: no faster than its data
//   sheet says, where the system is a GPU of the catalog, else than any of it
//   transformer_ops_fwd_bwd_long.csv   Aceso's operator profiles, as sailor and SuperScaler publish them
//   mlp.csv                vidur's kernels, in compute/<gpu>/<organisation>/<model>/; its GEMMs are not read
//   nic_ratio.csv, ata_ratio.csv       SimAI's share of NIC bandwidth by message size and node count
//   flash_attention_fwd_bwd.csv
//   source,gpu,kernel,direction,batch,heads,kv_heads,seq_q,seq_kv,head_dim,causal,tflops
//   orrery_profile.csv     what `orrery profile` wrote; rows of its --dry-run are refused unless asked for
//   *.txt, *.log, *.out    what nccl-tests printed (all_reduce_perf and its sisters), one GPU a rank, all of
//   one kind
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platforms/cluster.hpp"
#include "platforms/gpu.hpp"
#include "platforms/units.hpp"
#include "traces/gemm_pass.hpp"

namespace orrery {

// `kernel`: GPU time of the kernel alone. `framework`: the operator called through its framework, glue
// included; short ones then take the host's time, not the GPU's.
enum class TimedAs { kernel, framework };

// Where a measurement stands.
struct TableLine {
  std::size_t file = 0;  // in Profiles::files
  std::size_t line = 0;
};

struct MeasuredGemm {
  std::string source, model;
  std::string gpu;  // name in the catalog or of a GPU of one's own
  DataType type = DataType::fp16;
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  TimedAs timed = TimedAs::kernel;
  Seconds time;
  GemmPass pass = GemmPass::forward;        // m, n, k are those of this GEMM
  std::optional<Seconds> input_gradient{};  // [m, k, n], where a forward GEMM's gradient was timed alone
  std::optional<Seconds> backward{};        // gradients of input and weight together, where both were timed
  TableLine at{};
};

// Inference engines have other norms and activations than training has: each has its own model.
enum class KernelProgram { inference, training };

struct MeasuredKernel {
  std::string source, model;
  std::string gpu;  // likewise
  std::string op;   // "norm", "rope", "activation", "residual", "embedding"
  Bytes bytes;      // what it must read and write at least
  Bytes row{};  // of them, those of a token that one block of threads works on; zero: no such blocks, or not
                // told
  TimedAs timed = TimedAs::kernel;
  Seconds time;
  bool backward = false;  // the gradient of that kernel, timed alone
  KernelProgram program = KernelProgram::inference;
  TableLine at{};
};

// softmax(Q K^T) V of `batch` sequences, one GPU.
struct MeasuredAttention {
  std::string source, gpu;
  std::string kernel;  // "flash", "flash2" or "unfused", as AttentionKernel means them; "eager": unfused,
                       // with scale, mask, softmax and dropout by PyTorch's kernels (SoftmaxKernel::eager)
  std::int64_t batch = 0, heads = 0, kv_heads = 0, query_tokens = 0, kv_tokens = 0, head_dim = 0;
  bool causal = false, backward = false;
  Seconds time;
  TableLine at{};
};

// Whether a source's operators and collectives were timed by Aceso's profiler, through PyTorch's list forms.
bool is_aceso_profile(std::string_view source);

struct MeasuredCollective {
  std::string source, system;
  std::string op;  // "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send_recv"
  Bytes bytes;     // the whole vector of one rank (costmodels/operators/operator.hpp)
  int ranks = 0;
  int ranks_per_node = 0;
  LinkSpec gpu_link;  // data sheet of the system
  LinkSpec network;   // of one rank; zero bandwidth where all ranks share a node
  Seconds time;
  TableLine at{};
};

// What became of the rows of one file.
struct ProfileFile {
  std::string name;  // relative to the folder given
  std::int64_t rows = 0;
  std::int64_t used = 0;                            // measurements taken: a row may hold several, or none
  std::map<std::string, std::int64_t> skipped{};    // by reason, same counting
  std::map<std::string, std::size_t> first_line{};  // of the file, where a row was skipped for that reason
  std::map<std::string, std::string>
      first_found{};                          // there, of an unreadable one: "'nan' in column 'time_us'"
  std::vector<std::string> gemms_not_read{};  // columns of GEMMs, for which gemm_long.csv is the table
  std::vector<std::string> doubts{};          // what was taken all the same, in sentences
};

struct Profiles {
  std::vector<MeasuredGemm> gemms;
  std::vector<MeasuredKernel> kernels;
  std::vector<MeasuredAttention> attentions;
  std::vector<MeasuredCollective> collectives;
  std::vector<ProfileFile> files;     // in order of their names
  std::vector<std::string> not_read;  // files of names and contents that no table has, likewise
  std::vector<GpuSpec> own_gpus{};    // which the tables may name beside the catalog's
};

// Adds what `more` measured, in its order; its measurements follow their files.
void append(Profiles& all, Profiles&& more);

// How a table may name a GPU of the catalog.
struct KnownGpuName {
  std::string name, gpu;  // `gpu`: of the catalog
};
struct KnownGpuNames {
  std::vector<KnownGpuName> catalog;  // names and aliases, in capitals or not
  std::vector<std::string> makers;    // which may stand in front of those, each once, in this order
  std::vector<KnownGpuName> sources;  // names as sources and drivers write them, to the letter
};
KnownGpuNames known_gpu_names();

// A file is refused when more than this share of its measurements cannot be read (not a number, not above
// zero, no whole number where one belongs, more or fewer fields than the header). Rows that are left out by
// rule (a failed status, an unknown GPU) do not count.
inline constexpr double kWorstUnreadableShare = 0.05;

// Times that `orrery profile --dry-run` invented are for tests of the way from a profile to a plan.
enum class InventedTimes { refused, taken };

// Reads every known table below `folder`. Throws InputError for a folder without one, a missing column
// (named), a broken gzip, a file with too many unreadable rows, invented times that were not asked for.
Profiles read_profiles(const std::string& folder, InventedTimes = InventedTimes::refused);

// Likewise, without what `known` has from earlier tables, of this folder or of others. Tables may also name
// GPUs that the catalog lacks.
class MeasuredOnce;
Profiles read_profiles(const std::string& folder, MeasuredOnce& known, InventedTimes,
                       const std::vector<GpuSpec>& own_gpus = {});

// Adds the measurements of one table to `profiles`, of the catalog's GPUs and its own; `name` is the path
// below the folder. False for an unknown table.
bool read_profile_file(const std::string& folder, const std::string& name, Profiles& profiles,
                       InventedTimes = InventedTimes::refused);

}  // namespace orrery
