/// @file memory.h — where device memory comes from: the driver, or the framework's allocator where it offers one.
///
/// With torch's, fusion buffers and results lie in its caching allocator: its statistics count them, its cache serves
/// us, and what it frees when memory runs out serves both.  Its functions are C, take no lock of Python's, and are
/// looked up in the process (torch 2.15 has them, 2.0 has not).
#pragma once
#include <cstddef>
#include <string>

#include "gpu/cuda/driver.h"

namespace hvd::cuda {

/// Any thread; never under a lock of ours: torch may call Python, where a program has asked it to record allocations.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// With the context of the device current.  @p stream: that it is used on first.  success, or a code for full() and
  /// text(), which are asked on the same thread then.
  virtual int allocate(Pointer* address, std::size_t bytes, int ordinal, Stream stream) const = 0;
  /// With a context current.  Nothing uses it anymore, on no stream.
  virtual void free(Pointer address) const = 0;
  /// More may be had once some has been given back.
  virtual bool full(int code) const = 0;
  virtual std::string text(int code) const = 0;
  /// It keeps what comes back for the next who asks; else we do.
  virtual bool keeps() const = 0;
};

/// Which one is asked now.  Others may have given memory before.
const MemorySource& memory_source(const Driver& driver);

/// torch's tensors come: memory_source() is its allocator from now on.  False, and @p why, where that cannot be.
bool use_torch_memory(std::string& why);
/// HVD_TORCH_MEMORY: whether the last one may say yes.
void allow_torch_memory(bool allowed);

}  // namespace hvd::cuda
