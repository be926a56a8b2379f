#include "sim/measured_network.hpp"

#include <regex>

namespace orrery {
namespace {

// "2 x 100 Gb/s" as people write it.
std::string with_plain_crosses(std::string text) {
  constexpr std::string_view kTimes = "\u00d7";
  for (std::size_t at = text.find(kTimes); at != std::string::npos; at = text.find(kTimes, at + 1))
    text.replace(at, kTimes.size(), "x");
  return text;
}

enum class Of { nothing, gpu, card, node };

std::regex one_of_them(const std::string& nouns) {
  return std::regex("(?:per|a|an|each|every|/)[ -]?(?:" + nouns + R"()\b)", std::regex::icase);
}

Of scope_of(const std::string& text) {
  static const std::regex kGpu = one_of_them("GPU"), kCard = one_of_them("card|NIC|HCA|port|adapter|rail"),
                          kNode = one_of_them("node|server|host|machine");
  if (std::regex_search(text, kGpu)) return Of::gpu;
  if (std::regex_search(text, kCard)) return Of::card;
  return std::regex_search(text, kNode) ? Of::node : Of::nothing;
}

// The number of cards that the text before their rate ends with.
std::optional<double> cards_before(const std::string& text) {
  static const std::regex kCards(
      R"((\d+) *[xX] *(?:[A-Za-z][\w/-]* +)*$|(\d+) +(?:NICs?|cards?|HCAs?|adapters?|ports?|rails?) +(?:of|at) +$)");
  std::smatch found;
  if (!std::regex_search(text, found, kCards)) return std::nullopt;
  return std::stod(found[1].matched ? found[1] : found[2]);
}

}  // namespace

bool says_remote_memory(const std::string& text) {
  static const std::regex kRemote(
      R"(InfiniBand|\bIB\b|RDMA|RoCE|\bEFA|\b[EHNX]DR|\bFDR|Slingshot|Omni-?Path|ConnectX|\bCX-?\d|Quantum|Spectrum)",
      std::regex::icase);
  return std::regex_search(text, kRemote);
}

std::optional<SaidNetwork> said_network(const std::string& given, int gpus_per_node,
                                        const SaidNetwork& usual) {
  constexpr double kMostGigabits = 1e6, kMostNics = 1024, kOneCard = 400;
  static const std::regex kInside(R"(^ *\(?(?:NVLink|intra))", std::regex::icase);
  static const std::regex kRate(R"((\d+(?:\.\d+)?) *([GT])(?:bps|b/s|bit/s|bE\b))");
  constexpr std::size_t kLongest = 200;  // std::regex goes as deep as its text is long
  const std::string text = with_plain_crosses(given.substr(0, kLongest));
  for (std::sregex_iterator found(text.begin(), text.end(), kRate), end; found != end; ++found) {
    const std::string after = found->suffix();
    if (std::regex_search(after, kInside)) continue;
    const double rate = std::stod((*found)[1]) * ((*found)[2] == "T" ? 1000 : 1);
    if (!(rate > 0 && rate <= kMostGigabits)) continue;
    if (const auto nics = cards_before(found->prefix())) {
      if (!(*nics >= 1 && *nics <= kMostNics)) continue;
      return SaidNetwork{static_cast<int>(*nics), rate};
    }
    switch (scope_of(text)) {
      case Of::gpu:
        return SaidNetwork{gpus_per_node, rate};
      case Of::card:
        return SaidNetwork{usual.nics, rate};
      case Of::node:
        return rate >= kOneCard ? SaidNetwork{gpus_per_node, rate / gpus_per_node} : SaidNetwork{1, rate};
      case Of::nothing:
        return rate == usual.gigabits && says_remote_memory(text) ? usual : SaidNetwork{1, rate};
    }
  }
  return std::nullopt;
}

}  // namespace orrery
