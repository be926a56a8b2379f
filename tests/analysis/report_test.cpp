#include "analysis/report.hpp"

#include "analysis/report_data.hpp"
#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"
#include "tests/catch.hpp"
#include "tests/traces/python.hpp"
#include "tests/traces/sample_trace.hpp"
#include "tests/traces/scratch_folder.hpp"
#include "traces/output_file.hpp"

namespace orrery {
namespace {

ReportInput sample_report() {
  ReportInput input{.title = "A & <b>", .summary = "One sentence."};
  input.plans = {{{"rank", Align::right}, {"strategy"}}, {{"1", "TP 8 </script> PP 4"}, {"2", "TP 4"}}};
  input.points = {{"plan 1", {10, 200}}, {"plan 2", {20, 100}}, {"plan 3", {30, 150}}};
  input.traces = {{"plan 1", sample_trace()}};
  return input;
}

// Runs Python statements with `data`, the numbers of the page, and `page`, its text.
std::string check_page(const ReportInput& input, const std::string& statements) {
  const std::string python = python_with("json");
  const ScratchFolder folder;
  write_report(folder.file("page.html"), input);
  write_file(folder.file("script.py"), R"(
import json, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
data = json.loads(re.search('<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))
)" + statements + "\nprint('good')\n");
  return run_command(python + " " + folder.file("script.py") + " " + folder.file("page.html")).output;
}

}  // namespace

TEST_CASE("the page holds all it shows and asks no network") {
  const std::string page = report_page(sample_report());
  for (const char* outside : {"<link", " src=", "@import", "url("}) {
    INFO(outside);
    CHECK(page.find(outside) == std::string::npos);
  }
  CHECK(page.find("Chart.js v") != std::string::npos);
  CHECK(page.find("{{") ==
        page.find("{{", page.find("<script>")));  // no hole of the template left before its scripts
  CHECK(report_page(sample_report()) == page);
}

TEST_CASE("text of the user cannot become markup") {
  const std::string page = report_page(sample_report());
  CHECK(page.find("<title>A &amp; &lt;b&gt;</title>") != std::string::npos);
  CHECK(page.find("<td>TP 8 &lt;/script&gt; PP 4</td>") != std::string::npos);
  ReportInput input = sample_report();
  input.traces[0].title = "</script><script>alert(1)";
  CHECK(report_page(input).find("</script><script>alert") == std::string::npos);
}

TEST_CASE("of several iterations played, the page shows the time of one and says how much is below") {
  ReportInput input = sample_report();
  Trace& trace = input.traces[0].trace;
  const Seconds steady(0.4 * trace.timeline.makespan);
  trace.iteration = steady;
  CHECK(check_page(input,
                   "facts = dict(data['traces'][0]['facts'])\n"
                   "print(facts['Iteration'], facts['Played below'])") ==
        to_text(steady) + " " + to_text(Seconds(trace.timeline.makespan)) + "\ngood\n");
}

TEST_CASE("the page says where the time of nine runs in ten lies, where the trace does") {
  ReportInput input = sample_report();
  const std::string facts = "facts = dict(data['traces'][0]['facts'])\n";
  CHECK(check_page(input, facts + "assert 'In nine runs of ten' not in facts") == "good\n");
  std::vector<RunAttribute>& run = input.traces[0].trace.run;
  run.push_back({"interval_low", "1.5s"});
  run.push_back({"interval_high", "2.5s"});
  CHECK(check_page(input, facts + "print(facts['In nine runs of ten'])") ==
        to_text(Seconds(1.5)) + " to " + to_text(Seconds(2.5)) + "\ngood\n");
}

TEST_CASE("a stage whose replicas have unlike GPUs is named by all of them") {
  ReportInput input = sample_report();
  Timeline& timeline = input.traces[0].trace.timeline;
  timeline.ranks.push_back({.device = 4, .gpu = "H100-SXM5-80GB", .stage = 0, .replica = 1});
  timeline.ranks.push_back({.device = 6, .gpu = "H100-SXM5-80GB", .stage = 1, .replica = 1});
  CHECK(check_page(input, "print([stage['gpu'] for stage in data['traces'][0]['stages']])") ==
        "['A100-SXM4-80GB, H100-SXM5-80GB', 'H100-SXM5-80GB']\ngood\n");
}

TEST_CASE("the numbers of the page are those of the trace") {
  CHECK(check_page(sample_report(), R"(
assert data["front"] == [0, 1]
trace = data["traces"][0]
assert [sum(stage["seconds"]) for stage in trace["stages"]] == [9, 9], trace["stages"]
assert trace["stages"][0]["seconds"][:3] == [5.5, 0.5, 0.25]
assert trace["memory"][0]["capacity"] is None and trace["memory"][1]["capacity"] == 80
assert trace["rows"] == ["stage 0 · replica 0", "stage 1 · replica 0"]
assert len(trace["spans"]["row"]) == trace["total_spans"] == 18
assert trace["spans"]["end"][0] == 1_000_000_000
assert trace["links"][0]["name"] == "a.node1.nic0.up"  # the busier one first
)") == "good\n");
}

TEST_CASE("a long timeline is capped at whole ranks, and the page knows how much is missing") {
  ReportInput input = sample_report();
  Timeline& timeline = input.traces[0].trace.timeline;
  timeline.ranks = {{.replica = 1}, {.replica = 0}, {.replica = 2}};
  timeline.spans = {};
  const int each = static_cast<int>(kMostDrawnSpans / 2);
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < each; ++i) add_span(timeline, compute_span(SpanKind::forward, rank, i, i, i + 1));
  }
  CHECK(check_page(input, R"(
trace = data["traces"][0]
assert trace["rows"] == ["stage 0 · replica 0", "stage 0 · replica 1"], trace["rows"]
assert len(trace["spans"]["row"]) == 60000 and trace["total_spans"] == 90000 and trace["total_ranks"] == 3
)") == "good\n");
}

TEST_CASE("a replica of too many spans is cut in time, not between its stages") {
  ReportInput input = sample_report();
  Timeline& timeline = input.traces[0].trace.timeline;
  timeline.ranks = {{.stage = 0}, {.stage = 1}};
  timeline.spans = {};
  const int each = static_cast<int>(kMostDrawnSpans / 3 * 2);
  timeline.makespan = each;
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < each; ++i) add_span(timeline, compute_span(SpanKind::forward, rank, i, i, i + 1));
  }
  // 60,000 spans of a second on two ranks: the first 30,000 s.
  CHECK(check_page(input, R"(
trace = data["traces"][0]
assert trace["rows"] == ["stage 0 · replica 0", "stage 1 · replica 0"], trace["rows"]
assert len(trace["spans"]["row"]) == 60000 and trace["drawn_until"] == 30000, trace["drawn_until"]
)") == "good\n");
}

TEST_CASE("a report of nothing is a page") {
  CHECK(check_page({.title = "nothing"}, "assert data['traces'] == [] and data['points'] == []") == "good\n");
}

TEST_CASE("a report that cannot be written is wrong input") {
  CHECK_THROWS_AS(write_report("/none/page.html", sample_report()), InputError);
}

}  // namespace orrery
