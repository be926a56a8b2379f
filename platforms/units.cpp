#include "platforms/units.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <utility>
#include <vector>

#include "platforms/errors.hpp"

namespace orrery {

std::string shortest_text(double value) {
  std::array<char, 64> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), result.ptr);
}

namespace {

struct Unit {
  std::string name;
  double factor;  // of the base unit
};

struct Dimension {
  std::string name;     // "a bandwidth"
  std::string example;  // "400Gbps"
  double largest;       // above this the number is a slip of the pen, not a quantity
  std::string gap;      // between number and unit when written
  std::vector<Unit> units;
};

constexpr std::array<std::pair<const char*, double>, 7> kPrefixes = {
    {{"", 1}, {"k", kKilo}, {"K", kKilo}, {"M", kMega}, {"G", kGiga}, {"T", kTera}, {"P", 1e15}}};
constexpr std::array<std::pair<const char*, double>, 4> kBinaryPrefixes = {
    {{"Ki", kKibi}, {"Mi", kMebi}, {"Gi", kGibi}, {"Ti", kTebi}}};

// Every prefix before every name; names earlier in the list are the preferred spellings.
void add_prefixed(std::vector<Unit>& units, std::initializer_list<Unit> bases) {
  for (const Unit& base : bases) {
    for (const auto& [prefix, factor] : kPrefixes)
      units.push_back({prefix + base.name, factor * base.factor});
  }
}

void add_binary(std::vector<Unit>& units, std::initializer_list<Unit> bases) {
  for (const Unit& base : bases) {
    for (const auto& [prefix, factor] : kBinaryPrefixes)
      units.push_back({prefix + base.name, factor * base.factor});
  }
}

Dimension time_dimension() {
  return {"a time",
          "5us",
          1e12,
          "",
          {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"min", 60}, {"h", 3600}, {"d", 86400}}};
}

Dimension data_dimension() {
  Dimension data{"a size", "80GiB", 1e21, "", {}};
  add_prefixed(data.units, {{"B", 1}});
  add_binary(data.units, {{"B", 1}});
  return data;
}

Dimension work_dimension() {
  Dimension work{"an amount of work", "10TFLOP", 1e36, "", {}};
  add_prefixed(work.units, {{"FLOP", 1}});
  return work;
}

Dimension bandwidth_dimension() {
  Dimension bandwidth{"a bandwidth", "400Gbps or 50GBps", 1e18, "", {}};
  add_prefixed(bandwidth.units, {{"Bps", 1}, {"B/s", 1}, {"bps", 0.125}, {"b/s", 0.125}, {"bit/s", 0.125}});
  add_binary(bandwidth.units, {{"Bps", 1}, {"B/s", 1}});
  return bandwidth;
}

Dimension speed_dimension() {
  Dimension speed{"a speed", "312TFLOPS", 1e24, "", {}};
  add_prefixed(speed.units, {{"FLOPS", 1}, {"FLOP/s", 1}});
  return speed;
}

Dimension money_dimension() {
  return {"an amount of money",
          "2000 USD",
          1e15,
          " ",
          {{"USD", 1}, {"kUSD", kKilo}, {"k USD", kKilo}, {"MUSD", kMega}, {"M USD", kMega}}};
}

Dimension price_dimension() {
  return {"a price per hour", "32.77 USD/h", 1e9, " ", {{"USD/h", 1}, {"USD/hour", 1}}};
}

Dimension data_price_dimension() {
  return {"a price of data", "0.02 USD/GB", 1e9, " ", {{"USD/GB", 1}, {"USD/TB", 1e-3}}};
}

Dimension power_dimension() {
  return {"a power", "700W", 1e9, "", {{"W", 1}, {"kW", kKilo}, {"MW", kMega}}};
}

enum class DimensionId { time, data, work, bandwidth, speed, money, price, data_price, power };

const Dimension& dimension(DimensionId id) {
  static const std::array<Dimension, 9> all = {
      time_dimension(),  data_dimension(),  work_dimension(),       bandwidth_dimension(), speed_dimension(),
      money_dimension(), price_dimension(), data_price_dimension(), power_dimension()};
  return all[static_cast<std::size_t>(id)];
}

template <class Q>
constexpr DimensionId dimension_of();
template <>
constexpr DimensionId dimension_of<Seconds>() {
  return DimensionId::time;
}
template <>
constexpr DimensionId dimension_of<Bytes>() {
  return DimensionId::data;
}
template <>
constexpr DimensionId dimension_of<Flops>() {
  return DimensionId::work;
}
template <>
constexpr DimensionId dimension_of<BytesPerSecond>() {
  return DimensionId::bandwidth;
}
template <>
constexpr DimensionId dimension_of<FlopsPerSecond>() {
  return DimensionId::speed;
}
template <>
constexpr DimensionId dimension_of<Dollars>() {
  return DimensionId::money;
}
template <>
constexpr DimensionId dimension_of<DollarsPerHour>() {
  return DimensionId::price;
}
template <>
constexpr DimensionId dimension_of<DollarsPerGigabyte>() {
  return DimensionId::data_price;
}
template <>
constexpr DimensionId dimension_of<Watts>() {
  return DimensionId::power;
}

const Unit* find_unit(const Dimension& dimension, std::string_view name) {
  const auto unit = std::find_if(dimension.units.begin(), dimension.units.end(),
                                 [&](const Unit& candidate) { return candidate.name == name; });
  return unit == dimension.units.end() ? nullptr : &*unit;
}

std::string expected_text(const Dimension& wanted) {
  return wanted.name + " with its unit, for example " + wanted.example;
}

// What is wrong with a unit that the wanted dimension does not have.
std::string unit_trouble(std::string_view unit, const Dimension& wanted) {
  if (unit.empty()) return " (the unit is missing)";
  for (int id = 0; id <= static_cast<int>(DimensionId::power); ++id) {
    const Dimension& other = dimension(static_cast<DimensionId>(id));
    if (find_unit(other, unit) != nullptr) return " (that is the unit of " + other.name + ")";
  }
  std::vector<std::string> names;
  for (const Unit& candidate : wanted.units) names.push_back(candidate.name);
  return " (unknown unit " + quote_for_message(unit) + did_you_mean(unit, names) + ")";
}

std::string_view strip(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

double parse(std::string_view text, const std::string& what, const Dimension& wanted) {
  const auto fail = [&](const std::string& trouble) {
    throw InputError(what, quote_for_message(text) + trouble, expected_text(wanted));
  };
  const std::string_view content = strip(text);
  if (content.empty()) fail(" (nothing)");
  double number = 0;
  const auto [end, error] = std::from_chars(content.data(), content.data() + content.size(), number);
  if (error == std::errc::invalid_argument) fail(" (no number at the start)");
  if (error == std::errc::result_out_of_range) fail(" (the number is out of range)");
  if (!std::isfinite(number)) fail(" (not a finite number)");
  if (std::signbit(number) && number != 0) fail(" (negative)");
  const std::string_view name = strip(content.substr(static_cast<std::size_t>(end - content.data())));
  const Unit* unit = find_unit(wanted, name);
  if (unit == nullptr) fail(unit_trouble(name, wanted));
  const double value = std::fabs(number) * unit->factor;  // fabs: "-0s" is zero
  if (value > wanted.largest) fail(" (absurdly large)");
  return value;
}

std::string exact_text(double value, const Dimension& in) {
  ORRERY_ENSURE(std::isfinite(value) && value >= 0);  // nothing else can be read back
  std::string best;
  for (const Unit& unit : in.units) {
    const double amount = value / unit.factor;
    if (amount * unit.factor != value) continue;
    const std::string text = shortest_text(amount) + in.gap + unit.name;
    if (best.empty() || text.size() < best.size()) best = text;
  }
  return best;
}

}  // namespace

template <class Q>
Q parse_quantity(std::string_view text, const std::string& what) {
  return Q(parse(text, what, dimension(dimension_of<Q>())));
}

template <class Q>
std::string to_exact_text(Q quantity) {
  return exact_text(quantity.value(), dimension(dimension_of<Q>()));
}

template Seconds parse_quantity<Seconds>(std::string_view, const std::string&);
template Bytes parse_quantity<Bytes>(std::string_view, const std::string&);
template Flops parse_quantity<Flops>(std::string_view, const std::string&);
template BytesPerSecond parse_quantity<BytesPerSecond>(std::string_view, const std::string&);
template FlopsPerSecond parse_quantity<FlopsPerSecond>(std::string_view, const std::string&);
template Dollars parse_quantity<Dollars>(std::string_view, const std::string&);
template DollarsPerHour parse_quantity<DollarsPerHour>(std::string_view, const std::string&);
template DollarsPerGigabyte parse_quantity<DollarsPerGigabyte>(std::string_view, const std::string&);
template Watts parse_quantity<Watts>(std::string_view, const std::string&);

template std::string to_exact_text<Seconds>(Seconds);
template std::string to_exact_text<Bytes>(Bytes);
template std::string to_exact_text<Flops>(Flops);
template std::string to_exact_text<BytesPerSecond>(BytesPerSecond);
template std::string to_exact_text<FlopsPerSecond>(FlopsPerSecond);
template std::string to_exact_text<Dollars>(Dollars);
template std::string to_exact_text<DollarsPerHour>(DollarsPerHour);
template std::string to_exact_text<DollarsPerGigabyte>(DollarsPerGigabyte);
template std::string to_exact_text<Watts>(Watts);

}  // namespace orrery
