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
/// uncertainty is half of the round trip.  Of several pings the fastest counts.  Clocks drift by up to 50 µs a second,
/// so the uncertainty of an estimate grows with its age, until a newer ping gives a better one.
class ClockEstimate {
 public:
  /// A guard that shares our clock (the same host): exact.
  static ClockEstimate same_clock() {
    ClockEstimate estimate;
    estimate.best_ = Sample{0, 0, 0};
    estimate.exact_ = true;
    return estimate;
  }

  /// Takes a ping's answer.  Returns true when it is the estimate from now on.
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
