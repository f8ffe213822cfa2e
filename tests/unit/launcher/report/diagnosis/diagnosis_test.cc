#include "launcher/report/diagnosis/diagnosis.h"

#include <doctest/doctest.h>

#include "diagnosis_words.h"
#include "simulated_job.h"

namespace hvd::launcher {
namespace {

using simulated::SimulatedJob;
using simulated::Work;

struct PlantedCause {
  const char* name;
  SlowCause cause;
  std::vector<int> ranks;
  std::function<void(int rank, int step, Work& work)> plant;
  int job_ranks = 4;
};

const std::vector<PlantedCause>& planted() {
  static const std::vector<PlantedCause> causes{
      {"one rank's batches", SlowCause::input, {3}, [](int r, int, Work& w) { w.input += r == 3 ? 20 : 0; }},
      {"one of two ranks' batches", SlowCause::input, {1}, [](int r, int, Work& w) { w.input += r == 1 ? 8 : 0; }, 2},
      {"a rank's batches, now and then",
       SlowCause::input,
       {2},
       [](int r, int s, Work& w) { w.input += r == 2 && s % 10 == 0 ? 100 : 0; }},
      {"all ranks' batches", SlowCause::input, {}, [](int, int, Work& w) { w.input += 25; }},
      {"another rank's batches each time",
       SlowCause::input,
       {},
       [](int r, int s, Work& w) { w.input += s % 4 == r ? 30 : 0; }},
      {"a rank that computes longer",
       SlowCause::straggler,
       {1},
       [](int r, int, Work& w) { w.computing *= r == 1 ? 1.4 : 1; }},
      {"a slow host",
       SlowCause::straggler,
       {4, 5, 6, 7},
       [](int r, int, Work& w) { w.computing *= r >= 4 ? 1.3 : 1; },
       8},
      {"a rank without cores", SlowCause::straggler, {0}, [](int r, int, Work& w) { w.no_core += r == 0 ? 15 : 0; }},
      {"a rank that sleeps", SlowCause::straggler, {2}, [](int r, int, Work& w) { w.asleep += r == 2 ? 12 : 0; }},
      {"a rank on a slow disk",
       SlowCause::straggler,
       {2},
       [](int r, int, Work& w) { w.asleep += r == 2 ? 12 : 0, w.read_bytes = r == 2 ? 1 << 20 : 0; }},
      {"rank 0 writes checkpoints",
       SlowCause::checkpoint,
       {0},
       [](int r, int s, Work& w) { w.saving = r == 0 && s % 50 == 0 ? 400 : 0; }},
      {"all write checkpoints",
       SlowCause::checkpoint,
       {},
       [](int, int s, Work& w) { w.saving = s % 50 == 0 ? 400 : 0; }},
      {"a rank's garbage collector",
       SlowCause::collector,
       {1},
       [](int r, int, Work& w) { w.collecting = r == 1 ? 9 : 0; }},
      {"all garbage collectors, in turn",
       SlowCause::collector,
       {},
       [](int r, int s, Work& w) { w.collecting = s % 4 == r ? 12 : 0; }},
      {"all garbage collectors", SlowCause::collector, {}, [](int, int, Work& w) { w.collecting = 8; }},
      {"a slow network", SlowCause::communication, {}, [](int, int, Work& w) { w.moved = 30; }},
      {"a lot of small operations",
       SlowCause::communication,
       {},
       [](int, int, Work& w) { w.moved = 12, w.operations = 2000, w.operation_bytes = 4 << 20; }},
      {"a rank that its container throttles",
       SlowCause::straggler,
       {2},
       [](int r, int, Work& w) { w.throttled = r == 2 ? 14 : 0; }},
      {"a rank that swaps",
       SlowCause::straggler,
       {1},
       [](int r, int, Work& w) { w.asleep += r == 1 ? 14 : 0, w.major_faults = r == 1 ? 200 : 0; }},
      {"all in a container with too low a limit", SlowCause::compute, {}, [](int, int, Work& w) { w.throttled = 20; }},
      {"a pause of all", SlowCause::compute, {}, [](int, int, Work& w) { w.asleep += 20; }},
      {"long stops of one rank, now and then",
       SlowCause::straggler,
       {1},
       [](int r, int s, Work& w) { w.computing += r == 1 && s % 30 == 17 ? 400 : 0; }},
      {"two ranks on one core",
       SlowCause::compute,
       {2, 3},
       [](int r, int, Work& w) { w.core = r == 3 ? 2 : r, w.no_core += r == 3 ? 30 : 0; }},
      {"loaders that are too slow on all ranks, one a little slower",
       SlowCause::input,
       {},
       [](int r, int, Work& w) { w.made = 98, w.input = r == 2 ? 50 : 1; }},
      {"a loader with too few workers",
       SlowCause::input,
       {2},
       [](int r, int, Work& w) { w.made = r == 2 ? 98 : 25, w.input = r == 2 ? 50 : 1; }},
      {"too few cores for all", SlowCause::compute, {}, [](int, int, Work& w) { w.no_core = 30; }},
      {"a rank's memory",
       SlowCause::memory_creep,
       {2},
       [](int r, int s, Work& w) { w.resident_bytes += r == 2 ? std::int64_t{s} << 20 : 0; }},
      {"all ranks' memory",
       SlowCause::memory_creep,
       {},
       [](int, int s, Work& w) { w.resident_bytes += std::int64_t{s} << 20; }},
  };
  return causes;
}

TEST_CASE("diagnosis: planted causes are named, with their ranks") {
  for (const PlantedCause& p : planted())
    for (unsigned seed = 0; seed < 20; ++seed) {
      SimulatedJob job{.ranks = p.job_ranks};
      job.plant = p.plant;
      const Diagnosis d = diagnose(simulated::run(job, seed), places(p.job_ranks, p.job_ranks / 2));
      INFO(std::string(p.name), ", seed ", seed, "\n", words_of(d));
      REQUIRE(d.findings.size() == 1);
      CHECK(d.findings[0].cause == p.cause);
      CHECK(d.findings[0].ranks == p.ranks);
    }
}

TEST_CASE("diagnosis: no rank is blamed if no cause was planted") {
  for (const int ranks : {1, 2, 3, 4, 16, 64})
    for (const double noise : {0.0, 0.02, 0.05})
      for (unsigned seed = 0; seed < 20; ++seed) {
        const SimulatedJob job{.ranks = ranks, .steps = 100, .noise = noise, .hiccup_share = 0.1 / std::max(ranks, 10)};
        const Diagnosis d = diagnose(simulated::run(job, seed), places(ranks, 8));
        INFO(ranks, " ranks, noise ", noise, ", seed ", seed, "\n", words_of(d));
        REQUIRE(d.findings.size() == 1);
        CHECK(d.findings[0].cause == SlowCause::balanced);
      }
}

TEST_CASE("diagnosis: no rank is blamed for another program that runs for a part of the job") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SimulatedJob job{.ranks = 2, .steps = 200, .noise = 0.2};
    job.plant = [](int r, int s, Work& w) { w.no_core = r == 0 && s > 60 && s < 100 ? 40 : 4; };
    const Diagnosis d = diagnose(simulated::run(job, seed), places(2, 2));
    INFO("seed ", seed, "\n", words_of(d));
    for (const Finding& f : d.findings) CHECK(f.ranks.empty());
  }
}

TEST_CASE("diagnosis: a slow rank is told although all lack cores, and late steps come by turns") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SimulatedJob job{.ranks = 2, .steps = 200, .noise = 0.25, .hiccup_share = 0.1};
    job.plant = [](int r, int s, Work& w) { w.no_core = 20 + 20 * ((s + r) % 3), w.computing *= r == 1 ? 1.5 : 1; };
    const Diagnosis d = diagnose(simulated::run(job, seed), places(2, 2));
    INFO("seed ", seed, "\n", words_of(d));
    CHECK(d.findings[0].cause == SlowCause::straggler);
    CHECK(d.findings[0].ranks == std::vector<int>{1});
  }
}

TEST_CASE("diagnosis: a rank with more to do, where all lack cores, waits longer for them: it is its work") {
  const auto first_of = [](const Work& usual, const Work& last) {
    SimulatedJob job{.ranks = 2, .steps = 200, .noise = 0.2};
    job.plant = [=](int r, int, Work& w) {
      const double noise = w.computing / 50;
      w = r == 1 ? last : usual;
      w.no_core *= noise, w.computing *= noise;
    };
    const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
    INFO(words_of(d));
    return d.findings[0];
  };
  const Work usual{.input = 0.2, .no_core = 7.4, .computing = 2.9, .moved = 2.9};
  // Values recorded on a busy machine.  Each step of 25 ms writes a log to the disk.
  const Finding more = first_of(usual, {.input = 0.2, .no_core = 14.3, .asleep = 1.9, .computing = 6.3, .moved = 1.5});
  CHECK(more.cause == SlowCause::straggler);
  CHECK(more.ranks == std::vector<int>{1});
  const Finding same = first_of(usual, {.input = 0.2, .no_core = 14.3, .computing = 2.9, .moved = 1.5});
  CHECK(same.cause == SlowCause::compute);
  CHECK(same.ranks.empty());
}

TEST_CASE("diagnosis: cores that differ, and are short, name no rank") {
  SimulatedJob job{.ranks = 2, .noise = 0.01, .hiccup_share = 0};
  job.plant = [=](int r, int, Work& w) {
    w = {.input = 0, .no_core = r == 1 ? 14.0 : 12.0, .computing = r == 1 ? 5.3 : 4.6, .moved = 0.1, .operations = 2};
  };
  const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
  INFO(words_of(d));
  for (const Finding& f : d.findings) CHECK(f.ranks.empty());
}

TEST_CASE("diagnosis: what each of many operations costs is latency, whichever rank's account it is on") {
  SimulatedJob job{.ranks = 2};
  job.plant = [](int r, int, Work& w) {
    w.computing = 20 + (r == 1 ? 6 : 0), w.moved = 12, w.operations = 1000, w.operation_bytes = 32000;
  };
  const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
  INFO(words_of(d));
  CHECK(d.findings[0].cause == SlowCause::communication);
  CHECK(d.findings[0].ranks.empty());
}

TEST_CASE("diagnosis: three small operations in shared memory that take milliseconds are a lack of cores") {
  SimulatedJob job{.ranks = 2};
  job.plant = [](int, int, Work& w) {
    w.computing = 1.6, w.moved = 4.6, w.operations = 3, w.operation_bytes = 60;  // two cores at load 20
  };
  const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
  INFO(words_of(d));
  REQUIRE(!d.findings.empty());
  CHECK(d.findings[0].cause == SlowCause::compute);
  CHECK(d.findings[0].what.find("waits for other ranks that get no core") != std::string::npos);
}

TEST_CASE("diagnosis: what 1000 calls cost the ranks' own time is latency too, though little is waited") {
  SimulatedJob job{.ranks = 2, .hiccup_share = 0};  // a recorded value, of 18 ms
  job.plant = [](int r, int, Work& w) {
    w = {.input = 0.3, .no_core = 2, .computing = r == 1 ? 12.7 : 9.6, .moved = 1.7};
    w.operations = 1007, w.operation_bytes = 1007 * 2300;
  };
  const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
  INFO(words_of(d));
  CHECK(d.findings[0].cause == SlowCause::communication);
  CHECK(d.findings[0].ranks.empty());
  CHECK(d.findings[0].what.find("latency, 1007 operations of 2.25 KiB each") != std::string::npos);
}

TEST_CASE("diagnosis: of ranks that are all throttled the last one is not alone to blame") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SimulatedJob job{.ranks = 2};
    job.plant = [](int r, int, Work& w) {
      w = {.input = 0, .no_core = r == 0 ? 45.0 : 22.0, .computing = 4, .moved = 5, .throttled = 0};
    };
    job.throttled_within_no_core = true;
    const Diagnosis d = diagnose(simulated::run(job, seed), places(2, 2));
    INFO("seed ", seed, "\n", words_of(d));
    CHECK(d.findings[0].cause == SlowCause::compute);
    CHECK(d.findings[0].what.find("throttled") != std::string::npos);
    CHECK(d.findings.size() == 1);
  }
}

TEST_CASE("diagnosis: one rank that is throttled much more than the others is to blame") {
  SimulatedJob job{.ranks = 2};
  job.plant = [](int r, int, Work& w) { w = {.input = 0, .no_core = r == 0 ? 60.0 : 9.0, .computing = 4, .moved = 1}; };
  job.throttled_within_no_core = true;
  const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
  INFO(words_of(d));
  CHECK(d.findings[0].cause == SlowCause::straggler);
  CHECK(d.findings[0].ranks == std::vector<int>{0});
}

TEST_CASE("diagnosis: a rank whose memory grows, and that computes longer for it, is told first of its memory") {
  SimulatedJob job{.ranks = 2};
  job.plant = [](int r, int s, Work& w) {
    w.computing += r == 1 ? 15 : 0, w.resident_bytes += r == 1 ? std::int64_t{s} << 20 : 0;
  };
  const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
  INFO(words_of(d));
  REQUIRE(d.findings.size() == 2);
  CHECK(d.findings[0].cause == SlowCause::memory_creep);
  CHECK(d.findings[1].cause == SlowCause::straggler);
}

TEST_CASE("diagnosis: what is one rank's alone comes not by turns") {
  SimulatedJob job{.ranks = 2, .steps = 100};
  job.plant = [](int r, int s, Work& w) { w.computing += r == 0 && (s == 30 || s == 31) ? 2000 : 0; };
  const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
  INFO(words_of(d));
  CHECK(d.findings[0].what.find("another rank each time") == std::string::npos);
}

TEST_CASE("diagnosis: advice speaks of the loader that is there") {
  const auto advice = [](wire::Loader loader) {
    SimulatedJob job{.ranks = 2};
    job.plant = [=](int r, int, Work& w) { w.input = r == 1 ? 40 : 1, w.loader = loader; };
    return diagnose(simulated::run(job, 1), places(2, 2)).findings[0].advice;
  };
  CHECK(advice(wire::Loader::torch).starts_with("more DataLoader workers on node0"));
  CHECK(advice(wire::Loader::tensorflow).find("tf.data.AUTOTUNE") != std::string::npos);
  CHECK(advice(wire::Loader::other).find("DataLoader") == std::string::npos);
}

TEST_CASE("diagnosis: more workers are no advice where the workers lack cores") {
  const auto advice = [](double no_core) {
    SimulatedJob job{.ranks = 2};
    job.plant = [=](int, int, Work& w) {
      w = {.input = 4, .no_core = no_core, .computing = 12}, w.loader = wire::Loader::torch;
    };
    const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
    INFO(words_of(d));
    REQUIRE(d.findings[0].cause == SlowCause::input);
    return d.findings[0].advice;
  };
  CHECK(advice(13).starts_with("more cores, or fewer loading workers"));
  CHECK(advice(1).starts_with("more DataLoader workers"));
}

TEST_CASE("diagnosis: a difference that is usual among cores of one machine names no rank") {
  const auto first_cause = [](double computing, double longer) {
    SimulatedJob job{.ranks = 2, .noise = 0.01, .hiccup_share = 0};
    job.plant = [=](int r, int, Work& w) {
      w = {.input = 0, .computing = computing + (r == 1 ? longer : 0), .moved = 0.1, .operations = 2};
    };
    const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
    INFO(words_of(d));
    return d.findings[0].cause;
  };
  CHECK(first_cause(4.5, 0.8) == SlowCause::balanced);
  CHECK(first_cause(4.5, 1.2) == SlowCause::straggler);
  CHECK(first_cause(2, 0.8) == SlowCause::straggler);  // much of so short a step
}

TEST_CASE("diagnosis: in words") {
  SimulatedJob job{.ranks = 16, .steps = 1842, .noise = 0.0, .hiccup_share = 0};
  job.plant = [](int r, int s, Work& w) { w.computing = 150, w.input = r == 5 && s % 14 != 0 ? 58 : 0; };
  const std::string words = words_of(diagnose(simulated::run(job, 1), places(16, 4)));
  CHECK(words ==
        "hvdrun: 1842 steps, 208 ms each; 26 % of it (54.5 ms) was waiting\n"
        "  INPUT  rank 5 (node1): its batches came 58 ms late in 93 % of the steps; 15 ranks waited for it: 1 min 39 s "
        "of "
        "6 min 23 s in all\n"
        "  Without it: 154 ms a step (−26 %). Try: more DataLoader workers on node1 (0.7 of its 8 cores used).");
  CHECK(diagnosis_lines({}).empty());
}

TEST_CASE("diagnosis: what the kernel says of a rank is in its words") {
  SimulatedJob job{.ranks = 4};
  job.plant = [](int r, int, Work& w) { w.throttled = r == 2 ? 14 : 0; };
  const std::string words = words_of(diagnose(simulated::run(job, 1), places(4, 4)));
  CHECK(
      words.find("rank 2 (node0): was throttled for 14 ms of each step by the processor limit of its container, in ") !=
      std::string::npos);
  CHECK(words.find("Try: a higher limit (docker --cpus, cpu.max, Kubernetes' limits.cpu) on node0") !=
        std::string::npos);
  job.plant = [](int r, int, Work& w) { w.asleep += r == 1 ? 14 : 0, w.major_faults = r == 1 ? 200 : 0; };
  CHECK(
      words_of(diagnose(simulated::run(job, 1), places(4, 4))).find("read 200 pages of its memory back from storage") !=
      std::string::npos);
}

TEST_CASE("step statistics: sums of parts of a job are those of the whole, stretches too") {
  const auto part = [](unsigned seed, int steps) { return simulated::run({.ranks = 2, .steps = steps}, seed); };
  StepStatistics sum = part(1, 5);
  sum += part(2, 200), sum += part(3, 37);
  CHECK(sum.stretches() <= most_stretches);
  CHECK(sum.stretches() > most_stretches / 4);
  for (const auto& [rank, sums] : sum.ranks()) {
    std::int64_t steps = 0;
    double own = 0;
    for (const StretchSum& s : sums.stretches) steps += s.steps, own += static_cast<double>(s.own_seconds);
    CHECK(steps == 242);
    CHECK(own == doctest::Approx(sums.seconds - sums.waited - sums.moved));
  }
}

TEST_CASE("durations in words") {
  CHECK(duration_text(0.0000123) == "12.3 µs");
  CHECK(duration_text(0.0583) == "58.3 ms");
  CHECK(duration_text(2.5) == "2.5 s");
  CHECK(duration_text(252) == "4 min 12 s");
  CHECK(duration_text(7500) == "2 h 5 min");
}

}  // namespace
}  // namespace hvd::launcher
