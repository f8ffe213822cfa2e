/// @file rank_child.h — the rank's first process as a child of the guard: its signals, its stops and its end.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>

#include "rank/diagnostics/death/killed_children.h"
#include "rank/diagnostics/death/oom.h"

namespace hvd::rank {

/// CLOCK_MONOTONIC in nanoseconds.
std::int64_t mono_ns();

/// The rank's process, from its start to its end.  Thread: one.  This process must be a subreaper.
class RankChild {
 public:
  /// Reads the memory group of this process, which the rank inherits, and opens the kernel's log.
  RankChild();
  /// The rank's process runs as @p pid from now on.
  void began(pid_t pid) { pid_ = pid; }

  pid_t pid() const { return pid_; }  ///< also after the end
  bool has_ended() const { return status_.has_value(); }
  /// waitpid()'s status.  Call it after the end only.
  int status() const { return *status_; }
  std::int64_t ended_ns() const { return ended_ns_; }
  double cpu_seconds() const { return cpu_seconds_; }      ///< of the rank and of the children it waited for
  std::int64_t peak_bytes() const { return peak_bytes_; }  ///< likewise
  const MemoryGroup& memory_before() const { return memory_; }
  const OomKill& oom() const { return oom_; }
  /// The rank's killed descendants that may explain its end.
  const std::map<pid_t, KilledChild>& killed() const { return killed_; }

  /// Call it when a traceback begins.  A killed worker is a zombie at that time; the rank reaps its workers at its end.
  void note_killed_children() { killed_.merge(killed_children(pid_)); }
  /// Reaps children that have ended.  Returns true once, when the rank has ended.  The next call reaps the other
  /// children.
  bool reap();
  /// True when this process has no children left.  A subreaper without children has no descendants.
  bool is_alone() const;
  /// Call it after SIGCHLD.  True: a signal has stopped the rank; false: the rank goes on; nothing: no change since the
  /// last call.
  std::optional<bool> paused() const;
  /// Sends a signal to the rank's process group.  Does nothing once the rank has been reaped.
  void signal(int number) const;
  /// Sends SIGTSTP if the rank handles it, else SIGSTOP.  The rank's session has no terminal.  In such a session the
  /// kernel ignores SIGTSTP unless a handler is set.
  void suspend() const;
  /// Sends SIGCONT to a rank that is stopped, so that it can react to another signal.  A running rank gets no SIGCONT,
  /// because it may have a handler for SIGCONT.
  void wake() const;

 private:
  void note_end();
  void note_killed_orphan(pid_t pid, int signal);
  void add_killed_orphans();

  struct KilledOrphan {
    std::int64_t seen_ns = 0;
    KilledChild child;
  };

  pid_t pid_ = -1;
  MemoryGroup memory_;
  KernelLog log_;
  std::optional<int> status_;
  std::int64_t ended_ns_ = 0;
  double cpu_seconds_ = 0;
  std::int64_t peak_bytes_ = 0;
  OomKill oom_;
  std::map<pid_t, KilledChild> killed_;
  std::map<pid_t, KilledOrphan> orphans_;  ///< reaped by this process while the rank ran
};

}  // namespace hvd::rank
