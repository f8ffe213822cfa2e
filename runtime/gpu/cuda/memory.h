/// @file memory.h — the source of device memory: the driver, or torch's allocator.
///
/// With torch's allocator, fusion buffers and results come from torch's caching pool, and torch's statistics count
/// them.  When memory runs out, torch frees cached memory, for its own use and for the runtime.  The allocator's C
/// functions take no lock of Python.  The runtime looks up the functions in the process: torch 2.15 has them, torch 2.0
/// does not.
#pragma once
#include <cstddef>
#include <string>

#include "gpu/cuda/driver.h"

namespace hvd::cuda {

/// Any thread.  The caller must hold no lock of the runtime: torch may call Python if the program records allocations.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// The device's context must be current.  @p stream: the first stream that uses the memory.  Returns success, or a
  /// code for full() and text(), which the caller must call on the same thread.
  virtual int allocate(Pointer* address, std::size_t bytes, int ordinal, Stream stream) const = 0;
  /// A context must be current.  No stream may use the memory any longer.
  virtual void free(Pointer address) const = 0;
  /// True if a retry may succeed after memory has been freed.
  virtual bool full(int code) const = 0;
  virtual std::string text(int code) const = 0;
  /// True if the source pools freed memory itself.  Otherwise the Gpu does.
  virtual bool keeps() const = 0;
};

/// The source for new memory.  Older memory may come from another source.
const MemorySource& memory_source(const Driver& driver);

/// Makes torch's allocator the memory_source() from now on.  Returns false and sets @p why if that is not possible.
bool use_torch_memory(std::string& why);
/// Sets whether use_torch_memory() may succeed (HVD_TORCH_MEMORY).
void allow_torch_memory(bool allowed);

}  // namespace hvd::cuda
