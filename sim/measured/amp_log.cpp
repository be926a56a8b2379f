#include "sim/measured/amp_log.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"

namespace orrery {
namespace {

constexpr double kValueBytes = 4;          // AMP's bandwidths are bits per second / 32
constexpr double kBackwardAndForward = 3;  // in forwards: cost_homo.py

// Where text is read from; every mark found moves it on.
class Scanner {
 public:
  Scanner(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  void skip_to(std::string_view mark) {
    const std::size_t at = text_.find(mark);
    if (at == std::string_view::npos) {
      throw InputError(path_, "no '" + std::string(mark) + "' where it should be",
                       "a log as AMP's homogeneous.py, het_cluster.py or het_model.py writes it");
    }
    text_.remove_prefix(at + mark.size());
  }
  double number() {
    double value = 0;
    const auto [end, trouble] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (trouble != std::errc()) {
      throw InputError(path_, quote_for_message(text_.substr(0, 20)), "a number");
    }
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return value;
  }
  double number_after(std::string_view mark) {
    skip_to(mark);
    return number();
  }
  int count_after(std::string_view mark, int least = 1) {
    const double value = number_after(mark);
    if (value >= least && value <= 1e6) return static_cast<int>(value);
    throw InputError(path_, "a count of " + std::to_string(value),
                     "a count from " + std::to_string(least) + " to 1e6");
  }
  std::vector<int> list_after(std::string_view mark) {
    std::vector<int> values{count_after(mark, 0)};
    while (text_.rfind(", ", 0) == 0) values.push_back(count_after(", ", 0));
    return values;
  }
  std::string word_after(std::string_view mark) {
    skip_to(mark);
    return std::string(text_.substr(0, text_.find('\'')));
  }

 private:
  std::string_view text_;
  const std::string& path_;
};

void read_degrees(Scanner& line, AmpTrial& trial) {
  trial.tensor = line.count_after("'mp_deg': tensor([");
  trial.data = line.count_after("'dp_deg': tensor([");
  trial.pipeline = line.count_after("'pp_deg': tensor([");
}

AmpTrial predicted_trial(Scanner line) {
  AmpTrial trial;
  trial.micro_batch = line.count_after("((");
  read_degrees(line, trial);
  line.skip_to("})");  // after the map of ranks
  trial.cuts = line.list_after("[");
  trial.predicted = line.number_after("tensor([");
  return trial;
}

// "Simulating result: None, [cuts], microbatch, {degrees}, with p_cost: tensor([..]), r_cost: 1.32".
AmpTrial measured_trial(Scanner line) {
  AmpTrial trial;
  trial.cuts = line.list_after("[");
  trial.micro_batch = line.count_after("], ");
  read_degrees(line, trial);
  const double seconds = line.number_after("r_cost: ");  // "inf": it failed
  if (seconds > 0 && seconds < 1e9) trial.measured = seconds;
  return trial;
}

bool same_plan(const AmpTrial& a, const AmpTrial& b) {
  return a.micro_batch == b.micro_batch && a.tensor == b.tensor && a.data == b.data && a.cuts == b.cuts;
}

template <class Use>
void for_each_after(std::string_view text, std::string_view mark, Use use) {
  for (std::size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at)) {
    at += mark.size();
    use(text.substr(at, text.find('\n', at) - at));
  }
}

// What of the model lies at a pseudo-layer, as cost_homo.py and cost_het_model.py number them.
class PseudoLayers {
 public:
  PseudoLayers(const AmpLog& log, std::size_t count) : log_(log), count_(static_cast<int>(count)) {}

  bool is_timed(int layer) const { return is_gpt() || layer == 0 || width(layer) > 0; }
  bool is_table(int layer) const { return is_gpt() && (layer == 0 || layer == count_ - 2); }
  double width(int layer) const {
    if (is_gpt()) return layer >= 2 && layer < count_ - 4 ? log_.hidden : 0;
    if (layer >= 3 && layer < 15) return log_.hidden;
    return layer >= 41 && layer < 53 ? log_.hidden / 64 : 0;  // the width is divided by four three times
  }
  // Values of one sequence that go on from the layer to the next.
  double output(int layer, int tensor) const {
    if (!is_gpt()) return log_.hidden * log_.bottom * log_.bottom;
    return log_.sequence * (layer >= count_ - 2 ? log_.vocabulary / tensor : log_.hidden);
  }
  double parameters(int first, int end, int tensor) const {
    double sum = 0;
    bool table = false;  // of embedding and head a stage counts one
    for (int layer = first; layer < end; ++layer) {
      sum += 12 * width(layer) * width(layer) / tensor;
      table = table || is_table(layer);
    }
    return sum + (table ? log_.hidden * log_.vocabulary / tensor : 0);
  }

 private:
  bool is_gpt() const { return log_.model == "gpt2"; }
  const AmpLog& log_;
  int count_;
};

const AmpRows& rows_for(const AmpLog& log, const std::vector<AmpRows>& all, int tensor,
                        const std::string& gpu) {
  for (const AmpRows& rows : all) {
    const std::string family = rows.gpu.substr(0, rows.gpu.find_first_of(" -"));
    if (rows.model == log.model && rows.tensor == tensor && gpu.rfind(family, 0) == 0) return rows;
  }
  throw InputError(log.path,
                   "no layer times of " + log.model + ", tensor " + std::to_string(tensor) + ", on " + gpu,
                   "a --layer-profile that has them");
}

// Mean over all GPUs of the cluster, whichever stage they play.
std::vector<double> mean_times(const AmpLog& log, int tensor, const std::vector<AmpRows>& all,
                               const Topology& topology) {
  std::vector<double> mean;
  for (int gpu = 0; gpu < topology.gpus(); ++gpu) {
    const std::vector<double>& rows = rows_for(log, all, tensor, topology.group_of(gpu).gpu.name).forward;
    mean.resize(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) mean[i] += rows[i] / topology.gpus();
  }
  return mean;
}

void require_fitting(const AmpLog& log, const AmpTrial& trial, std::size_t layers, const Topology& topology) {
  const bool ascending = std::is_sorted(trial.cuts.begin(), trial.cuts.end());
  if (static_cast<int>(trial.cuts.size()) != trial.pipeline + 1 || !ascending || trial.cuts.front() != 0 ||
      trial.cuts.back() != static_cast<int>(layers)) {
    throw InputError(log.path,
                     "a trial whose stages are not the " + std::to_string(layers) + " pseudo-layers",
                     "layer times of the model of the log");
  }
  if (trial.tensor * trial.data * trial.pipeline != topology.gpus()) {
    throw InputError(log.path,
                     "a trial on " + std::to_string(trial.tensor * trial.data * trial.pipeline) + " GPUs",
                     "a --cluster with as many; it has " + std::to_string(topology.gpus()));
  }
}

}  // namespace

AmpLog parse_amp_log(const std::string& text, const std::string& path) {
  AmpLog log;
  log.path = path;
  Scanner head(text, path);
  log.hidden = head.count_after("'hidden_size': tensor([");
  log.sequence = head.count_after("'sequence_length': tensor([");
  log.vocabulary = head.count_after("'vocab_size': tensor([");
  log.model = head.word_after("'type': '");
  if (log.model != "gpt2" && log.model != "transgan") {
    throw InputError(path, "model " + quote_for_message(log.model), "gpt2 or transgan");
  }
  if (log.model == "transgan") log.bottom = head.count_after("'bottom': ");
  log.global_batch = head.count_after("gbs:");
  for_each_after(text, "\nrank ",
                 [&](std::string_view line) { log.trials.push_back(predicted_trial(Scanner(line, path))); });
  for_each_after(text, "Simulating result: ", [&](std::string_view line) {
    const AmpTrial measured = measured_trial(Scanner(line, path));
    for (AmpTrial& trial : log.trials) {
      if (same_plan(trial, measured)) trial.measured = measured.measured;
    }
  });
  if (log.trials.empty()) throw InputError(path, "no line 'rank 0: ...'", "predictions of AMP");
  return log;
}

AmpLog read_amp_log(const std::string& path) {
  return parse_amp_log(read_text_file(path), path);
}

AmpPlan amp_plan(const AmpLog& log, const AmpTrial& trial, const std::vector<AmpRows>& all,
                 const Topology& topology) {
  const std::vector<double> times = mean_times(log, trial.tensor, all, topology);
  require_fitting(log, trial, times.size(), topology);
  const PseudoLayers layers(log, times.size());
  AmpPlan plan;
  plan.replicas = trial.data;
  plan.microbatches = static_cast<double>(log.global_batch) / (trial.data * trial.micro_batch);
  for (int stage = 0; stage < trial.pipeline; ++stage) {
    const int first = trial.cuts[static_cast<std::size_t>(stage)];
    const int end = trial.cuts[static_cast<std::size_t>(stage) + 1];
    double forward = 0;
    for (int layer = first; layer < end; ++layer) {
      if (layers.is_timed(layer)) forward += times[static_cast<std::size_t>(layer)];
    }
    plan.times.emplace_back(forward * trial.micro_batch * kBackwardAndForward);
    plan.gradients.emplace_back(layers.parameters(first, end, trial.tensor) * kValueBytes);
    if (stage + 1 == trial.pipeline) break;
    plan.boundaries.push_back(
        {stage, stage + 1, Bytes(layers.output(end - 1, trial.tensor) * trial.micro_batch * kValueBytes)});
  }
  plan.gpus.resize(static_cast<std::size_t>(trial.data * trial.pipeline));
  for (int gpu = 0; gpu < topology.gpus(); ++gpu) {
    const int replica = gpu / trial.tensor % trial.data, stage = gpu / (trial.tensor * trial.data);
    plan.gpus[static_cast<std::size_t>(replica * trial.pipeline + stage)].push_back(gpu);
  }
  return plan;
}

}  // namespace orrery
