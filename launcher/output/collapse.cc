#include "launcher/output/collapse.h"

#include <algorithm>

namespace hvd::launcher {

void Collapser::add(int rank, int stream, std::string_view line, Clock::time_point now, const Take& take) {
  // From the newest line back to this rank's own last line.  Joining an earlier line would change the rank's order.
  LineGroup* same = nullptr;
  for (auto g = groups_.rbegin(); g != groups_.rend(); ++g) {
    if (std::binary_search(g->ranks.begin(), g->ranks.end(), rank)) break;
    if (g->stream == stream && g->line == line) same = &*g;
  }
  if (same)
    same->ranks.insert(std::lower_bound(same->ranks.begin(), same->ranks.end(), rank), rank);
  else
    groups_.push_back({std::string(line), stream, {rank}, now});
  flush(now, false, take);
}

void Collapser::flush(Clock::time_point now, bool all, const Take& take) {
  while (!groups_.empty()) {
    const LineGroup& first = groups_.front();
    if (!all && first.ranks.size() < size_ && now - first.since < longest_hold && groups_.size() <= most_held) return;
    take(first.ranks, first.stream, first.line);
    groups_.pop_front();
  }
}

}  // namespace hvd::launcher
