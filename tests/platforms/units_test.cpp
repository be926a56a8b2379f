#include "platforms/units.hpp"

#include <random>

#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"

using namespace orrery;

namespace {

template <class Q>
double parsed(const std::string& text) {
  return parse_quantity<Q>(text, "test").value();
}

template <class Q>
std::string trouble(const std::string& text) {
  return input_error([&] { parse_quantity<Q>(text, "f.yaml:7: key"); });
}

}  // namespace

TEST_CASE("every unit of time is read as seconds") {
  CHECK(parsed<Seconds>("3ns") == 3 * 1e-9);
  CHECK(parsed<Seconds>("5us") == 5 * 1e-6);
  CHECK(parsed<Seconds>("1.5 ms") == 1.5 * 1e-3);
  CHECK(parsed<Seconds>("2 s") == 2);
  CHECK(parsed<Seconds>("2min") == 120);
  CHECK(parsed<Seconds>("2h") == 7200);
  CHECK(parsed<Seconds>("30 d") == 30 * 86400.0);
  CHECK(parse_quantity<Seconds>("5us", "") == microseconds(5));
}

TEST_CASE("k M G T P are powers of 1000, Ki Mi Gi Ti of 1024") {
  CHECK(parsed<Bytes>("7B") == 7);
  CHECK(parsed<Bytes>("1kB") == 1e3);
  CHECK(parsed<Bytes>("1KB") == 1e3);
  CHECK(parsed<Bytes>("1MB") == 1e6);
  CHECK(parsed<Bytes>("1GB") == 1e9);
  CHECK(parsed<Bytes>("1TB") == 1e12);
  CHECK(parsed<Bytes>("1PB") == 1e15);
  CHECK(parsed<Bytes>("1KiB") == 1024);
  CHECK(parsed<Bytes>("16MiB") == 16.0 * 1024 * 1024);
  CHECK(parsed<Bytes>("80GiB") == gibibytes(80).value());
  CHECK(parsed<Bytes>("1TiB") == 1024.0 * gibibytes(1).value());
}

TEST_CASE("a small b is a bit, a large B a byte") {
  CHECK(parsed<BytesPerSecond>("400Gbps") == 50e9);  // 400e9 / 8
  CHECK(parsed<BytesPerSecond>("400 Gb/s") == 50e9);
  CHECK(parsed<BytesPerSecond>("400Gbit/s") == 50e9);
  CHECK(parsed<BytesPerSecond>("900GBps") == 900e9);
  CHECK(parsed<BytesPerSecond>("900 GB/s") == 900e9);
  CHECK(parsed<BytesPerSecond>("50GiBps") == 50 * kGibi);
  CHECK(parsed<BytesPerSecond>("50 GiB/s") == 50 * kGibi);
  CHECK(parsed<BytesPerSecond>("53687091200Bps") == 50 * kGibi);
  CHECK(parsed<BytesPerSecond>("2TBps") == 2e12);
}

TEST_CASE("speeds, work, money, prices and power are read") {
  CHECK(parsed<FlopsPerSecond>("312TFLOPS") == 312e12);
  CHECK(parsed<FlopsPerSecond>("5 GFLOP/s") == 5e9);
  CHECK(parsed<Flops>("3TFLOP") == 3e12);
  CHECK(parsed<Dollars>("99.5 USD") == 99.5);
  CHECK(parsed<Dollars>("2 M USD") == 2e6);
  CHECK(parsed<DollarsPerHour>("32.77 USD/h") == 32.77);
  CHECK(parsed<Watts>("700W") == 700);
}

TEST_CASE("numbers may have exponents and surrounding blanks, and minus zero is zero") {
  CHECK(parsed<Seconds>("  1e-3 s ") == 1e-3);
  CHECK(parsed<Seconds>(".5s") == 0.5);
  CHECK_FALSE(std::signbit(parsed<Seconds>("-0s")));
}

TEST_CASE("a bare number is told that its unit is missing") {
  CHECK(trouble<BytesPerSecond>("400") ==
        "f.yaml:7: key: found '400' (the unit is missing); expected a bandwidth with its unit, "
        "for example 400Gbps or 50GBps");
}

TEST_CASE("a unit of another dimension and an unknown unit are told apart") {
  CHECK(contains(trouble<BytesPerSecond>("80GiB"), "that is the unit of a size"));
  CHECK(contains(trouble<Bytes>("80GiBs"), "unknown unit 'GiBs', did you mean 'GiB'?"));
  CHECK(contains(trouble<Bytes>("80Gb"), "unknown unit 'Gb'"));  // a size in bits is a slip
  CHECK(contains(trouble<Seconds>("5 u s"), "unknown unit 'u s'"));
}

TEST_CASE("what is no quantity is refused") {
  const auto text = GENERATE(values<std::string>({"",        "  ",
                                                  "s",       "abc",
                                                  "nan s",   "NaNs",
                                                  "inf s",   "infinity s",
                                                  "-1s",     "-1e-300s",
                                                  "1e999s",  "1e-999s",
                                                  "1e13s",   "0x10 s",
                                                  "1,5s",    "1_000s",
                                                  "+5s",     "5ss",
                                                  "5s s",    "--5s",
                                                  "1e s",    std::string("5s\0", 3),
                                                  "\xff\xfe"}));
  INFO("'" << text << "'");
  CHECK_FALSE(trouble<Seconds>(text).empty());
}

TEST_CASE("each refusal says why") {
  CHECK(contains(trouble<Seconds>(""), "nothing"));
  CHECK(contains(trouble<Seconds>("abc"), "no number"));
  CHECK(contains(trouble<Seconds>("nan s"), "not a finite number"));
  CHECK(contains(trouble<Seconds>("-1s"), "negative"));
  CHECK(contains(trouble<Seconds>("1e999s"), "out of range"));
  CHECK(contains(trouble<Seconds>("1e13s"), "absurdly large"));  // 300,000 years
}

TEST_CASE("people's text has four significant digits and a fitting unit") {
  CHECK(to_text(Seconds(0.038032)) == "38.03 ms");
  CHECK(to_text(microseconds(5)) == "5 us");
  CHECK(to_text(Seconds(3e-9)) == "3 ns");
  CHECK(to_text(Seconds(1)) == "1 s");
  CHECK(to_text(Seconds(90)) == "90 s");
  CHECK(to_text(Seconds(600)) == "10 min");
  CHECK(to_text(hours(30)) == "30 h");
  CHECK(to_text(hours(72)) == "3 d");
  CHECK(to_text(Seconds(0)) == "0 s");
  CHECK(to_text(-milliseconds(2)) == "-2 ms");
  CHECK(to_text(gibibytes(79.2)) == "79.2 GiB");
  CHECK(to_text(Bytes(512)) == "512 B");
  CHECK(to_text(gigabytes_per_second(12.5)) == "12.5 GB/s");
  CHECK(to_text(teraflops(312)) == "312 TFLOPS");
  CHECK(to_text(teraflops(1979)) == "1.979 PFLOPS");
  CHECK(to_text(Dollars(0)) == "0 USD");
  CHECK(to_text(Dollars(0.01234)) == "0.01234 USD");
  CHECK(to_text(Dollars(1234.5)) == "1234 USD");  // a tie of halves goes to the even digit
  CHECK(to_text(Dollars(2.5e6)) == "2.5 M USD");
}

TEST_CASE("rounding up to the next unit changes the unit") {
  CHECK(to_text(Seconds(0.00099999)) == "1 ms");
  CHECK(to_text(Seconds(0.0009999)) == "999.9 us");
}

TEST_CASE("numbers that are not finite still print") {
  CHECK(to_text(Seconds(INFINITY)).find("inf") == 0);
  CHECK(to_text(Seconds(NAN)).find("nan") != std::string::npos);
}

TEST_CASE("exact text is short for the numbers people write") {
  CHECK(to_exact_text(gibibytes(80)) == "80GiB");
  CHECK(to_exact_text(gigabits_per_second(400)) == "50GBps");
  CHECK(to_exact_text(microseconds(5)) == "5us");
  CHECK(to_exact_text(DollarsPerHour(32.77)) == "32.77 USD/h");
  CHECK(to_exact_text(teraflops(312)) == "312TFLOPS");
  CHECK(to_exact_text(Watts(700)) == "700W");
  CHECK(to_exact_text(Seconds(0)) == "0s");
}

namespace {

template <class Q>
void check_round_trip(double smallest, double largest) {
  std::mt19937_64 random(20260101);
  std::uniform_real_distribution<double> exponent(std::log10(smallest), std::log10(largest));
  for (int i = 0; i < 5000; ++i) {
    const Q value(std::pow(10.0, exponent(random)));
    const std::string text = to_exact_text(value);
    INFO(text);
    REQUIRE(parse_quantity<Q>(text, "test") == value);
  }
}

}  // namespace

TEST_CASE("exact text is read back to the very same value, whatever the value") {
  check_round_trip<Seconds>(1e-12, 1e11);
  check_round_trip<Bytes>(1e-2, 1e20);
  check_round_trip<Flops>(1e-2, 1e35);
  check_round_trip<BytesPerSecond>(1e-2, 1e17);
  check_round_trip<FlopsPerSecond>(1e-2, 1e23);
  check_round_trip<Dollars>(1e-2, 1e14);
  check_round_trip<DollarsPerHour>(1e-2, 1e8);
  check_round_trip<DollarsPerGigabyte>(1e-2, 1e8);
  check_round_trip<Watts>(1e-2, 1e8);
}

TEST_CASE("people's text is read back to four digits") {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-8, 8);
  for (int i = 0; i < 2000; ++i) {
    const Seconds value(std::pow(10.0, exponent(random)));
    INFO(to_text(value));
    REQUIRE(parse_quantity<Seconds>(to_text(value), "test").value() == Approx(value.value()).epsilon(5.1e-4));
  }
}
