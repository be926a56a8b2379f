// What one rented machine is: GPUs, NICs and list prices from the catalog.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platforms/units.hpp"

namespace orrery {

// How a machine is bought; a column of the price list.
enum class Pricing { on_demand, spot, reserved_1y };
std::string_view to_text(Pricing);  // "on_demand", as cluster files write it
// `place` names the option or file and line in the message. Throws InputError.
Pricing parse_pricing(std::string_view text, const std::string& place);

struct InstancePrice {
  std::string region;
  std::optional<DollarsPerHour> on_demand, reserved_1y, spot;  // of the whole instance
  std::string date;                                            // of the price list
  std::string source;
  [[nodiscard]] std::optional<DollarsPerHour> of(Pricing) const;
  bool operator==(const InstancePrice&) const = default;
};

struct InstanceSpec {
  std::string provider;  // "AWS"
  std::string name;      // "p5.48xlarge"
  std::string gpu;       // catalog name of the GPU
  int gpus = 0;
  std::optional<BytesPerSecond>
      network;                         // all NICs together, one direction; absent where the source has none
  std::optional<Seconds> nic_latency;  // of each NIC, where its fabric's is known (kNicLatency otherwise)
  std::optional<Bytes> host_memory;
  int nics = 1;                       // how many NICs that bandwidth is spread over
  std::vector<InstancePrice> prices;  // one a region, in the order of the source
  std::vector<std::string> aliases;   // "aws-h100"
  bool operator==(const InstanceSpec&) const = default;
};

const std::vector<InstanceSpec>& instance_catalog();
// By name or alias, case ignored. Throws InputError{place, ...} with the nearest name.
const InstanceSpec& find_instance(std::string_view name, const std::string& place);

}  // namespace orrery
