/// @file process_handle.h — refers to one process, also after the kernel has given its id to another process.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>

#include "base/file.h"
#include "base/process/maker.h"

namespace hvd {

/// A process of this PID namespace, not necessarily a child.  The handle is a pidfd if the kernel supports it.
/// Otherwise (before Linux 5.3, under some seccomp filters) the handle compares the start time in /proc.
class ProcessHandle {
 public:
  ProcessHandle() = default;  ///< no process; has_ended() is false
  explicit ProcessHandle(pid_t pid);
  /// @p process  as recorded earlier.  has_ended() is true if its id belongs to another process now.
  explicit ProcessHandle(const Maker& process);

  explicit operator bool() const { return pid_ > 0; }
  /// A zombie has ended.
  bool has_ended() const;
  /// Waits at most @p limit.  True if the process has ended.
  bool ends_within(std::chrono::milliseconds limit) const;
  /// Does nothing if the process has ended.
  void signal(int number) const;

 private:
  void open();

  pid_t pid_ = 0;
  Fd fd_;                       ///< pidfd; empty without one
  std::optional<Maker> maker_;  ///< asked where there is no pidfd
  bool has_ended_ = false;
};

}  // namespace hvd
