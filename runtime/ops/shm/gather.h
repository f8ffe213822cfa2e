/// @file gather.h — everybody's bytes to everybody on the node, lengths known.
///
/// In step k each rank pours the next buffer of its own bytes into its ring, and
/// all read all.  Ranks with less data just take part in the counting.
#pragma once
#include <algorithm>
#include <vector>

#include "ops/shm/rings.h"
#include "ops/stage.h"

namespace hvd::ops {

class ShmGather final : public Stage {
 public:
  /// @param bytes  [local ranks] length of each rank's data
  /// @param out    [local ranks] where each rank's data goes; own part included
  ShmGather(Rings& rings, const void* in, std::vector<std::size_t> bytes, std::vector<unsigned char*> out)
      : rings_(rings),
        in_(static_cast<const unsigned char*>(in)),
        bytes_(std::move(bytes)),
        out_(std::move(out)),
        base_(rings.next) {
    const std::size_t most = bytes_.empty() ? 0 : *std::max_element(bytes_.begin(), bytes_.end());
    chunks_ = (most + rings.chunk_bytes() - 1) / rings.chunk_bytes();
    rings_.next += chunks_;
    if (bytes_[me()] > 0) std::memmove(out_[me()], in_, bytes_[me()]);
  }

  bool step() override {
    using memory::Progress;
    bool moved = false;
    if (poured_ < chunks_ && rings_.may_write_ring(base_ + poured_)) {
      const auto [at, n] = part(me(), poured_);
      if (n > 0 && rings_.ranks > 1) rings_.put(rings_.node.ring(rings_.me, base_ + poured_), in_ + at, n);
      rings_.post(&Progress::in, base_ + ++poured_);
      moved = true;
    }
    if (k_ < poured_ && rings_.all(&Progress::in, base_ + k_ + 1)) {
      for (int r = 0; r < rings_.ranks; ++r) {
        const auto [at, n] = part(static_cast<std::size_t>(r), k_);
        if (r != rings_.me && n > 0)
          std::memcpy(out_[static_cast<std::size_t>(r)] + at, rings_.node.ring(r, base_ + k_), n);
      }
      ++k_;
      rings_.post(&Progress::used, base_ + k_);
      rings_.post(&Progress::reduced, base_ + k_);
      rings_.post(&Progress::out, base_ + k_);
      moved = true;
    }
    return moved;
  }
  bool done() const override { return k_ == chunks_; }

 private:
  std::size_t me() const { return static_cast<std::size_t>(rings_.me); }
  /// Rank r's part of step k: where it begins and how long it is.
  std::pair<std::size_t, std::size_t> part(std::size_t r, std::uint64_t k) const {
    const std::size_t at = k * rings_.chunk_bytes();
    return {at, bytes_[r] > at ? std::min(rings_.chunk_bytes(), bytes_[r] - at) : 0};
  }
  Rings& rings_;
  const unsigned char* in_;
  std::vector<std::size_t> bytes_;
  std::vector<unsigned char*> out_;
  std::uint64_t base_, chunks_ = 0, poured_ = 0, k_ = 0;
};

}  // namespace hvd::ops
