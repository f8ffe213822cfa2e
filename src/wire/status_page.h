/// @file status_page.h — what a rank tells of itself, where its guard can read it even while it is stopped or after its
/// end.
///
/// One page of sealed memory, made by the guard and inherited by the rank; the descriptor's number is in HVD_STATUS_FD.
/// The rank's libhvd writes, the guard reads.  Header only: libhvd and hvdrank share it.
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
  init,     ///< in hvd.init(), which waits for the others
  working,  ///< initialised
  leaving,  ///< its script has ended well; MPI's end may wait for the others
};

struct StatusPage {
  std::uint64_t mark = 0;              ///< status_page_mark, from the guard
  std::atomic<std::int64_t> steps{0};  ///< rounds of the same operations
  // Since the first of the rounds that were timed:
  std::atomic<std::int64_t> timed_steps{0};
  std::atomic<std::int64_t> first_ns{0}, last_ns{0};  ///< CLOCK_MONOTONIC_COARSE
  std::atomic<std::int64_t> waited_ns{0};             ///< in which the rank had nothing to do but wait for operations
  // Where it is now, in CLOCK_MONOTONIC:
  std::atomic<RankPhase> place{RankPhase::script};
  std::atomic<std::int64_t> place_ns{0};  ///< since when; 0: libhvd was never asked for anything
  std::atomic<std::int64_t> waits_ns{0};  ///< nothing of what it has submitted has moved since then; 0: it does
  std::atomic<std::uint32_t> turn{0};     ///< odd while waits_for changes
  std::atomic<char> waits_for[200] = {};  ///< the first by name of what it has submitted; ends with a zero
};
static_assert(sizeof(StatusPage) <= status_page_bytes && std::atomic<std::int64_t>::is_always_lock_free);

}  // namespace hvd::wire
