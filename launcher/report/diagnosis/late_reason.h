/// @file late_reason.h — why late ranks are late, and whether a delay is one rank's own.  Pure.
#pragma once
#include <cstddef>
#include <vector>

#include "launcher/report/diagnosis/late_ranks.h"

namespace hvd::launcher {

/// A delay belongs to one rank alone if it is this many times as long as the same delay of the other ranks.
inline constexpr double times_longer = 3;

/// True if a hook in the program measures the delay.  False: the delay is derived from the kernel's counts.
bool is_seen_by_hook(Delay delay);

inline double part_of(const DelaySeconds& parts, Delay delay) { return parts[static_cast<std::size_t>(delay)]; }

/// The part of the late ranks' time with the largest excess over the other ranks' median.  A part that a hook measures
/// must make at least half of the difference, since other parts may differ too.
Delay reason_of(const LateRanks& l);

/// Returns the seconds of waiting for a core per second of work, for ranks that all lack cores.  A rank with more work
/// thus waits longer.
double core_wait_per_work(const LateRanks& l);

/// True if the single late rank has long stops that no other rank has.  The rank's stops must come in many stretches of
/// the job, or at equal distances.  The stops of all other ranks together must be short.  Stops by chance would hit
/// other ranks as well, at random distances.
/// @param least_seconds  all stops of the rank together must last longer
bool stops_alone(const LateRanks& l, std::size_t stretches, double least_seconds);

/// True if @p rank alone has this delay.  In steps that were late for this reason, other ranks were hardly ever last.
bool is_own(Delay delay, const RankMeans& rank, const std::vector<RankMeans>& ranks);

}  // namespace hvd::launcher
