/// @file broadcast.h — broadcast within a node: the root fills the result ring, the others read it.
#pragma once
#include "ops/shm/rings.h"
#include "ops/stage.h"

namespace hvd::ops {

/// Where the chunks of a root on another node come from.
class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  /// Asks for chunk bytes [at, at + bytes) into @p to; false while they are not all there.
  virtual bool fetch(unsigned char* to, std::size_t at, std::size_t bytes) = 0;
};

class ShmBroadcast final : public Stage {
 public:
  /// @param root  the local rank that pours the data into the ring
  /// @param source  on that rank, when the data is not its own `in`: where it comes from
  ShmBroadcast(Rings& rings, int root, const unsigned char* in, unsigned char* out, std::size_t bytes,
               ChunkSource* source = nullptr)
      : rings_(rings), root_(root), in_(in), out_(out), bytes_(bytes), source_(source), base_(rings.next) {
    chunks_ = (bytes + rings.chunk_bytes() - 1) / rings.chunk_bytes();
    rings_.next += chunks_;
  }
  bool step() override {
    using memory::Progress;
    if (done()) return false;
    const std::uint64_t c = base_ + k_;
    const std::size_t at = k_ * rings_.chunk_bytes(), n = std::min(rings_.chunk_bytes(), bytes_ - at);
    if (rings_.me == root_) {
      if (!rings_.may_write_result(c)) return false;
      if (source_) {
        if (!source_->fetch(rings_.node.result(c), at, n)) return false;
        std::memcpy(out_ + at, rings_.node.result(c), n);
      } else {
        if (rings_.ranks > 1) rings_.put(rings_.node.result(c), in_ + at, n);
        if (out_ != in_) std::memcpy(out_ + at, in_ + at, n);
      }
    } else {
      if (!rings_.one(root_, &Progress::reduced, c + 1)) return false;
      std::memcpy(out_ + at, rings_.node.result(c), n);
    }
    rings_.post(&Progress::in, c + 1);
    rings_.post(&Progress::used, c + 1);
    rings_.post(&Progress::reduced, c + 1);
    rings_.post(&Progress::out, c + 1);
    ++k_;
    return true;
  }
  bool done() const override { return k_ == chunks_; }

 private:
  Rings& rings_;
  int root_;
  const unsigned char* in_;
  unsigned char* out_;
  std::size_t bytes_;
  ChunkSource* source_;
  std::uint64_t base_, chunks_, k_ = 0;
};

}  // namespace hvd::ops
