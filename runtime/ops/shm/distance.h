/// @file distance.h — measures how far apart the cores of two neighbouring ranks are at this moment.
///
/// A hypervisor moves virtual CPUs between core complexes.  A flag's round trip takes 100 ns within a complex and
/// 450 ns between two.  If the cores are far apart, ring stores that bypass the caches are twice as fast.  If the
/// cores are near, plain stores are faster by a third (both measured).  So a large batch begins with eight ping-pongs.
/// Each rank chooses for itself: the choice changes no result, so ranks need not agree.
#pragma once
#include "memory/futex.h"
#include "memory/node.h"

namespace hvd::ops {

class Distance {
 public:
  static constexpr std::int64_t far_ns = 250;

  /// Exchanges eight ping-pongs with the neighbour, which calls measure() at about the same time.  Gives up, and keeps
  /// the old answer, after about 50 us.
  void measure(const memory::Node& node) {
    const int other = node.me ^ 1;
    if (other >= node.ranks) return;
    attempt_ += 16;
    auto& mine = node.presence(node.me).ping;
    auto& theirs = node.presence(other).ping;
    const bool first = node.me < other;
    std::int64_t best = -1, start = memory::now_ns();
    const std::int64_t end = start + 50'000;
    for (std::uint64_t i = 1; i <= 8; ++i) {
      if (first) mine.store(attempt_ + i, std::memory_order_release);
      for (int tries = 0; theirs.load(std::memory_order_acquire) < attempt_ + i; ++tries)
        if (tries % 64 == 63 && memory::now_ns() > end) {
          mine.store(attempt_ + 8, std::memory_order_release);  // the neighbour need not wait for the remaining pings
          return;
        }
      if (!first) mine.store(attempt_ + i, std::memory_order_release);
      const std::int64_t now = memory::now_ns();
      if (i > 1 && (best < 0 || now - start < best)) best = now - start;
      start = now;
    }
    far_ = best > far_ns;
  }
  bool far() const { return far_; }
  /// True if the copies of a stream of @p bytes bypass the caches; never below 16 KiB.  Every rank of the node calls
  /// this function for every stream.  Each stream of 4 MiB or more, and every 32nd of the others, measures the
  /// distance.
  bool streaming(const memory::Node& node, std::size_t bytes) {
    if (bytes < streaming_from) return false;
    if (bytes >= measured_from || streams_++ % 32 == 0) measure(node);
    return far_;
  }

 private:
  static constexpr std::size_t streaming_from = 16 << 10, measured_from = 4 << 20;
  std::uint64_t attempt_ = 0;  ///< equal on both neighbours
  std::uint64_t streams_ = 0;  ///< number of streams of 16 KiB to 4 MiB; equal on all ranks
  bool far_ = true;            ///< the guess before the first measurement; a wrong "near" would cost more
};

}  // namespace hvd::ops
