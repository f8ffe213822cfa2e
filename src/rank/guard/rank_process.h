/// @file rank_process.h — the guard's side of a running rank: its streams, link, signals and end.
#pragma once
#include <poll.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rank/diagnostics/idle_watch.h"
#include "rank/diagnostics/recorder_reader.h"
#include "rank/diagnostics/stacks/stack_capture.h"
#include "rank/diagnostics/usage.h"
#include "rank/guard/collective_probe.h"
#include "rank/guard/death_evidence.h"
#include "rank/guard/rank_child.h"
#include "rank/guard/rank_streams.h"
#include "rank/launch/launch_plan.h"
#include "rank/streams/outbox.h"
#include "rank/streams/standard_input.h"
#include "wire/messages/death.h"
#include "wire/messages/start_report.h"
#include "wire/messages/status_report.h"

namespace hvd::rank {

class RankProcess {
 public:
  /// Starts the rank.  @p payload_fd: see plan_launch(); @p meeting: the rank's socket to the host daemon; @p secret:
  /// the job's.
  /// Throws Error when it cannot be started.
  RankProcess(const wire::RankManifest& m, const Environment& mine, int payload_fd, Fd meeting,
              const std::string& secret);

  /// Adds the open ends of the rank's streams and link, for POLLIN.
  void add_fds(std::vector<pollfd>& fds) const;
  /// True when the rank has closed its streams and its link.
  bool is_silent() const { return streams_.are_closed() && !link_fd_; }
  const wire::StartReport& started() const { return started_; }
  /// The process that trains: the rank's first process, or its descendant that uses torch.distributed.
  pid_t python_pid() const { return collectives_.is_connected() ? collectives_.pid() : child_.pid(); }
  RankChild& child() { return child_; }
  RankStreams& streams() { return streams_; }
  /// True once the rank has said over the link that it has loaded libhvd.  Before that its status page and recorder are
  /// empty.
  bool has_libhvd() const { return has_libhvd_; }

  /// Reads once from output, error and link, into @p outbox.  True when bytes came.
  bool pump(Outbox& outbox, Clock::time_point now);

  /// The rank's status, if it differs from the last one that hvdrun got.
  std::optional<wire::StatusReport> standing(Clock::time_point now);
  /// Sends the steps recorded since the last call, while @p outbox has room.
  void send_steps(Outbox& outbox);
  /// The job's live report, for a program that asked for it.
  void give_report(std::string_view json) { recorder_.give_report(json); }
  void record_timeline(bool on) { recorder_.record_timeline(on); }
  void pause_limit(std::int64_t ns) { recorder_.pause_limit(ns); }
  /// Asks Python in the rank.  step_collectives() sends the last operations, at most @p most, once Python has answered.
  void ask_operations(std::size_t most, Clock::time_point now);
  /// Sends the last operations now, without asking Python.
  void send_operations(Outbox& outbox, std::size_t most) const;
  /// The guard's questions to Python about torch.distributed.
  const CollectiveProbe& collectives() const { return collectives_; }
  /// One turn of the guard's loop: follows torch.distributed and answers ask_operations().
  void step_collectives(Outbox& outbox, Clock::time_point now);
  /// Shows the rank that hosts have changed (wire/shared/status_page.h).
  void tell_host_change(std::uint64_t change) { status_page_.tell_host_change(change); }
  /// Asks for a picture of the rank's stack.  Call step_stack() while shooting(): it sends the picture as Type::stack.
  void begin_stack(bool native) { stack_.begin(python_pid(), native); }
  bool shooting() const { return stack_.under_way(); }
  void step_stack(Outbox& outbox);

  StandardInput& input() { return input_; }
  /// The death record.  Call it after the end, when pump() has found the end of all streams.  Held text goes to @p
  /// outbox first.  @p stopped  the guard had an order to end the rank
  wire::DeathRecord record(Outbox& outbox, bool stopped);

 private:
  bool pump_link(Outbox& outbox);
  void take(wire::Type type, std::string_view body, Outbox& outbox);

  RankChild child_;
  RankStreams streams_;
  Fd link_fd_;
  StandardInput input_;
  StackCapture stack_;
  StatusPageReader status_page_;
  StatusChanges news_;
  IdleWatch idle_;
  RecorderReader recorder_;
  CollectiveProbe collectives_;
  std::optional<std::size_t> operations_asked_;  ///< the limit of a question that Python has not answered yet
  DeathEvidence evidence_;
  wire::StartReport started_;
  bool has_libhvd_ = false;
};

}  // namespace hvd::rank
