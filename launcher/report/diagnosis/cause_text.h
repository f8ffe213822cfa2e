/// @file cause_text.h — the report's text about a cause: the observation, and one thing to try.  Pure.
///
/// Each tell_ function sets a finding's `cause`, `certain`, `what` and `advice`.  The caller sets the other members
/// first.
#pragma once
#include <string>
#include <vector>

#include "launcher/report/diagnosis/diagnosis.h"
#include "launcher/report/diagnosis/late_ranks.h"
#include "launcher/report/diagnosis/late_reason.h"
#include "launcher/report/diagnosis/slow_link.h"

namespace hvd::launcher {

/// Some ranks keep the other ranks waiting.
/// @param cores  " (3.8 of its 32 cores used)", here and below; may be empty
void tell_late(Finding& f, Delay delay, const LateRanks& l, const std::string& cores);
/// In each late step, another rank is the late one.  @param any  one of the ranks
void tell_turns(Finding& f, Delay delay, const RankMeans& any);
/// All ranks have the same delay.  @param any  one of the ranks
void tell_all(Finding& f, Delay delay, const RankMeans& any, const std::string& cores);
/// Limits of processor time throttle all ranks.  @p each: the median of the seconds a step.
void tell_all_throttled(Finding& f, double each, const std::string& cores);
/// The loaders of all ranks are too slow.  @param made  seconds a step that the loaders of `l.others` take, the median
void tell_slow_loaders(Finding& f, double made, const LateRanks& l, const std::string& cores);

/// Data waits for one slow link.
void tell_slow_link(Finding& f, const SlowLink& link);

/// "32 bytes", "12 KiB", "48 MiB".
std::string size_text(double bytes);

}  // namespace hvd::launcher
