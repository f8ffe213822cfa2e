/// @file cause_text.h — what the report says of a cause: what was seen, and one thing to try.  Pure.
///
/// Each function sets a finding's cause, certain, what and advice; what else it has is set before.
#pragma once
#include <string>
#include <vector>

#include "launcher/report/diagnosis/diagnosis.h"
#include "launcher/report/diagnosis/late_ranks.h"
#include "launcher/report/diagnosis/slow_link.h"

namespace hvd::launcher {

/// It is known from within the program, not guessed from what the kernel counts.
bool is_seen_by_hook(Delay delay);

/// Ranks that keep the others waiting.  @param cores  " (4 of 32 cores used)", here and below; may be empty
void tell_late(Finding& f, Delay delay, const LateRanks& l, const std::string& cores);
/// Another rank each time.  @param any  one of the ranks
void tell_turns(Finding& f, Delay delay, const RankMeans& any);
/// All ranks alike.
void tell_all(Finding& f, Delay delay, const RankMeans& any, const std::string& cores);
/// Limits of processor time hold all ranks, the middle one for @p each seconds.
void tell_all_throttled(Finding& f, double each, const std::string& cores);
/// The loaders of all ranks are too slow; the other ranks' loaders take @p made seconds a step.
void tell_slow_loaders(Finding& f, double made, const LateRanks& l, const std::string& cores);

/// One slow link keeps data under way.
void tell_slow_link(Finding& f, const SlowLink& link);

/// "32 bytes", "12 KiB", "48 MiB".
std::string size_text(double bytes);

}  // namespace hvd::launcher
