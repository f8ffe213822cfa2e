/// @file held_signals.h — a signal that ends this process first ends the processes below it.
#pragma once
#include <sys/types.h>

#include <csignal>
#include <vector>

#include "base/file.h"

namespace hvd {

/// Holds back SIGHUP, SIGINT, SIGQUIT and SIGTERM while children run.  A child gets SIGKILL when this process ends, but
/// the child's own children do not.
///
/// Leaves out signals that the thread blocks already, or whose action is not the default.  Thread: one; in a process
/// with further threads, a signal may still end the process at once.
class HeldSignals {
 public:
  HeldSignals();
  /// Signals that have come take effect.
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  /// Readable when a signal has come; -1: no signal is held back.
  int fd() const { return fd_.get(); }
  /// If a signal has come: kills the children that have begun since the constructor, and all processes below them. Then
  /// the signal ends this process.
  void end_if_asked();

 private:
  const std::vector<pid_t> spared_;  ///< children that this process had before its exec
  sigset_t before_{};
  Fd fd_;
};

}  // namespace hvd
