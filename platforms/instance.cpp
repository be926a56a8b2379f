#include "platforms/instance.hpp"

#include "platforms/embedded.hpp"
#include "platforms/gpu.hpp"
#include "platforms/yaml.hpp"

extern "C" const orrery::EmbeddedRow orrery_embedded_platforms[];

namespace orrery {

namespace {

constexpr int kMostGpus = 1024;

std::optional<DollarsPerHour> optional_price(const YamlValue& row, const std::string& key) {
  const std::optional<YamlValue> value = row.find(key);
  if (!value) return std::nullopt;
  return value->positive_quantity<DollarsPerHour>();
}

InstancePrice read_price(const YamlValue& row, const std::string& instance_source) {
  row.allow_keys({"region", "on_demand", "reserved_1y", "spot", "date", "note"});
  InstancePrice price;
  price.region = row.at("region").text();
  price.on_demand = optional_price(row, "on_demand");
  price.reserved_1y = optional_price(row, "reserved_1y");
  price.spot = optional_price(row, "spot");
  price.date = row.at("date").text();
  price.source = instance_source;
  if (const auto note = row.find("note")) price.source += "; " + note->text();
  return price;
}

InstanceSpec read_instance(const YamlValue& row) {
  row.allow_keys({"provider", "name", "aliases", "gpu", "gpus", "network", "nics", "nic_latency",
                  "host_memory", "source", "prices",
                  // What the catalog keeps for people.
                  "vcpus", "evidence", "note"});
  InstanceSpec instance;
  instance.provider = row.at("provider").text();
  instance.name = row.at("name").text();
  for (const YamlValue& alias : row.at("aliases").items()) instance.aliases.push_back(alias.text());
  instance.gpu = find_gpu(row.at("gpu").text(), row.at("gpu").place()).name;
  instance.gpus = static_cast<int>(row.at("gpus").integer(1, kMostGpus));
  if (const auto network = row.find("network"))
    instance.network = network->positive_quantity<BytesPerSecond>();
  if (const auto latency = row.find("nic_latency")) instance.nic_latency = latency->quantity<Seconds>();
  if (const auto memory = row.find("host_memory")) instance.host_memory = memory->positive_quantity<Bytes>();
  instance.nics = static_cast<int>(row.at("nics").integer(1, kMostGpus));
  const std::string source = row.at("source").text() + " (" + row.at("evidence").text() + ")";
  for (const YamlValue& price : row.at("prices").items())
    instance.prices.push_back(read_price(price, source));
  return instance;
}

std::vector<InstanceSpec> read_catalog() {
  const std::string name = "catalog/instances.yaml";
  std::vector<InstanceSpec> instances;
  for (const YamlValue& row :
       YamlValue::parse(embedded_file(orrery_embedded_platforms, name), name).items()) {
    instances.push_back(read_instance(row));
  }
  return instances;
}

}  // namespace

std::string_view to_text(Pricing pricing) {
  switch (pricing) {
    case Pricing::on_demand:
      return "on_demand";
    case Pricing::spot:
      return "spot";
    case Pricing::reserved_1y:
      return "reserved_1y";
  }
  fail_ensure("a kind of pricing", __FILE__, __LINE__);
}

Pricing parse_pricing(std::string_view text, const std::string& place) {
  for (const Pricing pricing : {Pricing::on_demand, Pricing::spot, Pricing::reserved_1y}) {
    if (to_text(pricing) == text) return pricing;
  }
  throw InputError(
      place, quote_for_message(text) + did_you_mean(std::string(text), {"on_demand", "spot", "reserved_1y"}),
      "on_demand, spot or reserved_1y");
}

std::optional<DollarsPerHour> InstancePrice::of(Pricing pricing) const {
  switch (pricing) {
    case Pricing::on_demand:
      return on_demand;
    case Pricing::spot:
      return spot;
    case Pricing::reserved_1y:
      return reserved_1y;
  }
  fail_ensure("a kind of pricing", __FILE__, __LINE__);
}

const std::vector<InstanceSpec>& instance_catalog() {
  static const std::vector<InstanceSpec> catalog = read_catalog();
  return catalog;
}

const InstanceSpec& find_instance(std::string_view name, const std::string& place) {
  std::vector<std::string> names;
  for (const InstanceSpec& instance : instance_catalog()) {
    if (same_name(instance.name, name)) return instance;
    names.push_back(instance.name);
    for (const std::string& alias : instance.aliases) {
      if (same_name(alias, name)) return instance;
      names.push_back(alias);
    }
  }
  throw InputError(place, "the unknown instance " + quote_for_message(name) + did_you_mean(name, names),
                   "a name of `orrery catalog instances`");
}

}  // namespace orrery
