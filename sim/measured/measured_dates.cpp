#include "sim/measured/measured_dates.hpp"

#include <regex>
#include <string>
#include <string_view>

#include "sim/measured/cell_text.hpp"

namespace orrery {
namespace {

// Of the month that names a container of NVIDIA's ("Megatron-Bridge 26.02", "NeMo 24.07"), in years. 0: none.
double date_of_release(const std::string& framework) {
  static const std::regex release(R"((?:^|[^\d.])(2\d)\.(0[1-9]|1[0-2])(?:\D|$))");
  std::smatch found;
  if (!says_any(lower_case(framework), {"nemo", "megatron-bridge"}) ||
      !std::regex_search(framework, found, release))
    return 0;
  return 2000 + std::stoi(found[1]) + (std::stoi(found[2]) - 0.5) / 12;
}

// Of publication, in years: from an arXiv number (its first four digits), else of the first number that can
// be a year, with its month ("June 2025", "2025-06", "202506") or its middle. 0: none.
double date_of(const std::string& source) {
  std::smatch found;
  static const std::regex arxiv(R"((\d\d)(\d\d)\.\d{4,5})"),
      year(R"((?:^|\D)(20[12]\d)(?:-?(0[1-9]|1[0-2])(?:\D|$)|\D|$))"),
      month(R"((jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* 20[12]\d)", std::regex::icase);
  constexpr std::string_view kMonths = "janfebmaraprmayjunjulaugsepoctnovdec";
  if (std::regex_search(source, found, arxiv))
    return 2000 + std::stoi(found[1]) + (std::stoi(found[2]) - 1) / 12.0;
  std::smatch named;
  if (!std::regex_search(source, found, year)) return 0;
  const int first = std::stoi(found[1]);
  if (std::regex_search(source, named, month))
    return first + (static_cast<double>(kMonths.find(lower_case(named[1]))) / 3 + 0.5) / 12;
  return found[2].matched ? first + (std::stoi(found[2]) - 0.5) / 12 : first + 0.5;
}

double date_of_framework(const std::string& framework) {
  const double release = date_of_release(framework);
  return release > 0 ? release : date_of(framework);
}

}  // namespace

bool names_its_date(const MeasuredRun& run) {
  return date_of_framework(run.text("framework")) > 0;
}

double date_of_program(const MeasuredRun& run) {
  const double named = date_of_framework(run.text("framework"));
  return named > 0 ? named : date_of(run.text("source"));
}

}  // namespace orrery
