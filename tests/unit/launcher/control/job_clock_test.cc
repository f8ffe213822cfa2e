/// @file job_clock_test.cc — time in which the job is stopped does not count.
#include "launcher/control/job_clock.h"

#include <doctest/doctest.h>

using hvd::launcher::JobClock;

TEST_CASE("job clock: goes on while hvdrun turns") {
  JobClock clock(100);
  for (double now = 100; now < 120; now += 0.5) clock.turn(now);
  CHECK(clock.seconds(120) == 120);
}

TEST_CASE("job clock: stands still while the ranks are stopped") {
  JobClock clock(100);
  clock.pause(true, 101);
  for (double now = 101; now < 150; now += 0.5) clock.turn(now);
  clock.pause(true, 130);
  CHECK(clock.seconds(150) == 101);
  clock.pause(false, 150);
  clock.pause(false, 151);
  CHECK(clock.seconds(152) == 103);
}

TEST_CASE("job clock: leaves out the time in which hvdrun was stopped, once") {
  JobClock clock(100);
  clock.turn(101);
  clock.turn(161);
  CHECK(clock.seconds(162) == 102);
  clock.pause(true, 162);
  clock.turn(200);
  clock.pause(false, 200);
  CHECK(clock.seconds(201) == 103);
}
