#include "ops/allreduce/exchange_plan.h"

#include <algorithm>

namespace hvd::ops {

ExchangePlan::ExchangePlan(const std::vector<int>& levels, int most_group, bool whole) : whole_(whole) {
  int apart = 1;
  for (const int factor : levels) {
    if (stages_.empty() || stages_.back().group * factor > most_group) stages_.push_back({{}, 1, apart});
    stages_.back().levels.push_back(factor);
    stages_.back().group *= factor;
    apart *= factor;
  }
}

/// Parts begin at multiples of 64 bytes, so each holds whole elements of any dtype.
Range ExchangePlan::part(Range all, int s, int digit) const {
  if (whole_) return all;
  const std::size_t length = all.second - all.first, count = static_cast<std::size_t>(stage(s).group);
  const std::size_t each = ((length + count - 1) / count + 63) / 64 * 64;
  const auto at = [&](int d) { return all.first + std::min(length, each * static_cast<std::size_t>(d)); };
  return {at(digit), at(digit + 1)};
}

/// The first slice goes through all rounds, with their latencies.  The other slices follow without latency.  Each of
/// these takes the time of its messages, its bytes on the link and its additions.
double ExchangePlan::cost(std::size_t bytes, std::size_t slice, const NetworkModel& m) const {
  slice = std::max<std::size_t>(1, std::min(slice, bytes));
  // All are for one slice; `sent`, `added` and `held` are fractions of its bytes.
  double latency = 0, messages = 0, sent = 0, added = 0, held = 1;
  for (const ExchangeStage& s : stages_) {
    const double others = s.group - 1;
    if (!whole_) held /= s.group;
    latency += (whole_ ? 1 : 2) * m.latency_ns;
    messages += (whole_ ? 1 : 2) * others;
    sent += (whole_ ? 1 : 2) * others * held;
    added += others * held;
  }
  const double one = messages * m.message_ns + static_cast<double>(slice) * (sent * m.byte_ns + added * m.add_byte_ns);
  return latency + one * static_cast<double>(bytes) / static_cast<double>(slice);
}

ExchangePlan ExchangePlan::choose(const std::vector<int>& levels, std::size_t bytes, std::size_t slice,
                                  const NetworkModel& model) {
  int nodes = 1;
  for (const int each : levels) nodes *= each;
  ExchangePlan best(levels, 1, true);
  double least = best.cost(bytes, slice, model);
  for (int most_group = 1;; most_group *= 2) {
    for (const bool whole : {true, false}) {
      ExchangePlan plan(levels, most_group, whole);
      if (const double cost = plan.cost(bytes, slice, model); cost < least) {
        least = cost;
        best = std::move(plan);
      }
    }
    if (most_group >= nodes) return best;
  }
}

}  // namespace hvd::ops
