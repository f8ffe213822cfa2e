/// @file tracer_state.h — inside of Tracer: rings, names, the writer thread.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "recorder/steps/ticks.h"
#include "recorder/trace/trace_ring.h"
#include "recorder/trace/tracer.h"

namespace hvd::trace {

/// The rings of the submitting threads.  Outlives its Tracer while a thread still holds a ring of it.
class TraceRingPool {
 public:
  static constexpr std::size_t max_rings = 64;  ///< more threads than this share the last ring under a lock

  explicit TraceRingPool(std::size_t ring_bytes) : ring_bytes_(ring_bytes) {}

  /// A ring for this thread alone, or nullptr when there are too many: use shared().
  TraceRing* take();
  void give_back(TraceRing* ring);
  /// All rings made so far.
  std::vector<TraceRing*> all() const;

 private:
  const std::size_t ring_bytes_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<TraceRing>> rings_;
  std::vector<TraceRing*> free_;
};

class Tracer::State {
 public:
  State(const Options& options, std::atomic<bool>& enabled);

  /// @name Producers
  /// @{
  std::uint64_t now() const noexcept { return ticks(use_counter_); }
  ClockPair clocks() const noexcept { return read_clocks(use_counter_); }
  /// What the counter showed at @p ns, between the start of recording and @p now.
  std::uint64_t ticks_at(std::int64_t ns, const ClockPair& now) const noexcept;
  /// Gives @p ring's differences a fresh start after start() and reports what was dropped.  False: no room.
  bool prepare(TraceRing& ring) noexcept {
    if (ring.run == run_.load(std::memory_order_relaxed) && !ring.has_lost()) [[likely]]
      return true;
    return prepare_slowly(ring);
  }
  void publish(TraceRing& ring, const std::uint8_t* end) noexcept {
    const bool full = ring.commit(end);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // see trace_writer.cc: the writer pays for the other half
    if (full || sleeping_.load(std::memory_order_relaxed)) [[unlikely]]
      wake_writer();
  }
  /// The calling thread's ring; nullptr: use shared_ring under shared_mutex.
  TraceRing* thread_ring();
  std::uint32_t add_name(const TraceTensor& tensor);
  /// @}

  void start(std::unique_ptr<Sink> sink);
  void stop_soon();
  void stop();
  std::uint64_t lost() const;

  TraceRing engine_ring;
  std::mutex shared_mutex;
  TraceRing shared_ring;

 private:
  void stop_locked();
  bool prepare_slowly(TraceRing& ring) noexcept;
  void wake_writer() noexcept;

  // writer thread
  void write_loop();
  bool drain();
  bool rings_are_empty() const;
  void put_clock();
  void put_ring(TraceRing& ring, std::uint64_t head);
  void put(std::uint16_t stream, std::span<const std::uint8_t> bytes);
  void send_frame();

  const Options options_;
  const bool use_counter_;
  const std::uint64_t id_;  ///< tells a thread's cached ring whose it is
  std::atomic<bool>& enabled_;
  std::shared_ptr<TraceRingPool> pool_;

  mutable std::mutex names_mutex_;
  std::vector<std::uint8_t> names_;  ///< name records of all tracks, encoded
  std::uint32_t tracks_ = 0;

  std::atomic<std::uint64_t> run_{0};
  std::atomic<std::uint64_t> begun_ticks_{0};  ///< when recording started, in both clocks
  std::atomic<std::int64_t> begun_ns_{0};
  std::atomic<std::uint32_t> doorbell_{0};
  std::atomic<bool> sleeping_{false}, stopping_{false};

  std::mutex control_mutex_;  ///< of start() and the ways to stop
  // writer thread, and start()/stop() while it is not running
  std::unique_ptr<Sink> sink_;
  std::thread writer_;
  std::vector<std::uint8_t> frame_;
  std::size_t names_sent_ = 0;
  bool sink_gone_ = false, barrier_works_ = false;
  std::atomic<std::uint64_t> lost_before_{0};
};

}  // namespace hvd::trace
