#include "sim/measured/measured_network.hpp"

#include <algorithm>
#include <array>
#include <boost/algorithm/string/replace.hpp>
#include <regex>
#include <sstream>
#include <string_view>

#include "platforms/instance.hpp"
#include "sim/measured/cell_text.hpp"

namespace orrery {
namespace {

// "2 x 100 Gb/s" as people write it.
std::string with_plain_crosses(const std::string& text) {
  return boost::replace_all_copy(text, "\u00d7", "x");
}

constexpr std::size_t kLongestSaid = 200;  // std::regex goes as deep as its text is long

enum class Of { nothing, gpu, card, node };

std::regex one_of_them(const std::string& nouns) {
  return std::regex(R"((?:\b(?:per|a|an|each|every)|/)[ -]?(?:)" + nouns + R"()\b)", std::regex::icase);
}

Of scope_of(const std::string& text) {
  static const std::regex kGpu = one_of_them("GPU"), kCard = one_of_them("card|NIC|HCA|port|adapter|rail"),
                          kNode = one_of_them("node|server|host|machine");
  if (std::regex_search(text, kGpu)) return Of::gpu;
  if (std::regex_search(text, kCard)) return Of::card;
  return std::regex_search(text, kNode) ? Of::node : Of::nothing;
}

// What is said with a rate that begins there, between semicolons.
std::string said_with(const std::string& text, std::size_t rate) {
  const std::size_t before = text.rfind(';', rate), end = text.find(';', rate);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, end == std::string::npos ? end : end - begin);
}

double number_said(const std::string& word) {
  constexpr std::array<std::string_view, 6> kWords{"one", "two", "four", "eight", "ten", "sixteen"};
  constexpr std::array kNumbers{1.0, 2.0, 4.0, 8.0, 10.0, 16.0};
  const auto found = std::find(kWords.begin(), kWords.end(), lower_case(word));
  if (found != kWords.end()) return kNumbers[static_cast<std::size_t>(found - kWords.begin())];
  return std::stod(word);
}

// The number of cards that the text before their rate ends with: "8 x ", "8*", "16x EFAv3 (", "8 NICs of ",
// where cards follow it "eight ", where "each" does "8x HDR InfiniBand, "; or that the text after it begins
// with: " x 8".
std::optional<double> cards_said(const std::string& before, const std::string& after) {
  static const std::string kCards("(?:NICs?|cards?|HCAs?|adapters?|ports?|rails?)");
  static const std::string kNumber(R"(\b(\d+|one|two|four|eight|ten|sixteen))");
  static const std::string kKinds(
      "[EHNX]DR|InfiniBand|IB|Ethernet|RoCE|Mellanox|NVIDIA|Broadcom|Intel|AMD|Pensando|HPE");
  static const std::regex kTimes(R"((\d+) *[xX*] *(?:[A-Za-z][\w/-]* +)*\(?$)"),
      kOf(kNumber + " +" + kCards + " +(?:of|at) +$", std::regex::icase),
      kAlone(kNumber + " +(?:(?:" + kKinds + ") +)*$", std::regex::icase),
      kFollowing(R"(^ *(?:[A-Za-z][\w/-]* +)*)" + kCards + R"(\b)", std::regex::icase),
      kAfter(R"(^ *[xX*] *(\d+)\b(?! *(?:nodes?|servers?|hosts?|machines?)\b))", std::regex::icase);
  static const std::regex kEach(R"(^ *each\b)", std::regex::icase),
      kTimesOfEach(R"((\d+) *(?:[xX*] *)?(?:[A-Za-z][\w/-]*[,(]? *)+[,(]? *(?:at +)?$)");
  std::smatch found;
  if (std::regex_search(before, found, kTimes) || std::regex_search(before, found, kOf))
    return number_said(found[1]);
  if (std::regex_search(after, kEach) && std::regex_search(before, found, kTimesOfEach))
    return number_said(found[1]);
  if (std::regex_search(after, found, kAfter)) return number_said(found[1]);
  if (std::regex_search(after, kFollowing) && std::regex_search(before, found, kAlone))
    return number_said(found[1]);
  return std::nullopt;
}

// A rate as "100 Gb/s", "3.2Tbps", "100GbE", "100Gb Ethernet".
const std::regex& rate_pattern() {
  static const std::regex kRate(R"((^|[^0-9.eE])(\d+(?:\.\d+)?) *([GgTt])(?:bps|b/s|bit/s|b[Ee]\b)"
                                R"(|(?:b|bit|igabit)?(?= *(?:[Ee]thernet|InfiniBand|IB\b|RoCE))))");
  return kRate;
}

// What cards that are only named carry: of ConnectX by NVIDIA's data sheets the rate of its fastest port, of
// InfiniBand that of four lanes of its generation.
struct NamedCard {
  std::string_view name;  // in lower case, without signs
  const char* rate;
};
constexpr std::array kNamedCards{
    NamedCard{"connectx4", "100 Gb/s "},   NamedCard{"connectx5", "100 Gb/s "},
    NamedCard{"connectx6", "200 Gb/s "},   NamedCard{"connectx7", "400 Gb/s "},
    NamedCard{"connectx8", "800 Gb/s "},   NamedCard{"qdr", "32 Gb/s "},
    NamedCard{"fdr", "56 Gb/s "},          NamedCard{"edr", "100 Gb/s "},
    NamedCard{"hdr", "200 Gb/s "},         NamedCard{"ndr", "400 Gb/s "},
    NamedCard{"xdr", "800 Gb/s "},         NamedCard{"slingshot10", "100 Gb/s "},
    NamedCard{"slingshot11", "200 Gb/s "},
};

const std::regex& link_of_node_pattern() {
  static const std::regex kOfNode(R"(\bintra|NVLink|NVSwitch|PCIe|xGMI)", std::regex::icase);
  return kOfNode;
}

std::vector<std::string> clauses_between_nodes(const std::string& text) {
  std::vector<std::string> kept;
  std::istringstream clauses(boost::replace_all_copy(text.substr(0, kLongestSaid), ";", ","));
  for (std::string clause; std::getline(clauses, clause, ',');) {
    if (!std::regex_search(clause, link_of_node_pattern())) kept.push_back(clause);
  }
  return kept;
}

// A clause without a rate in bits as one with: of bytes, of "400G" and "HDR200", or of what it names.
std::string with_plain_rate(const std::string& clause) {
  static const std::regex kBytes(R"((^|[^0-9.eE])(\d{1,5}(?:\.\d{1,3})?) *GB(?:/s|ps)\b)"),
      kGeneration(R"(\b[QFEHNX]DR-?(100|200|400|800)\b)", std::regex::icase),
      kCard(R"(\b(?:(?:ConnectX|CX)-?[4-8]|Slingshot[- ]?1[01]|[QFEHNX]DR)\b(?! *[DL]x\b))",
            std::regex::icase),
      kGigabits(R"((\d{2,3})G\b)");
  std::smatch found;
  if (std::regex_search(clause, found, kBytes)) {
    std::ostringstream rate;
    rate << found[1] << std::stod(found[2]) * 8 << " Gb/s";
    return found.prefix().str() + rate.str() + found.suffix().str();
  }
  for (const std::regex* digits : {&kGeneration, &kGigabits}) {
    if (std::regex_search(clause, found, *digits))
      return found.prefix().str() + found[1].str() + " Gb/s" + found.suffix().str();
  }
  if (!std::regex_search(clause, found, kCard)) return clause;
  std::string name = letters_and_digits(found.str());
  if (name.starts_with("cx")) name.replace(0, 2, "connectx");
  const auto card = std::find_if(kNamedCards.begin(), kNamedCards.end(),
                                 [&](const NamedCard& one) { return one.name == name; });
  return found.prefix().str() + card->rate + found.str() + found.suffix().str();
}

// With the rates that a text without one has in other words.
std::string with_named_rates(const std::string& text) {
  if (std::regex_search(text, rate_pattern())) return text;
  for (const std::string& clause : clauses_between_nodes(text)) {
    const std::string plain = with_plain_rate(clause);
    if (plain != clause) return boost::replace_first_copy(text, clause, plain);
  }
  return text;
}

struct KnownMachine {
  std::string_view gpu;  // start of the catalog name
  int gpus;
  SaidNetwork network;
};
constexpr std::array kReferenceMachines{
    KnownMachine{"A100", 8, {8, 200}},  KnownMachine{"A800", 8, {8, 200}},
    KnownMachine{"H100", 8, {8, 400}},  KnownMachine{"H800", 8, {8, 400}},
    KnownMachine{"H200", 8, {8, 400}},  KnownMachine{"B200", 8, {8, 400}},
    KnownMachine{"B300", 8, {8, 800}},  KnownMachine{"GB200", 4, {4, 400}},
    KnownMachine{"GB300", 4, {4, 800}}, KnownMachine{"GH200", 4, {4, 200}},
    KnownMachine{"MI2", 4, {4, 200}},   KnownMachine{"MI3", 8, {8, 400}},
};
// One kind of many: DGX-1 and DGX-2.
constexpr std::array kOtherMachines{KnownMachine{"V100-SXM2", 8, {4, 100}},
                                    KnownMachine{"V100-SXM2", 16, {8, 100}}};
constexpr SaidNetwork kOneCard{1, 100}, kSlowCard{1, 10};

// Of the first machine with that GPU and as many of them, else of the last; as many cards for a GPU in
// smaller nodes.
template <std::size_t Count>
std::optional<SaidNetwork> network_of(const std::array<KnownMachine, Count>& machines, const GpuSpec& gpu,
                                      int gpus_per_node) {
  const KnownMachine* found = nullptr;
  for (const KnownMachine& machine : machines) {
    if (!gpu.name.starts_with(machine.gpu)) continue;
    found = &machine;
    if (machine.gpus >= gpus_per_node) break;
  }
  if (found == nullptr) return std::nullopt;
  const int nics = found->network.nics * std::min(gpus_per_node, found->gpus) / found->gpus;
  return SaidNetwork{std::max(1, nics), found->network.gigabits};
}

}  // namespace

bool says_remote_memory(const std::string& text) {
  static const std::regex kRemote(
      R"(InfiniBand|\bIB\b|RDMA|RoCE|\bEFA|\b[EHNX]DR|\bFDR|Slingshot|Omni-?Path|ConnectX|\bCX-?\d|Quantum|Spectrum)",
      std::regex::icase);
  return std::regex_search(text, kRemote);
}

bool says_sockets(const std::string& text) {
  static const std::regex kSockets(R"(\b(?:TCP|sockets?)\b)", std::regex::icase);
  return std::regex_search(text, kSockets);
}

std::optional<std::string> negative_rate(const std::string& text) {
  // A hyphen after a letter or a digit joins words: HDR-200 Gb/s, 100-200 Gb/s; after a count it does not.
  static const std::regex kNegative(
      R"((?:^|[^A-Za-z0-9.)-]|\d *[xX] *)(-\d+(?:\.\d+)? *[GTM](?:bps|b/s|bit/s|bE\b|B/s|Bps)))");
  std::smatch found;
  const std::string start =
      boost::replace_all_copy(with_plain_crosses(text.substr(0, kLongestSaid)), "\u2212", "-");
  if (!std::regex_search(start, found, kNegative)) return std::nullopt;
  return found[1].str();
}

std::optional<double> said_inside(const std::string& text) {
  constexpr double kMostGigabits = 1e5;
  static const std::regex kInside(
      R"((\d+(?:\.\d+)?) *Gb(?:ps|/s|it/s) +(?:NVLink|NVSwitch|PCIe|xGMI)? *intra)");
  std::smatch found;
  const std::string start = text.substr(0, kLongestSaid);
  if (!std::regex_search(start, found, kInside)) return std::nullopt;
  const double rate = std::stod(found[1]);
  return rate > 0 && rate <= kMostGigabits ? std::optional(rate) : std::nullopt;
}

bool says_numbers_between_nodes(const std::string& text) {
  const std::vector<std::string> clauses = clauses_between_nodes(text);
  return std::any_of(clauses.begin(), clauses.end(), [](const std::string& clause) {
    return clause.find_first_of("0123456789") != std::string::npos;
  });
}

SaidNetwork reference_network(const GpuSpec& gpu, int gpus_per_node) {
  return network_of(kReferenceMachines, gpu, gpus_per_node).value_or(kOneCard);
}

std::vector<SaidNetwork> possible_networks(const GpuSpec& gpu, int gpus_per_node, const std::string& text) {
  const auto reference = network_of(kReferenceMachines, gpu, gpus_per_node);
  std::vector<SaidNetwork> networks;
  for (const InstanceSpec& machine : instance_catalog()) {
    if (machine.gpu == gpu.name && machine.gpus == gpus_per_node && machine.network)
      networks.push_back({machine.nics, *machine.network / gigabits_per_second(1) / machine.nics});
  }
  if (reference) {
    networks.push_back(*reference);
  } else if (networks.empty()) {
    networks = {kSlowCard, kOneCard};
  }
  if (const auto other = network_of(kOtherMachines, gpu, gpus_per_node)) networks.push_back(*other);
  const bool plain = says_sockets(text) || says(lower_case(text), "ethernet");
  if (plain && !says_remote_memory(text)) networks.push_back(kOneCard);
  const auto of_node = [](const SaidNetwork& network) { return network.nics * network.gigabits; };
  const auto [slowest, fastest] =
      std::minmax_element(networks.begin(), networks.end(),
                          [&](const auto& a, const auto& b) { return of_node(a) < of_node(b); });
  std::vector<SaidNetwork> possible{reference ? *reference : *fastest};
  for (const auto& end : {fastest, slowest}) {
    const auto same = [&](const SaidNetwork& known) { return of_node(known) == of_node(*end); };
    if (std::none_of(possible.begin(), possible.end(), same)) possible.push_back(*end);
  }
  return possible;
}

std::optional<SaidNetwork> said_network(const std::string& given, int gpus_per_node,
                                        const SaidNetwork& reference) {
  constexpr double kMostGigabits = 1e6, kMostNics = 1024, kOneCard = 400;
  static const std::regex kInside(R"(^ *\(?(?:NVLink|intra))", std::regex::icase);
  const std::string text = with_named_rates(with_plain_crosses(given.substr(0, kLongestSaid)));
  for (std::sregex_iterator found(text.begin(), text.end(), rate_pattern()), end; found != end; ++found) {
    const std::string after = found->suffix();
    if (std::regex_search(after, kInside)) continue;
    const double rate = std::stod((*found)[2]) * (lower_case((*found)[3]) == "t" ? 1000 : 1);
    if (!(rate > 0 && rate <= kMostGigabits)) continue;
    if (const auto nics = cards_said(found->prefix().str() + (*found)[1].str(), after)) {
      if (!(*nics >= 1 && *nics <= kMostNics)) continue;
      return SaidNetwork{static_cast<int>(*nics), rate};
    }
    switch (scope_of(said_with(text, static_cast<std::size_t>(found->position())))) {
      case Of::gpu:
        return SaidNetwork{gpus_per_node, rate};
      case Of::card:
        return SaidNetwork{reference.nics, rate};
      case Of::node:
        return rate >= kOneCard ? SaidNetwork{gpus_per_node, rate / gpus_per_node} : SaidNetwork{1, rate};
      case Of::nothing:
        if (rate == reference.gigabits && says_remote_memory(text)) return reference;
        if (rate <= kOneCard || gpus_per_node == 1) return SaidNetwork{1, rate};
        return SaidNetwork{gpus_per_node, rate / gpus_per_node};  // no card of its own: all of the node's
    }
  }
  return std::nullopt;
}

}  // namespace orrery
