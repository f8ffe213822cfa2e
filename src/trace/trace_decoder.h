/// @file trace_decoder.h — decodes the records of trace_record.h into calls of a listener.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/trace_record.h"

namespace hvd::trace {

/// A row of the timeline.
struct TraceTrack {
  std::string name;  ///< any bytes
  TraceOp op = TraceOp::allreduce;
  int dtype = 0;
  int home = 0;
  std::vector<std::uint64_t> shape;
};

/// Receives the events of a decoder.  Tracks are numbered from 1 without gaps.  Times are ns of CLOCK_MONOTONIC of the
/// rank's host.  Times of one stream come in order, except the times of devices' work, which is recorded late.
class TraceListener {
 public:
  virtual ~TraceListener() = default;
  /// Recording starts or restarts.  Tracks are numbered from 1 again, and no batch is under way.
  virtual void on_start() = 0;
  /// The rank's clock was read.
  virtual void on_clock(std::int64_t ns) = 0;
  virtual void on_track(std::uint32_t track, TraceTrack description) = 0;
  virtual void on_submitted(std::uint32_t track, std::int64_t ns) = 0;
  virtual void on_batch_begin(std::uint32_t batch, std::int64_t ns) = 0;
  virtual void on_batch_tensor(std::uint32_t track) = 0;
  virtual void on_phase_begin(std::uint32_t batch, Phase phase, std::int64_t ns) = 0;
  virtual void on_phase_end(std::uint32_t batch, Phase phase, std::int64_t ns) = 0;
  virtual void on_batch_end(std::uint32_t batch, std::int64_t ns) = 0;
  virtual void on_failed(std::uint32_t track, std::int64_t ns) = 0;
  virtual void on_cycle(std::int64_t ns) = 0;
  /// A step ends and step @p number (from 0) begins.  @p number  negative: no step begins
  virtual void on_step(std::int64_t number, std::int64_t ns) = 0;
  virtual void on_part(TracedPart part, bool begins, std::int64_t ns) = 0;
  virtual void on_lost(bool engine, std::uint64_t records) = 0;
};

/// The streams of one rank.  The bytes may be hostile: the constants below bound the memory.  After the first malformed
/// record, the decoder ignores all bytes of the rank.
class TraceDecoder {
 public:
  static constexpr std::uint32_t max_tracks = 1u << 20;
  static constexpr std::size_t max_name_bytes = 64u << 20;  ///< names and shapes of all tracks together
  static constexpr std::size_t max_streams = 128;

  explicit TraceDecoder(TraceListener& listener) : listener_(listener) {}

  /// Takes the body of one trace frame.  False: this or an earlier body is malformed; error() gives the reason.
  bool feed(std::span<const std::uint8_t> body);
  const std::string& error() const { return error_; }

 private:
  struct Stream {
    bool begun = false;  ///< a reset was seen
    std::uint64_t ticks = 0;
    std::int64_t ns = 0;  ///< time of the last record
    std::uint32_t track = 0;
    std::vector<std::uint8_t> rest;  ///< an incomplete record at the end of the last section
  };
  struct Clock {
    std::uint64_t ticks = 0;
    std::int64_t ns = 0;
  };
  class Reader;

  bool feed_section(std::uint16_t number, std::span<const std::uint8_t> bytes);
  std::size_t parse(std::uint16_t number, Stream& stream, std::span<const std::uint8_t> bytes);
  void parse_record(std::uint16_t number, Stream& stream, Reader& reader);
  void start();
  void parse_clock(Reader& reader);
  void parse_name(Reader& reader);
  std::int64_t read_time(Stream& stream, Reader& reader);
  void parse_ran(TraceTag tag, const Stream& stream, Reader& reader);
  std::uint32_t read_track(Stream& stream, Reader& reader);
  std::int64_t to_ns(std::uint64_t ticks) const;
  bool fail(std::string what);

  TraceListener& listener_;
  std::vector<Stream> streams_;
  std::array<Clock, 2> clocks_{};
  double ns_per_tick_ = 1;
  int clocks_seen_ = 0;
  std::uint32_t tracks_ = 0;
  std::size_t name_bytes_ = 0;
  std::string error_;
};

}  // namespace hvd::trace
