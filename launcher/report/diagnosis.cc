#include "launcher/report/diagnosis.h"

#include <algorithm>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "launcher/report/late_ranks.h"

namespace hvd::launcher {

namespace {

// Shares of a step.
constexpr double worth_a_word = 0.05;  // as small a gain is hardly worth a change of one's program
// Where another rank is last each time and nothing says why: the last of several ranks that are alike but for 5 % of
// noise (simulated_job.h) costs a tenth, so twice that.
constexpr double worth_a_word_noise = 0.2;
constexpr double common_enough = 0.10;         // what all ranks do: no rank waits for it, it only is their time
constexpr double communication_enough = 0.15;  // likewise; some of it is there in every job
// A busy machine takes its cores away now and then; a quarter of the time is more than its own daemons take.
constexpr double no_core_enough = 0.25;
// What an operation costs may count as a rank's own work: who comes last runs it within its own call.  4 to 8 µs were
// seen, of two ranks.
constexpr double operation_seconds = 10e-6;
// Ranks that are alike stay that far apart for a whole job where a machine's cores differ: 0.57 to 0.82 ms were seen in
// steps of 5 ms, in three of 42 jobs in which nothing was planted.  Of short steps it still is a word's worth as a
// fifth.
constexpr double unequal_cores_seconds = 1e-3;

bool is_seen_by_hook(Delay delay) {
  return delay == Delay::input || delay == Delay::saving || delay == Delay::collecting;
}

double part_of(const DelaySeconds& parts, Delay delay) { return parts[static_cast<std::size_t>(delay)]; }

/// "32 bytes", "12 KiB", "48 MiB".
std::string size_text(double bytes) {
  if (bytes < 1024) return formatted("{:.0f} bytes", bytes);
  return bytes < (1 << 20) ? formatted("{:.3g} KiB", bytes / 1024) : human_bytes(static_cast<std::int64_t>(bytes));
}

std::string percent(double share) { return formatted("{:.0f} %", 100 * share); }

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
    find_late_ranks();
    find_turns();
    find_throttled();
    find_common();
    find_communication();
    find_memory();
    std::stable_sort(d_.findings.begin(), d_.findings.end(),
                     [this](const Finding& a, const Finding& b) { return weight(a) > weight(b); });
    if (d_.findings.empty()) tell_balance();
    return d_;
  }

 private:
  /// The largest cost first.  Memory costs nothing until it is used up; and what the ranks spend for want of cores is
  /// often the other causes' effect, as is data that comes late from a rank without a core.  But operations that are so
  /// many that they alone cost enough need no other cause.
  double weight(const Finding& f) const {
    if (f.cause == SlowCause::memory_creep) return common_enough * d_.step_seconds;
    const bool cores_are_short = common(Delay::no_core) > no_core_enough * d_.step_seconds;
    const bool effect = (f.cause == SlowCause::compute && !all_throttled_) ||
                        (f.cause == SlowCause::communication && cores_are_short &&
                         operations() * operation_seconds < worth_a_word * d_.step_seconds);
    return effect ? f.seconds_a_step / 4 : f.seconds_a_step;
  }

  /// Of a step.
  double operations() const { return static_cast<double>(statistics_.operations()) / static_cast<double>(d_.steps); }

  // ---- who keeps the others waiting --------------------------------------------------------------------------------

  void find_late_ranks() {
    const auto l = late_ranks(statistics_, ranks_);
    if (!l || l->lost < worth_a_word * d_.step_seconds) return;
    const Delay delay = reason_of(*l);
    if (!is_seen_by_hook(delay) && is_chance(*l)) return;
    Finding f;
    for (const RankMeans& m : l->late) f.ranks.push_back(m.rank);
    std::sort(f.ranks.begin(), f.ranks.end());
    say_where(f);
    f.seconds_a_step = l->gap;
    f.share_of_steps = l->share_of_steps;
    f.seconds_in_all = l->lost * static_cast<double>(d_.steps);
    late_.insert(f.ranks.begin(), f.ranks.end());
    describe(f, delay, l->each, l->late.front(), l->others);
    f.what += formatted(" in {} of the steps; {} waited for it: {} of {} in all", percent(f.share_of_steps),
                        count_of(static_cast<long long>(l->others.size()), "rank"), duration_text(f.seconds_in_all),
                        duration_text(statistics_.seconds()));
    d_.findings.push_back(std::move(f));
  }

  /// What they do longer than the others.  What a hook saw counts where it is at least half of it: the rest of their
  /// time may differ as well.
  Delay reason_of(const LateRanks& l) const {
    DelaySeconds excess{};
    for (std::size_t i = 0; i < delay_kinds; ++i) {
      const auto part = [i](const RankMeans& m) { return m.parts[i]; };
      excess[i] = mean_of(l.late, part) - median_of(l.others, part);
    }
    const auto most = [&](bool hooks) {
      std::size_t at = delay_kinds - 1;
      for (std::size_t i = 0; i < delay_kinds; ++i)
        if ((hooks || !is_seen_by_hook(static_cast<Delay>(i))) && excess[i] > excess[at]) at = i;
      return static_cast<Delay>(at);
    };
    const Delay delay = most(true);
    return is_seen_by_hook(delay) && part_of(excess, delay) < l.lost / 2 ? most(false) : delay;
  }

  /// Where no hook saw the reason: on a busy host some rank is always the slowest.  Then it must be so all the time,
  /// not only on the whole; and the same rank is last in three of five steps (of two that are alike each is in one of
  /// two), or stops for long.  Of several ranks each is last by turns.
  bool is_chance(const LateRanks& l) const {
    if (!l.certainly_lost || *l.certainly_lost < worth_a_word * d_.step_seconds) return true;
    if (l.lost < operations() * operation_seconds) return true;
    if (l.lost < std::min(unequal_cores_seconds, worth_a_word_noise * d_.step_seconds)) return true;
    const bool long_stops = l.each > d_.step_seconds / 2 && l.lost > 2 * worth_a_word * d_.step_seconds;
    return l.late.size() == 1 && l.share_of_steps < 0.6 && !long_stops;
  }

  void describe(Finding& f, Delay delay, double each, const RankMeans& late, const std::vector<RankMeans>& others) {
    const std::string ms = duration_text(each);
    const std::string where = f.host.empty() ? "" : " on " + f.host;
    if (!is_seen_by_hook(delay) && tell_held(f, late, others, where)) return;
    switch (delay) {
      case Delay::input:
        f.cause = SlowCause::input;
        f.what = "its batches came " + ms + " late";
        f.advice = "more DataLoader workers" + where + cores_used(late);
        return;
      case Delay::saving:
        f.cause = SlowCause::checkpoint;
        f.what = "wrote checkpoints, " + ms + " each,";
        f.advice =
            "save less often, or copy the state first and write it in a thread "
            "(torch.distributed.checkpoint.async_save)";
        return;
      case Delay::collecting:
        f.cause = SlowCause::collector;
        f.what = "Python's garbage collector took " + ms;
        f.advice = "gc.freeze() after the model is built, then gc.disable() and gc.collect() every some hundred steps";
        return;
      case Delay::no_core:
        f.cause = SlowCause::straggler;
        f.what = "had no core to run on for " + ms;
        f.advice =
            "see what else runs" + where + ", and whether a limit of its container throttles it" + cores_used(late);
        return;
      case Delay::asleep:
        f.cause = SlowCause::straggler;
        f.what = "was asleep for " + ms +
                 (reads_storage(late, others) ? ", reading from storage," : ", outside of any operation,");
        f.advice = reads_storage(late, others)
                       ? "a faster disk" + where + ", or data that stays in memory"
                       : "hvdrun stacks shows where it stands: a disk, a network, a lock or a pause";
        return;
      case Delay::computing:
        f.cause = SlowCause::straggler;
        f.what = formatted("computed {} longer ({} of its own work a step, the others {})", ms, duration_text(late.own),
                           duration_text(median_of(others, [](const RankMeans& m) { return m.own; })));
        f.advice = "is its share of the data larger, or its processor slower" + where + "?";
        return;
    }
  }

  /// What the kernel says of a rank without a core, or asleep: its cgroup's limit, or memory that had to be read back.
  bool tell_held(Finding& f, const RankMeans& late, const std::vector<RankMeans>& others, const std::string& where) {
    const auto throttled = [](const RankMeans& m) { return m.throttled; };
    const auto faults = [&](const RankMeans& m) {
      return static_cast<double>(m.sums->major_faults) / static_cast<double>(m.sums->steps);
    };
    f.cause = SlowCause::straggler;
    if (const double held = late.throttled - median_of(others, throttled); held > f.seconds_a_step / 2) {
      f.what = "was throttled for " + duration_text(held) + " of each step by the processor limit of its container,";
      f.advice = "a higher limit (docker --cpus, cpu.max, Kubernetes' limits.cpu)" + where + cores_used(late);
      return true;
    }
    if (const double more = faults(late) - median_of(others, faults); more * fault_seconds > f.seconds_a_step / 2) {
      f.what = formatted("read {:.0f} pages of its memory back from storage in each step,", more);
      f.advice = "less memory" + where + ": it swaps, or reads mapped files that do not stay in its page cache";
      return true;
    }
    return false;
  }

  bool reads_storage(const RankMeans& late, const std::vector<RankMeans>& others) const {
    const auto bytes = [](const RankMeans& m) { return static_cast<double>(m.sums->read_bytes); };
    return bytes(late) > 4 * median_of(others, bytes) + 1e6;
  }

  void say_where(Finding& f) const {
    const std::string host = place(f.ranks[0]).host;
    if (!std::all_of(f.ranks.begin(), f.ranks.end(), [&](int r) { return place(r).host == host; })) return;
    f.host = host;
    const auto there = static_cast<std::size_t>(
        std::count_if(ranks_.begin(), ranks_.end(), [&](const RankMeans& m) { return place(m.rank).host == host; }));
    f.whole_host = there == f.ranks.size() && there > 1 && there < ranks_.size();
  }

  /// Another rank is last each time.
  void find_turns() {
    DelaySeconds late{};
    double steps = 0;
    for (const RankMeans& m : ranks_) {
      if (late_.contains(m.rank)) continue;
      for (std::size_t i = 0; i < delay_kinds; ++i) late[i] += m.sums->late_by[i];
      steps += static_cast<double>(m.sums->late_steps);
    }
    for (std::size_t i = 0; i < delay_kinds; ++i) {
      const auto delay = static_cast<Delay>(i);
      const bool seen = is_seen_by_hook(delay);
      const double cost = late[i] / static_cast<double>(d_.steps);
      if (cost < (seen ? worth_a_word : worth_a_word_noise) * d_.step_seconds) continue;
      if (seen && cost < common(delay)) continue;  // all of them do it, and not at the same moment
      Finding f;
      f.seconds_a_step = cost;
      f.share_of_steps = std::min(1.0, steps / static_cast<double>(d_.steps));
      f.seconds_in_all = late[i];
      describe_turns(f, delay);
      told_.insert(delay);
      f.what += formatted(", another rank each time: {} of {} in all", duration_text(late[i]),
                          duration_text(statistics_.seconds()));
      d_.findings.push_back(std::move(f));
    }
  }

  void describe_turns(Finding& f, Delay delay) const {
    const std::string ms = duration_text(f.seconds_a_step);
    switch (delay) {
      case Delay::input:
        f.cause = SlowCause::input;
        f.what = "batches come late now and then, " + ms + " a step";
        f.advice = "more DataLoader workers, or a larger prefetch_factor";
        return;
      case Delay::saving:
        f.cause = SlowCause::checkpoint;
        f.what = "a rank writes a checkpoint while the others wait, " + ms + " a step";
        f.advice = "save less often, or write in a thread";
        return;
      case Delay::collecting:
        f.cause = SlowCause::collector;
        f.what = "the garbage collectors of the ranks run at different times, " + ms + " a step";
        f.advice = "gc.disable(), and gc.collect() on all ranks in the same step";
        return;
      case Delay::no_core:
        f.cause = SlowCause::compute;
        f.what = "ranks had to wait for a core, " + ms + " a step";
        f.advice = "fewer threads a rank (OMP_NUM_THREADS), or fewer ranks on a host";
        return;
      case Delay::asleep:
      case Delay::computing:
        f.cause = SlowCause::compute;
        f.what = "the ranks' work is uneven, " + ms + " a step";
        f.advice = "batches of equal work (sort by length), or fewer threads a rank where cores are short";
        return;
    }
  }

  // ---- what all ranks do -------------------------------------------------------------------------------------------

  /// What every rank spends so in a step.
  double common(Delay delay) const {
    return median_of(ranks_, [delay](const RankMeans& m) { return part_of(m.parts, delay); });
  }

  /// All of a container's ranks share its limit; then they do not lack cores.
  void find_throttled() {
    const double each = median_of(ranks_, [](const RankMeans& m) { return m.throttled; });
    if (each < common_enough * d_.step_seconds) return;
    Finding f;
    f.cause = SlowCause::compute;
    f.seconds_a_step = each;
    f.what =
        "every rank is throttled by the processor limit of its container, " + duration_text(each) + " of each step";
    f.advice = "a higher limit (docker --cpus, cpu.max, Kubernetes' limits.cpu)" + cores_used(ranks_.front());
    told_.insert(Delay::no_core);
    all_throttled_ = true;
    d_.findings.push_back(std::move(f));
  }

  void find_common() {
    for (const Delay delay : {Delay::input, Delay::saving, Delay::collecting, Delay::no_core}) {
      const double each = common(delay);
      const bool rare = delay == Delay::saving || delay == Delay::collecting;
      const double enough = rare ? worth_a_word : delay == Delay::no_core ? no_core_enough : common_enough;
      if (told_.contains(delay) || each < enough * d_.step_seconds) continue;
      Finding f;
      f.seconds_a_step = each;
      const std::string ms = duration_text(each) + " of each step";
      if (delay == Delay::input) {
        f.cause = SlowCause::input;
        f.what = "every rank waits for its batches, " + ms;
        f.advice = "more DataLoader workers" + cores_used(ranks_.front());
      } else if (delay == Delay::saving) {
        f.cause = SlowCause::checkpoint;
        f.what = "every rank writes checkpoints, " + ms;
        f.advice = "save less often, or copy the state first and write it in a thread";
      } else if (delay == Delay::collecting) {
        f.cause = SlowCause::collector;
        f.what = "Python's garbage collector takes " + ms;
        f.advice = "gc.freeze() after the model is built, then gc.disable() and gc.collect() every some hundred steps";
      } else {
        f.cause = SlowCause::compute;
        f.what = "every rank waits for a core, " + ms;
        f.advice = "fewer threads a rank (OMP_NUM_THREADS), or fewer ranks on a host";
      }
      d_.findings.push_back(std::move(f));
    }
  }

  void find_communication() {
    const double moved = median_of(ranks_, [](const RankMeans& m) { return m.moved; });
    if (ranks_.size() < 2 || moved < communication_enough * d_.step_seconds) return;
    constexpr double small_operation = 64 << 10;
    const double count = operations();
    const double bytes = static_cast<double>(statistics_.operation_bytes()) / static_cast<double>(d_.steps);
    Finding f;
    f.cause = SlowCause::communication;
    f.seconds_a_step = moved;
    f.what = "every rank waits for data under way, " + duration_text(moved) + " of each step";
    if (count >= 1 && bytes / count < small_operation) {
      f.what += formatted(": latency, {:.0f} operations of {} each", count, size_text(bytes / count));
      f.advice = "fewer and larger operations: join tensors, or raise --cycle-time-ms so that more are fused";
    } else {
      f.what += formatted(": rate, {} a step at {}/s", size_text(bytes), size_text(bytes / moved));
      f.advice = "compression=hvd.Compression.fp16, a larger batch, or gradients of several batches summed first";
    }
    d_.findings.push_back(std::move(f));
  }

  /// The ranks whose memory grows; it costs no time until it is used up.
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

  /// " (4 of 32 cores used)", where it is known.
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
  static constexpr double fault_seconds = 50e-6;  ///< of a page from a fast disk; others take longer

  const StepStatistics& statistics_;
  const std::map<int, RankPlace>& places_;
  const std::vector<RankMeans> ranks_;
  std::set<int> late_;    ///< ranks of which a finding tells
  std::set<Delay> told_;  ///< what ranks do in turns, or is told otherwise
  bool all_throttled_ = false;
  Diagnosis d_;
};

}  // namespace

Diagnosis diagnose(const StepStatistics& statistics, const std::map<int, RankPlace>& places) {
  return Examiner(statistics, places).examine();
}

}  // namespace hvd::launcher
