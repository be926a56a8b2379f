#include "platforms/yaml.hpp"
#include "tests/catch.hpp"
#include "tests/traces/python.hpp"
#include "tests/traces/sample_trace.hpp"
#include "tests/traces/scratch_folder.hpp"
#include "traces/output_file.hpp"

namespace orrery {
namespace {

// The text between ```python and ``` of the README.
std::string readme_script() {
  const std::string readme = read_text_file(ORRERY_SOURCE_DIR "/traces/README.md");
  const std::string opening = "```python\n";
  const std::size_t begin = readme.find(opening) + opening.size();
  return readme.substr(begin, readme.find("```", begin) - begin);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("the script of the README finds that the spans are the accounting") {
  const std::string python = python_with("h5py, pandas");
  const ScratchFolder folder;
  Trace trace = sample_trace();
  if (GENERATE(false, true)) {  // as where experts exchange: idle for a collective of its own, besides spans
    trace.timeline.spans.kind[3] = SpanKind::exposed_tp;
    trace.accounting = account(trace.timeline);
  }
  write_trace(folder.file("a.h5"), trace);
  write_file(folder.file("script.py"), readme_script());
  const CommandResult result =
      run_command(python + " " + folder.file("script.py") + " " + folder.file("a.h5"));
  INFO(result.output);
  CHECK(result.status == 0);
  // Every column of the accounting: the sample has spans of each.
  CHECK(count_of(result.output, " agrees\n") == 8);
  CHECK(count_of(result.output, "differs") == 0);
}

TEST_CASE("every dataset says its unit and what it is, and columns are chunked, shuffled and deflated") {
  const std::string python = python_with("h5py, pandas");
  const ScratchFolder folder;
  write_trace(folder.file("a.h5"), sample_trace());
  write_file(folder.file("script.py"), R"(
import sys, h5py
def check(name, item):
    if not isinstance(item, h5py.Dataset): return
    assert isinstance(item.attrs["unit"], str) and item.attrs["description"], name
    if item.shape: assert item.chunks and item.shuffle and item.compression == "gzip", name
with h5py.File(sys.argv[1]) as f:
    f.visititems(check)
    assert list(f["run"].attrs)[:3] == ["format_version", "tool_version", "simgrid_version"], list(f["run"].attrs)
    assert f["run"].attrs["format_version"] == "1"
    assert f["run"].attrs["command_line"] == 'orrery replay -o "ü 夸.h5"'
    assert f["ops/start"].dtype == "f8" and f["link_usage"].shape == (2, 3)
print("good")
)");
  const CommandResult result =
      run_command(python + " " + folder.file("script.py") + " " + folder.file("a.h5"));
  CHECK(result.output == "good\n");
}

TEST_CASE("a trace that another program changed can be read, and one of another version is refused") {
  const std::string python = python_with("h5py, pandas");
  const ScratchFolder folder;
  write_trace(folder.file("a.h5"), sample_trace());
  const auto change = [&](const std::string& statement) {
    write_file(folder.file("script.py"),
               "import sys, h5py\nwith h5py.File(sys.argv[1], 'a') as f:\n    " + statement);
    const CommandResult result =
        run_command(python + " " + folder.file("script.py") + " " + folder.file("a.h5"));
    INFO(result.output);
    REQUIRE(result.status == 0);
  };
  const auto complaint = [&] {
    try {
      read_trace(folder.file("a.h5"));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no complaint");
  };
  change("f['run'].attrs['note'] = 'looked at'");
  CHECK(run_attribute(read_trace(folder.file("a.h5")), "note") == "looked at");
  change("f['ops/rank'][0] = 2");
  CHECK_THAT(complaint(), contains_text("/ops/rank, row 0"));
  change("f['ops/rank'][0] = 0; f['ops/kind'][3] = 77");
  CHECK_THAT(complaint(), contains_text("/ops/kind"));
  change("f['ops/kind'][3] = 4; del f['ops/end']");
  CHECK_THAT(complaint(), contains_text("/ops/end"));
  change("f['ops/end'] = ['text']");
  CHECK_THAT(complaint(), contains_text("/ops/end"));
  change("del f['ops/end']; f.create_dataset('ops/end', (1 << 50,), 'f8', chunks=True)");
  CHECK_THAT(complaint(), contains_text("/ops/end"));
  change("f['run'].attrs['format_version'] = '2'");
  CHECK_THAT(complaint(), contains_text("format_version") && contains_text("2"));
}

}  // namespace orrery
