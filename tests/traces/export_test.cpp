#include <chrono>

#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"
#include "tests/catch.hpp"
#include "tests/traces/python.hpp"
#include "tests/traces/sample_trace.hpp"
#include "tests/traces/scratch_folder.hpp"
#include "traces/json_text.hpp"
#include "traces/output_file.hpp"
#include "traces/perfetto.hpp"

namespace orrery {

TEST_CASE("text becomes JSON whatever it holds") {
  const auto json = [](std::string_view text) {
    std::string out;
    append_json(out, text);
    return out;
  };
  CHECK(json("a\"b\\c\n") == R"("a\u0022b\u005cc\u000a")");
  CHECK(json("ü 夸") == "\"ü 夸\"");
  CHECK(json("</script>") == R"("\u003c/script>")");
  CHECK(json("\xff\xc3") == R"("\ufffd\ufffd")");
  CHECK(json("\xed\xa0\x80") == R"("\ufffd\ufffd\ufffd")");  // a surrogate
}

TEST_CASE("numbers become JSON that reads back") {
  const auto json = [](double number) {
    std::string out;
    append_json(out, number);
    return out;
  };
  CHECK(json(0.1) == "0.1");
  CHECK(json(3) == "3");
  CHECK(json(std::nan("")) == "null");
}

TEST_CASE("the Perfetto export holds every span, in microseconds, under its rank and stream") {
  const std::string python = python_with("json");
  const ScratchFolder folder;
  Trace trace = sample_trace();
  trace.timeline.ranks[0].gpu = "a \"quoted\\name\"\n";
  SpanRow second = compute_span(SpanKind::all_reduce, 0, -1, 1.1, 1.2);  // while the message is on its way
  second.stream = Stream::network;
  add_span(trace.timeline, second);
  export_perfetto(folder.file("a.json"), trace);
  write_file(folder.file("script.py"), R"(
import collections, json, sys
events = json.load(open(sys.argv[1], encoding="utf-8"))["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
assert len(spans) == 19, len(spans)
first = spans[0]
assert (first["name"], first["ts"], first["dur"], first["pid"], first["tid"]) == ("forward 0", 0, 1e6, 0, 0), first
assert first["args"] == {"kind": "forward", "microbatch": 0, "chunk": 0}, first
names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
assert names == {(0, 0): "compute", (1, 0): "compute", (0, 1): "network", (0, 2): "network 2"}, names
process = [e["args"]["name"] for e in events if e["name"] == "process_name"][0]
assert process == 'stage 0, replica 0: 2 x a "quoted\\name"\n, node 0', process
threads = collections.defaultdict(list)
for e in spans: threads[e["pid"], e["tid"]].append(e)
for thread in threads.values():
    for a, b in zip(thread, thread[1:]): assert round(1e3 * (a["ts"] + a["dur"])) <= round(1e3 * b["ts"])
colours = {e["args"]["kind"]: e["cname"] for e in spans}
assert colours["bubble_steady"] not in (colours["forward"], colours["exposed_p2p"])
memory = [(e["ts"], e["args"]["GiB"]) for e in events if e["ph"] == "C" and e["pid"] == 0]
assert memory == [(0, 1), (1e6, 2), (6.5e6, 1), (8.75e6, 0)], memory
print("good")
)");
  CHECK(run_command(python + " " + folder.file("script.py") + " " + folder.file("a.json")).output ==
        "good\n");
}

TEST_CASE("the CSV export has one row a span") {
  const ScratchFolder folder;
  export_csv(folder.file("a.csv"), sample_trace());
  const std::string text = read_text_file(folder.file("a.csv"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1 + 18);
  CHECK_THAT(text,
             Catch::Matchers::StartsWith("rank,stage,replica,stream,kind,chunk,microbatch,start_s,end_s,"
                                         "tensor_communication_s,bytes,flops\n"
                                         "0,0,0,compute,forward,0,0,0,1,0,0,0\n"));
  CHECK_THAT(text, contains_text("\n0,0,0,compute,bubble_steady,,,2,4.25,0,0,0\n"));
  CHECK_THAT(text, contains_text("\n0,0,0,network,send,0,0,1,1.25,0,4e+06,0\n") ||
                       contains_text("\n0,0,0,network,send,0,0,1,1.25,0,4000000,0\n"));
}

TEST_CASE("an export that cannot be written is wrong input") {
  CHECK_THROWS_AS(export_perfetto("/none/a.json", sample_trace()), InputError);
  CHECK_THROWS_AS(export_csv("/none/a.csv", sample_trace()), InputError);
}

TEST_CASE("half a million spans are exported in seconds") {
  const ScratchFolder folder;
  Trace trace = sample_trace();
  trace.timeline.spans = {};
  for (int i = 0; i < 500000; ++i) {
    append(trace.timeline.spans, compute_span(SpanKind::forward, i % 2, i, i * 1e-4, (i + 1) * 1e-4));
  }
  const auto start = std::chrono::steady_clock::now();
  export_perfetto(folder.file("a.json"), trace);
  export_csv(folder.file("a.csv"), trace);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  CHECK(elapsed.count() < 20);  // about 1 s on an idle machine
  if (std::getenv("ORRERY_TEST_TIMES") != nullptr)
    WARN("two exports of 500000 spans: " << elapsed.count() << " s");
}

}  // namespace orrery
