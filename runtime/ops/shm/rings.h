/// @file rings.h — the chunk rings of a node, and when which buffer may be touched.
///
/// Each rank has a ring of two buffers in which others read its input, and the
/// node has a result ring of two buffers.  Chunks are counted since init, across
/// batches and operations; every rank of the node counts the same ones.  For
/// chunk c, with the counters of memory::Progress:
///   write ring[c]      all used    >= c - 1     everybody is through with chunk c - 2
///   read  ring[c]      that in     >= c + 1
///   write result[c]    all out     >= c - 1
///   read  result[c]    that reduced >= c + 1
/// Every operation ends with all four counters at the same chunk.
#pragma once
#include <cstring>

#include "memory/node.h"
#include "ops/kernels/cpu_kernels.h"

namespace hvd::ops {

class Rings {
 public:
  explicit Rings(const memory::Node& node) : node(node), me(node.me), ranks(node.ranks) {}

  using Counter = std::atomic<std::uint64_t> memory::Progress::*;

  bool all(Counter counter, std::uint64_t at_least) const {
    for (int r = 0; r < ranks; ++r)
      if ((node.progress(r).*counter).load(std::memory_order_acquire) < at_least) return false;
    return true;
  }
  bool one(int r, Counter counter, std::uint64_t at_least) const {
    return (node.progress(r).*counter).load(std::memory_order_acquire) >= at_least;
  }
  void post(Counter counter, std::uint64_t value) {
    if (streaming) store_fence();
    (node.progress(me).*counter).store(value, std::memory_order_release);
  }
  /// Copies into a ring: past the caches when the other cores are far.
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
  bool streaming = false;  ///< ring stores bypass the caches; a local choice, see distance.h
};

}  // namespace hvd::ops
