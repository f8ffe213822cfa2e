#include "launcher/report/diagnosis/diagnosis.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "launcher/report/diagnosis/cause_text.h"
#include "launcher/report/diagnosis/late_ranks.h"
#include "launcher/report/diagnosis/late_reason.h"

namespace hvd::launcher {

namespace {

// Shares of a step.
constexpr double worth_a_word = 0.05;  // a smaller gain is not worth a change of the program
// Limit for delays without a known cause, if another rank is late each time.  Among equal ranks with 5 % of noise
// (simulated_job.h) the last rank costs a tenth of a step.  The limit is twice that cost.
constexpr double worth_a_word_noise = 0.2;
constexpr double common_enough = 0.10;         // for work that all ranks do: no rank waits for another
constexpr double communication_enough = 0.15;  // for data under way: every job has some
// A host's daemons take cores away now and then, but less than a quarter of the time.
constexpr double no_core_enough = 0.25;
// The last rank runs the operation within its own call.  So the time of an operation may count as that rank's own work.
// Measured with two ranks: 4 to 8 µs.
constexpr double operation_seconds = 10e-6;
constexpr double call_seconds = 4e-6;  // least cost of a call
// If a host's cores differ, equal ranks may stay this far apart for a whole job.  In three of 42 jobs without planted
// causes, the distance was 0.57 to 0.82 ms in steps of 5 ms.  For short steps the limit is a fifth of the step.
constexpr double unequal_cores_seconds = 1e-3;

const char* const core_for_each =
    "a core for each, as hvdrun gives it: has the program, taskset or a container's cpuset changed that?";

std::string percent(double share) { return formatted("{:.0f} %", 100 * share); }

/// Size: one short function for each kind of finding; examine() has their order.  The functions share seven members.
class Examiner {
 public:
  Examiner(const StepStatistics& statistics, const std::map<int, RankPlace>& places)
      : statistics_(statistics), places_(places), ranks_(means_of(statistics)) {
    d_.steps = statistics.steps();
    if (d_.steps > 0) d_.step_seconds = statistics.seconds() / static_cast<double>(d_.steps);
    d_.communication_seconds = mean_of(ranks_, [](const RankMeans& m) { return m.moved; });
    d_.waiting_seconds = d_.communication_seconds + mean_of(ranks_, [](const RankMeans& m) { return m.waited; });
  }

  Diagnosis examine() {
    if (d_.steps == 0 || d_.step_seconds <= 0) return d_;
    find_throttled();
    find_one_core();
    find_late_ranks();
    find_own_delays();
    find_turns();
    find_common();
    find_communication();
    find_memory();
    sort_findings();
    if (d_.findings.empty()) tell_balance();
    return d_;
  }

 private:
  /// Seconds per step by which findings are sorted.  A lack of cores is often the effect of another cause.  Data that
  /// comes late from a rank without a core is such an effect too.  Effects count a quarter, and less than a certain
  /// cause of one rank.  But very many operations may cost enough by themselves.  Growing memory costs hardly any time
  /// until the memory is used up.  So it counts a tenth of a step, or a little more than the uncertain findings about
  /// the same ranks.
  double weight(const Finding& f) const {
    if (f.cause == SlowCause::memory_creep) {
      double most = common_enough * d_.step_seconds;
      for (const Finding& other : d_.findings)
        if (!other.certain && (other.ranks == f.ranks || other.ranks.empty()))
          most = std::max(most, 1.01 * weight(other));
      return most;
    }
    const bool effect = (f.cause == SlowCause::compute && !f.certain) ||
                        (f.cause == SlowCause::communication && data_lacks_cores() &&
                         operations() * operation_seconds < worth_a_word * d_.step_seconds);
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

  /// True if data under way comes from ranks that lack cores, or that lack one for most of their own time.
  bool data_lacks_cores() const {
    const double no_core = common(Delay::no_core);
    return cores_are_short() || (no_core > worth_a_word * d_.step_seconds &&
                                 2 * no_core > median_of(ranks_, [](const RankMeans& m) { return m.own; }));
  }

  bool cores_are_short() const { return common(Delay::no_core) > no_core_enough * d_.step_seconds; }

  /// Mean number per step.
  double operations() const { return static_cast<double>(statistics_.operations()) / static_cast<double>(d_.steps); }

  // ---- ranks that keep the other ranks waiting ---------------------------------------------------------------------

  void find_late_ranks() {
    const auto l = late_ranks(statistics_, ranks_);
    if (!l || l->lost < worth_a_word * d_.step_seconds) return;
    const Delay delay = reason_of(*l);
    const bool seen = is_seen_by_hook(delay);
    if (!seen && is_chance(*l)) return;
    if (seen && cores_are_short() && l->late.size() == 1 && !is_own(delay, l->late.front(), ranks_)) return;
    if (!is_of_all(*l, delay)) add_late_ranks(*l, delay);
  }

  /// Where all ranks lack cores, chance decides which rank has the most own time in all.  So each delay that a hook
  /// measures is looked at by itself.
  void find_own_delays() {
    for (const Delay delay : {Delay::input, Delay::saving, Delay::collecting, Delay::compiling})
      for (const RankMeans& m : ranks_) {
        const double cost = part_of(m.sums->late_by, delay) / static_cast<double>(d_.steps);
        if (told_.contains(delay) || late_.contains(m.rank) || cost < worth_a_word * d_.step_seconds ||
            !is_own(delay, m, ranks_))
          continue;
        LateRanks l;
        l.lost = l.gap = cost;
        for (const RankMeans& one : ranks_) (one.rank == m.rank ? l.late : l.others).push_back(one);
        add_late_ranks(l, delay);
      }
  }

  void add_late_ranks(LateRanks l, Delay delay) {
    count_late_steps(l, delay);
    Finding f;
    for (const RankMeans& m : l.late) f.ranks.push_back(m.rank);
    std::sort(f.ranks.begin(), f.ranks.end());
    say_where(f);
    f.seconds_a_step = l.gap;
    f.share_of_steps = l.share_of_steps;
    const double waited = mean_of(l.others, [](const RankMeans& m) { return m.waited; });
    f.seconds_in_all = std::min(l.lost, waited) * static_cast<double>(d_.steps);
    late_.insert(f.ranks.begin(), f.ranks.end());
    if (delay == Delay::input && find_slow_loaders(f, l)) return;
    if (delay == Delay::no_core && find_shared_core(f, l)) return;
    tell_late(f, delay, l, cores_used(l.late.front()));
    f.certain = f.certain || (delay == Delay::computing && has_long_stops(l));
    f.what += formatted(" in {} of the steps; {} waited for it: {} of {} in all", percent(f.share_of_steps),
                        count_of(static_cast<long long>(l.others.size()), "rank"), duration_text(f.seconds_in_all),
                        duration_text(statistics_.seconds()));
    d_.findings.push_back(std::move(f));
  }

  bool has_long_stops(const LateRanks& l) const {
    return stops_alone(l, statistics_.stretches(), 2 * worth_a_word * statistics_.seconds());
  }

  /// Counts only steps that were late for this reason.  In other steps a rank may be a little late, as on any machine.
  void count_late_steps(LateRanks& l, Delay delay) const {
    const bool rare = !is_seen_by_hook(delay) && has_long_stops(l);
    double steps = 0, seconds = 0;
    for (const RankMeans& m : l.late) {
      if (rare)
        for (const StretchSum& s : m.sums->stretches)
          steps += s.stops, seconds += static_cast<double>(s.stopped_seconds);
      else if (is_seen_by_hook(delay))
        steps += static_cast<double>(m.sums->late_steps_by[static_cast<std::size_t>(delay)]),
            seconds += part_of(m.sums->late_by, delay);
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
    return delay == Delay::no_core && cores_are_short() && 2 * median_of(l.others, no_core) > mean_of(l.late, no_core);
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
    tell_slow_loaders(all, made, l, cores_used(l.late.front()));
    told_.insert(Delay::input);
    d_.findings.push_back(std::move(all));
    return true;
  }

  /// True, with a finding, if ranks lack a core because they share one with another rank of the job.
  bool find_shared_core(Finding& f, const LateRanks& l) {
    const auto core_of = [](const RankMeans& m) { return m.sums->core.core(m.sums->steps); };
    const int core = core_of(l.late.front());
    std::vector<int> sharing;
    for (const RankMeans& m : ranks_)
      if (core_of(m) == core && place(m.rank).host == place(l.late.front().rank).host) sharing.push_back(m.rank);
    if (core < 0 || sharing.size() < 2) return false;
    Finding all;
    all.cause = SlowCause::compute;
    all.seconds_a_step = f.seconds_a_step;
    const bool everyone = sharing.size() == ranks_.size();
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
  /// five steps, or stop for long.  (Of two equal ranks, each is last in half of the steps.)  Several late ranks may
  /// take turns at being last.
  bool is_chance(const LateRanks& l) const {
    if (has_long_stops(l)) return false;
    if (!l.certainly_lost || *l.certainly_lost < worth_a_word * d_.step_seconds) return true;
    if (l.lost < operations() * operation_seconds) return true;
    const double unequal_cores = (1 + core_wait_per_work(l)) * unequal_cores_seconds;
    if (l.lost < std::min(unequal_cores, worth_a_word_noise * d_.step_seconds)) return true;
    const bool long_stops = l.each > d_.step_seconds / 2 && l.lost > 2 * worth_a_word * d_.step_seconds;
    return l.late.size() == 1 && l.share_of_steps < 0.6 && !long_stops;
  }

  void say_where(Finding& f) const {
    const std::string host = place(f.ranks[0]).host;
    if (!std::all_of(f.ranks.begin(), f.ranks.end(), [&](int r) { return place(r).host == host; })) return;
    f.host = host;
    const auto there = static_cast<std::size_t>(
        std::count_if(ranks_.begin(), ranks_.end(), [&](const RankMeans& m) { return place(m.rank).host == host; }));
    f.whole_host = there == f.ranks.size() && there > 1 && there < ranks_.size();
  }

  /// Finds delays for which another rank is last each time.
  void find_turns() {
    DelaySeconds late{}, most{};
    double steps = 0;
    for (const RankMeans& m : ranks_) {
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
      if (!seen && cost < operations() * operation_seconds) continue;
      if (seen && cost < common(delay)) continue;  // all ranks have this delay, at different times
      Finding f;
      f.seconds_a_step = cost;
      f.share_of_steps = std::min(1.0, steps / static_cast<double>(d_.steps));
      f.seconds_in_all = std::min(late[i], statistics_.seconds());
      tell_turns(f, delay, ranks_.front());
      told_.insert(delay);
      f.what += formatted(", another rank each time: {} of {} in all", duration_text(f.seconds_in_all),
                          duration_text(statistics_.seconds()));
      d_.findings.push_back(std::move(f));
    }
  }

  // ---- delays of all ranks -----------------------------------------------------------------------------------------

  /// The median of the ranks' time for @p delay, in seconds per step.
  double common(Delay delay) const {
    return median_of(ranks_, [delay](const RankMeans& m) { return part_of(m.parts, delay); });
  }

  /// Finds a limit of processor time that holds the ranks.  All ranks of a container share its limit.  Ranks that the
  /// limit holds do not lack cores, so that delay is not told again.
  void find_throttled() {
    const auto throttled = [](const RankMeans& m) { return m.throttled; };
    if (median_of(ranks_, throttled) < common_enough * d_.step_seconds) return;
    Finding f;
    const double each = median_of(ranks_, throttled);
    double most = each;
    for (const RankMeans& m : ranks_) most = std::max(most, m.throttled);
    // A rank that waits for another rank is not held meanwhile.  So among equal ranks, one is always held longest.
    f.seconds_a_step = most < times_longer * each ? most : each;
    tell_all_throttled(f, each, cores_used(ranks_.front()));
    told_.insert({Delay::no_core, Delay::asleep});
    all_throttled_ = true;
    d_.findings.push_back(std::move(f));
  }

  /// Finds that all ranks run on one core.  A rank that waits for another there also waits for the core, and data too,
  /// so the cost is what cores of their own would save.
  void find_one_core() {
    const auto core_of = [](const RankMeans& m) { return m.sums->core.core(m.sums->steps); };
    const RankMeans& first = ranks_.front();
    const int core = core_of(first);
    if (core < 0 || ranks_.size() < 2 || !std::all_of(ranks_.begin(), ranks_.end(), [&](const RankMeans& m) {
          return core_of(m) == core && place(m.rank).host == place(first.rank).host;
        }))
      return;
    Finding f;
    f.cause = SlowCause::compute;
    f.seconds_a_step = d_.step_seconds * (1 - 1 / static_cast<double>(ranks_.size()));
    f.what = formatted("all ranks run on one core (number {})", core);
    f.advice = core_for_each;
    told_.insert(Delay::no_core);
    d_.findings.push_back(std::move(f));
  }

  void find_common() {
    for (const Delay delay :
         {Delay::input, Delay::saving, Delay::collecting, Delay::compiling, Delay::no_core, Delay::asleep}) {
      const double each = common(delay);
      const bool rare = is_seen_by_hook(delay) && delay != Delay::input;
      const double enough = rare ? worth_a_word : delay == Delay::no_core ? no_core_enough : common_enough;
      if (told_.contains(delay) || each < enough * d_.step_seconds) continue;
      Finding f;
      f.seconds_a_step = each;
      tell_all(f, delay, ranks_.front(), cores_used(ranks_.front()));
      d_.findings.push_back(std::move(f));
    }
  }

  void find_communication() {
    constexpr double small_operation = 64 << 10, many_operations = 50;
    const double count = operations(), moved = median_of(ranks_, [](const RankMeans&m) { return m.moved; });
    const double bytes = static_cast<double>(statistics_.operation_bytes()) / static_cast<double>(d_.steps);
    const bool counted = bytes > 0;  // torch's backends tell no bytes
    const bool small = counted ? count >= 1 && bytes / count < small_operation : count >= many_operations;
    const double called = small ? std::min(count * call_seconds, common(Delay::computing)) : 0;
    if (ranks_.size() < 2 || moved + called < communication_enough * d_.step_seconds) return;
    Finding f;
    f.cause = SlowCause::communication;
    f.seconds_a_step = moved + called;
    if (!small && counted && find_slow_link(f)) return d_.findings.push_back(std::move(f));
    f.what = "every rank waits for data under way, " + duration_text(moved) + " of each step";
    if (small) {
      if (called > moved)
        f.what = formatted("calling operations, and waiting for them, takes every rank {} of each step",
                           duration_text(moved + called));
      f.what += formatted(": latency, {:.0f} operations", count);
      if (counted) f.what += formatted(" of {} each", size_text(bytes / count));
      f.advice = "fewer and larger operations: join tensors, or raise --cycle-time-ms so that more are fused";
    } else if (!counted) {
      f.advice =
          "smaller gradients (a comm hook that sends fp16), a larger batch, or several batches between two steps";
    } else if (const double trip = round_trip(); is_latency(trip, moved / count, bytes / count)) {
      f.what += formatted(": latency, a message between hosts and its answer take {}; {:.0f} operations of {} each",
                          duration_text(trip), count, size_text(bytes / count));
      f.advice =
          "fewer operations that wait for each other: join tensors, or train on hosts that are nearer to each other";
    } else {
      f.what += formatted(": rate, {} a step at {}/s", size_text(bytes), size_text(bytes / moved));
      f.advice = "compression=hvd.Compression.fp16, a larger batch, or gradients of several batches summed first";
    }
    d_.findings.push_back(std::move(f));
  }

  /// The longest round trip between two hosts; 0: not known.
  double round_trip() const {
    double longest = 0;
    for (const RankMeans& m : ranks_)
      for (const auto& [peer, link] : m.sums->links) longest = std::max(longest, link.round_trip);
    return longest;
  }

  /// True if an operation takes a few round trips, and a faster network would not help.  A large one counts as rate,
  /// because parts of several operations travel at once.
  static bool is_latency(double round_trip, double seconds, double bytes) {
    constexpr double least_round_trip = 1e-3, trips = 5, large = 8 << 20;
    return round_trip >= least_round_trip && seconds <= trips * round_trip && bytes < large;
  }

  /// True if one slow link is busy for at least half of the time for which data is under way.  Then @p f has the text.
  bool find_slow_link(Finding& f) const {
    std::vector<UsedLink> links;
    for (const RankMeans& m : ranks_)
      for (const auto& [peer, link] : m.sums->links)
        links.push_back({m.rank, peer, place(m.rank).host, place(peer).host, link.bytes, link.busy});
    const auto slow = slow_link(std::move(links));
    const double busy = slow ? slow->seconds / static_cast<double>(d_.steps) : 0;
    if (!slow || 2 * busy < f.seconds_a_step) return false;
    f.ranks = slow->ranks;
    say_where(f);
    f.seconds_a_step = std::min(f.seconds_a_step, busy * (1 - slow->rate / slow->others_rate));
    tell_slow_link(f, *slow);
    return true;
  }

  /// Finds ranks whose memory grows.  The growth costs no time until the memory is used up.
  void find_memory() {
    Finding f;
    f.cause = SlowCause::memory_creep;
    double fastest = 0;
    std::int64_t grown = 0;
    for (const auto& [rank, course] : statistics_.memory()) {
      const auto growth = course.growth();
      if (!growth || growth->bytes < least_growth) continue;
      f.ranks.push_back(rank);
      fastest = std::max(fastest, growth->bytes_per_step);
      grown = std::max(grown, growth->bytes);
    }
    if (f.ranks.empty()) return;
    if (f.ranks.size() == ranks_.size() && ranks_.size() > 1)
      f.ranks.clear();
    else
      say_where(f);
    f.what = formatted("memory grows by {} a step, {} in the second half of the job", size_text(fastest),
                       human_bytes(grown));
    f.advice = "keep numbers instead of tensors (loss.item()), and look for lists that only grow";
    d_.findings.push_back(std::move(f));
  }

  void tell_balance() {
    const double own = mean_of(ranks_, [](const RankMeans& m) { return m.own; });
    Finding f;
    f.seconds_a_step = own;
    f.what = formatted("{} of each step is the program's own work", percent(own / d_.step_seconds));
    if (ranks_.size() > 1) f.what = "no rank kept the others waiting; " + f.what;
    d_.findings.push_back(std::move(f));
  }

  /// " (3.8 of its 32 cores used)"; empty: not known.
  std::string cores_used(const RankMeans& m) const {
    const RankPlace p = place(m.rank);
    if (p.cores <= 0 || d_.step_seconds <= 0) return "";
    return formatted(" ({:.1f} of its {} used)", m.cpu / d_.step_seconds, count_of(p.cores, "core"));
  }

  RankPlace place(int rank) const {
    const auto it = places_.find(rank);
    return it == places_.end() ? RankPlace{} : it->second;
  }

  static constexpr std::int64_t least_growth = 16 << 20;

  const StepStatistics& statistics_;
  const std::map<int, RankPlace>& places_;
  const std::vector<RankMeans> ranks_;
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
