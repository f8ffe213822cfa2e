/// @file status_page.h — the status page: the phase of a rank, and the operation for which it waits.
///
/// The guard can read the page even while the rank is stopped, and after its end.  The page is one page of sealed
/// memory, made by the guard and inherited by the rank.  HVD_STATUS_FD has the descriptor's number.  The rank's libhvd
/// writes, and the guard reads; only the word at host_changes_at goes the other way.  Header only: libhvd and hvdrank
/// share it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hvd::wire {

inline constexpr const char* status_page_fd_variable = "HVD_STATUS_FD";
inline constexpr std::size_t status_page_bytes = 4096;
inline constexpr std::uint64_t status_page_mark =
    0x31796c6c61745648;  ///< "HVtally1": the descriptor with this number may be something else

/// The phase of a rank's life with libhvd.
enum class RankPhase : std::uint32_t {
  script,   ///< before hvd.init(), or after hvd.shutdown()
  init,     ///< in hvd.init(), which waits for the other ranks
  working,  ///< initialised
  leaving,  ///< the script has ended without error; MPI_Finalize may wait for the other ranks
};

/// The progress of the rank's GPU with the oldest operations that it has not finished.
enum class GpuProgress : std::uint32_t {
  none,        ///< no such operations, or the progress is unknown
  computing,   ///< the GPU still computes a tensor
  exchanging,  ///< all tensors are computed, and the exchange does not end
};

struct StatusPage {
  std::uint64_t mark = 0;              ///< status_page_mark, from the guard
  std::atomic<std::int64_t> steps{0};  ///< repetitions of the same round of operations
  // Since the first of the rounds that were timed:
  std::atomic<std::int64_t> timed_steps{0};
  std::atomic<std::int64_t> first_ns{0}, last_ns{0};  ///< CLOCK_MONOTONIC_COARSE
  std::atomic<std::int64_t> waited_ns{0};             ///< time in which the rank only waited for operations
  // Where the rank is now; times in CLOCK_MONOTONIC:
  std::atomic<RankPhase> place{RankPhase::script};
  std::atomic<std::int64_t> place_ns{0};  ///< the time at which `place` was set; 0: the rank has not called libhvd
  std::atomic<std::int64_t> waits_ns{0};  ///< the time of the last progress; 0: operations move, or none waits
  std::atomic<std::uint32_t> turn{0};     ///< odd while waits_for changes
  /// The submitted operation whose name sorts first.  If all have ended on the host: the GPU's first.  Zero-terminated.
  std::atomic<char> waits_for[200] = {};
  std::atomic<GpuProgress> gpu{GpuProgress::none};
  std::atomic<char> gpu_late[200] = {};  ///< computing: the operation whose tensor is not computed; zero-terminated
  /// Kind and tensor of the operation in waits_for, zero-terminated.  Empty: its name begins with its kind.
  std::atomic<char> waits_what[120] = {};
};
/// Position of a u64 about changes of an elastic job's hosts.  The guard writes it, hvd/elastic.py reads it.
/// Value: 8 × number of changes so far + kind of the last change: 1 removed, 2 added, 3 both.  Add 4 while workers of a
/// further change are being started.
inline constexpr std::size_t host_changes_at = status_page_bytes - sizeof(std::uint64_t);

static_assert(sizeof(StatusPage) <= host_changes_at && std::atomic<std::int64_t>::is_always_lock_free);

}  // namespace hvd::wire
