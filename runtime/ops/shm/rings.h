/// @file rings.h — the chunk rings of a node, and the conditions for reading or writing a buffer.
///
/// Each rank has a ring of two buffers, in which other ranks read its input.  The node has one result ring of two
/// buffers.  Chunks are numbered from 0 since init, across batches and operations, alike on every rank of the node.
/// For chunk c, with the counters of memory::Progress:
///   write ring[c]      `used` of all ranks       >= c - 1     all ranks have finished with chunk c - 2
///   read  ring[c]      `in` of its owner         >= c + 1
///   write result[c]    `out` of all ranks        >= c - 1
///   read  result[c]    `reduced` of its writer   >= c + 1
/// At the end of every operation the rank's counters in, used, reduced and out are equal.
#pragma once
#include <cstring>

#include "memory/node.h"
#include "ops/kernels/cpu_kernels.h"

namespace hvd::ops {

class Rings {
 public:
  explicit Rings(const memory::Node& node) : node(node), me(node.me), ranks(node.ranks) {}

  using Counter = std::atomic<std::uint64_t> memory::Progress::*;

  /// True if this counter of every rank of the node is at least @p at_least.
  bool all(Counter counter, std::uint64_t at_least) const {
    for (int r = 0; r < ranks; ++r)
      if ((node.progress(r).*counter).load(std::memory_order_acquire) < at_least) return false;
    return true;
  }
  /// True if this counter of rank @p r is at least @p at_least.
  bool one(int r, Counter counter, std::uint64_t at_least) const {
    return (node.progress(r).*counter).load(std::memory_order_acquire) >= at_least;
  }
  /// Sets this rank's counter, after all its earlier stores into the rings.
  void post(Counter counter, std::uint64_t value) {
    if (streaming) store_fence();
    (node.progress(me).*counter).store(value, std::memory_order_release);
  }
  /// Copies into a ring; bypasses the caches if `streaming`.
  void put(void* dst, const void* src, std::size_t bytes) const {
    if (streaming)
      copy_streaming(dst, src, bytes);
    else
      std::memcpy(dst, src, bytes);
  }
  bool may_write_ring(std::uint64_t c) const { return c < 2 || all(&memory::Progress::used, c - 1); }
  bool may_write_result(std::uint64_t c) const { return c < 2 || all(&memory::Progress::out, c - 1); }
  std::size_t chunk_bytes() const { return node.geometry.chunk_bytes; }

  const memory::Node& node;
  const int me, ranks;
  std::uint64_t next = 0;  ///< first chunk of the next operation
  bool streaming = false;  ///< ring stores bypass the caches; each rank chooses for itself (distance.h)
};

}  // namespace hvd::ops
