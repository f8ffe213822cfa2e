/// @file unconfirmed_frames.h — counts the frames of a connection, and keeps sent ones until the other end confirms
/// them.
#pragma once
#include <cstdint>
#include <deque>

#include "wire/channel/channel.h"

namespace hvd::wire {

class UnconfirmedFrames {
 public:
  static constexpr std::size_t full_bytes = 4u << 20, full_frames = 4096;        ///< unconfirmed
  static constexpr std::size_t confirm_bytes = 256u << 10, confirm_frames = 64;  ///< received until a confirmation

  // Frames to the other end:
  /// No further frame may be sent before a confirmation.
  bool is_full() const { return bytes_ >= full_bytes || kept_.size() >= full_frames; }
  /// @p frame was sent.  Only while next_to_repeat() is null.
  void add(const Frame& frame);
  /// Null: the other end has been sent all frames.
  const Frame* next_to_repeat() const { return sent_ < kept_.size() ? &kept_[sent_] : nullptr; }
  void repeated() { ++sent_; }
  /// The other end has received @p count frames.  False: the count is impossible.
  bool confirm(std::uint64_t count);
  /// The connection has moved: frames after the first @p count are to be repeated.  False: the count is impossible.
  bool resume(std::uint64_t count);

  // Frames from the other end:
  void count_received(const Frame& frame) { ++received_, ++owed_frames_, owed_bytes_ += frame.body.size(); }
  bool owes_confirmation() const { return owed_frames_ >= confirm_frames || owed_bytes_ >= confirm_bytes; }
  void has_confirmed() { owed_frames_ = owed_bytes_ = 0; }
  std::uint64_t received() const { return received_; }

 private:
  std::deque<Frame> kept_;
  std::size_t bytes_ = 0;
  std::size_t sent_ = 0;     ///< frames of kept_ that were sent by the present path
  std::uint64_t first_ = 0;  ///< number of the first frame of kept_
  std::uint64_t received_ = 0;
  std::size_t owed_frames_ = 0, owed_bytes_ = 0;
};

}  // namespace hvd::wire
