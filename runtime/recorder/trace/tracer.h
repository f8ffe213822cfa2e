/// @file tracer.h — what one rank records for the timeline.
///
/// One Tracer belongs to one runtime instance; there is no global state.  Off, every call is one relaxed load.  On,
/// a call takes the time itself and puts a few bytes into a ring: no lock, no allocation, no system call (but one
/// wake of the writer after silence or half a ring).  A full ring drops and counts.  A writer thread hands the rings
/// to the Sink every 30 ms while there is anything.
///
/// How an engine calls it, for each operation:
///     submitted(track, tensor)         submitting thread, when this rank's tensor is ready     NEGOTIATE_<OP> begins
///     batch_begin(batch)               engine, when the batch is known here                    NEGOTIATE ends, <OP>
///     begins batch_tensor(track) …            right after it, once for each tensor in the batch phase_begin(batch,
///     Phase::shm), phase_end(batch, Phase::shm) …                           inside <OP> batch_end(batch) before
///     handles are set                                  <OP> ends
/// A batch on a device has ran() instead of batch_end().
/// The marks "rank r is ready" are made from the submissions of all ranks by whoever writes the file.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trace/trace_record.h"

namespace hvd::trace {

/// What a track in the timeline shows; views are read during the call only.
struct TraceTensor {
  std::string_view name;
  TraceOp op = TraceOp::allreduce;
  int dtype = 0;  ///< hvd_dtype
  std::span<const std::int64_t> shape;
  int home = 0;  ///< world rank of the set's first member: its track gets the ready marks
};

/// The engine keeps one in each tensor's entry and zeroes it whenever op, dtype, shape or set change.
struct Track {
  std::uint32_t id = 0;  ///< 0: not named yet
};

/// A phase on a device.  Times: CLOCK_MONOTONIC.
struct DevicePhase {
  Phase phase;
  std::int64_t begin_ns, end_ns;
};

/// Where the writer thread's batches go.  Called by that thread only.
class Sink {
 public:
  virtual ~Sink() = default;
  /// One frame body (trace_record.h), at most trace_frame_bytes.  False: the other end is gone, recording stops.
  virtual bool write(std::span<const std::uint8_t> body) = 0;
  /// Nothing was recorded for a second; nothing is called until something is.
  virtual void quiet() {}
  /// From any thread: stop() waits; whatever blocks now or later has two seconds in all.
  virtual void hurry() {}
  /// After the last write, from the same thread.
  virtual void close() {}
};

class Tracer {
 public:
  struct Options {
    std::size_t ring_bytes = 1u << 20;  ///< per thread, power of two
    int flush_ms = 30;                  ///< scripts that open the file a tenth of a second later find their events
  };

  Tracer();  // default Options
  explicit Tracer(const Options& options);
  ~Tracer();  ///< stop()
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// Starts the writer thread.  Does nothing when on.  Any thread.
  void start(std::unique_ptr<Sink> sink, bool mark_cycles);
  /// Turns recording off; the writer thread hands over what the rings hold and closes the sink by itself.  Does nothing
  /// while another thread starts or stops.  Any thread.
  void stop_soon();
  /// Turns recording off, hands over what the rings hold, closes the sink, joins the writer (see Sink::hurry).
  void stop();

  bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }

  /// @name Any thread
  /// @{
  /// track is named at its first use; the caller serialises calls for one track.
  void submitted(Track& track, const TraceTensor& tensor) {
    if (enabled()) record_submitted(track, tensor);
  }
  /// Step @p number has ended, and the next begins; negative: the last that is recorded has.  A part of a step begins
  /// or ends.  The caller serialises the calls.
  void step(std::int64_t number) {
    if (enabled()) record_step(number);
  }
  void part(TracedPart part, bool begins) {
    if (enabled()) record_part(part, begins);
  }
  /// Records dropped because a ring was full, since start().
  std::uint64_t lost() const;
  /// @}

  /// @name Under the engine's lock (or on its one thread)
  /// batch: any number that is unique among the batches under way.
  /// @{
  void batch_begin(std::uint32_t batch) {
    if (enabled()) record_batch(TraceTag::batch_begin, batch);
  }
  void batch_tensor(Track track) {
    if (enabled()) record_batch_tensor(track);
  }
  void phase_begin(std::uint32_t batch, Phase phase) {
    if (enabled()) record_phase(TraceTag::phase_begin, batch, phase);
  }
  void phase_end(std::uint32_t batch, Phase phase) {
    if (enabled()) record_phase(TraceTag::phase_end, batch, phase);
  }
  void batch_end(std::uint32_t batch) {
    if (enabled()) record_batch(TraceTag::batch_end, batch);
  }
  /// What a device has done of a batch, told when that is known: its phases in order, and the end of the batch.
  void ran(std::uint32_t batch, std::span<const DevicePhase> phases, std::int64_t end_ns) {
    if (enabled()) record_ran(batch, phases, end_ns);
  }
  /// The operation of a submitted tensor will not run: ranks disagree, a peer is lost.
  void failed(Track track) {
    if (enabled()) record_failed(track);
  }
  /// Start of a negotiation round; recorded only when marks were asked for.
  void cycle() {
    if (enabled() && cycles_.load(std::memory_order_relaxed)) record_cycle();
  }
  /// @}

 private:
  class State;

  void record_submitted(Track& track, const TraceTensor& tensor);
  void record_batch(TraceTag tag, std::uint32_t batch);
  void record_batch_tensor(Track track);
  void record_phase(TraceTag tag, std::uint32_t batch, Phase phase);
  void record_ran(std::uint32_t batch, std::span<const DevicePhase> phases, std::int64_t end_ns);
  void record_failed(Track track);
  void record_cycle();
  void record_step(std::int64_t number);
  void record_part(TracedPart part, bool begins);

  std::atomic<bool> enabled_{false};
  std::atomic<bool> cycles_{false};
  std::unique_ptr<State> state_;
};

/// What the environment asks for.
struct TraceSettings {
  enum class Start : std::uint8_t { off, now, later };
  Start start = Start::off;  ///< later: HOROVOD_TIMELINE=DYNAMIC
  std::string path;          ///< HOROVOD_TIMELINE
  bool mark_cycles = false;  ///< HOROVOD_TIMELINE_MARK_CYCLES
  std::string steps;         ///< HVD_TIMELINE_STEPS: "100-200"; empty: all
  bool collected = false;    ///< HVD_TIMELINE_COLLECT=1 and HVD_LINK_FD: hvdrun writes the file
};
/// Throws Error{usage} for a boolean that is none.
TraceSettings settings_from_environment();

/// path for rank 0, which is where scripts look for it; for the others path with ".rank<r>" before its last extension.
std::string rank_path(const std::string& path, int rank, int size);

}  // namespace hvd::trace
