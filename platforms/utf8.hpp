// Where characters of UTF-8 begin and end, and texts that are cut between them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace orrery {

// Bytes of the UTF-8 character at the front of `text`, which is not empty; 0 where there is none (RFC 3629).
std::size_t utf8_length(std::string_view text);

// `text`, or where it is longer than so many bytes as much of it as does not end inside a character, and
// "...".
std::string shortened(std::string_view text, std::size_t most);

}  // namespace orrery
