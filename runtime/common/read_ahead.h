/// @file read_ahead.h — for loops over many operations: fetches memory some turns before its turn.
///
/// The state of thousands of operations does not fit the second-level cache.  Without this, each turn of a loop waits
/// for several lines of memory, one after the other.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hvd {

inline constexpr std::size_t read_ahead = 16;  ///< turns between the fetch and the use

/// Begins to fetch the first @p lines cache lines of an object.  The object may be gone, or null.
inline void fetch(const void* object, std::size_t lines) {
  const auto begin = reinterpret_cast<std::uintptr_t>(object);  // a number: no pointer may point beyond a lost object
  for (std::size_t i = 0; i < lines; ++i) __builtin_prefetch(reinterpret_cast<const void*>(begin + 64 * i));
}

/// In turn @p i of a loop over pointers: begins to fetch the object of a later turn.
template <class Pointers>
void fetch_later(const Pointers& pointers, std::size_t i, std::size_t lines) {
  if (i + read_ahead < pointers.size()) fetch(pointers[i + read_ahead], lines);
}

}  // namespace hvd
