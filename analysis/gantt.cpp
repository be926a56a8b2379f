#include "analysis/gantt.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
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
    case SpanKind::exposed_tp:
      return '^';
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
    case SpanKind::tensor_collective:
    case SpanKind::context_exchange:
    case SpanKind::expert_exchange:
      break;
  }
  throw Defect("a network span in a compute stream");
}

// Share of one column that each character takes.
using Column = std::array<double, 128>;
using Row = std::vector<Column>;

// A part of the run: `columns` characters of `unit` seconds each, from `begin` on.
struct Window {
  double begin = 0;  // s
  double unit = 0;   // s
  int columns = 0;
};

Window whole_run(const Timeline& timeline, const GanttOptions& options) {
  const double unit = options.unit ? options.unit->value() : timeline.makespan / std::max(options.columns, 1);
  if (!(unit > 0)) return {};
  // A makespan that is whole columns but for rounding does not get one more.
  const double columns = std::ceil(timeline.makespan / unit - 1e-6);
  return {0, unit, static_cast<int>(std::clamp(columns, 0.0, double{kMostColumns}))};
}

void add(Row& row, const SpanRow& span, const Window& window, char character) {
  const double last = static_cast<double>(row.size());
  const double start = (span.start - window.begin) / window.unit,
               stop = (span.end - window.begin) / window.unit;
  const auto first_column = static_cast<std::size_t>(std::clamp(std::floor(start), 0.0, last));
  const auto end_column = static_cast<std::size_t>(std::clamp(std::ceil(stop), 0.0, last));
  for (std::size_t i = first_column; i < end_column; ++i) {
    const double begin = std::max(start, static_cast<double>(i));
    const double end = std::min(stop, static_cast<double>(i + 1));
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

struct Line {
  int stage = 0;
  std::string text;
};

// The compute streams of one replica, by stage.
std::vector<Line> draw(const Timeline& timeline, const Window& window, int replica, GanttLetters letters) {
  std::map<std::int32_t, Row> rows;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    if (timeline.ranks[rank].replica != replica) continue;
    rows[static_cast<std::int32_t>(rank)].resize(static_cast<std::size_t>(window.columns), Column{});
  }
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const auto found = rows.find(timeline.spans.rank[i]);
    if (found == rows.end() || timeline.spans.stream[i] != Stream::compute) continue;
    const SpanRow span = row(timeline.spans, i);
    add(found->second, span, window, glyph(span, letters));
  }
  std::vector<Line> lines;
  for (const auto& entry : rows) {
    std::string text;
    for (const Column& column : entry.second) text += most_of(column);
    lines.push_back({timeline.ranks[static_cast<std::size_t>(entry.first)].stage, text});
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.stage < b.stage; });
  return lines;
}

std::string label(int stage, std::size_t width) {
  const std::string number = std::to_string(stage);
  return "stage " + number + std::string(width - number.size() + 2, ' ');
}

// The usual forward of stage 0 of replica 0, and when its first backward ends; 0 where there is none.
struct Rhythm {
  double forward = 0, first_backward_end = 0;  // s
};

// A task of overlapped buckets or of collectives between layers is recorded in pieces.
struct Task {
  double begin = std::numeric_limits<double>::infinity(), end = 0;  // s
};

Rhythm rhythm_of(const Timeline& timeline) {
  std::map<std::pair<int, int>, Task> forwards, backwards;  // by chunk and microbatch
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const RankInfo& rank = timeline.ranks[static_cast<std::size_t>(timeline.spans.rank[i])];
    if (rank.replica != 0 || rank.stage != 0 || timeline.spans.stream[i] != Stream::compute) continue;
    const SpanRow span = row(timeline.spans, i);
    if (span.kind != SpanKind::forward && span.kind != SpanKind::backward) continue;
    Task& task = (span.kind == SpanKind::forward ? forwards : backwards)[{span.chunk, span.microbatch}];
    task.begin = std::min(task.begin, span.start);
    task.end = std::max(task.end, span.end);
  }
  if (forwards.empty() || backwards.empty()) return {};
  std::vector<double> durations;
  for (const auto& [what, task] : forwards) durations.push_back(task.end - task.begin);
  const auto middle = durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 2);
  std::nth_element(durations.begin(), middle, durations.end());
  const auto first = std::min_element(backwards.begin(), backwards.end(), [](const auto& a, const auto& b) {
    return a.second.end < b.second.end;
  });
  return {*middle, first->second.end};
}

// The whole run where a forward is then at least a column wide; else its start, its middle and its end.
std::vector<Window> windows_of(const Timeline& timeline, int columns) {
  constexpr int kGap = 3;
  const Rhythm rhythm = rhythm_of(timeline);
  const double makespan = timeline.makespan, whole = makespan / columns;
  if (!(rhythm.forward > 0) || whole <= rhythm.forward) return {{0, whole, columns}};
  const int start = (columns - 2 * kGap) * 2 / 5, middle = columns - 2 * kGap - 2 * start;
  // Two columns a forward, but one where the pipeline is so deep that its warm-up would not fit.
  const double unit = std::clamp(rhythm.first_backward_end / start, rhythm.forward / 2, rhythm.forward);
  return {{0, unit, start},
          {(makespan - unit * middle) / 2, unit, middle},
          {makespan - unit * start, unit, start}};
}

// Where each window begins, and where the last ends.
std::string axis(const std::vector<Window>& windows, double makespan) {
  std::string line;
  std::size_t column = 0;
  for (const Window& window : windows) {
    line.resize(column, ' ');
    line += "|" + to_text(Seconds(window.begin));
    column += static_cast<std::size_t>(window.columns) + 3;
  }
  const std::string end = to_text(Seconds(makespan)) + "|";
  line.resize(std::max(line.size() + 1, column - 3 - end.size()), ' ');
  return line + end;
}

}  // namespace

std::string text_gantt(const Timeline& timeline, const GanttOptions& options) {
  const std::vector<Line> lines =
      draw(timeline, whole_run(timeline, options), options.replica, options.letters);
  const std::size_t width = lines.empty() ? 0 : std::to_string(lines.back().stage).size();
  std::string text;
  for (const Line& line : lines) text += label(line.stage, width) + line.text + "\n";
  return text;
}

std::string text_gantt_windows(const Timeline& timeline, int columns) {
  constexpr int kLeastColumns = 30;
  const int last_stage =
      std::max_element(timeline.ranks.begin(), timeline.ranks.end(), [](const auto& a, const auto& b) {
        return a.stage < b.stage;
      })->stage;
  const std::size_t width = std::to_string(last_stage).size();
  const int label_width = static_cast<int>(label(0, width).size());
  const std::vector<Window> windows = windows_of(timeline, std::max(columns - label_width, kLeastColumns));
  std::vector<Line> lines = draw(timeline, windows.front(), 0, GanttLetters::microbatch);
  for (std::size_t i = 1; i < windows.size(); ++i) {
    const std::vector<Line> more = draw(timeline, windows[i], 0, GanttLetters::microbatch);
    for (std::size_t at = 0; at < lines.size(); ++at) lines[at].text += "   " + more[at].text;
  }
  std::string text;
  for (const Line& line : lines) text += label(line.stage, width) + line.text + "\n";
  return text + std::string(static_cast<std::size_t>(label_width), ' ') + axis(windows, timeline.makespan) +
         "\n";
}

std::string gantt_legend(GanttLetters letters) {
  const std::string idle =
      "= optimizer  ^ tensor collective  - pipeline message  ~ data-parallel collective  . bubble\n";
  switch (letters) {
    case GanttLetters::microbatch:
      return "0-9A-Z forward  a-z backward (by microbatch, starting over)  + weight gradient\n" + idle;
    case GanttLetters::kind:
      return "F forward  B backward  W weight gradient  " + idle;
  }
  throw Defect("a set of letters outside the enumeration");
}

}  // namespace orrery
