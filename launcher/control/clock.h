/// @file clock.h — hvdrun's clock, and the difference between a guard's clock and hvdrun's.
#pragma once
#include <cstdint>
#include <ctime>
#include <optional>

namespace hvd::launcher {

/// CLOCK_MONOTONIC.
inline std::int64_t monotonic_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}
inline double monotonic_seconds() { return static_cast<double>(monotonic_ns()) / 1e9; }

/// The difference, estimated from pings and their answers.
///
/// A ping reaches the guard at an unknown moment of its round trip.  The estimate is the middle of the round trip; its
/// uncertainty is half of the round trip.  The ping with the shortest round trip is used.  Clocks drift by up to 50 µs
/// a second, so an estimate's uncertainty grows with its age.  A newer ping replaces the estimate once its own
/// uncertainty is smaller.
class ClockEstimate {
 public:
  /// A guard that shares our clock (the same host): exact.
  static ClockEstimate same_clock() {
    ClockEstimate estimate;
    estimate.best_ = Sample{0, 0, 0};
    estimate.exact_ = true;
    return estimate;
  }

  /// Takes the answer to a ping.  Returns true if this ping now gives the estimate.
  /// @param sent_ns, received_ns  by our clock: when the ping left, and when its answer came
  /// @param guard_ns              by the guard's clock: when the guard answered
  bool add(std::int64_t sent_ns, std::int64_t received_ns, std::int64_t guard_ns) {
    constexpr std::int64_t latest = INT64_MAX / 4;  // a guard may send any number
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
