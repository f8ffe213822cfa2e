/// @file slot_history.h — which slots of an elastic job have failed, and which get no worker for now.  Pure.
#pragma once
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "launcher/elastic/next_world.h"

namespace hvd::launcher {

/// A slot may fail once.  After the second failure, the slot gets no worker: permanently, or for a pause.  After k more
/// failures, the pause is min·2^k seconds, plus a random part of at most that length.  The sum is at most max.
class SlotHistory {
 public:
  /// @param cooldown  min and max of the pause, in seconds; nothing: a slot is never used again
  explicit SlotHistory(std::optional<std::pair<int, int>> cooldown = {}, unsigned seed = 1)
      : cooldown_(cooldown), random_(seed) {}
  /// Records that a worker in @p place has failed.  Returns the seconds for which the place gets no worker.  0: a
  /// worker may be started at once.  Nothing: the place gets no worker any more.
  std::optional<double> failed(const SlotPlace& place, double now_seconds);
  /// The places that get no worker at @p now_seconds.
  std::set<SlotPlace> blocked(double now_seconds) const;

 private:
  struct SlotRecord {
    int failures = 0;
    std::optional<double> free_at = 0;  ///< end of the pause; nothing: never
  };
  std::optional<std::pair<int, int>> cooldown_;
  std::mt19937 random_;
  std::map<SlotPlace, SlotRecord> slots_;
};

}  // namespace hvd::launcher
