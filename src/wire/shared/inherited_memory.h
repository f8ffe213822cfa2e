/// @file inherited_memory.h — the rank's view of memory that its guard has made and sealed.
///
/// Header only: libhvd uses it.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>

namespace hvd::wire {

/// Maps the descriptor @p fd if it is sealed memory of @p bytes that begins with @p mark.  Otherwise returns nullptr.
/// The caller calls munmap().  A process may inherit the variable with the number, but have another file open under
/// that number.  The function does not change such a file.
inline void* map_inherited(int fd, std::size_t bytes, std::uint64_t mark) {
  struct stat file {};
  if (fd < 0 || ::fstat(fd, &file) != 0 || file.st_size != static_cast<off_t>(bytes)) return nullptr;
  if ((::fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) return nullptr;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  if (*static_cast<const std::uint64_t*>(memory) == mark) return memory;
  ::munmap(memory, bytes);
  return nullptr;
}

}  // namespace hvd::wire
