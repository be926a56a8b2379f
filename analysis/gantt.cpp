#include "analysis/gantt.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr std::string_view kForward = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr std::string_view kBackward = "abcdefghijklmnopqrstuvwxyz";
constexpr int kMostColumns = 10000;

char letter(std::string_view alphabet, int microbatch) {
  return microbatch < 0 ? '?' : alphabet[static_cast<std::size_t>(microbatch) % alphabet.size()];
}

char glyph(const SpanRow& span, GanttLetters letters) {
  const bool by_kind = letters == GanttLetters::kind;
  switch (span.kind) {
    case SpanKind::forward:
      return by_kind ? 'F' : letter(kForward, span.microbatch);
    case SpanKind::backward:
      return by_kind ? 'B' : letter(kBackward, span.microbatch);
    case SpanKind::weight_gradient:
      return by_kind ? 'W' : '+';
    case SpanKind::optimizer:
      return '=';
    case SpanKind::exposed_p2p:
      return '-';
    case SpanKind::exposed_dp:
      return '~';
    case SpanKind::bubble_warmup:
    case SpanKind::bubble_steady:
    case SpanKind::bubble_drain:
      return '.';
    case SpanKind::send:
    case SpanKind::all_reduce:
    case SpanKind::reduce_scatter:
    case SpanKind::all_gather:
      break;
  }
  throw Defect("a network span in a compute stream");
}

// Seconds of one column that each character takes.
using Column = std::array<double, 128>;
using Row = std::vector<Column>;

struct Scale {
  int columns = 0;
  double unit = 0;  // s
};

Scale scale_of(const Timeline& timeline, const GanttOptions& options) {
  const double unit = options.unit ? options.unit->value() : timeline.makespan / std::max(options.columns, 1);
  if (!(unit > 0)) return {};
  // A makespan that is whole columns but for rounding does not get one more.
  const double columns = std::ceil(timeline.makespan / unit - 1e-6);
  return {static_cast<int>(std::clamp(columns, 0.0, double{kMostColumns})), unit};
}

void add(Row& row, const SpanRow& span, double unit, char character) {
  const double last = static_cast<double>(row.size());
  const auto first_column = static_cast<std::size_t>(std::clamp(std::floor(span.start / unit), 0.0, last));
  const auto end_column = static_cast<std::size_t>(std::clamp(std::ceil(span.end / unit), 0.0, last));
  for (std::size_t i = first_column; i < end_column; ++i) {
    const double begin = std::max(span.start, static_cast<double>(i) * unit);
    const double end = std::min(span.end, static_cast<double>(i + 1) * unit);
    row[i][static_cast<std::size_t>(character)] += end - begin;
  }
}

// Of equals, but for rounding, the first in ASCII.
char most_of(const Column& column) {
  std::size_t most = 0;
  for (std::size_t i = 1; i < column.size(); ++i) {
    if (column[i] > column[most] * (1 + 1e-9)) most = i;
  }
  return most == 0 ? ' ' : static_cast<char>(most);
}

// The compute streams of one replica, by rank.
std::map<std::int32_t, Row> rows_of(const Timeline& timeline, const GanttOptions& options) {
  const Scale scale = scale_of(timeline, options);
  std::map<std::int32_t, Row> rows;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    if (timeline.ranks[rank].replica != options.replica) continue;
    rows[static_cast<std::int32_t>(rank)].resize(static_cast<std::size_t>(scale.columns), Column{});
  }
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const auto found = rows.find(timeline.spans.rank[i]);
    if (found == rows.end() || timeline.spans.stream[i] != Stream::compute) continue;
    const SpanRow span = row(timeline.spans, i);
    add(found->second, span, scale.unit, glyph(span, options.letters));
  }
  return rows;
}

}  // namespace

std::string text_gantt(const Timeline& timeline, const GanttOptions& options) {
  std::vector<std::pair<int, std::string>> lines;  // by stage
  for (const auto& entry : rows_of(timeline, options)) {
    std::string line;
    for (const Column& column : entry.second) line += most_of(column);
    lines.emplace_back(timeline.ranks[static_cast<std::size_t>(entry.first)].stage, line);
  }
  std::sort(lines.begin(), lines.end());
  const std::size_t width = lines.empty() ? 0 : std::to_string(lines.back().first).size();
  std::string text;
  for (const auto& [stage, line] : lines) {
    const std::string number = std::to_string(stage);
    text += "stage " + number + std::string(width - number.size() + 2, ' ') + line + "\n";
  }
  return text;
}

std::string gantt_legend(GanttLetters letters) {
  const std::string idle = "= optimizer  - pipeline message  ~ data-parallel collective  . bubble\n";
  switch (letters) {
    case GanttLetters::microbatch:
      return "0-9A-Z forward  a-z backward  + weight gradient  " + idle;
    case GanttLetters::kind:
      return "F forward  B backward  W weight gradient  " + idle;
  }
  throw Defect("a set of letters outside the enumeration");
}

}  // namespace orrery
