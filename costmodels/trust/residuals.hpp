// What published runs say of predictions: the table that comes with Orrery.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "costmodels/trust/intervals.hpp"
#include "costmodels/trust/out_of_memory.hpp"

namespace orrery {

struct Residuals {
  std::vector<ResidualGroup> time, memory;
  OutOfMemoryModel out_of_memory;
  [[nodiscard]] const std::vector<ResidualGroup>& of(Predicted) const;
  bool operator==(const Residuals&) const = default;
};

// What `orrery validate --write-intervals` wrote. Throws InputError.
Residuals parse_residuals(std::string_view yaml, const std::string& file);
// `facts`: lines of provenance. Ends with a line break.
std::string to_yaml(const Residuals&, const std::vector<std::string>& facts);

const Residuals& built_in_residuals();
// The intervals that predictions are printed with, made from these groups: widened as for a run whose source
// nobody has read again.
IntervalModel interval_model(std::vector<ResidualGroup>, Predicted);
// By these: where the true value of a run lies, and how many runs as full ran out of memory.
ErrorBand band_of(const RunKind&, Predicted);
double out_of_memory_chance(double fullness);

}  // namespace orrery
