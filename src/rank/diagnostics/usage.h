/// @file usage.h — what the rank used and did, beside what the kernel counts: its steps, and its GPU.
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

/// The page in which the rank's libhvd tells of itself (wire/shared/status_page.h).
class StatusPageReader {
 public:
  StatusPageReader();
  /// For the rank to inherit; -1 where it could not be made.
  int fd() const { return memory_.fd(); }
  void fill(wire::DeathRecord* r) const;
  /// Where the rank is now, and what it waits for; it could have written anything, so what makes no sense is left out.
  wire::StatusReport standing(std::int64_t now_ns) const;
  /// Shows the rank that an elastic job's hosts have changed.  @p change  1 removed, 2 added, 3 both; 0: they will,
  /// since workers are being started
  void tell_host_change(std::uint64_t change);

 private:
  SealedMemory memory_;
  wire::StatusPage* page_ = nullptr;
  std::uint64_t host_changes_ = 0;  ///< as in wire/shared/status_page.h
};

/// What of a rank's standing hvdrun has to be told.  Pure.
class StatusChanges {
 public:
  /// The message for hvdrun, when there is something new: another place; a wait that has become long, or is over.
  std::optional<wire::StatusReport> next(wire::StatusReport now);

 private:
  static constexpr double long_wait_seconds = 2;
  wire::StatusReport told_;
};

/// Asks the GPU's driver, through NVML where there is one, how busy the rank's GPU is, who has memory on it, and
/// whether it failed: at the start and once a second, in a thread of its own, since the driver may take its time, or
/// for ever where a GPU has fallen off the bus.
class GpuWatch {
 public:
  GpuWatch() = default;
  /// @p gpu  UUID or PCI address; empty: nothing is watched.
  /// @p rank  its process; those below it count as its own
  GpuWatch(const std::string& gpu, pid_t rank);
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;
  /// Never waits: the thread ends by itself.
  ~GpuWatch();
  void fill(wire::DeathRecord* r) const;
  /// What was last seen while the rank lived, and the GPU's errors until now: the thread looks once more for these, for
  /// which it gets a moment.
  GpuFacts facts() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hvd::rank
