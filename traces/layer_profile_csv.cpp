// Layer profiles of Aceso and of AMP.
#include <algorithm>
#include <charconv>
#include <filesystem>

#include "platforms/errors.hpp"
#include "traces/csv_stream.hpp"
#include "traces/layer_profile_readers.hpp"

namespace orrery {
namespace {

constexpr double kMicro = 1e-6;
constexpr double kAcesoFailed = 1e7;  // us, where a measurement ran out of memory

double time_field(const std::string& path, int row, std::string_view field, double longest) {
  const auto number = parse_number(field);
  if (number && *number >= 0 && *number <= longest) return *number;
  throw InputError(path + ": row " + std::to_string(row), quote_for_message(field), "a time of 0 or more");
}

int count_field(const std::string& path, int row, std::string_view field) {
  int value = 0;
  const auto [end, trouble] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (trouble == std::errc() && end == field.data() + field.size() && value >= 0 && value <= 100'000)
    return value;
  throw InputError(path + ": row " + std::to_string(row), quote_for_message(field), "a whole number");
}

void need_all_fields(const std::string& path, int row, const CsvStream& rows) {
  if (rows.fields().size() >= rows.columns()) return;
  throw InputError(path + ": row " + std::to_string(row), "a row of " + std::to_string(rows.fields().size()),
                   std::to_string(rows.columns()) + " fields, as in the header");
}

// Which block of a GPT model an operator of Aceso's belongs to.
LayerTimes& block_of(LayerTable& table, const std::string& path, int row, std::string_view op) {
  if (op.rfind("enc-", 0) == 0) return table.layers.front();
  if (op == "encoder-embedding") return table.embedding;
  if (op == "final-layernorm" || op == "gpt-post-process") return table.head;
  throw InputError(
      path + ": row " + std::to_string(row), "operator " + quote_for_message(op),
      "one of Aceso's GPT profiles: encoder-embedding, enc-..., final-layernorm, gpt-post-process");
}

std::vector<LayerTable> aceso_table(const std::string& path, CsvStream& rows) {
  LayerTable table;
  const std::string name = std::filesystem::path(path).filename().string();
  table.model = name.substr(0, name.find("_mbs"));
  table.micro_batch = count_in_name(path, "_mbs");
  table.tensor = count_in_name(path, "_tp");
  table.layers.resize(1);
  const std::size_t op = rows.column("op_name"), forward = rows.column("forward-compute"),
                    backward = rows.column("backward-compute");
  for (int row = 1; rows.next(); ++row) {
    need_all_fields(path, row, rows);
    const auto& fields = rows.fields();
    LayerTimes& block = block_of(table, path, row, fields[op]);
    const double there = time_field(path, row, fields[forward], kAcesoFailed);
    const double back = time_field(path, row, fields[backward], kAcesoFailed);
    if (std::max(there, back) >= kAcesoFailed) return {};  // a configuration that did not run
    block += {Seconds(there * kMicro), Seconds(back * kMicro), std::nullopt};
  }
  if (table.layers.front().forward.value() <= 0)
    throw InputError(path, "no operators of a layer", "rows enc-...");
  return {table};
}

// First and last pseudo-layers of the transformer layers of a model, as AMP's cost_homo.py and
// cost_het_model.py number them.
std::vector<std::pair<std::size_t, std::size_t>> amp_blocks(const std::string& path, const AmpRows& rows) {
  const std::size_t count = rows.forward.size();
  if (rows.model == "gpt2" && count > 6) return {{2, count - 4}};
  if (rows.model == "transgan" && count == 56) return {{3, 15}, {41, 53}};
  throw InputError(path, std::to_string(count) + " rows of model " + quote_for_message(rows.model),
                   "gpt2 (2 rows, its layers, 4 rows) or transgan (56 rows)");
}

// `whole`: the same rows without tensor ways, where they were measured.
LayerTimes amp_times(const AmpRows& rows, const AmpRows* whole, std::size_t row) {
  LayerTimes times{Seconds(rows.forward[row]), std::nullopt, std::nullopt};
  if (whole != nullptr && rows.tensor > 1) times.whole = Seconds(whole->forward[row]);
  return times;
}

LayerTable amp_table(const std::string& path, const AmpRows& rows, const AmpRows* whole) {
  LayerTable table;
  table.model = rows.model;
  table.gpu = rows.gpu;
  table.tensor = rows.tensor;
  const auto blocks = amp_blocks(path, rows);
  const bool gpt = rows.model == "gpt2";
  for (std::size_t i = 0; i < rows.forward.size(); ++i) {
    const LayerTimes times = amp_times(rows, whole, i);
    const bool layer = std::any_of(blocks.begin(), blocks.end(),
                                   [i](const auto& block) { return i >= block.first && i < block.second; });
    if (layer) {
      table.layers.push_back(times);
    } else if (i == 0 || (gpt && i < blocks.front().first)) {
      table.embedding += times;
    } else if (gpt) {
      table.head += times;
    }
  }
  return table;
}

std::vector<AmpRows> amp_rows(const std::string& path, CsvStream& rows) {
  std::vector<AmpRows> all;
  const std::size_t model = rows.column("model"), gpu = rows.column("gpu"), tensor = rows.column("tp"),
                    layer = rows.column("layer_index"), time = rows.column("time_s_raw");
  for (int row = 1; rows.next(); ++row) {
    need_all_fields(path, row, rows);
    const auto& fields = rows.fields();
    const AmpRows key{
        std::string(fields[model]), std::string(fields[gpu]), count_field(path, row, fields[tensor]), {}};
    const auto same = [&](const AmpRows& each) {
      return each.model == key.model && each.gpu == key.gpu && each.tensor == key.tensor;
    };
    auto found = std::find_if(all.begin(), all.end(), same);
    if (found == all.end()) found = all.insert(all.end(), key);
    if (count_field(path, row, fields[layer]) != static_cast<int>(found->forward.size())) {
      throw InputError(path + ": row " + std::to_string(row), "layer " + std::string(fields[layer]),
                       "layer " + std::to_string(found->forward.size()) + " of this model, gpu and tp");
    }
    found->forward.push_back(time_field(path, row, fields[time], kLongestLayer));
  }
  return all;
}

}  // namespace

int count_in_name(const std::string& path, std::string_view mark) {
  const std::string name = std::filesystem::path(path).filename().string();
  const std::size_t at = name.find(mark);
  int value = 0;
  if (at != std::string::npos) {
    std::from_chars(name.data() + at + mark.size(), name.data() + name.size(), value);
  }
  if (value >= 1 && value <= 4096) return value;
  throw InputError(
      path, "a file name without a count after '" + std::string(mark) + "'",
      "the name its tool gave it, such as DeviceType.A100_tp1_bs4.json or gpt_mbs4_tp1_algo0.csv");
}

std::vector<AmpRows> read_amp_rows(const std::string& path) {
  CsvStream rows(path, path);
  return amp_rows(path, rows);
}

std::vector<LayerTable> read_csv_layers(const std::string& path) {
  CsvStream rows(path, path);
  if (rows.find_column("op_name")) return aceso_table(path, rows);
  if (!rows.find_column("layer_index")) {
    throw InputError(path, "neither op_name nor layer_index in the header",
                     "a layer profile of Aceso (op_name, ...) or AMP (layer_index, ...)");
  }
  std::vector<LayerTable> tables;
  const std::vector<AmpRows> all = amp_rows(path, rows);
  for (const AmpRows& each : all) {
    const auto whole = std::find_if(all.begin(), all.end(), [&](const AmpRows& other) {
      return other.model == each.model && other.gpu == each.gpu && other.tensor == 1 &&
             other.forward.size() == each.forward.size();
    });
    tables.push_back(amp_table(path, each, whole == all.end() ? nullptr : &*whole));
  }
  return tables;
}

}  // namespace orrery
