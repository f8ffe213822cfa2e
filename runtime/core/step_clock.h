/// @file step_clock.h — how long a step of the training takes, for the time after which a wait is worth a word.  Pure.
///
/// A step is the time between two batches with the same tensor in them.  Only steps of more than half a second matter
/// (three of them make the least wait that is told), so nothing is looked at for half a second after each.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace hvd::core {

class StepClock {
 public:
  /// False: batch() need not be called for this one.
  bool due(std::int64_t now_ns) const { return now_ns >= last_ns_ + least_ns; }

  /// @param each  calls what it is given with the id of every tensor of the batch
  template <class Each>
  void batch(std::int64_t now_ns, Each&& each) {
    std::uint32_t first = none;
    bool again = false;
    each([&](std::uint32_t id) {
      if (first == none) first = id;
      again = again || id == marker_;
    });
    if (again)
      steps_[count_++ % steps_.size()] = now_ns - last_ns_;
    else if (marker_ != none && ++misses_ < most_misses)
      return;
    else
      marker_ = first;  // the first of all, or the one before comes no more
    misses_ = 0;
    last_ns_ = now_ns;
  }

  /// Median of the last steps; 0 when there is none, or all are shorter than half a second.
  std::int64_t median_ns() const {
    const std::size_t n = std::min(count_, steps_.size());
    if (n == 0) return 0;
    auto sorted = steps_;
    std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(n));
    return sorted[n / 2];
  }

 private:
  static constexpr std::int64_t least_ns = 500'000'000;
  static constexpr std::uint32_t none = 0xFFFFFFFF;
  static constexpr int most_misses = 4096;

  std::array<std::int64_t, 9> steps_{};
  std::size_t count_ = 0;
  std::uint32_t marker_ = none;
  int misses_ = 0;
  std::int64_t last_ns_ = -least_ns;
};

}  // namespace hvd::core
