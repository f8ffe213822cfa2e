/// @file top_text.h — a running job's last half minute, for hvdrun top.  Pure.
#pragma once
#include <string>

#include "launcher/report/live_report.h"

namespace hvd::launcher {

/// The diagnosis, then a table of at most @p most_ranks ranks.  Ranks that waited least come first.
std::string top_text(const LiveReport& report, double now_seconds, std::size_t most_ranks = 20);

}  // namespace hvd::launcher
