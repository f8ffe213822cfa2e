/// @file slot_history.h — which slots of an elastic job have failed, and which get no worker for now.  Pure.
#pragma once
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "launcher/elastic/next_world.h"

namespace hvd::launcher {

/// A slot may fail once.  After the second failure it gets no worker: for ever, or for min·2^k seconds and a random
/// part of that, within [min, max].
class SlotHistory {
 public:
  /// @param cooldown  seconds; nothing: for ever
  explicit SlotHistory(std::optional<std::pair<int, int>> cooldown = {}, unsigned seed = 1)
      : cooldown_(cooldown), random_(seed) {}
  /// A worker there has ended badly.  Returns for how many seconds the slot gets no worker.  Nothing: for
  /// ever; 0: a worker may be started at once.
  std::optional<double> failed(const SlotPlace& place, double now_seconds);
  std::set<SlotPlace> blocked(double now_seconds) const;

 private:
  struct SlotRecord {
    int failures = 0;
    std::optional<double> free_at = 0;  ///< nothing: never
  };
  std::optional<std::pair<int, int>> cooldown_;
  std::mt19937 random_;
  std::map<SlotPlace, SlotRecord> slots_;
};

}  // namespace hvd::launcher
