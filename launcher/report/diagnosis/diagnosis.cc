#include "launcher/report/diagnosis/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "launcher/report/diagnosis/cause_text.h"
#include "launcher/report/diagnosis/job_means.h"
#include "launcher/report/diagnosis/late_ranks.h"
#include "launcher/report/diagnosis/late_reason.h"

namespace hvd::launcher {

namespace {

// Shares of a step.
constexpr double worth_a_word = 0.05;  // a smaller gain is not worth a change of the program
// Limit for delays without a known cause, if another rank is late each time.  Among equal ranks with 5 % of noise
// (simulated_job.h) the last rank costs a tenth of a step.  The limit is twice that cost.
constexpr double worth_a_word_noise = 0.2;
constexpr double common_enough = 0.10;  // for work that all ranks do: no rank waits for another
// A host's daemons take cores away now and then, but less than a quarter of the time.
constexpr double no_core_enough = 0.25;
// The last rank runs the operation within its own call.  So the time of an operation may count as that rank's own work.
// Measured with two ranks: 4 to 8 µs.
constexpr double operation_seconds = 10e-6;
// If a host's cores differ, equal ranks may stay this far apart for a whole job.  In three of 42 jobs without planted
// causes, the distance was 0.57 to 0.82 ms in steps of 5 ms.  For short steps the limit is a fifth of the step.
constexpr double unequal_cores_seconds = 1e-3;

const char* const core_for_each =
    "a core for each, as hvdrun gives it: has the program, taskset or a container's cpuset changed that?";

std::string percent(double share) { return formatted("{:.0f} %", 100 * share); }

/// Size: one short function for each kind of finding; examine() has their order.  The functions share five members.
class Examiner {
 public:
  Examiner(const StepStatistics& statistics, const std::map<int, RankPlace>& places) : job_(statistics, places) {
    d_.steps = statistics.steps();
    d_.step_seconds = job_.step_seconds;
    d_.communication_seconds = mean_of(job_.ranks, [](const RankMeans& m) { return m.moved; });
    d_.waiting_seconds = d_.communication_seconds + mean_of(job_.ranks, [](const RankMeans& m) { return m.waited; });
  }

  Diagnosis examine() {
    if (d_.steps == 0 || d_.step_seconds <= 0) return d_;
    find_throttled();
    find_one_core();
    find_late_ranks();
    find_own_delays();
    find_turns();
    find_common();
    if (auto f = communication_finding(job_)) d_.findings.push_back(std::move(*f));
    if (auto f = memory_finding(job_)) d_.findings.push_back(std::move(*f));
    sort_findings();
    if (d_.findings.empty()) tell_balance();
    return d_;
  }

 private:
  /// Seconds per step by which findings are sorted.  A lack of cores is often the effect of another cause.  Two further
  /// effects: late data from a rank without a core, and a low rate in one host's memory.  An effect counts a quarter of
  /// its cost, and less than any certain cause of one rank.  Exception: very many operations are themselves a cost.
  /// Growing memory costs hardly any time until the memory is used up.  So growing memory counts a tenth of a step, or
  /// slightly more than uncertain findings about the same ranks.
  double weight(const Finding& f) const {
    if (f.cause == SlowCause::memory_creep) {
      double most = common_enough * d_.step_seconds;
      for (const Finding& other : d_.findings)
        if (!other.certain && (other.ranks == f.ranks || other.ranks.empty()))
          most = std::max(most, 1.01 * weight(other));
      return most;
    }
    const bool effect = (f.cause == SlowCause::compute && !f.certain) ||
                        (f.cause == SlowCause::communication && (data_lacks_cores() || !f.certain) &&
                         job_.operations() * operation_seconds < worth_a_word * d_.step_seconds);
    if (!effect) return f.seconds_a_step;
    double most = f.seconds_a_step / 4;
    for (const Finding& other : d_.findings)
      if (other.certain && other.cause != SlowCause::memory_creep && !other.ranks.empty() &&
          late_.contains(other.ranks.front()))
        most = std::min(most, 0.99 * other.seconds_a_step);
    return most;
  }

  /// weight() needs all findings, so it is called before any of them moves.
  void sort_findings() {
    std::vector<std::pair<double, Finding>> weighed;
    for (const Finding& f : d_.findings) weighed.emplace_back(weight(f), f);
    std::stable_sort(weighed.begin(), weighed.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (std::size_t i = 0; i < weighed.size(); ++i) d_.findings[i] = std::move(weighed[i].second);
  }

  /// True if the ranks that send the data lack cores.  Either cores are short, or ranks lack one for most of their own
  /// time.
  bool data_lacks_cores() const {
    const double no_core = job_.common(Delay::no_core);
    return cores_are_short() || (no_core > worth_a_word * d_.step_seconds &&
                                 2 * no_core > median_of(job_.ranks, [](const RankMeans& m) { return m.own; }));
  }

  bool cores_are_short() const { return job_.common(Delay::no_core) > no_core_enough * d_.step_seconds; }

  // ---- ranks that keep the other ranks waiting ---------------------------------------------------------------------

  void find_late_ranks() {
    const auto l = late_ranks(job_.statistics, job_.ranks);
    if (!l || l->lost < worth_a_word * d_.step_seconds) return;
    const Delay delay = reason_of(*l);
    const bool seen = is_seen_by_hook(delay);
    if (!seen && is_chance(*l)) return;
    if (seen && cores_are_short() && l->late.size() == 1 && !is_own(delay, l->late.front(), job_.ranks)) return;
    if (!is_of_all(*l, delay)) add_late_ranks(*l, delay);
  }

  /// If all ranks lack cores, the rank with the most own time in sum is a matter of chance.  So this function examines
  /// each delay that a hook measures separately.
  void find_own_delays() {
    for (const Delay delay : {Delay::input, Delay::saving, Delay::collecting, Delay::compiling})
      for (const RankMeans& m : job_.ranks) {
        const double cost = part_of(m.sums->late_by, delay) / static_cast<double>(d_.steps);
        if (told_.contains(delay) || late_.contains(m.rank) || cost < worth_a_word * d_.step_seconds ||
            !is_own(delay, m, job_.ranks))
          continue;
        LateRanks l;
        l.lost = l.gap = cost;
        for (const RankMeans& one : job_.ranks) (one.rank == m.rank ? l.late : l.others).push_back(one);
        add_late_ranks(l, delay);
      }
  }

  void add_late_ranks(LateRanks l, Delay delay) {
    count_late_steps(l, delay);
    if (is_seen_by_hook(delay)) {  // in other steps, other ranks may be late: the means tell too little
      double cost = 0;
      for (const RankMeans& m : l.late) cost += part_of(m.sums->late_by, delay) / static_cast<double>(d_.steps);
      l.gap = std::max(l.gap, cost), l.lost = std::max(l.lost, cost);
    }
    Finding f;
    for (const RankMeans& m : l.late) f.ranks.push_back(m.rank);
    std::sort(f.ranks.begin(), f.ranks.end());
    job_.say_where(f);
    f.seconds_a_step = l.gap;
    f.share_of_steps = l.share_of_steps;
    const double waited = mean_of(l.others, [](const RankMeans& m) { return m.waited; });
    f.seconds_in_all = std::min(l.lost, waited) * static_cast<double>(d_.steps);
    late_.insert(f.ranks.begin(), f.ranks.end());
    if (delay == Delay::input && find_slow_loaders(f, l)) return;
    if (delay == Delay::no_core && find_shared_core(f, l)) return;
    tell_late(f, delay, l, job_.cores_used(l.late.front()));
    f.certain = f.certain || (delay == Delay::computing && has_long_stops(l));
    f.what += formatted(" in {} steps; {} waited for it: {} of {} in all", steps_text(f.share_of_steps),
                        count_of(static_cast<long long>(l.others.size()), "rank"), duration_text(f.seconds_in_all),
                        duration_text(job_.statistics.seconds()));
    d_.findings.push_back(std::move(f));
  }

  /// "93 % of the", "1 of 1842".
  std::string steps_text(double share) const {
    const auto steps = std::llround(share * static_cast<double>(d_.steps));
    return share < 0.01 ? formatted("{} of {}", steps, d_.steps) : percent(share) + " of the";
  }

  bool has_long_stops(const LateRanks& l) const {
    return stops_alone(l, job_.statistics.stretches(), 2 * worth_a_word * job_.statistics.seconds());
  }

  /// Counts only steps that were late for this reason.  In other steps a rank may be a little late, as on any machine.
  void count_late_steps(LateRanks& l, Delay delay) const {
    double steps = 0, seconds = 0;
    for (const RankMeans& m : l.late) {
      const bool seen = is_seen_by_hook(delay);
      const DelaySizes::CountedSteps late = m.sums->late_sizes.main_part();
      steps += seen ? static_cast<double>(m.sums->late_steps_by[static_cast<std::size_t>(delay)]) : late.steps;
      seconds += seen ? part_of(m.sums->late_by, delay) : late.seconds;
    }
    if (steps == 0) return;
    l.share_of_steps = std::min(1.0, steps / static_cast<double>(d_.steps));
    l.each = std::max(seconds / steps, l.lost);
  }

  /// True if all ranks lack cores or processor time: among such ranks, one is always the last.
  bool is_of_all(const LateRanks& l, Delay delay) const {
    if (is_seen_by_hook(delay) || delay == Delay::computing) return false;
    const auto throttled = [](const RankMeans& m) { return m.throttled; };
    const auto no_core = [](const RankMeans& m) { return part_of(m.parts, Delay::no_core); };
    const double held = mean_of(l.late, throttled), others_held = median_of(l.others, throttled);
    if (all_throttled_ && held > l.lost / 2) return times_longer * others_held > held;
    if (held - others_held > l.lost / 2) return false;
    if (delay == Delay::no_core && own_threads_fill_cores(l)) return true;
    return delay == Delay::no_core && cores_are_short() && 2 * median_of(l.others, no_core) > mean_of(l.late, no_core);
  }

  /// True if the late ranks' own threads use up their cores, and the other ranks' threads work almost as much.  gloo's
  /// thread and the main thread take turns on a single core, for example.  Chance decides which rank waits longer.
  bool own_threads_fill_cores(const LateRanks& l) const {
    constexpr double filled = 0.75, alike = 0.75;
    const auto cpu = [](const RankMeans& m) { return m.cpu; };
    const bool full = std::ranges::all_of(l.late, [&](const RankMeans& m) {
      const int cores = job_.place(m.rank).cores;
      return cores > 0 && m.cpu > filled * cores * d_.step_seconds;
    });
    return full && median_of(l.others, cpu) > alike * mean_of(l.late, cpu);
  }

  /// Makes a finding and returns true if the other ranks' loaders are hardly faster than the slow one.  Loaders make
  /// batches ahead.  While all ranks wait for one slow loader, the batches of the other ranks come in time.
  bool find_slow_loaders(Finding& f, const LateRanks& l) {
    const double made = median_of(l.others, [](const RankMeans& m) { return m.made; });
    const double left = d_.step_seconds - made;
    f.seconds_a_step = std::min(f.seconds_a_step, left);
    if (left > 2 * worth_a_word * d_.step_seconds) return false;
    Finding all;
    all.seconds_a_step = l.gap;
    tell_slow_loaders(all, made, l, job_.cores_used(l.late.front()));
    told_.insert(Delay::input);
    d_.findings.push_back(std::move(all));
    return true;
  }

  /// True, with a finding, if ranks lack a core because they share one with another rank of the job.
  bool find_shared_core(Finding& f, const LateRanks& l) {
    const auto core_of = [](const RankMeans& m) { return m.sums->core.core(m.sums->steps); };
    const int core = core_of(l.late.front());
    std::vector<int> sharing;
    for (const RankMeans& m : job_.ranks)
      if (core_of(m) == core && job_.place(m.rank).host == job_.place(l.late.front().rank).host)
        sharing.push_back(m.rank);
    if (core < 0 || sharing.size() < 2) return false;
    Finding all;
    all.cause = SlowCause::compute;
    all.seconds_a_step = f.seconds_a_step;
    const bool everyone = sharing.size() == job_.ranks.size();
    if (!everyone) all.ranks = sharing, all.host = f.host;
    all.what =
        formatted("{} on one core (number {}), and wait for it {} of each step", everyone ? "all ranks run" : "run",
                  core, duration_text(part_of(l.late.front().parts, Delay::no_core)));
    all.advice = core_for_each;
    told_.insert(Delay::no_core);
    d_.findings.push_back(std::move(all));
    return true;
  }

  /// For delays that no hook measures.  True: the delay may be chance, since on a busy host some rank is always the
  /// slowest.  A delay counts only if it lasts for the whole job.  A single late rank must also be last in three of
  /// five steps, or stop for long.  (Of two equal ranks, each is last in half of the steps.) Several late ranks may be
  /// last in turn.
  bool is_chance(const LateRanks& l) const {
    if (has_long_stops(l)) return false;
    if (!l.certainly_lost || *l.certainly_lost < worth_a_word * d_.step_seconds) return true;
    if (l.lost < job_.operations() * operation_seconds) return true;
    const double unequal_cores = (1 + core_wait_per_work(l)) * unequal_cores_seconds;
    if (l.lost < std::min(unequal_cores, worth_a_word_noise * d_.step_seconds)) return true;
    const bool long_stops = l.each > d_.step_seconds / 2 && l.lost > 2 * worth_a_word * d_.step_seconds;
    return l.late.size() == 1 && l.share_of_steps < 0.6 && !long_stops;
  }

  /// Finds delays for which another rank is last each time.
  void find_turns() {
    DelaySeconds late{}, most{};
    double steps = 0;
    for (const RankMeans& m : job_.ranks) {
      if (late_.contains(m.rank)) continue;
      for (std::size_t i = 0; i < delay_kinds; ++i) {
        late[i] += m.sums->late_by[i];
        most[i] = std::max(most[i], m.sums->late_by[i]);
      }
      steps += static_cast<double>(m.sums->late_steps);
    }
    for (std::size_t i = 0; i < delay_kinds; ++i) {
      const auto delay = static_cast<Delay>(i);
      const bool seen = is_seen_by_hook(delay);
      if (!seen) late[i] = std::min(late[i], 2 * (late[i] - most[i]));  // limits the share of a rank that is late alone
      const double cost = late[i] / static_cast<double>(d_.steps);
      if (told_.contains(delay) || cost < (seen ? worth_a_word : worth_a_word_noise) * d_.step_seconds) continue;
      if (!seen && cost < job_.operations() * operation_seconds) continue;
      if (seen && cost < job_.common(delay)) continue;  // all ranks have this delay, at different times
      Finding f;
      f.seconds_a_step = cost;
      f.share_of_steps = std::min(1.0, steps / static_cast<double>(d_.steps));
      f.seconds_in_all = std::min(late[i], job_.statistics.seconds());
      tell_turns(f, delay, job_.ranks.front());
      told_.insert(delay);
      f.what += formatted(", another rank each time: {} of {} in all", duration_text(f.seconds_in_all),
                          duration_text(job_.statistics.seconds()));
      d_.findings.push_back(std::move(f));
    }
  }

  // ---- delays of all ranks -----------------------------------------------------------------------------------------

  /// Finds a cgroup's limit of processor time that throttles the ranks.  All ranks of a container share the limit.
  /// Their delay is then not also reported as a lack of cores.
  void find_throttled() {
    const auto throttled = [](const RankMeans& m) { return m.throttled; };
    if (median_of(job_.ranks, throttled) < common_enough * d_.step_seconds) return;
    Finding f;
    const double each = median_of(job_.ranks, throttled);
    double most = each;
    for (const RankMeans& m : job_.ranks) most = std::max(most, m.throttled);
    // A waiting rank uses no processor time, so is not throttled.  Equal ranks thus differ: one is throttled longest.
    f.seconds_a_step = most < times_longer * each ? most : each;
    tell_all_throttled(f, each, job_.cores_used(job_.ranks.front()));
    told_.insert({Delay::no_core, Delay::asleep});
    all_throttled_ = true;
    d_.findings.push_back(std::move(f));
  }

  /// Finds that all ranks run on one core. There, a rank that waits for another rank or for data also waits for the
  /// core. The cost is the time that a core for each rank would save.
  void find_one_core() {
    const auto core_of = [](const RankMeans& m) { return m.sums->core.core(m.sums->steps); };
    const RankMeans& first = job_.ranks.front();
    const int core = core_of(first);
    if (core < 0 || job_.ranks.size() < 2 ||
        !std::all_of(job_.ranks.begin(), job_.ranks.end(), [&](const RankMeans& m) {
          return core_of(m) == core && job_.place(m.rank).host == job_.place(first.rank).host;
        }))
      return;
    Finding f;
    f.cause = SlowCause::compute;
    f.seconds_a_step = d_.step_seconds * (1 - 1 / static_cast<double>(job_.ranks.size()));
    f.what = formatted("all ranks run on one core (number {})", core);
    f.advice = core_for_each;
    told_.insert(Delay::no_core);
    d_.findings.push_back(std::move(f));
  }

  void find_common() {
    for (const Delay delay :
         {Delay::input, Delay::saving, Delay::collecting, Delay::compiling, Delay::no_core, Delay::asleep}) {
      const double each = job_.common(delay);
      const bool rare = is_seen_by_hook(delay) && delay != Delay::input;
      const double enough = rare ? worth_a_word : delay == Delay::no_core ? no_core_enough : common_enough;
      if (told_.contains(delay) || each < enough * d_.step_seconds) continue;
      Finding f;
      f.seconds_a_step = each;
      tell_all(f, delay, job_.ranks.front(), job_.cores_used(job_.ranks.front()));
      d_.findings.push_back(std::move(f));
    }
  }

  void tell_balance() {
    const double own = mean_of(job_.ranks, [](const RankMeans& m) { return m.own; });
    Finding f;
    f.seconds_a_step = own;
    f.what = formatted("{} of each step is the program's own work", percent(own / d_.step_seconds));
    const bool rarely = d_.waiting_seconds - d_.communication_seconds < common_enough * d_.step_seconds;
    if (job_.ranks.size() > 1)
      f.what = formatted("no rank kept the others waiting{}; {}", rarely ? "" : " throughout the job", f.what);
    d_.findings.push_back(std::move(f));
  }

  const JobMeans job_;
  std::set<int> late_;    ///< ranks that a finding names as late
  std::set<Delay> told_;  ///< delays that a finding tells already
  bool all_throttled_ = false;
  Diagnosis d_;
};

}  // namespace

Diagnosis diagnose(const StepStatistics& statistics, const std::map<int, RankPlace>& places) {
  return Examiner(statistics, places).examine();
}

}  // namespace hvd::launcher
