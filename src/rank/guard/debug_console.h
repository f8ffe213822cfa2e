/// @file debug_console.h — the guard's part of `hvdrun attach`: calls the rank, and carries bytes between the rank and
/// hvdrun.
///
/// Listens on a unix socket named after the rank's process, and sends the rank a signal.  The rank calls back
/// (src/python/hvd/_job/attach.py).  Each end asks the kernel for the other process before it reads a byte.
#pragma once
#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "rank/streams/outbox.h"
#include "wire/messages/console.h"

namespace hvd::rank {

/// Connects hvdrun attach to the rank's Python debugger, one console at a time.  Never blocks.  Thread: the guard's.
class DebugConsole {
 public:
  using Clock = std::chrono::steady_clock;

  /// The body of a Type::console_input.  @p pid  the rank's process, not yet reaped; 0: the rank does not run
  void take(std::string_view body, pid_t pid, Outbox& outbox);
  bool is_open() const { return state_ != State::closed; }
  void add_fds(std::vector<pollfd>& fds, const Outbox& outbox) const;
  /// The time at which step() must be called even if no descriptor is ready.
  Clock::time_point deadline() const { return deadline_; }
  /// One turn of the guard's loop, while the console is open.
  void step(Outbox& outbox, Clock::time_point now);
  /// Call it when the rank has ended.
  void close(Outbox& outbox);

 private:
  enum class State { closed, called, resting, connected, open };
  void open(pid_t pid, Outbox& outbox);
  void call(Outbox& outbox);
  void refuse(wire::ConsoleRefusal why, const std::string& text, Outbox& outbox);
  void accept_rank();
  void read_answer(Outbox& outbox, Clock::time_point now);
  void carry(Outbox& outbox, Clock::time_point now);
  void shut(Outbox& outbox);

  State state_ = State::closed;
  pid_t pid_ = 0;
  Fd listener_, link_;
  std::string typed_;  ///< input that the rank has not read
  bool input_ended_ = false;
  Clock::time_point deadline_ = Clock::time_point::max(), give_up_at_ = Clock::time_point::max();
};

}  // namespace hvd::rank
