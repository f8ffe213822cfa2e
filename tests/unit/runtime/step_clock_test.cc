#include "core/step_clock.h"

#include <doctest/doctest.h>

#include <vector>

using hvd::core::StepClock;

namespace {

constexpr std::int64_t s = 1'000'000'000;

void batch(StepClock& clock, std::int64_t now, const std::vector<std::uint32_t>& ids) {
  if (!clock.due(now)) return;
  clock.batch(now, [&](auto&& take) {
    for (const std::uint32_t id : ids) take(id);
  });
}

}  // namespace

TEST_CASE("step clock: the median of the times between batches with the same tensor") {
  StepClock clock;
  CHECK(clock.median_ns() == 0);
  std::int64_t now = 0;
  for (const std::int64_t step : {2 * s, 2 * s, 60 * s, 2 * s, 3 * s}) {  // one step with an evaluation in it
    batch(clock, now, {7, 8});
    batch(clock, now + 1, {9});
    batch(clock, now + s, {10});  // long after, but another one
    now += step;
  }
  batch(clock, now, {8, 7});
  CHECK(clock.median_ns() == 2 * s);
}

TEST_CASE("step clock: short steps cost nothing and count as short; a tensor that comes no more is forgotten") {
  StepClock clock;
  std::int64_t now = 0;
  int looked_at = 0;
  for (int i = 0; i < 1000; ++i, now += s / 100) {
    looked_at += clock.due(now);
    batch(clock, now, {1});
  }
  CHECK(looked_at <= 21);
  CHECK(clock.median_ns() < s);
  for (int i = 0; i < 5000; ++i, now += s) batch(clock, now, {2});
  CHECK(clock.median_ns() == s);
}
