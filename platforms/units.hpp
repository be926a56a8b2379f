// Physical quantities as types: a number of seconds cannot be added to a number of bytes.
#pragma once

#include <cmath>
#include <compare>
#include <string>
#include <string_view>

namespace orrery {

// A quantity of one dimension, stored as float64 in its SI base unit (s, B, FLOP, B/s, FLOP/s, USD, USD/s,
// W).
template <class Dimension>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double value) : value_(value) {}

  // The bare number in the base unit; for use at the edge of a library only.
  [[nodiscard]] constexpr double value() const { return value_; }

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value_ -= other.value_;
    return *this;
  }
  constexpr Quantity& operator*=(double factor) {
    value_ *= factor;
    return *this;
  }

  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value_ + b.value_); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value_ - b.value_); }
  friend constexpr Quantity operator-(Quantity a) { return Quantity(-a.value_); }
  friend constexpr Quantity operator*(Quantity a, double factor) { return Quantity(a.value_ * factor); }
  friend constexpr Quantity operator*(double factor, Quantity a) { return Quantity(a.value_ * factor); }
  friend constexpr Quantity operator/(Quantity a, double divisor) { return Quantity(a.value_ / divisor); }
  friend constexpr double operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }

 private:
  double value_ = 0.0;
};

using Seconds = Quantity<struct TimeDimension>;
using Bytes = Quantity<struct DataDimension>;
using Flops = Quantity<struct WorkDimension>;
using BytesPerSecond = Quantity<struct BandwidthDimension>;
using FlopsPerSecond = Quantity<struct SpeedDimension>;
using Dollars = Quantity<struct MoneyDimension>;
using DollarsPerHour = Quantity<struct PriceDimension>;  // stored in USD per hour, as every price list does
using DollarsPerGigabyte = Quantity<struct DataPriceDimension>;  // stored in USD per 1e9 bytes, likewise
using Watts = Quantity<struct PowerDimension>;

constexpr Seconds operator/(Bytes size, BytesPerSecond bandwidth) {
  return Seconds(size.value() / bandwidth.value());
}
constexpr Seconds operator/(Flops work, FlopsPerSecond speed) {
  return Seconds(work.value() / speed.value());
}
constexpr BytesPerSecond operator/(Bytes size, Seconds time) {
  return BytesPerSecond(size.value() / time.value());
}
constexpr FlopsPerSecond operator/(Flops work, Seconds time) {
  return FlopsPerSecond(work.value() / time.value());
}
constexpr Bytes operator*(BytesPerSecond bandwidth, Seconds time) {
  return Bytes(bandwidth.value() * time.value());
}
constexpr Flops operator*(FlopsPerSecond speed, Seconds time) {
  return Flops(speed.value() * time.value());
}
constexpr Dollars operator*(DollarsPerHour price, Seconds time) {
  return Dollars(price.value() * time.value() / 3600.0);
}

constexpr Dollars operator*(DollarsPerGigabyte price, Bytes size) {
  return Dollars(price.value() * size.value() / 1e9);
}

inline constexpr double kKilo = 1e3, kMega = 1e6, kGiga = 1e9, kTera = 1e12;
inline constexpr double kKibi = 1024.0, kMebi = kKibi * 1024, kGibi = kMebi * 1024, kTebi = kGibi * 1024;
constexpr Bytes gibibytes(double amount) {
  return Bytes(amount * kGibi);
}
constexpr BytesPerSecond gigabytes_per_second(double amount) {
  return BytesPerSecond(amount * kGiga);
}
// Network equipment is sold in bits per second.
constexpr BytesPerSecond gigabits_per_second(double amount) {
  return BytesPerSecond(amount * kGiga / 8);
}
constexpr FlopsPerSecond teraflops(double amount) {
  return FlopsPerSecond(amount * kTera);
}
constexpr Seconds microseconds(double amount) {
  return Seconds(amount * 1e-6);
}
constexpr Seconds milliseconds(double amount) {
  return Seconds(amount * 1e-3);
}
constexpr Seconds hours(double amount) {
  return Seconds(amount * 3600);
}
constexpr double to_gibibytes(Bytes size) {
  return size.value() / kGibi;
}
constexpr double to_hours(Seconds time) {
  return time.value() / 3600;
}

// Reads "<number> <unit>" ("5us", "400Gbps", "900 GB/s", "80GiB", "312TFLOPS", "32.77 USD/h"); prefixes k M G
// T P are powers of 1000, Ki Mi Gi Ti of 1024; "b" is a bit, "B" a byte. Throws InputError{source: what, ...}
// when the unit is missing, unknown or of another dimension, or the number is not finite or is negative.
// `what` names the place in messages, for example "cluster.yaml:12: gpu_memory".
template <class Q>
Q parse_quantity(std::string_view text, const std::string& what);

// The shortest text that reads back as exactly this number: "0.1".
std::string shortest_text(double);

// Shortest readable form with four significant digits and a unit: "38.03 ms", "79.2 GiB", "12.5 GB/s", "312
// TFLOPS".
std::string to_text(Seconds);
std::string to_text(Bytes);
std::string to_text(BytesPerSecond);
std::string to_text(FlopsPerSecond);
std::string to_text(Dollars);

// The shortest text that parse_quantity reads back to exactly this value (finite, not negative): "80GiB",
// "50GBps", "32.77 USD/h".
template <class Q>
std::string to_exact_text(Q);

}  // namespace orrery
