// SHA-256 (FIPS 180-4), for the digests of model and profile files.
#pragma once

#include <string>
#include <string_view>

namespace orrery {

std::string sha256_hex(std::string_view bytes);  // 64 lower-case digits

}  // namespace orrery
