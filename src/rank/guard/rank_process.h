/// @file rank_process.h — the running rank as its guard holds it: streams, link, signals, end.
#pragma once
#include <sys/resource.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "rank/diagnostics/oom.h"
#include "rank/diagnostics/stack_capture.h"
#include "rank/diagnostics/usage.h"
#include "rank/launch/launch_plan.h"
#include "rank/streams/outbox.h"
#include "rank/streams/output.h"
#include "rank/streams/standard_input.h"
#include "wire/death.h"
#include "wire/start_report.h"
#include "wire/status_report.h"

namespace hvd::rank {

/// CLOCK_MONOTONIC in nanoseconds.
std::int64_t mono_ns();

class RankProcess {
 public:
  /// Starts it.  @p payload_fd: see plan_launch().  Throws Error when it cannot be started.
  RankProcess(const wire::RankManifest& m, const Environment& mine, int payload_fd);

  int out_fd() const { return out_fd_.get(); }    ///< -1: closed by the rank
  int err_fd() const { return err_fd_.get(); }    ///< likewise
  int link_fd() const { return link_fd_.get(); }  ///< likewise
  const wire::StartReport& started() const { return started_; }
  bool has_ended() const { return status_.has_value(); }
  std::int64_t ended_ns() const { return ended_ns_; }

  /// Reads what waits on all three, once, into @p outbox.  True when something came.
  bool pump(Outbox& outbox, Clock::time_point now);
  /// When expire() has something to do.
  Clock::time_point deadline() const { return err_.deadline(); }
  /// Lets a traceback go that has been held for too long.
  void expire(Outbox& outbox, Clock::time_point now);

  /// Where it is in its life, when hvdrun has to be told anew.
  std::optional<wire::StatusReport> standing() { return news_.next(status_page_.standing(mono_ns())); }
  /// Asks for a picture of its stack; step_stack() gives it as Type::stack, call that while shooting().
  void begin_stack(bool native) { stack_.begin(pid_, native); }
  bool shooting() const { return stack_.under_way(); }
  void step_stack(Outbox& outbox);

  /// Looks whether it has ended, and reaps whatever else has.  True once, when it has.
  bool reap();
  /// True when this process has no children left, hence (it is a subreaper) no descendants.
  bool alone() const;
  /// Its standard input.
  StandardInput& input() { return input_; }
  /// After SIGCHLD: true or false when it was stopped by a signal, or goes on, since the last call.
  std::optional<bool> paused() const;
  /// To the rank's process group; nothing once it has been reaped.
  void signal(int number) const;
  /// SIGTSTP where the rank has a plan of its own for it, else SIGSTOP: its session has no terminal, and there the
  /// kernel drops a SIGTSTP whose default action would stop.
  void suspend() const;
  /// SIGCONT, so that what was stopped can heed another signal; not for a rank that runs and would take it for a word.
  void wake() const;

  /// After the end, when pump() has found the end of all streams: what is still held goes out, and the record.
  /// @p stopped  hvdrun had asked for the end.
  wire::DeathRecord record(Outbox& outbox, bool stopped);

 private:
  bool pump_stream(Fd& fd, Output& output, char stream, Outbox& outbox, Clock::time_point now);
  bool pump_link(Outbox& outbox);
  void take(wire::Type type, std::string_view body, Outbox& outbox);
  void add_system_facts(wire::DeathRecord* r) const;
  void add_last_words(wire::DeathRecord* r) const;
  void add_gpu_facts(wire::DeathRecord* r) const;
  void judge(wire::DeathRecord* r, bool stopped) const;

  int rank_;
  std::string host_;
  pid_t pid_ = -1;
  Fd out_fd_, err_fd_, link_fd_;
  Tail tail_;
  Output out_{tail_, false}, err_{tail_, true};
  MemoryGroup memory_;
  StackCapture stack_;
  StatusPageReader status_page_;
  StatusChanges news_;
  std::unique_ptr<GpuWatch> gpu_;
  StandardInput input_;
  wire::StartReport started_;
  std::optional<int> status_;
  std::int64_t ended_ns_ = 0;
  OomKill oom_;
  std::string cwd_, temporary_folder_, gpu_pci_, kept_out_;
  bool gpu_planned_ = false;
  std::int64_t started_us_ = mono_ns() / 1000;  ///< the kernel log's clock is near enough to this one
  double cpu_seconds_ = 0;
  std::int64_t peak_bytes_ = 0;
  std::string phase_;
  std::optional<wire::StartFailure> unstarted_;
  std::optional<wire::Failure> failure_;
};

}  // namespace hvd::rank
