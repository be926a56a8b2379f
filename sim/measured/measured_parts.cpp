#include "sim/measured/measured_parts.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>
#include <string_view>

namespace orrery {
namespace {

// Layers before a cut. Where there are more pieces than layers it is DeepSpeed's, which also counts the
// embedding and a marker before the first of a GPT (DeepSpeedExamples, Megatron-LM v1.1.5 3D); of TransGAN's
// 56 pieces 3 to 14 and 41 to 52 are its 24 layers, between them upsampling (AMP's cost_het_model.py).
int layers_before(int cut, int pieces, int layers) {
  constexpr int kTransganPieces = 56, kHalf = 12;
  if (pieces == kTransganPieces && layers == 2 * kHalf)
    return std::clamp(cut - 3, 0, kHalf) + std::clamp(cut - 41, 0, kHalf);
  if (pieces == layers) return std::clamp(cut, 0, layers);
  return std::clamp(cut - 2, 0, layers);
}

std::vector<LayerRange> consecutive(const std::vector<int>& counts) {
  std::vector<LayerRange> parts;
  int next = 0;
  for (const int count : counts) {
    parts.push_back({next, count});
    next += count;
  }
  mark_ends(parts);
  return parts;
}

// Equal parts; where layers do not divide, embedding and loss count as a layer each if that divides, else the
// middle parts get one more.
std::vector<LayerRange> even_parts(int layers, int parts, bool embedding_counts) {
  const bool counted = embedding_counts && layers % parts != 0 && (layers + 2) % parts == 0;
  const int each = counted ? (layers + 2) / parts : layers / parts;
  const int more = counted ? 0 : layers % parts;
  const int first_more = (parts - more) / 2;
  std::vector<int> counts(static_cast<std::size_t>(parts), each);
  if (counted) --counts.front(), --counts.back();
  for (int part = first_more; part < first_more + more; ++part) ++counts[static_cast<std::size_t>(part)];
  return consecutive(counts);
}

// Equal numbers of embedding, layers, final norm and head, the first parts with one more. Absent where a part
// would have no layer.
std::optional<std::vector<LayerRange>> equal_pieces(int layers, int parts) {
  constexpr int kBefore = 1, kAfter = 2;
  const int pieces = kBefore + layers + kAfter;
  std::vector<int> counts;
  for (int part = 0; part < parts; ++part) counts.push_back(pieces / parts + (part < pieces % parts ? 1 : 0));
  counts.front() -= kBefore;
  counts.back() -= kAfter;
  if (*std::min_element(counts.begin(), counts.end()) < 1) return std::nullopt;
  return consecutive(counts);
}

// Whole numbers apart by ',', ';' or '|', perhaps in brackets.
std::optional<std::vector<int>> numbers_apart(std::string text) {
  std::erase_if(text, [](char c) { return std::string_view("[]() ").find(c) != std::string_view::npos; });
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ',' || c == '|'; }, ';');
  std::vector<int> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    int number = 0;
    const auto end = std::from_chars(part.data(), part.data() + part.size(), number);
    if (end.ec != std::errc{} || end.ptr != part.data() + part.size() || number < 0) return std::nullopt;
    numbers.push_back(number);
  }
  return numbers;
}

// "(tt|)*3,tL" without brackets and stars: "tt|tt|tt|tL". Absent where it is no layout.
std::optional<std::string> unfolded(std::string_view layout) {
  constexpr int kMostTimes = 1000;
  constexpr std::size_t kLongest = 100'000;
  std::string all;
  std::size_t open = 0, repeated = 0;  // where a bracket opens, and what a star repeats begins
  for (std::size_t i = 0; i < layout.size();) {
    const char c = layout[i++];
    if (c == '(') {
      open = all.size();
    } else if (c == ')') {
      repeated = open;
    } else if (c == '*') {
      int times = 0;
      const auto end = std::from_chars(layout.data() + i, layout.data() + layout.size(), times);
      if (end.ec != std::errc{} || times < 1 || times > kMostTimes) return std::nullopt;
      i = static_cast<std::size_t>(end.ptr - layout.data());
      const std::string once = all.substr(repeated);
      if (once.size() * static_cast<std::size_t>(times) > kLongest) return std::nullopt;
      for (int time = 1; time < times; ++time) all += once;
    } else if (std::string_view("EtmL|").find(c) != std::string_view::npos) {
      repeated = all.size();
      all += c;
    } else if (c != ',' && c != ' ') {
      return std::nullopt;
    }
  }
  return all;
}

// Layers of each part of "Ett|(tt|)*6mL": those that are a t.
std::optional<std::vector<int>> layers_of_layout(std::string_view text) {
  const auto layout = text.starts_with('E') ? unfolded(text) : std::nullopt;
  if (!layout) return std::nullopt;
  std::vector<int> counts{0};
  for (const char c : *layout) {
    if (c == '|') counts.push_back(0);
    if (c == 't') ++counts.back();
  }
  return counts;
}

// All of the layers, none of the parts between the first and the last without one.
std::optional<std::vector<LayerRange>> parts_of(const std::vector<int>& counts, int layers) {
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const bool has_gap = std::find(counts.begin() + 1, counts.end() - 1, 0) != counts.end() - 1;
  return all == layers && !has_gap ? std::optional(consecutive(counts)) : std::nullopt;
}

}  // namespace

std::optional<int> said_parts(const std::string& text) {
  if (const auto counts = layers_of_layout(text)) return static_cast<int>(counts->size());
  const auto said = numbers_apart(text);
  if (!said || said->empty()) return std::nullopt;
  return static_cast<int>(said->size()) - (said->front() > 0 ? 0 : 1);
}

std::optional<std::vector<LayerRange>> said_partition(const std::string& text, int layers) {
  const auto counts = layers_of_layout(text);
  if (counts) return counts->size() < 2 ? std::nullopt : parts_of(*counts, layers);
  const auto said = numbers_apart(text);
  if (!said || said->size() < 2) return std::nullopt;
  const std::vector<int>& cuts = *said;
  if (cuts.front() > 0) return parts_of(cuts, layers);
  std::vector<LayerRange> parts;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const int first = layers_before(cuts[i], cuts.back(), layers);
    const int end = layers_before(cuts[i + 1], cuts.back(), layers);
    const bool is_end = i == 0 || i + 2 == cuts.size();
    if (end < first || (end == first && !is_end)) return std::nullopt;
    parts.push_back({first, end - first});
  }
  mark_ends(parts);
  return parts;
}

std::vector<LayerRange> usual_parts(int layers, int parts, const SoftwareStack& stack) {
  const auto pieces = stack.equal_pieces ? equal_pieces(layers, parts) : std::nullopt;
  return pieces ? *pieces : even_parts(layers, parts, stack.embedding_counts);
}

}  // namespace orrery
