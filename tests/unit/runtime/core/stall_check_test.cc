/// The limits on waits for other ranks, over a clock of the test.
#include "core/status/stall_check.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "memory/node.h"

using namespace hvd;

namespace {

constexpr std::int64_t one_second_ns = 1'000'000'000, tenth_ns = one_second_ns / 10;

/// The check of the coordinator in a world of two ranks.  Rank 0 has submitted "x", rank 1 has not.
class WaitForRank1 {
 public:
  explicit WaitForRank1(const core::Config& config)
      : check_({world_, gather_, nullptr, &coordinator_, status_, 64}, config) {
    Signature four_floats;
    four_floats.ndim = 1;
    four_floats.dims[0] = 4;
    coordinator_.record(negotiate::RankSet::of({0}), 0, four_floats, "x");
  }
  /// Checks ten times a second for @p seconds.
  void run(int seconds) {
    for (int i = 0; i < 10 * seconds && !failed_; ++i) check_.check(now_ += tenth_ns);
  }
  /// The process does not run for @p seconds.
  void stop(int seconds) { now_ += seconds * one_second_ns; }
  /// The seconds of the longest wait that are reported to hvdrun; 0: no wait is reported.
  double told() const {
    std::vector<core::StallReport> waits;
    check_.long_waits(now_, waits);
    return waits.empty() ? 0 : static_cast<double>(waits[0].waited_ns) / 1e9;
  }
  bool failed() const { return failed_; }

 private:
  std::int64_t now_ = 100 * one_second_ns;
  bool failed_ = false;
  World world_ = World::of(0, {0, 0}, 0);
  memory::Node node_{{.ranks = 2, .words = 1}, 0};
  negotiate::Gather gather_{node_};
  negotiate::Coordinator coordinator_{{.ranks = 2, .ids = 64}, [this](negotiate::Command type, std::string_view) {
                                        failed_ |= type == negotiate::Command::fail || type == negotiate::Command::gone;
                                      }};
  core::RankStatus status_;
  core::StallCheck check_;
};

core::Config limits() {
  core::Config config;
  config.set("HOROVOD_STALL_CHECK_TIME_SECONDS", 5);
  config.set("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 10);
  return config;
}

}  // namespace

TEST_CASE("stall check: a wait that reaches the user's limit ends the world") {
  WaitForRank1 wait(limits());
  wait.run(9);
  CHECK(!wait.failed());
  CHECK(wait.told() > 8);
  wait.run(2);
  CHECK(wait.failed());
}

TEST_CASE("stall check: the time in which the process is stopped is no wait") {
  WaitForRank1 wait(limits());
  wait.run(3);
  for (int i = 0; i < 3; ++i) {
    wait.stop(3600);
    wait.run(2);
  }
  CHECK(!wait.failed());
  CHECK(wait.told() > 8);
  CHECK(wait.told() < 10);
  wait.run(2);
  CHECK(wait.failed());
}
