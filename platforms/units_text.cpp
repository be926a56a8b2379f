// Quantities for people; units.cpp reads them and writes them exactly.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <initializer_list>

#include "platforms/units.hpp"

namespace orrery {

namespace {

// Four significant digits without an exponent and without trailing zeros.
std::string four_digits(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == 0) return "0";
  const int exponent = static_cast<int>(std::floor(std::log10(std::fabs(value))));
  const int decimals = std::clamp(3 - exponent, 0, 15);
  std::array<char, 400> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
  std::string text(buffer.data());
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

struct Step {
  double start;  // the smallest amount, in base units, that is written in this unit
  double factor;
  const char* unit;
};

std::string scaled_text(double value, std::initializer_list<Step> steps) {
  const Step* chosen = steps.begin();
  for (const Step& step : steps) {
    // A value that four digits would round up to the next unit is written in that unit: "1 ms", not "1000
    // us".
    if (std::fabs(value) >= step.start * 0.99995) chosen = &step;
  }
  if (value == 0)
    chosen = std::find_if(steps.begin(), steps.end(), [](const Step& step) { return step.factor == 1; });
  return four_digits(value / chosen->factor) + " " + chosen->unit;
}

}  // namespace

std::string to_text(Seconds time) {
  return scaled_text(time.value(), {{1e-9, 1e-9, "ns"},
                                    {1e-6, 1e-6, "us"},
                                    {1e-3, 1e-3, "ms"},
                                    {1, 1, "s"},
                                    {120, 60, "min"},
                                    {7200, 3600, "h"},
                                    {172800, 86400, "d"}});
}

std::string to_text(Bytes size) {
  return scaled_text(size.value(), {{1, 1, "B"},
                                    {kKibi, kKibi, "KiB"},
                                    {kMebi, kMebi, "MiB"},
                                    {kGibi, kGibi, "GiB"},
                                    {kTebi, kTebi, "TiB"}});
}

std::string to_text(BytesPerSecond bandwidth) {
  return scaled_text(bandwidth.value(), {{1, 1, "B/s"},
                                         {kKilo, kKilo, "kB/s"},
                                         {kMega, kMega, "MB/s"},
                                         {kGiga, kGiga, "GB/s"},
                                         {kTera, kTera, "TB/s"}});
}

std::string to_text(FlopsPerSecond speed) {
  return scaled_text(speed.value(), {{1, 1, "FLOPS"},
                                     {kKilo, kKilo, "kFLOPS"},
                                     {kMega, kMega, "MFLOPS"},
                                     {kGiga, kGiga, "GFLOPS"},
                                     {kTera, kTera, "TFLOPS"},
                                     {1e15, 1e15, "PFLOPS"}});
}

std::string to_text(Dollars money) {
  return scaled_text(money.value(), {{0, 1, "USD"}, {1e4, kKilo, "k USD"}, {kMega, kMega, "M USD"}});
}

}  // namespace orrery
