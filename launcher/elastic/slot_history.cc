#include "launcher/elastic/slot_history.h"

#include <algorithm>
#include <cmath>

namespace hvd::launcher {

namespace {
constexpr int failures_that_count = 2;
}

std::optional<double> SlotHistory::failed(const SlotPlace& place, double now_seconds) {
  SlotRecord& slot = slots_[place];
  if (++slot.failures < failures_that_count) return 0;
  if (!cooldown_) {
    slot.free_at.reset();
    return std::nullopt;
  }
  const auto [least, most] = *cooldown_;
  const double base = least * std::pow(2.0, std::min(slot.failures - failures_that_count, 30));
  const double part = std::uniform_real_distribution<double>(0, 1)(random_) * base;
  const double seconds = std::clamp(base + part, static_cast<double>(least), static_cast<double>(most));
  slot.free_at = now_seconds + seconds;
  return seconds;
}

std::set<SlotPlace> SlotHistory::blocked(double now_seconds) const {
  std::set<SlotPlace> places;
  for (const auto& [place, slot] : slots_)
    if (!slot.free_at || *slot.free_at > now_seconds) places.insert(place);
  return places;
}

}  // namespace hvd::launcher
