#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>

#include "platforms/errors.hpp"
#include "platforms/yaml.hpp"
#include "tests/catch.hpp"
#include "tests/traces/sample_trace.hpp"
#include "tests/traces/scratch_folder.hpp"
#include "traces/output_file.hpp"
#include "traces/trial.hpp"

namespace orrery {
namespace {

std::string complaint(const std::string& path) {
  try {
    read_trace(path);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no complaint";
}

}  // namespace

TEST_CASE("a trace read back is the trace written") {
  const ScratchFolder folder;
  const Trace trace = sample_trace();
  const std::string path = folder.file("ü 夸.h5");
  write_trace(path, trace);
  const Trace back = read_trace(path);
  CHECK(back.run == trace.run);
  CHECK(back.timeline == trace.timeline);
  CHECK(back.accounting == trace.accounting);
  CHECK(back.memory == trace.memory);
  CHECK(back.activations == trace.activations);
  CHECK(back.cost == trace.cost);
  CHECK(folder.names() == std::vector<std::string>{"ü 夸.h5"});  // no temporary stays
}

TEST_CASE("a trace without rows is read back as such") {
  const ScratchFolder folder;
  write_trace(folder.file("empty.h5"), Trace{});
  CHECK(read_trace(folder.file("empty.h5")) == Trace{});
}

TEST_CASE("links without bins are read back as such") {
  const ScratchFolder folder;
  Trace trace;
  trace.timeline.links = {{"a", 1, 2, {}}, {"b", 3, 4, {}}};
  write_trace(folder.file("links.h5"), trace);
  CHECK(read_trace(folder.file("links.h5")) == trace);
}

TEST_CASE("the same trace gives the same bytes") {
  const ScratchFolder folder;
  write_trace(folder.file("a.h5"), sample_trace());
  write_trace(folder.file("b.h5"), sample_trace());
  CHECK(read_text_file(folder.file("a.h5")) == read_text_file(folder.file("b.h5")));
}

TEST_CASE("a trace replaces the one of its name, and the file behind a link") {
  const ScratchFolder folder;
  write_trace(folder.file("a.h5"), Trace{});
  std::filesystem::create_symlink("a.h5", folder.file("link.h5"));
  write_trace(folder.file("link.h5"), sample_trace());
  CHECK(std::filesystem::is_symlink(folder.file("link.h5")));
  CHECK(read_trace(folder.file("a.h5")) == sample_trace());
}

TEST_CASE("a trace that cannot be written is wrong input that names the path, and leaves nothing behind") {
  const ScratchFolder folder;
  const auto refused = [](const std::string& path) {
    try {
      write_trace(path, sample_trace());
    } catch (const InputError& error) {
      return error.place == path ? error.found : "another place: " + error.place;
    }
    return std::string("written");
  };
  std::filesystem::create_directory(folder.file("folder"));
  CHECK(refused(folder.file("folder")) == "Is a directory");
  CHECK(refused(folder.file("none/a.h5")) == "No such file or directory");
  if (std::filesystem::exists("/dev/full")) CHECK(refused("/dev/full") == "No space left on device");
  if (::geteuid() != 0) {  // root may write anywhere
    std::filesystem::permissions(folder.file("folder"), std::filesystem::perms::owner_read);
    CHECK(refused(folder.file("folder/a.h5")) == "Permission denied");
  }
  CHECK(folder.names() == std::vector<std::string>{"folder"});
}

TEST_CASE("a disk that fills up while writing leaves the file that was there") {
  const ScratchFolder folder;
  write_file(folder.file("a"), "before");
  // A limit on the size of files fails a write just as a full disk does, and needs no disk of its own.
  const auto former_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit former{};
  ::getrlimit(RLIMIT_FSIZE, &former);
  rlimit small = former;
  small.rlim_cur = 100000;
  ::setrlimit(RLIMIT_FSIZE, &small);
  CHECK_THROWS_AS(write_file(folder.file("a"), std::string(3 << 20, 'x')), InputError);
  ::setrlimit(RLIMIT_FSIZE, &former);
  std::signal(SIGXFSZ, former_handler);
  CHECK(read_text_file(folder.file("a")) == "before");
  CHECK(folder.names() == std::vector<std::string>{"a"});
}

TEST_CASE("an output file given up leaves the file that was there") {
  const ScratchFolder folder;
  write_file(folder.file("a"), "before");
  {
    OutputFile file(folder.file("a"));
    file.write(std::string(3 << 20, 'x'));
  }
  CHECK(read_text_file(folder.file("a")) == "before");
  CHECK(folder.names() == std::vector<std::string>{"a"});
}

TEST_CASE("what is not a trace is wrong input") {
  const ScratchFolder folder;
  write_file(folder.file("text"), "not a trace at all\n");
  write_file(folder.file("nothing"), "");
  CHECK_THAT(complaint(folder.file("text")), contains_text("no readable HDF5 file"));
  CHECK_THAT(complaint(folder.file("nothing")), contains_text("no readable HDF5 file"));
  CHECK(complaint(folder.file("absent")) != "no complaint");
  CHECK(complaint(folder.file("")) != "no complaint");  // the folder itself
}

TEST_CASE("a damaged trace is wrong input, never a crash") {
  const ScratchFolder folder;
  write_trace(folder.file("whole.h5"), sample_trace());
  const std::string whole = read_text_file(folder.file("whole.h5"));
  const std::string path = folder.file("damaged.h5");
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::string damaged = whole;
    const auto at = [&] { return random() % damaged.size(); };
    if (seed % 4 == 0) damaged.resize(at());
    if (seed % 4 != 0) {
      for (unsigned flip = 0; flip <= seed % 7; ++flip)
        damaged[at()] ^= static_cast<char>(1U << random() % 8);
    }
    if (damaged == whole) continue;  // two flips may undo each other
    write_file(path, damaged);
    INFO("seed " << seed);
    CHECK(complaint(path) != "no complaint");
  }
}

// Any HDF5 tool that changes a trace drops its seal, so damage shows only when HDF5 meets it.
TEST_CASE("a damaged trace without a seal is read or refused, within seconds") {
  constexpr std::size_t kSealBytes = 16;
  const ScratchFolder folder;
  write_trace(folder.file("whole.h5"), sample_trace());
  std::string whole = read_text_file(folder.file("whole.h5"));
  whole.resize(whole.size() - kSealBytes);
  const std::string path = folder.file("damaged.h5");
  int refused = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    std::string damaged = whole;
    for (unsigned byte = 0; byte <= seed % 30; ++byte)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    write_file(path, damaged);
    INFO("seed " << seed);
    const auto start = std::chrono::steady_clock::now();
    if (complaint(path) != "no complaint") ++refused;
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
  }
  CHECK(refused > 20);
}

TEST_CASE("work that never ends, crashes or throws is told from work that ends") {
  CHECK(ends_within(5, [] {}));
  CHECK(ends_within(5, [] { throw InputError("a", "b", "c"); }));
  CHECK_FALSE(ends_within(5, [] { std::raise(SIGKILL); }));
  CHECK_FALSE(ends_within(1, [] {
    for (volatile bool on = true; on;) continue;
  }));
}

TEST_CASE("half a million spans are written in well under a second") {
  const ScratchFolder folder;
  Trace trace = sample_trace();
  std::mt19937 random(1);
  std::uniform_real_distribution<double> duration(0.9, 1.1);
  trace.timeline.spans = {};
  trace.timeline.spans.reserve(500000);
  double time = 0;
  for (int i = 0; i < 500000; ++i) {
    const double end = time + duration(random);
    append(trace.timeline.spans, {.kind = i % 2 == 0 ? SpanKind::forward : SpanKind::backward,
                                  .rank = i % 2,
                                  .chunk = 0,
                                  .microbatch = i / 2,
                                  .start = time,
                                  .end = end,
                                  .flops = 1e12});
    time = end;
  }
  trace.accounting.ranks.resize(2);
  const auto start = std::chrono::steady_clock::now();
  write_trace(folder.file("large.h5"), trace);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  CAPTURE(elapsed.count(), std::filesystem::file_size(folder.file("large.h5")));
  CHECK(elapsed.count() < 5);  // 0.4 s on an idle machine; a loaded one or a sanitizer takes longer
  CHECK(read_trace(folder.file("large.h5")).timeline == trace.timeline);
  if (std::getenv("ORRERY_TEST_TIMES") != nullptr) WARN("500000 spans: " << elapsed.count() << " s");
}

}  // namespace orrery
