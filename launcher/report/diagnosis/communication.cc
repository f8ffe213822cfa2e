/// @file communication.cc — communication_finding().
#include <algorithm>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/text.h"
#include "launcher/report/diagnosis/cause_text.h"
#include "launcher/report/diagnosis/job_means.h"

namespace hvd::launcher {

namespace {

constexpr double communication_enough = 0.15;  // of a step: every job has some data under way
constexpr double call_seconds = 4e-6;          // least cost of a call
// A small operation in shared memory takes some microseconds, and 90 if two ranks share a core.
constexpr double longest_call_seconds = 500e-6;

/// The longest round trip between two hosts; 0: not known.
double round_trip_of(const JobMeans& job) {
  double longest = 0;
  for (const RankMeans& m : job.ranks)
    for (const auto& [peer, link] : m.sums->links) longest = std::max(longest, link.round_trip);
  return longest;
}

/// True if an operation takes a few round trips, and a faster network would not help.  A large one counts as rate,
/// because parts of several operations travel at once.
bool is_latency(double round_trip, double seconds, double bytes) {
  constexpr double least_round_trip = 1e-3, trips = 5, large = 8 << 20;
  return round_trip >= least_round_trip && seconds <= trips * round_trip && bytes < large;
}

/// True if one slow link is busy for at least half of the time for which data is under way.  Then @p f has the text.
bool find_slow_link(const JobMeans& job, Finding& f) {
  std::vector<UsedLink> links;
  for (const RankMeans& m : job.ranks)
    for (const auto& [peer, link] : m.sums->links)
      links.push_back({m.rank, peer, job.place(m.rank).host, job.place(peer).host, link.bytes, link.busy});
  const auto slow = slow_link(std::move(links));
  const double busy = slow ? slow->seconds / job.steps : 0;
  if (!slow || 2 * busy < f.seconds_a_step) return false;
  f.ranks = slow->ranks;
  job.say_where(f);
  f.seconds_a_step = std::min(f.seconds_a_step, busy * (1 - slow->rate / slow->others_rate));
  tell_slow_link(f, *slow);
  return true;
}

}  // namespace

std::optional<Finding> communication_finding(const JobMeans& job) {
  constexpr double small_operation = 64 << 10, many_operations = 50;
  const double count = job.operations(), moved = median_of(job.ranks, [](const RankMeans&m) { return m.moved; });
  const double bytes = static_cast<double>(job.statistics.operation_bytes()) / job.steps;
  const bool counted = bytes > 0;  // torch's backends tell no bytes
  const bool small = counted ? count >= 1 && bytes / count < small_operation : count >= many_operations;
  const double called = small ? std::min(count * call_seconds, job.common(Delay::computing)) : 0;
  if (job.ranks.size() < 2 || moved + called < communication_enough * job.step_seconds) return {};
  Finding f;
  f.cause = SlowCause::communication;
  f.seconds_a_step = moved + called;
  if (!small && counted && find_slow_link(job, f)) return f;
  if (small && counted && job.on_one_host() && moved > count * longest_call_seconds) {
    f.cause = SlowCause::compute;
    f.certain = false;
    f.what = formatted(
        "every rank waits for other ranks that get no core, {} of each step: {:.0f} operations of {} each take {} each",
        duration_text(moved), count, size_text(bytes / count), duration_text(moved / count));
    f.advice = "a core for each rank: end other work on this host, or use fewer ranks or threads";
    return f;
  }
  f.what = "every rank waits for data under way, " + duration_text(moved) + " of each step";
  if (small) {
    if (called > moved)
      f.what = formatted("calling operations, and waiting for them, takes every rank {} of each step",
                         duration_text(moved + called));
    f.what += formatted(": latency, {:.0f} operations", count);
    if (counted) f.what += formatted(" of {} each", size_text(bytes / count));
    f.advice = "fewer and larger operations: join tensors, or raise --cycle-time-ms so that more are fused";
  } else if (f.certain = !job.on_one_host(); !counted) {
    f.advice = "smaller gradients (a comm hook that sends fp16), a larger batch, or several batches between two steps";
  } else if (const double trip = round_trip_of(job); is_latency(trip, moved / count, bytes / count)) {
    f.what += formatted(": latency, a message between hosts and its answer take {}; {:.0f} operations of {} each",
                        duration_text(trip), count, size_text(bytes / count));
    f.advice =
        "fewer operations that wait for each other: join tensors, or train on hosts that are nearer to each other";
  } else {
    f.what += formatted(": rate, {} a step at {}/s", size_text(bytes), size_text(bytes / moved));
    f.advice = "compression=hvd.Compression.fp16, a larger batch, or gradients of several batches summed first";
  }
  return f;
}

}  // namespace hvd::launcher
