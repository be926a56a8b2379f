#include "traces/gzip_file.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

#include "platforms/errors.hpp"

namespace orrery {

namespace {

constexpr std::size_t kPiece = std::size_t{1} << 17U;
constexpr int kGzipAlone = 15 + 16;  // of inflateInit2: the widest window, and gzip's header and checksum

}  // namespace

struct GzipFile::State {
  explicit State(const std::string& path) : file(path, std::ios::binary) {
    fill();
    gzipped = stream.avail_in >= 2 && piece[0] == '\x1f' && piece[1] == '\x8b';
    if (gzipped) gzipped = in_member = ::inflateInit2(&stream, kGzipAlone) == Z_OK;
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (gzipped) ::inflateEnd(&stream);
  }

  // The next piece of the file, when all of the last one was used; false at its end.
  bool fill() {
    if (stream.avail_in > 0) return true;
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    stream.next_in = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_in = static_cast<uInt>(file.gcount());
    return stream.avail_in > 0;
  }

  std::ifstream file;
  std::array<char, kPiece> piece;
  z_stream stream{};  // next_in and avail_in also say what is left of the piece of a plain file
  bool gzipped = false, in_member = false;
};

GzipFile::GzipFile(const std::string& path, std::string name)
    : name_(std::move(name)), state_(std::make_unique<State>(path)) {
  if (!state_->file.is_open()) throw InputError(name_, "no readable file", "a CSV table, plain or gzipped");
}

GzipFile::~GzipFile() = default;

void GzipFile::fail_corrupt() const {
  throw InputError(name_, "a truncated or corrupt gzip file", "the whole file; fetch it again");
}

// Behind a member: whether another one follows.
bool GzipFile::begins_member() {
  z_stream& stream = state_->stream;
  while (state_->fill() && *stream.next_in == 0) {
    ++stream.next_in;
    --stream.avail_in;
  }
  if (stream.avail_in == 0) return false;
  if (*stream.next_in != 0x1f) {
    throw InputError(name_, "bytes that are not gzipped after the end of the gzip",
                     "a file that is gzipped as a whole; unpack it, add what was appended, pack it again");
  }
  ::inflateReset(&stream);
  return true;
}

std::size_t GzipFile::unpack(char* to, std::size_t most) {
  z_stream& stream = state_->stream;
  stream.next_out = reinterpret_cast<Bytef*>(to);
  stream.avail_out = static_cast<uInt>(most);
  while (stream.avail_out > 0) {
    if (!state_->in_member) state_->in_member = begins_member();
    if (!state_->in_member) break;
    if (!state_->fill()) fail_corrupt();
    const int answer = ::inflate(&stream, Z_NO_FLUSH);
    if (answer != Z_OK && answer != Z_STREAM_END) fail_corrupt();
    if (answer == Z_STREAM_END) state_->in_member = false;
  }
  return most - stream.avail_out;
}

std::size_t GzipFile::read(char* to, std::size_t most) {
  most = std::min(most, kPiece);
  if (state_->gzipped) return unpack(to, most);
  z_stream& stream = state_->stream;
  if (!state_->fill()) {
    if (state_->file.bad()) throw InputError(name_, "an error while it was read", "a file that can be read");
    return 0;
  }
  const std::size_t count = std::min<std::size_t>(most, stream.avail_in);
  std::copy_n(stream.next_in, count, to);
  stream.next_in += count;
  stream.avail_in -= static_cast<uInt>(count);
  return count;
}

}  // namespace orrery
