/// @file tracer.h — the recording of one rank's operations for the timeline.
///
/// One Tracer belongs to one runtime instance; there is no global state.  While recording is off, each call costs one
/// relaxed load.  While recording is on, a call reads the clock and puts a few bytes into a ring.  Most calls take no
/// lock and allocate no memory.  The exceptions are a thread's or a track's first use, steps and their parts, and
/// threads beyond the 64th.  A call makes a system call only to wake the writer, after silence or half a ring.  A full
/// ring drops records and counts them.  A writer thread hands the records to the Sink every 30 ms.
///
/// The calls for each operation, their callers, and the events in the timeline:
///     submitted(track, tensor)   submitting thread: this rank's tensor is ready      NEGOTIATE_<OP> begins
///     batch_begin(batch)         engine: this rank knows the batch                   NEGOTIATE_<OP> ends, <OP> begins
///     batch_tensor(track)        engine: then, once for each tensor of the batch     (assigns tensors to the batch)
///     phase_begin(batch, phase)  engine: before a phase                              a phase within <OP> begins
///     phase_end(batch, phase)    engine: after a phase                               the phase ends
///     batch_end(batch)           engine: before handles are set                      <OP> ends
/// For a batch on a device, ran() replaces batch_end().
/// The writer of the file adds the marks "rank r is ready", from the submissions of all ranks.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trace/trace_record.h"

namespace hvd::trace {

/// The tensor that a track of the timeline shows.  The tracer reads the views during the call only.
struct TraceTensor {
  std::string_view name;
  TraceOp op = TraceOp::allreduce;
  int dtype = 0;  ///< hvd_dtype
  std::span<const std::int64_t> shape;
  int home = 0;  ///< world rank of the first member of the process set; the track of this rank shows the ready marks
};

/// The engine keeps a Track in each tensor's entry.  The engine sets the Track to zero when the tensor's operation,
/// dtype, shape or set changes.
struct Track {
  std::uint32_t id = 0;  ///< 0: submitted() has not named the track yet
};

/// A phase on a device.  Times: CLOCK_MONOTONIC.
struct DevicePhase {
  Phase phase;
  std::int64_t begin_ns, end_ns;
};

/// Takes the records.  The writer thread calls all functions except hurry().
class Sink {
 public:
  virtual ~Sink() = default;
  /// @p body: one frame body (trace_record.h) of at most trace_frame_bytes.  False: the receiver is gone, and recording
  /// stops.
  virtual bool write(std::span<const std::uint8_t> body) = 0;
  /// Called when nothing was recorded for about a second, and again only after new records.
  virtual void quiet() {}
  /// stop() waits for the sink.  From now on all calls together may block for at most two seconds.  Any thread.
  virtual void hurry() {}
  /// Called once, after the last write().
  virtual void close() {}
};

class Tracer {
 public:
  struct Options {
    std::size_t ring_bytes = 1u << 20;  ///< for each ring: a power of two, at least 1024
    int flush_ms = 30;                  ///< short: scripts that read the file after 100 ms must find their events
  };

  Tracer();
  explicit Tracer(const Options& options);
  ~Tracer();  ///< calls stop()
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// Turns recording on and starts the writer thread.  Does nothing if recording is on.  Any thread.
  /// @param mark_cycles  record cycle()
  void start(std::unique_ptr<Sink> sink, bool mark_cycles);
  /// Turns recording off and returns.  Then the writer thread writes the remaining records and closes the sink.  If
  /// another thread starts or stops the tracer at this moment, the writer is left to that thread.  Any thread.
  void stop_soon();
  /// Turns recording off, and waits until the writer thread has written the remaining records and closed the sink (see
  /// Sink::hurry()).
  void stop();

  bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }

  /// @name Any thread
  /// @{
  /// This rank's tensor is ready.  Names @p track at its first use.  The caller serialises the calls for one track.
  void submitted(Track& track, const TraceTensor& tensor) {
    if (enabled()) record_submitted(track, tensor);
  }
  /// Step @p number has ended, and the next step begins.  Negative: step -number has ended, and the next step is not
  /// recorded.  The caller serialises step() and part().
  void step(std::int64_t number) {
    if (enabled()) record_step(number);
  }
  /// A part of a step begins or ends.
  void part(TracedPart part, bool begins) {
    if (enabled()) record_part(part, begins);
  }
  /// The number of records dropped since start(), because a ring was full.
  std::uint64_t lost() const;
  /// @}

  /// @name Under the engine's lock, or on its only thread
  /// @p batch: a number that no other batch under way has.
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
  /// A device has executed a batch.  Call it when the times are known: the phases in order, and the end of the batch
  /// (CLOCK_MONOTONIC).
  void ran(std::uint32_t batch, std::span<const DevicePhase> phases, std::int64_t end_ns) {
    if (enabled()) record_ran(batch, phases, end_ns);
  }
  /// The operation of a submitted tensor will not run, because ranks disagree or a peer is lost.
  void failed(Track track) {
    if (enabled()) record_failed(track);
  }
  /// A negotiation round begins.  Recorded only after start() with mark_cycles.
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

/// The settings of the timeline in the environment.
struct TraceSettings {
  enum class Start : std::uint8_t { off, now, later };
  Start start = Start::off;  ///< later: HOROVOD_TIMELINE=DYNAMIC
  std::string path;          ///< HOROVOD_TIMELINE
  bool mark_cycles = false;  ///< HOROVOD_TIMELINE_MARK_CYCLES
  std::string steps;         ///< HVD_TIMELINE_STEPS: "100-200"; empty: all
  bool collected = false;    ///< HVD_TIMELINE_COLLECT=1 and HVD_LINK_FD: hvdrun writes the file
};
/// Throws Error{usage} for a flag that is not a boolean.
TraceSettings settings_from_environment();

/// The file of a rank.  Rank 0, or a single rank, gets @p path, because scripts look for it there.  Other ranks get
/// @p path with ".rank<r>" before its last extension.
std::string rank_path(const std::string& path, int rank, int size);

}  // namespace hvd::trace
