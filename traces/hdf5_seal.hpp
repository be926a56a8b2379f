// Sixteen bytes behind the HDF5 file that tell damage before HDF5 reads it: the library follows broken
// pointers.
#pragma once

#include <string>

namespace orrery {

// Appends a mark and the CRC-32 of what is there. HDF5 ignores bytes behind its end, and drops them when
// another program changes the file, so a changed file is read unsealed and a damaged one is not.
void seal(std::string& file);

// Removes the seal; false where there is none. Throws InputError naming `path` when the bytes are not those
// that were sealed.
bool unseal(std::string& file, const std::string& path);

}  // namespace orrery
