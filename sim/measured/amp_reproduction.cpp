#include "sim/measured/amp_reproduction.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "traces/json_text.hpp"

namespace orrery {

void AmpReproduction::add(const AmpTrial& trial, Seconds ours) {
  // AMP adds in 32 bits, so the last printed digit may round the other way: a thousandth of it is let pass.
  constexpr double kHalfDigit = 0.5e-4 * 1.001;
  const double difference = std::abs(ours.value() - trial.predicted);
  ++plans;
  if (difference <= kHalfDigit) ++same_print;
  worst_difference_s = std::max(worst_difference_s, difference);
  if (!trial.measured) return;
  trials.predicted.push_back(ours.value());
  trials.measured.push_back(*trial.measured);
}

std::string to_text(const AmpReproduction& result) {
  char text[256];
  std::snprintf(text, sizeof text, "%d plans, %d of them as AMP printed them; the worst is %.6f s off\n",
                result.plans, result.same_print, result.worst_difference_s);
  std::string all = text;
  if (result.trials.measured.empty()) return all + "no trial of them ran\n";
  std::snprintf(text, sizeof text,
                "%zu trials ran: mean error %.2f %%, Spearman %.3f, regret of the first choice %.2f %%\n",
                result.trials.measured.size(), 100 * summarize_errors(result.trials).mean,
                spearman(result.trials), 100 * top1_regret(result.trials));
  return all + text;
}

std::string to_json(const AmpReproduction& result) {
  const double rank = spearman(result.trials);
  nlohmann::ordered_json json;
  json["plans"] = result.plans;
  json["as_printed"] = result.same_print;
  json["worst_difference_s"] = result.worst_difference_s;
  json["trials"] = {{"rows", result.trials.measured.size()},
                    {"mape", summarize_errors(result.trials).mean},
                    {"spearman", std::isnan(rank) ? nlohmann::ordered_json() : nlohmann::ordered_json(rank)},
                    {"top1_regret", top1_regret(result.trials)}};
  return json_document(json);
}

}  // namespace orrery
