/// @file sealed_memory.h — memory that the guard shares with its rank, and that the rank cannot make smaller.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

#include "base/file.h"

namespace hvd::rank {

/// Zeroed at first.
class SealedMemory {
 public:
  SealedMemory(const char* name, std::size_t bytes)
      : fd_(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)), bytes_(bytes) {
    if (fd_ && ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0 &&
        fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
      data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (data_ != MAP_FAILED) return;
    data_ = nullptr;
    fd_.reset();
  }
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;
  ~SealedMemory() {
    if (data_) munmap(data_, bytes_);
  }
  /// nullptr: the memory could not be made.
  void* data() const { return data_; }
  /// The descriptor that the rank inherits. -1: the memory could not be made.
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
  void* data_ = MAP_FAILED;
  std::size_t bytes_;
};

}  // namespace hvd::rank
