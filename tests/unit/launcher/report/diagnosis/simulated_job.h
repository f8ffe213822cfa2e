/// @file simulated_job.h — step records of a job whose ranks wait for each other, with causes planted in it.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "launcher/report/steps/step_statistics.h"

namespace hvd::launcher::simulated {

/// Milliseconds that one rank spends in one step before its operations.
struct Work {
  double input = 1, saving = 0, collecting = 0, compiling = 0, no_core = 0, asleep = 0, computing = 50;
  double moved = 4;            ///< for all ranks: the largest value counts
  double operation_delay = 0;  ///< the part of `moved` in which its threads had no core
  double made = 0;             ///< the time in which its batches were made, ahead
  double throttled = 0;        ///< the time for which its cgroup's limit stops it: it sleeps
  int major_faults = 0;
  std::int64_t read_bytes = 0, resident_bytes = std::int64_t{1} << 30;
  int operations = 40;
  std::int64_t operation_bytes = 100 << 20;
  int core = -1, link_peer = -1;
  std::int64_t link_bytes = 0;
  double link_busy = 0, link_round_trip = 0;
  wire::Loader loader = wire::Loader::torch;
};

struct SimulatedJob {
  int ranks = 4, steps = 300;
  double noise = 0.04;                    ///< of the computing time: standard deviation of its logarithm
  double hiccup_share = 0.01;             ///< the share of a rank's steps that take half as long again
  bool throttled_within_no_core = false;  ///< a rank that its limit stops is ready to run, and has no core
  /// Changes the usual values.
  std::function<void(int rank, int step, Work& work)> plant = [](int, int, Work&) {};
};

inline std::int64_t ns(double ms) { return static_cast<std::int64_t>(ms * 1e6); }

inline StepStatistics run(const SimulatedJob& job, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  StepStatistics statistics;
  for (int step = 1; step <= job.steps; ++step) {
    std::vector<Work> works(static_cast<std::size_t>(job.ranks));
    std::vector<double> own;
    double last = 0, moved = 0;
    for (int rank = 0; rank < job.ranks; ++rank) {
      Work& w = works[static_cast<std::size_t>(rank)];
      w.computing *= std::exp(job.noise * normal(random));
      if (uniform(random) < job.hiccup_share) w.computing *= 1.5;
      job.plant(rank, step, w);
      own.push_back(w.input + w.saving + w.collecting + w.compiling + w.no_core + w.asleep + w.throttled + w.computing);
      last = std::max(last, own.back());
      moved = std::max(moved, w.moved);
    }
    JoinedStep joined{0, step, 1, {}};
    for (int rank = 0; rank < job.ranks; ++rank) {
      const Work& w = works[static_cast<std::size_t>(rank)];
      const double waited = last - own[static_cast<std::size_t>(rank)];
      wire::StepRecord r;
      r.number = step;
      r.step_ns = ns(last + moved);
      r.input_ns = ns(w.input), r.save_ns = ns(w.saving), r.collect_ns = ns(w.collecting);
      r.compile_ns = ns(w.compiling), r.link_round_trip_ns = ns(w.link_round_trip);
      r.waited_ns = ns(waited), r.moved_ns = ns(moved - w.operation_delay);
      r.run_delay_ns = ns(w.no_core + w.operation_delay), r.operation_delay_ns = ns(w.operation_delay);
      r.cpu_ns = ns(w.computing + waited + w.collecting);  // a waiting rank spins
      r.read_bytes = w.read_bytes, r.resident_bytes = w.resident_bytes;
      r.link_peer = w.link_peer, r.link_bytes = w.link_bytes, r.link_busy_ns = ns(w.link_busy);
      r.made_ns = ns(w.made), r.core = static_cast<std::int16_t>(w.core), r.loader = w.loader;
      r.throttled_ns = ns(job.throttled_within_no_core ? w.no_core : w.throttled), r.major_faults = w.major_faults;
      r.operations = w.operations, r.operation_bytes = w.operation_bytes;
      joined.parts.push_back({rank, r});
    }
    statistics.add(joined);
  }
  return statistics;
}

}  // namespace hvd::launcher::simulated
