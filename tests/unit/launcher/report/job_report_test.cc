#include "launcher/report/job_report.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "launcher/report/report_page.h"

using namespace hvd;
using namespace hvd::launcher;
using wire::Cause;

namespace {

wire::DeathRecord death(int rank, Cause cause, std::int64_t time_ns) {
  wire::DeathRecord d;
  d.rank = rank;
  d.host = "h" + std::to_string(rank);
  d.time_ns = time_ns;
  d.cause = cause;
  return d;
}

wire::DeathRecord stepping(int rank, double waited_seconds) {
  wire::DeathRecord d = death(rank, Cause::finished, 1);
  d.steps = 2000;
  d.step_seconds = 0.05;
  d.waited_seconds = waited_seconds;
  return d;
}

}  // namespace

TEST_CASE("report: time, processors, memory, who came last") {
  wire::DeathRecord a = death(0, Cause::finished, 1'000'000'000), b = death(1, Cause::finished, 4'500'000'000);
  a.cpu_seconds = 5, b.cpu_seconds = 3;
  a.peak_bytes = 3ll << 30, b.peak_bytes = 512ll << 20;
  CHECK(join(report_lines({"", {a, b}, 5}), "\n") ==
        "hvdrun: 2 ranks, 5.0 s; 1.6 cores in use on average\n"
        "        memory peak 3.0 GiB (rank 0 on h0), least 512 MiB (rank 1)\n"
        "        rank 1 on h1 was the last to end, 3.5 s after rank 0");
  CHECK(report_lines({"", {}, 3725})[0] == "hvdrun: 0 ranks, 1:02:05");
}

TEST_CASE("report: steps, and the rank that the others waited for") {
  const std::vector<wire::DeathRecord> deaths{stepping(0, 0.012), stepping(1, 0.002), stepping(2, 0.016)};
  const std::vector<std::string> lines = report_lines({"", deaths, 100});
  CHECK(lines.at(1) == "        2000 steps, 50 ms each");
  CHECK(lines.at(2) ==
        "        rank 1 on h1 was the slowest: 48 ms of work in each step, for which the others waited 12 ms");
  const auto json = nlohmann::json::parse(report_json({"", deaths, 100}, 0, -1));
  CHECK(json["slowest_rank"] == 1);
  CHECK(json["steps"] == 2000);
  CHECK(json["ranks"][2]["waited_seconds"] == doctest::Approx(0.016));
  CHECK(json["ranks"][2]["gpu_busy_percent"].is_null());
}

TEST_CASE("report: what the ranks told of their steps stands for what their totals say") {
  JoinedStep step{0, 1, 1, {}};
  for (const int rank : {0, 1}) {
    wire::StepRecord r{.number = 1, .step_ns = 100'000'000, .cpu_ns = 80'000'000};
    (rank ? r.input_ns : r.waited_ns) = 40'000'000;
    step.parts.push_back({rank, r});
  }
  JobUse job{"train.py", {stepping(0, 0.012), stepping(1, 0.002)}, 100};
  for (step.number = 1; step.number <= 50; ++step.number) job.steps.add(step);
  job.diagnosis = diagnose(job.steps, {{1, {"h1", 4}}});
  const std::string words = join(report_lines(job), "\n");
  CHECK(words.find("the slowest") == std::string::npos);
  CHECK(words.find("\nhvdrun: 50 steps, 100 ms each; 20 % of it (20 ms) was waiting\n  INPUT  rank 1 (h1): ") !=
        std::string::npos);
  const auto json = nlohmann::json::parse(report_json(job, 0, -1));
  CHECK(json["steps"] == 50);
  CHECK(json["findings"][0]["cause"] == "INPUT");
  CHECK(json["findings"][0]["ranks"] == std::vector<int>{1});
  CHECK(json["ranks"][1]["step_parts"]["input_seconds"] == doctest::Approx(0.04));
  CHECK(json["course"].size() == 50);
  CHECK(nlohmann::json::parse(diagnosis_json(job.diagnosis, job.steps))["findings"].size() == 1);
}

TEST_CASE("report: nothing in its page can end its script") {
  const std::string page = report_page(R"({"payload": "</script><script>"})");
  CHECK(page.find("</script><script>\"") == std::string::npos);
  CHECK(page.find(R"({"payload": "\u003c/script>\u003cscript>"})") != std::string::npos);
}

TEST_CASE("report: no rank is called slow that is alone, or hardly slower, or without records") {
  CHECK_FALSE(slowest_rank({stepping(0, 0.01)}));
  CHECK_FALSE(slowest_rank({stepping(0, 0.010), stepping(1, 0.012)}));
  CHECK_FALSE(slowest_rank({death(0, Cause::finished, 1), death(1, Cause::finished, 1)}));
  CHECK(slowest_rank({death(0, Cause::finished, 1), stepping(1, 0.001), stepping(2, 0.02)})->rank->rank == 1);
}

TEST_CASE("report: GPUs where a driver told, and how the ranks ended where not all did well") {
  wire::DeathRecord a = death(0, Cause::exited, 1), b = death(1, Cause::stopped, 2), c = death(2, Cause::stopped, 3);
  a.gpu_busy_percent = 90, b.gpu_busy_percent = 41;
  c.gpu_peak_bytes = 31ll << 30;
  const std::vector<std::string> lines = report_lines({"", {a, b, c}, 5});
  CHECK(lines.at(2) == "        GPUs 66 % busy on average, least 41 % (rank 1 on h1); memory peak 31.0 GiB");
  CHECK(lines.at(3) == "        1 failed, 2 were stopped");
}
