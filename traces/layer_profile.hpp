// Times of whole layers as other tools measured them: a user's own numbers in place of the cost models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platforms/units.hpp"

namespace orrery {

// One microbatch on one GPU; tensor-parallel communication is inside.
struct LayerTimes {
  Seconds forward;
  std::optional<Seconds> backward;    // absent where forwards alone were timed
  std::optional<Bytes> memory;        // one GPU holds for the layer in training, where it was measured
  std::optional<Seconds> whole = {};  // the forward without tensor ways, where that was measured too
  LayerTimes& operator+=(const LayerTimes&);
  bool operator==(const LayerTimes&) const = default;
};

struct LayerTable {
  std::string model, gpu;  // as the source names them; may be empty
  int tensor = 1;
  std::int64_t micro_batch = 1;  // sequences
  LayerTimes embedding, head;
  std::vector<LayerTimes> layers;  // a single one: all layers of the model are like it
  bool operator==(const LayerTable&) const = default;
};

struct LayerProfile {
  std::string path;
  std::vector<LayerTable> tables;
};

// A file, or a folder of files of one kind, told apart by what is in them:
// * Metis (SamsungLabs/Metis): DeviceType.<gpu>_tp<t>_bs<b>.json. layer_compute_total_ms is forward and
//   backward together, taken as 1 : 2 (assumption: a backward has twice the matrix products).
// * Sailor (eth-easl/sailor): profile.json, {microbatch: {tensor: {layer: [forward, backward, optimizer]}}}
//   in seconds; the optimizer step depends on how a plan shards it and is left out.
// * Aceso (microsoft/SuperScaler): <model>_mbs<b>_tp<t>_algo<a>.csv, operators of one GPT layer in
//   microseconds; of several algorithms the one with the least sum.
// * AMP (DachengLi1/AMP): CSV with model, gpu, tp, layer_index, time_s_raw: forward seconds of one sequence
//   by its pseudo-layers, each awaited by the host (deepspeed/runtime/pipe/module.py). The rows between the
//   layers of TransGAN (upsampling, below 4 % of the sum) are left out, as AMP leaves them out.
// The first and the last layer of Metis and Sailor are embedding and head. Throws InputError.
LayerProfile read_layer_profile(const std::string& path);

// The rows of AMP's form as they stand.
struct AmpRows {
  std::string model, gpu;
  int tensor = 1;
  std::vector<double> forward;  // s, of one sequence; [pseudo-layer]
};
std::vector<AmpRows> read_amp_rows(const std::string& path);

// The table for so many ways and so many layers (or alike), whose microbatch is the largest not above
// `micro_batch`, else the smallest. Where the profile has several models or kinds of GPU, that of the same
// name up to the first blank or dash ("V100"); "GPT-2 (24 layers)" is gpt2 too. Throws InputError that says
// what was measured.
struct LayerQuery {
  std::string model, gpu;
  int layers = 0;
  int tensor = 1;
  std::int64_t micro_batch = 1;
};
LayerTable layer_times(const LayerProfile&, const LayerQuery&);

}  // namespace orrery
