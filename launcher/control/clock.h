/// @file clock.h — the difference between a guard's clock and hvdrun's, estimated from pings and their answers.
#pragma once
#include <cstdint>
#include <optional>

namespace hvd::launcher {

/// A ping reaches the guard at an unknown moment of its round trip.  The estimate takes the middle of the round trip,
/// with half of the round trip as its uncertainty; of several pings the fastest counts.  Clocks drift by up to 50 µs a
/// second, so the uncertainty of an estimate grows with its age, until a newer ping gives a better one.
class ClockEstimate {
 public:
  /// A guard that shares our clock (the same host): exact.
  static ClockEstimate same_clock() {
    ClockEstimate estimate;
    estimate.best_ = Sample{0, 0, 0};
    estimate.exact_ = true;
    return estimate;
  }

  /// All in ns of CLOCK_MONOTONIC: ours when the ping left and when its answer came, the guard's in between.
  /// True when this sample is now the estimate.
  bool add(std::int64_t sent_ns, std::int64_t received_ns, std::int64_t guard_ns) {
    constexpr std::int64_t latest = INT64_MAX / 4;  // what a guard says may be anything
    if (exact_ || sent_ns < 0 || guard_ns < 0 || guard_ns > latest || received_ns > latest) return false;
    if (received_ns < sent_ns) return false;
    const Sample sample{guard_ns - (sent_ns + (received_ns - sent_ns) / 2), (received_ns - sent_ns + 1) / 2,
                        received_ns};
    if (best_ && sample.uncertainty_ns > uncertainty_at(received_ns)) return false;
    best_ = sample;
    return true;
  }

  bool known() const { return best_.has_value(); }
  /// The guard's clock minus ours; 0 while nothing is known.
  std::int64_t offset_ns() const { return best_ ? best_->offset_ns : 0; }
  /// ± around offset_ns(), now.
  std::int64_t uncertainty_at(std::int64_t now_ns) const {
    if (!best_) return INT64_MAX / 4;
    return exact_ ? 0 : best_->uncertainty_ns + (now_ns - best_->at_ns) / 20'000;
  }

 private:
  struct Sample {
    std::int64_t offset_ns, uncertainty_ns, at_ns;
  };
  std::optional<Sample> best_;
  bool exact_ = false;
};

}  // namespace hvd::launcher
