#include "core/status/rank_status.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

using hvd::core::RankStatus;
using hvd::core::RoundCounter;

namespace {

int count(RoundCounter& rounds, const std::vector<std::vector<std::uint32_t>>& batches) {
  int all = 0;
  for (const auto& batch : batches) {
    for (const std::uint32_t id : batch) rounds.take(id);
    all += rounds.end();
  }
  return all;
}

int count(RoundCounter& rounds, const std::vector<std::vector<std::uint32_t>>& step, int times) {
  int all = 0;
  for (int i = 0; i < times; ++i) all += count(rounds, step);
  return all;
}

/// The seals of the guard's memory; -1 to leave some out.
int page(int seals, off_t bytes = hvd::wire::status_page_bytes, bool mark = true) {
  const int fd = memfd_create("tally", MFD_ALLOW_SEALING);
  REQUIRE(ftruncate(fd, bytes) == 0);
  if (mark)
    REQUIRE(write(fd, &hvd::wire::status_page_mark, sizeof hvd::wire::status_page_mark) ==
            sizeof hvd::wire::status_page_mark);
  if (seals) REQUIRE(fcntl(fd, F_ADD_SEALS, seals) == 0);
  return fd;
}

std::int64_t steps_in(int fd) {
  hvd::wire::StatusPage seen;
  std::int64_t steps = 0;
  const auto at = reinterpret_cast<const char*>(&seen.steps) - reinterpret_cast<const char*>(&seen);
  REQUIRE(pread(fd, &steps, sizeof steps, at) == sizeof steps);
  return steps;
}

constexpr int both = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

TEST_CASE("rounds: the same tensors, however they are packed") {
  RoundCounter one;
  CHECK(count(one, {{5}}, 1000) == 1000);
  RoundCounter fused;
  CHECK(count(fused, {{1, 2, 3, 4}}, 1000) == 1000);
  RoundCounter many;
  CHECK(count(many, {{1}, {2, 3}, {}, {4}}, 1000) == 1000);
}

TEST_CASE("rounds: tensors that come once at the beginning do not matter") {
  for (const int parameters : {1, 2, 7, 160, 5000}) {
    RoundCounter rounds;
    std::vector<std::vector<std::uint32_t>> broadcast;
    for (int i = 0; i < parameters; ++i) broadcast.push_back({static_cast<std::uint32_t>(10 + i)});
    CHECK(count(rounds, broadcast) == 0);
    const int steps = count(rounds, {{1}, {2}, {3}}, 20000);
    CHECK(steps > 20000 - 2 * parameters / 3 - 20);
    CHECK(steps <= 20000);
  }
}

TEST_CASE("rounds: an operation that begins to come several times in a step does not make it several") {
  RoundCounter rounds;
  CHECK(count(rounds, {{1}, {2}}, 10) == 10);
  CHECK(count(rounds, {{1}, {9}, {2}, {9}, {9}, {3}, {9}}, 1000) == 1000);
}

TEST_CASE("rounds: another phase is found, and the way back") {
  RoundCounter rounds;
  int all = count(rounds, {{1}, {2}}, 500);
  all += count(rounds, {{7}}, 500);  // an evaluation
  all += count(rounds, {{1}, {2}}, 500);
  CHECK(all > 1480);
  CHECK(all <= 1500);
}

TEST_CASE("step durations: the median of the last ones, which one long step does not move") {
  hvd::core::StepDurations times;
  CHECK(times.median_ns() == 0);
  std::int64_t now = 1;
  times.add(now, 1);
  CHECK(times.median_ns() == 0);
  for (const std::int64_t step : {20, 20, 600, 20, 30}) times.add(now += step, 1);  // one with an evaluation in it
  CHECK(times.median_ns() == 20);
  for (int i = 0; i < 9; ++i) times.add(now += 10, 2);  // two steps at once
  CHECK(times.median_ns() == 5);
}

TEST_CASE("rank status: only a guard's page is written to") {
  const int good = page(both);
  {
    RankStatus status(good);
    status.steps(1, 1);
    status.steps(1, 2);
    CHECK(steps_in(good) == 2);
    status.steps(1, 1);  // of a set that is late
    CHECK(steps_in(good) == 2);
  }
  {
    RankStatus again(good);  // another init
    again.steps(1, 1);
    CHECK(steps_in(good) == 3);
  }
  for (const int bad :
       {page(0), page(F_SEAL_GROW), page(both, 8192), page(both, hvd::wire::status_page_bytes, false), -1}) {
    RankStatus status(bad);
    status.steps(1, 1);
    if (bad >= 0) CHECK(steps_in(bad) == 0);
    close(bad);
  }
  close(good);
}
