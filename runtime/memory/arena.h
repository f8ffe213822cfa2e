/// @file arena.h — this process's registered memory: a memory file that the other ranks of the node can map.
///
/// Each process has one sparse file, as large as the machine's memory, and maps the file once.  An allocation gets its
/// pages at once.  The first touch of 64 MiB would cost more than four allreduces of 64 MiB.  Freed pages go back to
/// the system, even while other processes have them mapped.  The file has no name, so nothing stays in /dev/shm.  The
/// file ends with the last process that has it open or mapped.  Other ranks find an address by its offset in the file.
/// So ranks need no agreement when memory is allocated or freed.
///
/// Thread-safe.  The arena outlives every init and shutdown.  A child of fork() shares the memory with its parent.  In
/// the child allocate() returns nullptr, and free() frees nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace hvd::memory {

/// The numbers that another process needs to map an arena.  bytes is 0 if there is no arena.
struct ArenaName {
  std::int64_t pid = 0;
  int fd = -1;
  std::uint64_t bytes = 0, inode = 0;
};

class Arena {
 public:
  /// The arena of this process.  The first call makes it.
  static Arena& process();
  Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns zeroed, page-aligned memory; nullptr: there is no arena, or no room.  The caller frees it with free().
  void* allocate(std::size_t bytes);
  /// Frees memory of allocate().  Returns false if @p data is outside the arena.  Ignores an address in the arena that
  /// is not the beginning of an allocation.
  bool free(void* data);
  /// The offset of [data, data + bytes) in the file; nullopt: it is other memory.
  std::optional<std::uint64_t> offset(const void* data, std::size_t bytes) const {
    const auto at = reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(base_);
    if (at >= bytes_ || bytes > bytes_ - at) return std::nullopt;
    return at;
  }
  unsigned char* base() const { return base_; }
  ArenaName name() const;

 private:
  bool populate(std::uint64_t at, std::uint64_t bytes);
  void give_back(std::uint64_t at, std::uint64_t bytes);
  bool forked() const;

  // The constructor sets these, and nothing changes them: offset() needs no lock.
  unsigned char* base_ = nullptr;
  std::uint64_t bytes_ = 0, inode_ = 0;
  int fd_ = -1;
  std::int64_t pid_ = 0;

  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_, live_;  ///< offset -> bytes
};

/// Maps another process's arena into this process; nullptr: this is not possible.  The last owner of the pointer unmaps
/// it.  For the arena of this process, returns its base.
std::shared_ptr<unsigned char> map_arena(const ArenaName& name);

}  // namespace hvd::memory
