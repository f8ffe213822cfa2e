// Regression tests of the diagnosis: each test has the steps of a job that once got a wrong verdict.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>
#include <utility>

#include "diagnosis_words.h"
#include "launcher/report/diagnosis/diagnosis.h"
#include "simulated_job.h"

namespace hvd::launcher {
namespace {

using simulated::SimulatedJob;
using simulated::Work;

/// Steps of @p ms on each of two ranks, in records of @p a_record steps.  Every @p distance steps rank 0 takes @p stop
/// ms more, and rank 1 waits for it.
StepStatistics stops(double ms, int a_record, int steps, int distance, double stop) {
  StepStatistics statistics;
  for (int number = a_record; number <= steps; number += a_record) {
    const int times = number / distance - (number - a_record) / distance;
    JoinedStep step{0, number, a_record, {}};
    for (int rank = 0; rank < 2; ++rank) {
      wire::StepRecord r;
      r.number = number;
      r.step_ns = simulated::ns(ms * a_record + stop * times);
      r.longest_ns = simulated::ns(ms + (times > 0 ? stop : 0));
      r.moved_ns = simulated::ns(0.1 * a_record);
      r.waited_ns = rank == 1 ? simulated::ns(stop * times) : 0;
      r.cpu_ns = r.step_ns;
      r.operations = 2 * a_record, r.operation_bytes = 1 << 20;
      step.parts.push_back({rank, r});
    }
    statistics.add(step);
  }
  return statistics;
}

TEST_CASE("verdicts: rare, long lateness is named, with its share of the steps, also if each record has a long step") {
  for (const std::pair<int, int>& job : {std::pair{100, 25}, {200, 25}, {400, 25}, {1000, 25}, {400, 4}, {400, 8}})
    for (const int a_record : {1, 2, 4, 8}) {
      const Diagnosis d = diagnose(stops(5, a_record, job.first, job.second, 125), places(2, 2));
      INFO(job.first, " steps, ", job.second, " apart, ", a_record, " a record\n", words_of(d));
      REQUIRE(d.findings.size() == 1);
      CHECK(d.findings[0].cause == SlowCause::straggler);
      CHECK(d.findings[0].ranks == std::vector<int>{0});
      const double told = static_cast<double>(d.steps / job.second) / static_cast<double>(d.steps);
      CHECK(d.findings[0].share_of_steps == doctest::Approx(told));
      CHECK(d.findings[0].seconds_in_all <= 0.125 * static_cast<double>(job.first / job.second) * 1.001);
    }
}

/// Steps of two ranks whose host threads wait for the GPU outside of operations. Rank 1 arrives @p late ms after rank
/// 0, and the exchange takes @p moved ms. The ranks record a batch's wait up to @p shift steps late.
StepStatistics gpu_steps(double late, double moved, int shift) {
  std::mt19937 random(1);
  StepStatistics statistics;
  double owed[2] = {0, 0};
  for (int number = 1; number <= 200; ++number) {
    JoinedStep step{0, number, 1, {}};
    for (int rank = 0; rank < 2; ++rank) {
      wire::StepRecord r;
      r.number = number;
      r.step_ns = simulated::ns(30 + late + moved);
      r.waited_ns = simulated::ns(0.5);
      r.cpu_ns = r.step_ns;
      owed[rank] += moved + (rank == 0 ? late : 0);
      const bool tells = shift == 0 || random() % static_cast<unsigned>(shift + 1) == 0;
      r.device_wait_ns = tells ? simulated::ns(std::exchange(owed[rank], 0)) : 0;
      r.operations = 4, r.operation_bytes = 1 << 24;
      step.parts.push_back({rank, r});
    }
    statistics.add(step);
  }
  return statistics;
}

TEST_CASE("verdicts: the rank whose GPU is late, by the waits of the other GPU") {
  for (const int shift : {0, 1, 2})
    for (const double moved : {0.2, 2.0}) {
      const Diagnosis d = diagnose(gpu_steps(20, moved, shift), places(2, 2));
      INFO(shift, " steps, ", moved, " ms\n", words_of(d));
      REQUIRE(!d.findings.empty());
      CHECK(d.findings[0].cause == SlowCause::straggler);
      CHECK(d.findings[0].ranks == std::vector<int>{1});
      CHECK(d.findings[0].seconds_a_step == doctest::Approx(0.02).epsilon(0.1));
    }
  for (const int shift : {0, 1, 2})
    for (const double moved : {0.2, 2.0, 12.0}) {
      const Diagnosis d = diagnose(gpu_steps(0, moved, shift), places(2, 2));
      INFO(shift, " steps, ", moved, " ms\n", words_of(d));
      for (const Finding& f : d.findings) CHECK(f.ranks.empty());
      if (moved > 10) CHECK(d.findings[0].cause == SlowCause::communication);
    }
}

TEST_CASE("verdicts: a machine's small delays in other steps do not count among the long ones") {
  for (const double small : {0.0, 2.8}) {
    SimulatedJob job{.ranks = 2, .steps = 600, .noise = 0.02, .hiccup_share = 0};
    job.plant = [=](int r, int s, Work& w) {
      w = Work{.input = 0.1, .computing = 7, .moved = 0.2};
      if (r == 0 && s % 8 == 7) w.computing += 107;
      if (s % 2 == 0) w.computing += (s % 8 == r ? 2.5 : 1) * (r == 0 ? small : 0);
    };
    const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
    INFO(words_of(d));
    REQUIRE(d.findings[0].ranks == std::vector<int>{0});
    CHECK(d.findings[0].share_of_steps == doctest::Approx(0.125));
    CHECK(d.findings[0].what.find("computed 107 ms longer") != std::string::npos);
  }
}

TEST_CASE("verdicts: three stops of one rank at unequal distances are chance") {
  SimulatedJob job{.ranks = 2, .steps = 150, .noise = 0.02};
  job.plant = [](int r, int s, Work& w) { w.computing += r == 0 && (s == 20 || s == 31 || s == 120) ? 1500 : 0; };
  const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
  INFO(words_of(d));
  for (const Finding& f : d.findings) CHECK(f.ranks.empty());
  CHECK(words_of(d).find("no rank kept the others waiting throughout the job; ") != std::string::npos);
}

TEST_CASE("verdicts: one late step of many is told as a number") {
  SimulatedJob job{.ranks = 2, .noise = 0.01, .hiccup_share = 0};
  job.plant = [](int r, int s, Work& w) { w.compiling = r == 0 && s == 50 ? 9000 : 0; };
  const std::string words = words_of(diagnose(simulated::run(job, 1), places(2, 2)));
  INFO(words);
  CHECK(words.find("compiled its program again, 9 s each, in 1 of 300 steps; 1 rank waited for it") !=
        std::string::npos);
}

TEST_CASE("verdicts: the waiting of a rank whose record begins a step later counts") {
  StepStatistics statistics;
  for (int number = 1; number <= 200; ++number) {
    JoinedStep step{0, number, 1, {}};
    for (int rank = 0; rank < 2; ++rank) {
      wire::StepRecord r;
      r.number = number;
      const double longer = number % 25 == rank ? 500 : 0;  // rank 1 waits in the step after the one of rank 0
      r.step_ns = simulated::ns(20 + longer), r.waited_ns = rank == 1 ? simulated::ns(longer) : 0;
      r.cpu_ns = r.step_ns;
      step.parts.push_back({rank, r});
    }
    statistics.add(step);
  }
  const Diagnosis d = diagnose(statistics, places(2, 2));
  INFO(words_of(d));
  CHECK(d.step_seconds == doctest::Approx(0.04));
  CHECK(d.findings[0].cause == SlowCause::straggler);
  CHECK(d.findings[0].seconds_in_all <= 8 * 0.5);
}

TEST_CASE("verdicts: loaders without workers are not called too slow on all ranks") {
  SimulatedJob job{.ranks = 2};
  job.plant = [](int r, int, Work& w) { w.input = r == 1 ? 5 : 0.2, w.loader = wire::Loader::tensorflow; };
  const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
  INFO(words_of(d));
  CHECK(d.findings[0].cause == SlowCause::input);
  CHECK(d.findings[0].ranks == std::vector<int>{1});
  CHECK(d.findings[0].what.find("0 µs") == std::string::npos);
}

TEST_CASE("verdicts: a rank that compiles again does not read from storage") {
  SimulatedJob job{.ranks = 2};
  const auto first = [&job] {
    const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
    INFO(words_of(d));
    return d.findings[0];
  };
  job.plant = [](int r, int s, Work& w) { w.compiling = r == 1 && s % 10 == 0 ? 400 : 0; };
  CHECK(first().cause == SlowCause::compilation);
  CHECK(first().ranks == std::vector<int>{1});
  job.plant = [](int, int s, Work& w) { w.compiling = s % 10 == 0 ? 400 : 0; };
  CHECK(first().cause == SlowCause::compilation);
  CHECK(first().ranks.empty());
  // A compiler that no hook has seen: it read two megabytes in all, in a second of sleep each time.
  job.plant = [](int r, int s, Work& w) {
    w.asleep += r == 1 && s % 10 == 0 ? 1000 : 0, w.read_bytes = r == 1 && s % 10 == 0 ? 70'000 : 0;
  };
  CHECK(first().cause == SlowCause::straggler);
  CHECK(first().what.find("storage") == std::string::npos);
}

TEST_CASE("verdicts: a long way between hosts is latency, a slow card is rate") {
  const auto text = [](double round_trip, double moved, std::int64_t bytes) {
    SimulatedJob job{.ranks = 2};
    job.plant = [=](int r, int, Work& w) {
      w.moved = moved, w.operations = 4, w.operation_bytes = bytes, w.link_peer = 1 - r;
      w.link_bytes = bytes, w.link_busy = moved, w.link_round_trip = round_trip;
    };
    const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 1));
    CHECK(d.findings[0].cause == SlowCause::communication);
    return words_of(d);
  };
  const std::string far = text(40, 400, 4 << 20);
  CHECK(far.find("latency, a message between hosts and its answer take 40 ms; 4 operations of 1 MiB each") !=
        std::string::npos);
  CHECK(far.find("fp16") == std::string::npos);
  CHECK(text(0.2, 400, 4 << 20).find("rate") != std::string::npos);
  CHECK(text(40, 9000, 800 << 20).find("rate") != std::string::npos);
}

TEST_CASE("verdicts: a slow link counts as data under way, though one of its ranks waits for the other") {
  StepStatistics statistics;
  for (int number = 1; number <= 100; ++number) {
    JoinedStep step{0, number, 1, {}};
    for (int rank = 0; rank < 2; ++rank) {
      wire::StepRecord r;
      r.number = number;
      r.step_ns = simulated::ns(100), r.cpu_ns = simulated::ns(10);
      r.moved_ns = simulated::ns(rank == 0 ? 5 : 85), r.waited_ns = simulated::ns(rank == 0 ? 83 : 2);
      r.operations = 2, r.operation_bytes = 2 << 20;
      step.parts.push_back({rank, r});
    }
    statistics.add(step);
  }
  const Diagnosis d = diagnose(statistics, places(2, 1));
  INFO(words_of(d));
  CHECK(d.findings[0].cause == SlowCause::communication);
  CHECK(d.communication_seconds == doctest::Approx(0.087));
}

TEST_CASE("verdicts: data that waits for threads without a core is no communication") {
  SimulatedJob job{.steps = 200};
  job.plant = [](int r, int s, Work& w) {
    w = {.no_core = 3, .computing = 10, .moved = 20, .operation_delay = 10 + (7 * s + 3 * r) % 8 * 1.0};
  };
  const Diagnosis all = diagnose(simulated::run(job, 1), places(4, 4));
  INFO(words_of(all));
  CHECK(all.findings[0].cause == SlowCause::compute);
  CHECK(all.findings[0].what.find("every rank waits for a core") == 0);
  job.plant = [](int r, int, Work& w) { w.moved = 24, w.operation_delay = r == 3 ? 20 : 0; };
  const Diagnosis one = diagnose(simulated::run(job, 1), places(4, 2));
  INFO(words_of(one));
  REQUIRE(one.findings.size() == 1);
  CHECK(one.findings[0].cause == SlowCause::straggler);
  CHECK(one.findings[0].ranks == std::vector<int>{3});
  CHECK(one.communication_seconds < 0.005);
}

/// A job whose ranks all lack cores: each millisecond of work waits @p wait ms for a core, times a random factor.
template <typename Plant>
Diagnosis scarce(unsigned seed, double wait, Plant plant) {
  SimulatedJob job{.ranks = 2, .steps = 200, .noise = 0.2};
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 0.6);
  job.plant = [&](int r, int s, Work& w) {
    w = {.input = 0.3, .computing = w.computing / 10, .moved = 1, .operations = 1, .operation_bytes = 0};
    plant(r, s, w);
    w.saving *= 1 + wait;
    w.no_core += w.computing * wait * std::exp(normal(random));
  };
  return diagnose(simulated::run(job, seed), places(2, 2));
}

TEST_CASE("verdicts: a rank's own cause is told before a lack of cores of all ranks") {
  struct OwnCause {
    const char* name;
    SlowCause cause;
    std::function<void(int rank, int step, Work& work)> plant;
  };
  const std::vector<OwnCause> causes{
      {"np.save", SlowCause::checkpoint, [](int r, int s, Work& w) { w.saving = r == 0 && s % 20 == 0 ? 60 : 0; }},
      {"input", SlowCause::input, [](int r, int, Work& w) { w.input = r == 0 ? 20 : 0.3; }},
      {"evaluation", SlowCause::straggler,
       [](int r, int s, Work& w) { w.computing += r == 0 && s % 25 == 24 ? 125 : 0; }},
      {"a processor limit", SlowCause::straggler, [](int r, int, Work& w) { w.throttled = r == 0 ? 30 : 0; }},
  };
  for (const OwnCause& c : causes)
    for (const double wait : {2.0, 4.0, 8.0})
      for (unsigned seed = 0; seed < 10; ++seed) {
        const Diagnosis d = scarce(seed, wait, c.plant);
        INFO(std::string(c.name), ", wait ", wait, ", seed ", seed, "\n", words_of(d));
        CHECK(d.findings[0].cause == c.cause);
        CHECK(d.findings[0].ranks == std::vector<int>{0});
      }
  for (const double wait : {2.0, 4.0, 8.0})
    for (unsigned seed = 0; seed < 10; ++seed) {
      const Diagnosis d = scarce(seed, wait, [](int, int, Work&) {});
      INFO("nothing, wait ", wait, ", seed ", seed, "\n", words_of(d));
      CHECK(d.findings[0].cause == SlowCause::compute);
      CHECK(d.findings[0].what.find("for a core") != std::string::npos);
      CHECK(d.findings[0].ranks.empty());
    }
}

TEST_CASE("verdicts: a checkpoint of one rank that costs less than a lack of cores of all ranks") {
  SimulatedJob job{.ranks = 2, .steps = 200, .noise = 0.1};
  job.plant = [](int r, int s, Work& w) {  // recorded values, of 39.7 ms
    w = {.input = 0.4, .no_core = r == 0 ? 20.5 : 17.1, .computing = 6.7, .moved = 2.6};
    w.saving = r == 1 && s % 20 == 0 ? 117 : 0;
  };
  const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
  INFO(words_of(d));
  REQUIRE(d.findings.size() == 2);
  CHECK(d.findings[0].cause == SlowCause::checkpoint);
  CHECK(d.findings[0].ranks == std::vector<int>{1});
  CHECK(d.findings[1].cause == SlowCause::compute);
}

TEST_CASE("verdicts: an evaluation on one rank, and data that waits for ranks without cores") {
  SimulatedJob job{.ranks = 2, .steps = 200, .noise = 0.1};
  job.plant = [](int r, int s, Work& w) {  // recorded values, of 14.8 ms
    w = {.input = 0, .no_core = 3.3, .computing = 0.9, .moved = 5.3, .operations = 2, .operation_bytes = 2 << 20};
    w.computing += r == 1 && s % 25 == 24 ? 87 : 0;
  };
  const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
  INFO(words_of(d));
  CHECK(d.findings[0].cause == SlowCause::straggler);
  CHECK(d.findings[0].ranks == std::vector<int>{1});
}

TEST_CASE("verdicts: threads of each rank that take turns on its one core") {
  const std::map<int, RankPlace> one_core{{0, {"node0", 1}}, {1, {"node0", 1}}};
  for (const bool neighbour : {false, true}) {
    StepStatistics statistics;
    for (int number = 1; number <= 200; ++number) {
      JoinedStep step{0, number, 1, {}};
      for (int rank = 0; rank < 2; ++rank) {  // recorded means, of 9.8 ms
        wire::StepRecord r;
        r.number = number;
        r.step_ns = simulated::ns(9.8);
        r.moved_ns = simulated::ns(0.9);
        r.waited_ns = simulated::ns(rank == 0 ? 2.5 : 0.5);
        r.run_delay_ns = simulated::ns(rank == 0 ? 1.2 : 3.2);
        r.cpu_ns = simulated::ns(rank == 0 ? 7.6 : neighbour ? 5.2 : 8.6);
        r.operations = 2;
        step.parts.push_back({rank, r});
      }
      statistics.add(step);
    }
    const Diagnosis d = diagnose(statistics, one_core);
    INFO(neighbour, "\n", words_of(d));
    CHECK((d.findings[0].cause == SlowCause::straggler) == neighbour);
    CHECK(d.findings[0].ranks == (neighbour ? std::vector<int>{1} : std::vector<int>{}));
  }
}

TEST_CASE("verdicts: ranks that share one core, whatever they wait for") {
  SimulatedJob job{.ranks = 2, .steps = 200};
  job.plant = [](int, int, Work& w) {  // recorded values, of 4.4 ms
    w = {.input = 0, .no_core = 0.3, .computing = 1.2, .moved = 0.92, .operations = 2, .operation_bytes = 2 << 20};
    w.core = 0;
  };
  const Diagnosis d = diagnose(simulated::run(job, 1), places(2, 2));
  INFO(words_of(d));
  CHECK(d.findings[0].cause == SlowCause::compute);
  CHECK(d.findings[0].ranks.empty());
  CHECK(d.findings[0].what == "all ranks run on one core (number 0)");
}

TEST_CASE("verdicts: torch's own backends tell no bytes") {
  SimulatedJob job{.ranks = 2};
  job.plant = [](int, int, Work& w) { w.moved = 30, w.operations = 1, w.operation_bytes = 0; };
  const std::string few = words_of(diagnose(simulated::run(job, 1), places(2, 2)));
  CHECK(few.find("COMMUNICATION  every rank waits for data under way, 30 ms of each step\n") != std::string::npos);
  job.plant = [](int, int, Work& w) { w.moved = 30, w.operations = 300, w.operation_bytes = 0; };
  const std::string many = words_of(diagnose(simulated::run(job, 1), places(2, 2)));
  CHECK(many.find("latency, 300 operations\n") != std::string::npos);
}

}  // namespace
}  // namespace hvd::launcher
