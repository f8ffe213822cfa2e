#include "launcher/supervise/end/job_end.h"

#include <doctest/doctest.h>

#include <csignal>

using namespace hvd::launcher;
using namespace std::chrono_literals;

namespace {

const JobEnd::Time start{};

}  // namespace

TEST_CASE("job end: ranks get their grace period, then mpirun SIGTERM and SIGKILL") {
  JobEnd end;
  end.all_have_come();
  CHECK(end.goes_on());
  CHECK(end.due_signal(start + 100h) == 0);
  end.stop(start, true, 5);
  CHECK_FALSE(end.goes_on());
  CHECK(end.due_signal(start + 5900ms) == 0);
  CHECK_FALSE(end.starter_was_signalled());
  CHECK(end.due_signal(start + 6s) == SIGTERM);
  CHECK(end.starter_was_signalled());
  CHECK(end.due_signal(start + 6900ms) == 0);
  CHECK(end.due_signal(start + 7s) == SIGKILL);
  CHECK(end.due_signal(start + 8s) == 0);
}

TEST_CASE("job end: ranks without a guard are left to mpirun at once; a second signal cuts the grace short") {
  JobEnd absent;
  absent.stop(start, false, 5);
  CHECK(absent.due_signal(start) == SIGTERM);
  JobEnd again;
  again.stop(start, true, 60);
  again.stop_at_once(start + 1s);
  CHECK(again.due_signal(start + 1299ms) == 0);
  CHECK(again.due_signal(start + 1300ms) == SIGTERM);
}

TEST_CASE("job end: mpirun has less time where it may hang") {
  const auto limit = [](bool cut_off, bool failed) {
    JobEnd end;
    end.drain(start, cut_off, failed);
    auto after = 0ms;
    while (!end.is_late(start + after)) after += 100ms;
    return after;
  };
  CHECK(limit(false, false) == 3000ms);
  CHECK(limit(false, true) == 1000ms);
  CHECK(limit(true, true) == 500ms);
  JobEnd busy;
  busy.drain(start, false, false, 5);
  CHECK_FALSE(busy.is_late(start + 14900ms));
  CHECK(busy.is_late(start + 15s));
  busy.starter_has_ended(start);
  CHECK_FALSE(busy.is_over(start + 9900ms, 1));
  CHECK(busy.is_over(start + 10001ms, 1));
}

TEST_CASE("job end: over when mpirun has ended and all hosts have told, or could have") {
  JobEnd end;
  end.all_have_come();
  end.starter_has_ended(start);
  CHECK_FALSE(end.is_over(start, 0));  // ranks may still report why
  CHECK_FALSE(end.guards_are_late(start + 1500ms));
  CHECK(end.guards_are_late(start + 1501ms));
  end.drain(start + 2s, false, true);
  CHECK_FALSE(end.guards_are_late(start + 9s));
  CHECK(end.is_over(start + 100ms, 0));
  CHECK_FALSE(end.is_over(start + 100ms, 1));
  CHECK(end.is_over(start + 2001ms, 1));
}
