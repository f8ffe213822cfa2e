/// @file status_page.h — the status page: where a rank is, and what it waits for.
///
/// The guard can read the page even while the rank is stopped, and after its end.  One page of sealed memory, made by
/// the guard and inherited by the rank; the descriptor's number is in HVD_STATUS_FD.  The rank's libhvd writes, the
/// guard reads.  Header only: libhvd and hvdrank share it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hvd::wire {

inline constexpr const char* status_page_fd_variable = "HVD_STATUS_FD";
inline constexpr std::size_t status_page_bytes = 4096;
inline constexpr std::uint64_t status_page_mark =
    0x31796c6c61745648;  ///< "HVtally1": what inherits the number may be another

/// Where a rank is in its life with libhvd.
enum class RankPhase : std::uint32_t {
  script,   ///< before hvd.init(), or after hvd.shutdown()
  init,     ///< in hvd.init(), which waits for the other ranks
  working,  ///< initialised
  leaving,  ///< the script has ended well; MPI_Finalize may wait for the other ranks
};

struct StatusPage {
  std::uint64_t mark = 0;              ///< status_page_mark, from the guard
  std::atomic<std::int64_t> steps{0};  ///< how often the same round of operations was repeated
  // Since the first of the rounds that were timed:
  std::atomic<std::int64_t> timed_steps{0};
  std::atomic<std::int64_t> first_ns{0}, last_ns{0};  ///< CLOCK_MONOTONIC_COARSE
  std::atomic<std::int64_t> waited_ns{0};             ///< time in which the rank only waited for operations
  // Where the rank is now; times in CLOCK_MONOTONIC:
  std::atomic<RankPhase> place{RankPhase::script};
  std::atomic<std::int64_t> place_ns{0};  ///< since when; 0: libhvd was never asked for anything
  std::atomic<std::int64_t> waits_ns{0};  ///< since when none of its operations has moved; 0: they move, or none
  std::atomic<std::uint32_t> turn{0};     ///< odd while waits_for changes
  std::atomic<char> waits_for[200] = {};  ///< of the submitted operations: the first by name; zero-terminated
};
/// Where the guard writes, and the rank reads, which changes of an elastic job's hosts its program is to hear of: a
/// u64, eight times their number, plus the last one (1 removed, 2 added, 3 both), plus 4 if a further one is on its
/// way: its workers are being started.  hvd/elastic.py looks at it.
inline constexpr std::size_t host_changes_at = status_page_bytes - sizeof(std::uint64_t);

static_assert(sizeof(StatusPage) <= host_changes_at && std::atomic<std::int64_t>::is_always_lock_free);

}  // namespace hvd::wire
