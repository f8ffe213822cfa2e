/// @file trace_ring.h — a byte ring from one producer to the writer thread.
///
/// The producer is one thread at a time (or whoever holds the engine's lock); its plain members are handed over by
/// whatever orders the producers.  Records are contiguous: one that would cross the end is preceded by nops.
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

  /// @param bytes power of two, at least 1024
  TraceRing(std::size_t bytes, std::uint16_t stream_number)
      : stream(stream_number), bytes_(new std::uint8_t[bytes]), capacity_(bytes), wake_at_(bytes / 2) {}

  const std::uint16_t stream;

  /// @name Producer
  /// @{
  /// Room for one record of at most max_record_bytes, or nullptr when the ring is full (then the record is counted).
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
  /// Publishes the record that ends before @p end.  True when the writer should be woken.
  bool commit(const std::uint8_t* end) noexcept {
    head_local_ += static_cast<std::size_t>(end - &bytes_[head_local_ & (capacity_ - 1)]);
    head_.store(head_local_, std::memory_order_release);
    if (head_local_ < wake_at_) [[likely]]
      return false;
    wake_at_ = head_local_ + capacity_ / 2;
    return true;
  }
  /// Records dropped since the last call.
  std::uint64_t take_lost() noexcept { return std::exchange(lost_now_, 0); }
  bool has_lost() const noexcept { return lost_now_ != 0; }

  std::uint64_t last_ticks = 0;  ///< of the last record written
  std::uint32_t last_track = 0;  ///< likewise
  std::uint64_t run = 0;         ///< Tracer::start() that the differences belong to
  /// @}

  /// @name Writer thread
  /// @{
  std::uint64_t head() const noexcept { return head_.load(std::memory_order_acquire); }
  std::uint64_t tail() const noexcept { return tail_.load(std::memory_order_relaxed); }
  /// The bytes from tail() up to @p head, or up to the ring's end if that comes first.
  std::span<const std::uint8_t> readable(std::uint64_t head) const noexcept {
    const std::uint64_t from = tail();
    const std::size_t offset = from & (capacity_ - 1);
    return {&bytes_[offset], std::min<std::size_t>(head - from, capacity_ - offset)};
  }
  void consume(std::size_t bytes) noexcept { tail_.store(tail() + bytes, std::memory_order_release); }
  /// @}

  std::uint64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<std::uint8_t[]> bytes_;
  const std::size_t capacity_;
  // producer
  std::uint64_t head_local_ = 0, tail_seen_ = 0, wake_at_, lost_now_ = 0;
  // shared; 128: neighbouring lines are fetched in pairs
  alignas(128) std::atomic<std::uint64_t> head_{0};
  std::atomic<std::uint64_t> lost_{0};
  alignas(128) std::atomic<std::uint64_t> tail_{0};
};

}  // namespace hvd::trace
