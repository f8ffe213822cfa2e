/// @file trace_ring.h — a byte ring from one producer to the writer thread.
///
/// One thread at a time is the producer.  The caller orders the producers, by a lock or by a hand-over of the ring.
/// This order also protects the plain members.  A record is contiguous.  If a record would cross the ring's end, nops
/// fill the bytes up to the end.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "trace/trace_record.h"

namespace hvd::trace {

class TraceRing {
 public:
  static constexpr std::size_t max_record_bytes = 64;

  /// @param bytes  size of the ring: a power of two, at least 1024
  TraceRing(std::size_t bytes, std::uint16_t stream_number)
      : stream(stream_number), bytes_(new std::uint8_t[bytes]), capacity_(bytes), wake_at_(bytes / 2) {}

  const std::uint16_t stream;

  /// @name Producer
  /// @{
  /// Returns room for one record of at most max_record_bytes.  nullptr: the ring is full, and the record counts as
  /// lost.
  std::uint8_t* reserve() noexcept {
    const std::size_t offset = head_local_ & (capacity_ - 1);
    const std::size_t to_end = capacity_ - offset;
    const std::size_t need = to_end < max_record_bytes ? to_end + max_record_bytes : max_record_bytes;
    if (head_local_ + need > tail_seen_ + capacity_) [[unlikely]] {
      tail_seen_ = tail_.load(std::memory_order_acquire);
      if (head_local_ + need > tail_seen_ + capacity_) {
        ++lost_now_;
        lost_.store(lost_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return nullptr;
      }
    }
    if (to_end < max_record_bytes) [[unlikely]] {
      std::memset(&bytes_[offset], 0, to_end);
      head_local_ += to_end;
    }
    return &bytes_[head_local_ & (capacity_ - 1)];
  }
  /// Publishes the record that begins where reserve() said and ends before @p end.  True if the caller should wake the
  /// writer: half a ring was written since the last time.
  bool commit(const std::uint8_t* end) noexcept {
    head_local_ += static_cast<std::size_t>(end - &bytes_[head_local_ & (capacity_ - 1)]);
    head_.store(head_local_, std::memory_order_release);
    if (head_local_ < wake_at_) [[likely]]
      return false;
    wake_at_ = head_local_ + capacity_ / 2;
    return true;
  }
  /// The number of records lost since the last call.
  std::uint64_t take_lost() noexcept { return std::exchange(lost_now_, 0); }
  bool has_lost() const noexcept { return lost_now_ != 0; }

  std::uint64_t last_ticks = 0;  ///< the next record's time is a difference to this
  std::uint32_t last_track = 0;  ///< the next record's track is a difference to this
  std::uint64_t run = 0;         ///< number of the Tracer::start() to which the last record belongs
  /// @}

  /// @name Writer thread
  /// @{
  std::uint64_t head() const noexcept { return head_.load(std::memory_order_acquire); }
  std::uint64_t tail() const noexcept { return tail_.load(std::memory_order_relaxed); }
  /// The bytes from tail() to @p head, or to the ring's end if the end comes first.
  std::span<const std::uint8_t> readable(std::uint64_t head) const noexcept {
    const std::uint64_t from = tail();
    const std::size_t offset = from & (capacity_ - 1);
    return {&bytes_[offset], std::min<std::size_t>(head - from, capacity_ - offset)};
  }
  void consume(std::size_t bytes) noexcept { tail_.store(tail() + bytes, std::memory_order_release); }
  /// @}

  /// The number of records lost so far.  Any thread.
  std::uint64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<std::uint8_t[]> bytes_;
  const std::size_t capacity_;
  // of the producer
  std::uint64_t head_local_ = 0, tail_seen_ = 0, wake_at_, lost_now_ = 0;
  // shared by producer and writer; 128 bytes, because the processor fetches lines in pairs
  alignas(128) std::atomic<std::uint64_t> head_{0};
  std::atomic<std::uint64_t> lost_{0};
  alignas(128) std::atomic<std::uint64_t> tail_{0};
};

}  // namespace hvd::trace
