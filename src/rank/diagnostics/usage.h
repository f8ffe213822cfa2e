/// @file usage.h — the guard's view of its rank: its phase and waits, and the use of its GPU.
#pragma once
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "rank/diagnostics/death/gpu_death.h"
#include "rank/diagnostics/sealed_memory.h"
#include "wire/messages/death.h"
#include "wire/messages/status_report.h"
#include "wire/shared/status_page.h"

namespace hvd::rank {

/// The guard's side of the status page (wire/shared/status_page.h).
class StatusPageReader {
 public:
  StatusPageReader();
  /// The descriptor that the rank inherits; -1: the memory could not be made.
  int fd() const { return memory_.fd(); }
  void fill(wire::DeathRecord* r) const;
  /// The rank's phase now, and the operation for which it waits.  Impossible values are left out: the rank's process
  /// could have written anything.
  wire::StatusReport standing(std::int64_t now_ns) const;
  /// Shows the rank that an elastic job's hosts have changed.  @p change  1 removed, 2 added, 3 both; 0: workers for a
  /// coming change are being started
  void tell_host_change(std::uint64_t change);

 private:
  SealedMemory memory_;
  wire::StatusPage* page_ = nullptr;
  std::uint64_t host_changes_ = 0;  ///< as in wire/shared/status_page.h
};

/// Decides which changes of a rank's status hvdrun gets.  Pure.
class StatusChanges {
 public:
  /// The message for hvdrun after a change; nothing: no change.  Changes are a new phase, and the begin and end of a
  /// long wait or idle time.
  std::optional<wire::StatusReport> next(wire::StatusReport now);

 private:
  static constexpr double long_wait_seconds = 2, long_idle_seconds = 60;
  wire::StatusReport told_;
};

/// Asks the GPU's driver through NVML, at the start and once a second.  The driver gives the load, the users of memory
/// and the errors of the rank's GPU.  A separate thread asks, because a call never returns if a GPU has fallen off the
/// bus.
class GpuWatch {
 public:
  GpuWatch() = default;
  /// @p gpu  UUID or PCI address; empty: nothing is watched.
  /// @p rank  the rank's process; processes below it count as the rank's
  GpuWatch(const std::string& gpu, pid_t rank);
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;
  /// Never waits: the thread ends by itself.
  ~GpuWatch();
  void fill(wire::DeathRecord* r) const;
  /// True if the GPU was busy in the last second, perhaps for another program.  False where no GPU is watched.
  bool is_busy() const;
  /// The last state while the rank lived, and the GPU's errors until now.  Waits a moment for the thread, which looks
  /// for errors once more.
  GpuFacts facts() const;
  /// The memory that the rank's processes still have on the GPU, after their end.  -1: unknown, also if the driver
  /// never named one of them: in some containers it has other numbers for processes.  Waits a moment, as facts() does.
  std::int64_t bytes_left() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hvd::rank
