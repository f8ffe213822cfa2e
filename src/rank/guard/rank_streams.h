/// @file rank_streams.h — the rank's output and error streams, from their pipes to hvdrun.
#pragma once
#include <poll.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/handle.h"
#include "rank/streams/outbox.h"
#include "rank/streams/output.h"

namespace hvd::rank {

/// The buffer for all reads from the rank, for one thread.  The buffer is not zeroed, so the guard of a silent rank
/// never touches its pages.
std::span<char> read_buffer();

class RankStreams {
 public:
  /// Takes over both pipes, which must not block.
  void open(Fd out, Fd err);
  /// True when the rank has closed both streams.
  bool are_closed() const { return !out_fd_ && !err_fd_; }
  /// Adds the open pipes, for POLLIN.
  void add_fds(std::vector<pollfd>& fds) const;

  /// Reads once from each stream while @p outbox has room.  True when bytes or an end came.
  bool pump(Outbox& outbox, Clock::time_point now);
  /// True once after each begin of a traceback on stderr.
  bool has_new_traceback();
  /// The caller calls expire() at this time.
  Clock::time_point deadline() const { return err_.deadline(); }
  /// Passes on a traceback that was held for too long.
  void expire(Outbox& outbox, Clock::time_point now);

  /// stderr, for the death record.
  Output& error() { return err_; }
  const Output& error() const { return err_; }
  /// The number of bytes that the rank has written to both streams.
  std::uint64_t written() const { return written_; }
  /// The last lines of both streams.
  std::vector<std::string> tail() const { return tail_.lines(); }

 private:
  bool pump_stream(Fd& fd, Output& output, char stream, Outbox& outbox, Clock::time_point now);

  Fd out_fd_, err_fd_;
  Tail tail_;
  Output out_{tail_, false}, err_{tail_, true};
  bool has_new_traceback_ = false;
  std::uint64_t written_ = 0;
};

}  // namespace hvd::rank
