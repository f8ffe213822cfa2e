/// @file rank_process.h — the guard's side of a running rank: its streams, link, signals and end.
#pragma once
#include <sys/resource.h>
#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rank/diagnostics/death/error_file.h"
#include "rank/diagnostics/death/killed_children.h"
#include "rank/diagnostics/death/oom.h"
#include "rank/diagnostics/recorder_reader.h"
#include "rank/diagnostics/stacks/stack_capture.h"
#include "rank/diagnostics/usage.h"
#include "rank/guard/collective_probe.h"
#include "rank/launch/launch_plan.h"
#include "rank/streams/outbox.h"
#include "rank/streams/output.h"
#include "rank/streams/standard_input.h"
#include "wire/messages/death.h"
#include "wire/messages/start_report.h"
#include "wire/messages/status_report.h"

namespace hvd::rank {

/// CLOCK_MONOTONIC in nanoseconds.
std::int64_t mono_ns();

class RankProcess {
 public:
  /// Starts the rank.  @p payload_fd: see plan_launch(); @p meeting: the rank's socket to the host daemon; @p secret:
  /// the job's.
  /// Throws Error when it cannot be started.
  RankProcess(const wire::RankManifest& m, const Environment& mine, int payload_fd, Fd meeting,
              const std::string& secret);

  int out_fd() const { return out_fd_.get(); }    ///< -1: closed by the rank
  int err_fd() const { return err_fd_.get(); }    ///< likewise
  int link_fd() const { return link_fd_.get(); }  ///< likewise
  const wire::StartReport& started() const { return started_; }
  /// 0 once it has ended.
  pid_t pid() const { return has_ended() ? 0 : pid_; }
  /// The process that trains: the rank's first process, or its descendant that uses torch.distributed.
  pid_t python_pid() const { return collectives_.is_connected() ? collectives_.pid() : pid_; }
  /// True once the rank has said over the link that it has loaded libhvd.  Before that its status page and recorder are
  /// empty.
  bool has_libhvd() const { return has_libhvd_; }
  bool has_ended() const { return status_.has_value(); }
  std::int64_t ended_ns() const { return ended_ns_; }

  /// Reads once from output, error and link, into @p outbox.  True when bytes came.
  bool pump(Outbox& outbox, Clock::time_point now);
  /// The caller calls expire() at this time.
  Clock::time_point deadline() const { return err_.deadline(); }
  /// Passes on a traceback that was held for too long.
  void expire(Outbox& outbox, Clock::time_point now);

  /// The rank's status, if it differs from the one that hvdrun was last told.
  std::optional<wire::StatusReport> standing() { return news_.next(status_page_.standing(mono_ns())); }
  /// Sends the steps recorded since the last call, as far as @p outbox has room.
  void send_steps(Outbox& outbox);
  /// The job's live report, for a program that asked for it.
  void give_report(std::string_view json) { recorder_.give_report(json); }
  void record_timeline(bool on) { recorder_.record_timeline(on); }
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

  /// Reaps children that have ended.  Returns true once, at the rank's end; the next call reaps the rest.
  bool reap();
  /// True when the guard has no children left.  The guard is a subreaper, so it has no descendants either.
  bool alone() const;
  StandardInput& input() { return input_; }
  /// Call it after SIGCHLD.  True: a signal has stopped the rank; false: the rank goes on; nothing: no change since the
  /// last call.
  std::optional<bool> paused() const;
  /// Sends a signal to the rank's process group.  Does nothing once the rank has been reaped.
  void signal(int number) const;
  /// Sends SIGTSTP where the rank handles it, else SIGSTOP: the rank's session has no terminal, and in such a session
  /// the kernel ignores a SIGTSTP that has its default action.
  void suspend() const;
  /// Sends SIGCONT to a rank that is stopped, so that it can react to another signal.  A rank that runs does not get
  /// it: it may handle SIGCONT.
  void wake() const;

  /// The death record.  Call it after the end, when pump() has found the end of all streams; text that is still held
  /// goes to @p outbox first.  @p stopped  the guard was told to end the rank
  wire::DeathRecord record(Outbox& outbox, bool stopped);

 private:
  bool pump_stream(Fd& fd, Output& output, char stream, Outbox& outbox, Clock::time_point now);
  bool pump_link(Outbox& outbox);
  void take(wire::Type type, std::string_view body, Outbox& outbox);
  void add_system_facts(wire::DeathRecord* r) const;
  void add_last_words(wire::DeathRecord* r) const;
  void add_gpu_facts(wire::DeathRecord* r) const;
  void judge(wire::DeathRecord* r, bool stopped) const;
  void keep_killed_orphan(pid_t pid, int signal);
  void add_killed_orphans();

  int rank_;
  std::string host_;
  pid_t pid_ = -1;
  Fd out_fd_, err_fd_, link_fd_;
  Tail tail_;
  Output out_{tail_, false}, err_{tail_, true};
  MemoryGroup memory_;
  StackCapture stack_;
  ErrorFile error_file_;
  StatusPageReader status_page_;
  RecorderReader recorder_;
  CollectiveProbe collectives_;
  std::optional<std::size_t> operations_asked_;  ///< the limit of a question that Python has not answered yet
  StatusChanges news_;
  std::unique_ptr<GpuWatch> gpu_;
  StandardInput input_;
  wire::StartReport started_;
  std::optional<int> status_;
  std::int64_t ended_ns_ = 0;
  OomKill oom_;
  std::map<pid_t, KilledChild> killed_;  ///< killed children, as seen when a traceback began and at the rank's end
  struct KilledOrphan {
    std::int64_t seen_ns = 0;
    KilledChild child;
  };
  std::map<pid_t, KilledOrphan> orphans_;  ///< killed orphans that the guard has reaped while the rank ran
  std::string cwd_, temporary_folder_, gpu_pci_, kept_out_;
  bool gpu_planned_ = false;
  bool is_python_ = false;                      ///< the rank runs a Python script, or a program called python
  std::int64_t started_us_ = mono_ns() / 1000;  ///< the kernel log's clock is near enough to this one
  double cpu_seconds_ = 0;
  std::int64_t peak_bytes_ = 0;
  std::string phase_;
  bool has_libhvd_ = false;
  std::optional<wire::StartFailure> unstarted_;
  std::optional<wire::Failure> failure_;
};

}  // namespace hvd::rank
