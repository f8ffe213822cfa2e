#include "rank/diagnostics/idle_watch.h"

#include <doctest/doctest.h>
#include <unistd.h>

using namespace hvd::rank;
using std::chrono::seconds;

namespace {

/// A rank that is measured once a period.
struct MeasuredRank {
  IdleWatch watch;
  IdleWatch::Clock::time_point now{seconds(1000)};
  RankUse use;

  /// Seconds of idle time after one more period.
  double after(double cores, std::uint64_t bytes = 0) {
    now += IdleWatch::period;
    CHECK(watch.is_due(now));
    use.cpu_ns += static_cast<std::int64_t>(cores * 1e9 * static_cast<double>(IdleWatch::period.count()));
    use.read_written += bytes;
    watch.take(use, now);
    CHECK_FALSE(watch.is_due(now + seconds(9)));
    return watch.seconds();
  }
};

}  // namespace

TEST_CASE("idle: a rank that sleeps, or polls a few times a second") {
  MeasuredRank rank;
  CHECK(rank.watch.seconds() == 0);
  CHECK(rank.after(1) == 0);  // the first measurement
  CHECK(rank.after(0) == 10);
  CHECK(rank.after(0.03, 400'000) == 20);
  CHECK(rank.after(0.5) == 0);
  CHECK(rank.after(0) == 10);
}

TEST_CASE("idle: each kind of work ends the idle time") {
  MeasuredRank rank;
  rank.after(0);
  CHECK(rank.after(0) == 10);
  CHECK(rank.after(0, 5'000'000) == 0);  // a download, or a checkpoint on a slow disk
  CHECK(rank.after(0) == 10);
  ++rank.use.printed;
  CHECK(rank.after(0) == 0);
  CHECK(rank.after(0) == 10);
  rank.use.gpu_computes = true;
  CHECK(rank.after(0) == 0);
  rank.use.gpu_computes = false;
  CHECK(rank.after(0) == 10);
  rank.use.cpu_ns -= 5;  // a process below the rank has ended
  CHECK(rank.after(0) == 0);
}

TEST_CASE("idle: this process has used the processor") {
  CHECK(use_below(getpid()).cpu_ns >= 0);
  CHECK(use_below(getpid()).read_written > 0);
  CHECK(use_below(1 << 30).cpu_ns == 0);
}
