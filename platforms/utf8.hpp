// Where characters of UTF-8 begin and end.
#pragma once

#include <cstddef>
#include <string_view>

namespace orrery {

// Bytes of the UTF-8 character at the front of `text`, which is not empty; 0 where there is none (RFC 3629).
std::size_t utf8_length(std::string_view text);

// The front of `text` of at most so many bytes that does not end inside a character.
std::string_view utf8_front(std::string_view text, std::size_t most);

}  // namespace orrery
