#include "tests/fuzz/entries.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <type_traits>

#include "analysis/report.hpp"
#include "costmodels/stacks/stack_file.hpp"
#include "costmodels/trust/residuals.hpp"
#include "platforms/cluster.hpp"
#include "platforms/errors.hpp"
#include "platforms/units.hpp"
#include "platforms/yaml.hpp"
#include "sim/measured/amp_log.hpp"
#include "sim/measured/measured_plan.hpp"
#include "sim/measured/measured_run.hpp"
#include "sim/replay/durations.hpp"
#include "strategies/model.hpp"
#include "strategies/plan.hpp"
#include "strategies/rules.hpp"
#include "strategies/search_space.hpp"
#include "tests/traces/sample_trace.hpp"
#include "tests/traces/scratch_folder.hpp"
#include "traces/csv_stream.hpp"
#include "traces/hdf5_schema.hpp"
#include "traces/layer_profile.hpp"
#include "traces/perfetto.hpp"
#include "traces/trace.hpp"

namespace orrery::fuzz {
namespace {

void require(bool kept, const char* promise) {
  if (!kept) throw std::logic_error(promise);
}

// The one exception a reader may throw, in one line as main prints it.
template <class Read>
void read_or_refuse(const Read& read) {
  try {
    read();
  } catch (const InputError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos, "a message is one line");
  }
}

template <class Q>
void read_quantity(std::string_view text) {
  read_or_refuse([&] {
    const Q value = parse_quantity<Q>(text, "fuzz");
    require(std::isfinite(value.value()) && value.value() >= 0, "a quantity is finite and not negative");
    require(parse_quantity<Q>(to_exact_text(value), "again") == value, "a quantity is written exactly");
  });
}

void quantity(std::string_view text) {
  read_quantity<Seconds>(text);
  read_quantity<Bytes>(text);
  read_quantity<BytesPerSecond>(text);
  read_quantity<FlopsPerSecond>(text);
  read_quantity<DollarsPerHour>(text);
}

void cluster(std::string_view yaml) {
  read_or_refuse([&] {
    const ClusterSpec read = parse_cluster(yaml, "fuzz.yaml");
    require(parse_cluster(to_yaml(read), "again.yaml") == read, "a cluster is written as it was read");
  });
}

void check_model(const ModelSpec& model) {
  require(model.layer_count() > 0, "a model has layers");
  require(total_parameters(model) > 0, "a model has parameters");
  const double flops =
      model_flops(model, 1, std::max<std::int64_t>(model.default_sequence, 1), AttentionCounting::full);
  require(std::isfinite(flops) && flops > 0, "a model takes work");
}

void huggingface(std::string_view json) {
  read_or_refuse([&] { check_model(parse_huggingface_config(json, "fuzz.json")); });
}

void blocks(std::string_view yaml) {
  read_or_refuse([&] { check_model(parse_model_blocks(yaml, "fuzz.yaml")); });
}

void plan(std::string_view yaml) {
  static const ModelSpec model = read_model("llama2-70b");
  static const ClusterSpec machines = read_cluster("demo-a100-h100");
  read_or_refuse([&] {
    const Plan read = parse_plan(yaml, "fuzz.yaml");
    require(parse_plan(to_yaml(read), "again.yaml") == read, "a plan is written as it was read");
    check_shape(model, read.strategy, machines);
  });
}

void rules(std::string_view text) {
  read_or_refuse([&] {
    for (const Rule& rule : parse_rules(text, "fuzz.txt")) {
      static_cast<void>(rule.matches(argument_examples()));
      static_cast<void>(rule.matches({}));
    }
  });
}

void durations(std::string_view yaml) {
  read_or_refuse([&] { parse_durations(yaml, "fuzz.yaml"); });
}

void space(std::string_view yaml) {
  read_or_refuse([&] { parse_space(yaml, "fuzz.yaml"); });
}

void stack(std::string_view yaml) {
  read_or_refuse([&] {
    const SoftwareStack read = parse_stack(yaml, "fuzz.yaml");
    require(std::isfinite(read.compute_time) && read.compute_time > 0, "kernels take time");
  });
}

void intervals(std::string_view yaml) {
  read_or_refuse([&] {
    const Residuals residuals = parse_residuals(yaml, "fuzz.yaml");
    if (residuals.time.empty()) return;
    const IntervalModel model(residuals.time);
    for (const ResidualGroup& group : residuals.time) {
      const ErrorBand band = model.band(group.kind);
      require(band.low > 0 && band.low <= band.high, "an interval has two ends");
    }
    const Residuals again = parse_residuals(to_yaml(residuals, {}), "again.yaml");
    require(again.time.size() == residuals.time.size() && again.memory.size() == residuals.memory.size(),
            "groups are written as they were read");
  });
}

void amp_log(std::string_view text) {
  // Two nodes of two GPUs, and the times of the two layers and six other rows of the seed.
  static const Topology machines(
      parse_cluster(
          "{name: c, groups: [{name: g, gpu: T4, gpus_per_node: 2, count: 2, nic_bandwidth: 50Gbps}]}", "c"),
      {2});
  static const std::vector<AmpRows> rows{{"gpt2", "T4", 1, std::vector<double>(8, 0.01)}};
  read_or_refuse([&] {
    const AmpLog log = parse_amp_log(std::string(text), "fuzz.txt");
    for (const AmpTrial& trial : log.trials) {
      read_or_refuse([&] { static_cast<void>(amp_plan(log, trial, rows, machines)); });
    }
  });
}

void measured_runs(std::string_view csv) {
  read_or_refuse([&] {
    for (const MeasuredRun& run : parse_measured_runs(csv, "fuzz.csv")) {
      read_or_refuse([&] {
        const auto mapped = map_run(run, {});
        const auto* plan = std::get_if<MeasuredPlan>(&mapped);
        if (plan == nullptr) return;
        const auto seconds = measured_seconds(run, *plan);
        require(!seconds || (std::isfinite(*seconds) && *seconds > 0), "a measured time is one");
      });
    }
  });
}

std::string write_scratch(const ScratchFolder& folder, const std::string& name, std::string_view bytes) {
  const std::string path = folder.file(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

Trace small_trace() {
  Trace trace = sample_trace();
  for (RunAttribute& attribute : trace.run)
    attribute.value.resize(std::min<std::size_t>(attribute.value.size(), 40));
  return trace;
}

std::string trace_file(const ScratchFolder& folder) {
  write_trace(folder.file("good.h5"), small_trace());
  return read_text_file(folder.file("good.h5"));
}

// A good trace file with damaged bytes: the seal tells. Edits: three bytes of place, one of value.
void seal(std::string_view edits) {
  static const ScratchFolder folder;
  static const std::string good = trace_file(folder);
  constexpr std::size_t kEditBytes = 4, kSealBytes = 16;
  std::string file = good;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(edits[i]); };
  for (std::size_t i = 0; i + kEditBytes <= edits.size(); i += kEditBytes) {
    const std::size_t place = byte(i) * std::size_t{65536} + byte(i + 1) * std::size_t{256} + byte(i + 2);
    file[place % (file.size() - kSealBytes)] = edits[i + 3];
  }
  const std::string path = write_scratch(folder, "fuzz.h5", file);
  bool read = false;
  read_or_refuse([&] {
    read_trace(path);
    read = true;
  });
  require(read == (file == good), "a damaged file is refused and a good one is read");
}

// The cells of a trace, numbered; one of them is overwritten by the bytes of an edit.
class CellEditor {
 public:
  CellEditor(std::size_t column, std::size_t row, std::string_view bytes)
      : column_(column), row_(row), bytes_(bytes) {}

  template <class Cells>
  void operator()(const char*, Cells& cells, ColumnLabel) {
    if (column_-- == 0 && !cells.empty()) set(cells[row_ % cells.size()]);
  }
  template <class Rows, class Access>
  void operator()(const std::string&, Rows& rows, const Access& access, ColumnLabel) {
    if (column_-- == 0 && !rows.empty()) set(access(rows[row_ % rows.size()]));
  }

 private:
  template <class Cell>
  void set(Cell& cell) const {
    if constexpr (std::is_trivially_copyable_v<Cell>)
      std::memcpy(&cell, bytes_.data(), std::min(sizeof cell, bytes_.size()));
  }

  std::size_t column_;
  std::size_t row_;
  std::string_view bytes_;
};

// A whole file of odd numbers. Edits: column, row, eight bytes of value. What is read can be written and
// shown.
void trace(std::string_view edits) {
  static const ScratchFolder folder;
  constexpr std::size_t kEditBytes = 10;
  Trace odd = small_trace();
  for (std::size_t i = 0; i + kEditBytes <= edits.size(); i += kEditBytes) {
    const auto column = static_cast<unsigned char>(edits[i]);
    CellEditor editor(column, static_cast<unsigned char>(edits[i + 1]), edits.substr(i + 2, sizeof(double)));
    visit_spans(odd.timeline.spans, editor);
    visit_ranks(odd.timeline.ranks, editor);
    visit_stages(odd.accounting.stages, editor);
    visit_links(odd.timeline.links, editor);
    visit_memory(odd.memory, editor);
    visit_curve(odd.activations, editor);
  }
  write_trace(folder.file("fuzz.h5"), odd);
  read_or_refuse([&] {
    const Trace read = read_trace(folder.file("fuzz.h5"));
    export_perfetto(folder.file("perfetto.json"), read);
    export_csv(folder.file("spans.csv"), read);
    require(!report_page({.title = "fuzz", .traces = {{"fuzz", read}}}).empty(), "a trace has a report");
  });
}

void check_layers(std::string_view bytes, const std::string& name) {
  static const ScratchFolder folder;
  const std::string path = write_scratch(folder, name, bytes);
  read_or_refuse([&] {
    const LayerProfile read = read_layer_profile(path);
    const LayerTable& first = read.tables.front();
    const LayerTable table = layer_times(read, {.model = first.model,
                                                .gpu = first.gpu,
                                                .layers = static_cast<int>(first.layers.size()),
                                                .tensor = first.tensor,
                                                .micro_batch = 3});
    require(!table.layers.empty(), "a profile has layers");
    for (const LayerTimes& layer : table.layers)
      require(std::isfinite((layer.forward + layer.backward.value_or(Seconds(0))).value()),
              "a layer's time is finite");
  });
}

void layers_json(std::string_view json) {
  check_layers(json, "DeviceType.A100_tp2_bs4.json");
}

void layers_csv(std::string_view csv) {
  check_layers(csv, "gpt_mbs2_tp1_algo0.csv");
}

void csv(std::string_view bytes) {
  static const ScratchFolder folder;
  const std::string path = write_scratch(folder, "fuzz.csv", bytes);
  read_or_refuse([&] {
    CsvStream stream(path, "fuzz.csv");
    static_cast<void>(stream.find_column("time_us"));
    while (stream.next()) {
      for (const std::string_view field : stream.fields()) {
        const auto number = parse_number(field);
        require(!number || std::isfinite(*number), "a number of a table is finite");
      }
    }
  });
}

}  // namespace

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all{
      {"quantity", quantity},
      {"cluster", cluster},
      {"huggingface", huggingface},
      {"blocks", blocks},
      {"plan", plan},
      {"rules", rules},
      {"durations", durations},
      {"space", space},
      {"stack", stack},
      {"intervals", intervals},
      {"amp-log", amp_log},
      {"measured-runs", measured_runs},
      {"layers-json", layers_json},
      {"layers-csv", layers_csv},
      {"trace", trace},
      {"seal", seal},
      {"csv", csv},
  };
  return all;
}

}  // namespace orrery::fuzz
