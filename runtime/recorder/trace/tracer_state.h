/// @file tracer_state.h — the implementation of Tracer: rings, names of tracks, the writer thread.
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

/// The rings of the submitting threads.  Thread-safe.  The pool outlives its Tracer while a thread still holds one of
/// its rings.
class TraceRingPool {
 public:
  static constexpr std::size_t max_rings = 64;  ///< all further threads share State::shared_ring, under a lock

  explicit TraceRingPool(std::size_t ring_bytes) : ring_bytes_(ring_bytes) {}

  /// A ring for the calling thread alone.  nullptr: max_rings are in use.
  TraceRing* take();
  /// Another thread may take the ring.
  void give_back(TraceRing* ring);
  /// Returns all rings, including the free ones.
  std::vector<TraceRing*> all() const;

 private:
  const std::size_t ring_bytes_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<TraceRing>> rings_;
  std::vector<TraceRing*> free_;
};

/// Size: the producers' rings, and the writer thread with its clock and names. publish() couples them without a lock.
class Tracer::State {
 public:
  State(const Options& options, std::atomic<bool>& enabled);

  /// @name Producers
  /// @{
  std::uint64_t now() const noexcept { return ticks(use_counter_); }
  ClockPair clocks() const noexcept { return read_clocks(use_counter_); }
  /// The value of ticks() at the time @p ns (CLOCK_MONOTONIC), interpolated between the start of recording and @p now.
  std::uint64_t ticks_at(std::int64_t ns, const ClockPair& now) const noexcept;
  /// Called before each record.  Resets the ring's differences if recording was started again; reports lost records.
  /// False: the ring has no room.
  bool prepare(TraceRing& ring) noexcept {
    if (ring.run == run_.load(std::memory_order_relaxed) && !ring.has_lost()) [[likely]]
      return true;
    return prepare_slowly(ring);
  }
  /// Publishes the record that ends before @p end, and wakes the writer if necessary.
  void publish(TraceRing& ring, const std::uint8_t* end) noexcept {
    const bool full = ring.commit(end);
    // No processor fence is needed: the writer makes all cores pass a barrier (trace_writer.cc).
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (full || sleeping_.load(std::memory_order_relaxed)) [[unlikely]]
      wake_writer();
  }
  /// The calling thread's ring.  nullptr: use shared_ring under shared_mutex.
  TraceRing* thread_ring();
  /// Records the name of a new track, and returns the track's id.
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

  // on the writer thread
  void write_loop();
  bool drain();
  bool rings_are_empty() const;
  void put_clock();
  void put_ring(TraceRing& ring, std::uint64_t head);
  void put(std::uint16_t stream, std::span<const std::uint8_t> bytes);
  void send_frame();

  const Options options_;
  const bool use_counter_;
  const std::uint64_t id_;  ///< identifies this tracer in a thread's cache
  std::atomic<bool>& enabled_;
  std::shared_ptr<TraceRingPool> pool_;

  mutable std::mutex names_mutex_;
  std::vector<std::uint8_t> names_;  ///< the encoded name records of all tracks
  std::uint32_t tracks_ = 0;

  std::atomic<std::uint64_t> run_{0};
  std::atomic<std::uint64_t> begun_ticks_{0};  ///< the start of recording, in both clocks
  std::atomic<std::int64_t> begun_ns_{0};
  std::atomic<std::uint32_t> doorbell_{0};
  std::atomic<bool> sleeping_{false}, stopping_{false};

  std::mutex control_mutex_;  ///< held by start(), stop() and stop_soon()
  // for the writer thread; for start() and stop() while the writer thread does not run
  std::unique_ptr<Sink> sink_;
  std::thread writer_;
  std::vector<std::uint8_t> frame_;
  std::size_t names_sent_ = 0;
  bool sink_gone_ = false, barrier_works_ = false;
  std::atomic<std::uint64_t> lost_before_{0};
};

}  // namespace hvd::trace
