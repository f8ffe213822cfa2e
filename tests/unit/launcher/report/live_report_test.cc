#include "launcher/report/live_report.h"

#include <doctest/doctest.h>

#include "../../temp_folder.h"
#include "launcher/report/last_reports.h"
#include "launcher/report/metrics/metrics_file.h"
#include "launcher/report/top_text.h"

namespace hvd::launcher {
namespace {

wire::StepRecord waited(std::int64_t number, std::int64_t waited_ms) {
  return {.number = number,
          .step_ns = 100'000'000,
          .input_ns = (50 - waited_ms) * 1'000'000,
          .waited_ns = waited_ms * 1'000'000,
          .cpu_ns = 50'000'000};
}

TEST_CASE("live report: the whole job, and its last half minute") {
  LiveReport report;
  report.expect(2);
  report.place(0, "a"), report.place(1, "b"), report.give_cores(1, 4);
  double now = 1000;
  for (int n = 1; n <= 600; ++n, now += 0.1) {
    report.add(0, {waited(n, n > 240 ? 0 : 50)}, now);  // rank 1 is late at first, then rank 0
    report.add(1, {waited(n, n > 240 ? 50 : 0)}, now);
  }
  CHECK(report.whole().steps() == 599);
  const Diagnosis recent = report.recent_diagnosis(now);
  REQUIRE(recent.findings.size() == 1);
  CHECK(recent.findings[0].cause == SlowCause::input);
  CHECK(recent.findings[0].ranks == std::vector<int>{0});
  CHECK(recent.findings[0].host == "a");
  CHECK(recent.steps <= 350);
  CHECK(report.recent(now + 60).steps() == 0);
  const std::string top = top_text(report, now);
  CHECK(top.starts_with("599 steps until now; the last half minute:\n"));
  CHECK(top.find("\n  INPUT  rank 0 (a): ") != std::string::npos);
  CHECK(top.find("\n    0  a ") < top.find("\n    1  b "));
  CHECK(top_text(report, now, 1).find("and 1 more") != std::string::npos);
  const std::string metrics = metrics_text(job_metrics(report, 2, 1, now), "a\"b");
  CHECK(metrics.find("\nhvdrun_steps_total{job=\"a\\\"b\"} 599\n") != std::string::npos);
  CHECK(metrics.find("\nhvdrun_cause_seconds{job=\"a\\\"b\",cause=\"INPUT\",rank=\"0\",host=\"a\"} ") !=
        std::string::npos);
  CHECK(metrics.find("rank=\"1\",host=\"b\",part=\"waited\"} ") != std::string::npos);
  CHECK(metrics_text(job_metrics(report, 2, 1, now + 60), "x").find("hvdrun_step_seconds") == std::string::npos);
  CHECK(top_text(report, now + 60).starts_with("no step has ended"));
}

TEST_CASE("live report: rounds count only until the program reports its first step") {
  LiveReport report;
  report.expect(2);
  const auto told = [](std::int64_t world, std::int64_t number) {
    wire::StepRecord r = waited(number, 0);
    r.epoch = wire::record_epoch(world, true);
    return r;
  };
  for (int n = 1; n <= 20; ++n)
    for (const int rank : {0, 1}) report.add(rank, {waited(n, rank == 0 ? 0 : 50)}, 1);
  CHECK(report.whole().steps() == 19);
  report.add(0, {waited(21, 0)}, 1);  // rank 0 has seen one more round
  for (int n = 1; n <= 40; ++n)
    for (const int rank : {0, 1}) report.add(rank, {told(0, n)}, 2);
  CHECK(report.whole().steps() == 39);
  CHECK(report.recent(2).steps() == 39);
  for (const int rank : {0, 1}) {  // the rounds of the next world do not count either
    wire::StepRecord round = waited(1, 0);
    round.epoch = wire::record_epoch(1, false);
    report.add(rank, {round, told(1, 1)}, 3);
  }
  CHECK(report.whole().steps() == 40);
}

TEST_CASE("live report: what is left counts at the end; too few steps say nothing") {
  LiveReport report;
  report.expect(2);
  report.add(0, {waited(1, 0), waited(2, 0), waited(3, 0)}, 1);
  CHECK(report.whole().steps() == 0);
  report.finish();
  CHECK(report.whole().steps() == 2);
  CHECK(report.diagnosis().findings.empty());
}

TEST_CASE("last reports: the same job is found again, another one is not; a tenth slower is worth a word") {
  const test::TempFolder folder;
  const LastReports last(folder.path + "/a/b");
  CHECK_FALSE(last.find("job"));
  last.keep("job", {1e9, 500, 0.1});
  REQUIRE(last.find("job"));
  CHECK(last.find("job")->step_seconds == 0.1);
  CHECK_FALSE(last.find("another"));
  Diagnosis now;
  now.steps = 400, now.step_seconds = 0.123;
  CHECK(compared_line(now, *last.find("job"))
            .starts_with("hvdrun: 23 % slower than the last time (100 ms a step, 2001-09-0"));
  now.step_seconds = 0.105;
  CHECK(compared_line(now, *last.find("job")).empty());
  now.step_seconds = 0.05, now.steps = 3;
  CHECK(compared_line(now, *last.find("job")).empty());
  LastReports("").keep("job", {});
  LastReports("/proc/nowhere").keep("job", {});
}

}  // namespace
}  // namespace hvd::launcher
