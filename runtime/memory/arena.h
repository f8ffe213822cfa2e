/// @file arena.h — this process's registered memory: a file in memory that the other ranks of the node can map.
///
/// One sparse file a process, as large as the machine's memory and mapped once.
/// What is allocated in it is populated at once (the first touch of 64 MiB costs
/// more than four allreduces of it) and given back to the system when it is freed,
/// whoever has it mapped.  The file has no name: nothing is left in /dev/shm, and
/// it ends with the last process that has it.  So an address in it is known to
/// everybody by its offset, and nothing is agreed about when memory comes and goes.
///
/// It outlives every init and shutdown.  Thread-safe.  A child of fork() shares
/// the memory with its parent: it frees nothing, and what it allocates is its own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace hvd::memory {

/// What another process needs to map an arena.  bytes is 0 where there is none.
struct ArenaName {
  std::int64_t pid = 0;
  int fd = -1;
  std::uint64_t bytes = 0, inode = 0;
};

class Arena {
 public:
  /// The one of this process, made when it is first asked for.
  static Arena& process();
  Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Zeroed and page-aligned; nullptr when there is no arena, or no room in it.
  void* allocate(std::size_t bytes);
  /// False when @p data is not the beginning of something allocated here.
  bool free(void* data);
  /// Where [data, data + bytes) lies in the file; nothing when it is other memory.
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

  // Set by the constructor, never changed: offset() takes no lock.
  unsigned char* base_ = nullptr;
  std::uint64_t bytes_ = 0, inode_ = 0;
  int fd_ = -1;
  std::int64_t pid_ = 0;

  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_, live_;  ///< offset -> bytes
};

/// Another process's arena, mapped here; nullptr when it cannot be.  This process's own is returned as it is.
std::shared_ptr<unsigned char> map_arena(const ArenaName& name);

}  // namespace hvd::memory
