/// @file top_text.h — a running job's last half minute, for hvdrun top.  Pure.
#pragma once
#include <string>

#include "launcher/report/live_report.h"

namespace hvd::launcher {

/// The diagnosis, then a table of the ranks, those that waited least first; at most @p most_ranks of them.
std::string top_text(const LiveReport& report, double now_seconds, std::size_t most_ranks = 20);

}  // namespace hvd::launcher
