/// @file last_words.h — advice for errors whose text alone does not tell a user of hvdrun what to do.  Pure.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace hvd::rank {

/// Whether @p words tell that a file could not be written for want of room: the kernel's text, or torch's own.
bool tells_full_disk(std::string_view words);

/// What to do next about the error in @p words, the rank's traceback or its last lines; empty: nothing to add.
/// @param address_limit_bytes  the rank's limit on address space (ulimit -v); 0: none
std::string hint_for(std::string_view words, std::int64_t address_limit_bytes);

}  // namespace hvd::rank
