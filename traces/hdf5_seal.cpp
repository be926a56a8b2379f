#include "traces/hdf5_seal.hpp"

#include <zlib.h>

#include <cstdio>
#include <string_view>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr std::string_view kMark = "ORRERY1\n";
constexpr std::size_t kDigits = 8;

std::string checksum(std::string_view bytes) {
  const uLong sum = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  char digits[kDigits + 1];
  std::snprintf(digits, sizeof digits, "%08lx", sum);
  return digits;
}

}  // namespace

void seal(std::string& file) {
  const std::string sum = checksum(file);
  file += kMark;
  file += sum;
}

bool unseal(std::string& file, const std::string& path) {
  const std::size_t length = kMark.size() + kDigits;
  if (file.size() < length) return false;
  const std::size_t body = file.size() - length;
  if (std::string_view(file).substr(body, kMark.size()) != kMark) return false;
  const std::string sum = file.substr(body + kMark.size());
  file.resize(body);
  if (checksum(file) != sum)
    throw InputError(path, "a damaged file (its checksum differs)", "an undamaged trace");
  return true;
}

}  // namespace orrery
