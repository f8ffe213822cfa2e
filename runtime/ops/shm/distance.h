/// @file distance.h — how far apart the cores of two neighbours are at this moment.
///
/// Virtual machines move between core complexes by themselves; a flag's round
/// trip is then 100 or 450 ns.  When the cores are far, stores into the rings
/// that bypass the caches are twice as fast; when near, plain ones win by a third
/// (measured).  So a large batch begins with a few ping-pongs.  The choice is
/// local: it changes no byte and needs no agreement.
#pragma once
#include "memory/futex.h"
#include "memory/node.h"

namespace hvd::ops {

class Distance {
 public:
  static constexpr std::int64_t far_ns = 250;

  /// Plays with the neighbour, who does the same now; gives up after some ten microseconds when it is late.
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
          mine.store(attempt_ + 8, std::memory_order_release);  // the other need not wait for the rest
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
  /// Whether a stream of @p bytes is copied past the caches.  Every rank asks for every stream of the node.  A large
  /// stream makes this function measure the distance to the other core; a smaller one does so now and then.
  bool streaming(const memory::Node& node, std::size_t bytes) {
    if (bytes < streaming_from) return false;
    if (bytes >= measured_from || streams_++ % 32 == 0) measure(node);
    return far_;
  }

 private:
  static constexpr std::size_t streaming_from = 16 << 10, measured_from = 4 << 20;
  std::uint64_t attempt_ = 0;  ///< both count alike
  std::uint64_t streams_ = 0;  ///< counted alike on all ranks
  bool far_ = true;            ///< until measured: bypassing costs less when wrong
};

}  // namespace hvd::ops
