/// @file shm_copy.h — the ranks of a node exchange streams of bytes through their rings.
///
/// In each step a rank copies the next part of its stream into its ring, and reads the other rings.  A rank with a
/// shorter stream copies nothing in the last steps, but still advances its counters.  All ranks know the length and the
/// layout of every stream.
#pragma once
#include <algorithm>
#include <functional>
#include <vector>

#include "ops/pieces.h"
#include "ops/shm/rings.h"
#include "ops/stage.h"

namespace hvd::ops {

class ShmCopy final : public Stage {
 public:
  /// Returns how many bytes, from the start of this rank's stream, can be copied now.
  using Ready = std::function<std::size_t()>;
  /// @param streams  [local ranks].  This rank's stream has the addresses to read.  Another rank's stream has the
  ///                 addresses to which this rank copies it; nullptr: this rank does not need the data
  /// @param ready    empty function: all of the stream can be copied
  ShmCopy(Rings& rings, std::vector<Pieces> streams, Ready ready = {})
      : rings_(rings), streams_(std::move(streams)), ready_(std::move(ready)), base_(rings.next) {
    std::size_t most = 0;
    for (const Pieces& s : streams_) most = std::max(most, s.bytes());
    if (rings_.ranks == 1) most = 0;  // no other rank reads
    // Four steps, so that copying in and copying out overlap.  A step has at least 32 KiB, which may give fewer steps.
    // A step fits a buffer of the ring, which may give more.
    step_bytes_ = std::min(std::max<std::size_t>((most / 4 + 63) / 64 * 64, 32 << 10), rings.chunk_bytes());
    steps_ = (most + step_bytes_ - 1) / step_bytes_;
    rings_.next += steps_;
  }

  bool step() override {
    using memory::Progress;
    bool moved = false;
    if (copied_ < steps_ && rings_.may_write_ring(base_ + copied_)) {
      const Pieces& mine = streams_[static_cast<std::size_t>(rings_.me)];
      const auto [begin, end] = part(mine, copied_);
      if (begin == end || !ready_ || ready_() >= end) {
        unsigned char* ring = rings_.node.ring(rings_.me, base_ + copied_);
        mine.each(begin, end, [&, begin = begin](const unsigned char* at, std::size_t from, std::size_t n) {
          rings_.put(ring + (from - begin), at, n);
        });
        rings_.post(&Progress::in, base_ + ++copied_);
        moved = true;
      }
    }
    if (k_ < copied_ && rings_.all(&Progress::in, base_ + k_ + 1)) {
      for (int r = 0; r < rings_.ranks; ++r) {
        if (r == rings_.me) continue;
        const Pieces& theirs = streams_[static_cast<std::size_t>(r)];
        const auto [begin, end] = part(theirs, k_);
        theirs.write(begin, end, rings_.node.ring(r, base_ + k_));
      }
      ++k_;
      rings_.post(&Progress::used, base_ + k_);
      rings_.post(&Progress::reduced, base_ + k_);
      rings_.post(&Progress::out, base_ + k_);
      moved = true;
    }
    return moved;
  }
  bool done() const override { return k_ == steps_; }

 private:
  std::pair<std::size_t, std::size_t> part(const Pieces& s, std::uint64_t k) const {
    return {std::min(s.bytes(), k * step_bytes_), std::min(s.bytes(), (k + 1) * step_bytes_)};
  }
  Rings& rings_;
  const std::vector<Pieces> streams_;
  const Ready ready_;
  std::size_t step_bytes_ = 0;
  std::uint64_t base_, steps_ = 0, copied_ = 0, k_ = 0;
};

}  // namespace hvd::ops
