/// @file last_words.h — advice for errors with a text that does not tell a user of hvdrun what to do.  Pure.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace hvd::rank {

/// True if @p words contain the kernel's or torch's message for a full disk.
bool tells_full_disk(std::string_view words);

/// True if @p words contain Python's or torch's message for a worker process that a signal has ended.
bool tells_dead_worker(std::string_view words);

/// Advice for the error in @p words, which are the rank's traceback or its last lines; empty: no advice.
/// @param address_limit_bytes  the rank's limit on address space (ulimit -v); 0: none
std::string hint_for(std::string_view words, std::int64_t address_limit_bytes);

}  // namespace hvd::rank
