#include "launcher/report/diagnosis.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

constexpr double worth_a_word = 0.05;       // of a step
constexpr double worth_a_word_noise = 0.2;  // where another rank is last each time, and nothing says why
constexpr double common_enough = 0.10;      // of a step: what all ranks do
constexpr double communication_enough = 0.15;
constexpr double no_core_enough = 0.25;

double part_of(const DelaySeconds& parts, Delay delay) { return parts[static_cast<std::size_t>(delay)]; }

/// Means of a step.
struct RankMeans {
  int rank = 0;
  double waited = 0, moved = 0, cpu = 0, own = 0;
  DelaySeconds parts{};
  const RankSums* sums = nullptr;
};

std::vector<RankMeans> means_of(const StepStatistics& statistics) {
  std::vector<RankMeans> means;
  for (const auto& [rank, s] : statistics.ranks()) {
    const auto n = static_cast<double>(s.steps);
    RankMeans m{rank, s.waited / n, s.moved / n, s.cpu / n, (s.seconds - s.waited - s.moved) / n, {}, &s};
    for (std::size_t i = 0; i < delay_kinds; ++i) m.parts[i] = s.parts[i] / n;
    means.push_back(m);
  }
  return means;
}

template <typename Value>
double median_of(const std::vector<RankMeans>& ranks, Value value) {
  std::vector<double> values;
  for (const RankMeans& m : ranks) values.push_back(value(m));
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename Value>
double mean_of(const std::vector<RankMeans>& ranks, Value value) {
  double sum = 0;
  for (const RankMeans& m : ranks) sum += value(m);
  return ranks.empty() ? 0 : sum / static_cast<double>(ranks.size());
}

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
  /// often the other causes' effect.
  double weight(const Finding& f) const {
    if (f.cause == SlowCause::memory_creep) return common_enough * d_.step_seconds;
    const bool cores_are_short = common(Delay::no_core) > no_core_enough * d_.step_seconds;
    const bool effect = f.cause == SlowCause::compute || (f.cause == SlowCause::communication && cores_are_short);
    return effect ? f.seconds_a_step / 4 : f.seconds_a_step;
  }

  // ---- who keeps the others waiting --------------------------------------------------------------------------------

  /// The ranks that waited least, where a gap divides them from the others.
  void find_late_ranks() {
    if (ranks_.size() < 2) return;
    std::vector<RankMeans> sorted = ranks_;
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.waited < b.waited; });
    std::size_t count = 0;
    double gap = 0;
    for (std::size_t n = 1; 2 * n <= sorted.size() || n == 1; ++n)
      if (const double g = sorted[n].waited - sorted[n - 1].waited; g > gap) count = n, gap = g;
    if (!count) return;
    const std::vector<RankMeans> late(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count));
    const std::vector<RankMeans> others(sorted.begin() + static_cast<std::ptrdiff_t>(count), sorted.end());
    const auto waited = [](const RankMeans& m) { return m.waited; };
    const double lost = mean_of(others, waited) - mean_of(late, waited);
    if (lost < worth_a_word * d_.step_seconds || gap < lost / 3) return;
    tell_late(late, others, lost, gap);
  }

  void tell_late(const std::vector<RankMeans>& late, const std::vector<RankMeans>& others, double lost, double gap) {
    DelaySeconds excess{};
    for (std::size_t i = 0; i < delay_kinds; ++i) {
      const auto part = [i](const RankMeans& m) { return m.parts[i]; };
      excess[i] = mean_of(late, part) - median_of(others, part);
    }
    const auto most = static_cast<std::size_t>(std::max_element(excess.begin(), excess.end()) - excess.begin());
    Finding f;
    for (const RankMeans& m : late) f.ranks.push_back(m.rank);
    std::sort(f.ranks.begin(), f.ranks.end());
    say_where(f);
    f.seconds_a_step = gap;
    double late_steps = 0, late_seconds = 0;
    for (const RankMeans& m : late) late_steps += static_cast<double>(m.sums->late_steps), late_seconds += m.sums->late;
    f.share_of_steps = std::min(1.0, late_steps / static_cast<double>(d_.steps));
    f.seconds_in_all = lost * static_cast<double>(d_.steps);
    const double each = f.share_of_steps > 0 ? std::max(late_seconds / late_steps, lost) : lost;
    if (is_chance(static_cast<Delay>(most), late.size() > 1 ? 1 : f.share_of_steps, each, lost)) return;
    for (const RankMeans& m : late) late_.insert(m.rank);
    describe(f, static_cast<Delay>(most), each, late.front(), others);
    f.what += formatted(" in {} of the steps; {} waited for it: {} of {} in all", percent(f.share_of_steps),
                        count_of(static_cast<long long>(others.size()), "rank"), duration_text(f.seconds_in_all),
                        duration_text(statistics_.seconds()));
    d_.findings.push_back(std::move(f));
  }

  /// Where no hook saw the reason: on a busy host some rank is always the slowest.  Then the same rank is last in most
  /// steps, or stops for long; and by more than what all ranks wait for cores.  (Of several ranks each is last by
  /// turns.)
  bool is_chance(Delay delay, double share_of_steps, double each, double lost) const {
    if (delay == Delay::input || delay == Delay::saving || delay == Delay::collecting) return false;
    const bool long_stops = each > d_.step_seconds / 2 && lost > 2 * worth_a_word * d_.step_seconds;
    return (share_of_steps < 0.6 && !long_stops) || lost < common(Delay::no_core);
  }

  void describe(Finding& f, Delay delay, double each, const RankMeans& late, const std::vector<RankMeans>& others) {
    const std::string ms = duration_text(each);
    const std::string where = f.host.empty() ? "" : " on " + f.host;
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
      const bool seen = delay == Delay::input || delay == Delay::saving || delay == Delay::collecting;
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
    const double operations = static_cast<double>(statistics_.operations()) / static_cast<double>(d_.steps);
    const double bytes = static_cast<double>(statistics_.operation_bytes()) / static_cast<double>(d_.steps);
    Finding f;
    f.cause = SlowCause::communication;
    f.seconds_a_step = moved;
    f.what = "every rank waits for data under way, " + duration_text(moved) + " of each step";
    if (operations >= 1 && bytes / operations < small_operation) {
      f.what += formatted(": latency, {:.0f} operations of {} each", operations, size_text(bytes / operations));
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

  const StepStatistics& statistics_;
  const std::map<int, RankPlace>& places_;
  const std::vector<RankMeans> ranks_;
  std::set<int> late_;    ///< ranks of which a finding tells
  std::set<Delay> told_;  ///< what ranks do in turns
  Diagnosis d_;
};

/// "rank 5 (node2): ", "ranks 4-7 (all of node2): ".
std::string whose(const Finding& f) {
  if (f.ranks.empty()) return "";
  const std::string where = f.host.empty() ? "" : formatted(" ({}{})", f.whole_host ? "all of " : "", f.host);
  return (f.ranks.size() == 1 ? "rank " : "ranks ") + ranges(f.ranks) + where + ": ";
}

}  // namespace

const char* cause_word(SlowCause cause) {
  switch (cause) {
    case SlowCause::input:
      return "INPUT";
    case SlowCause::compute:
      return "COMPUTE";
    case SlowCause::communication:
      return "COMMUNICATION";
    case SlowCause::straggler:
      return "STRAGGLER";
    case SlowCause::checkpoint:
      return "CHECKPOINT";
    case SlowCause::collector:
      return "GC";
    case SlowCause::memory_creep:
      return "MEMORY_CREEP";
    case SlowCause::balanced:
      return "BALANCED";
  }
  return "";
}

std::string duration_text(double seconds) {
  if (seconds >= 3600) {
    const auto minutes = static_cast<long>(seconds / 60 + 0.5);
    return formatted("{} h {} min", minutes / 60, minutes % 60);
  }
  if (seconds >= 60) {
    const auto whole = static_cast<long>(seconds + 0.5);
    return formatted("{} min {} s", whole / 60, whole % 60);
  }
  if (seconds >= 1) return formatted("{:.3g} s", seconds);
  if (seconds >= 1e-3) return formatted("{:.3g} ms", seconds * 1e3);
  return formatted("{:.3g} µs", seconds * 1e6);
}

Diagnosis diagnose(const StepStatistics& statistics, const std::map<int, RankPlace>& places) {
  return Examiner(statistics, places).examine();
}

std::vector<std::string> diagnosis_lines(const Diagnosis& d) {
  if (d.steps == 0 || d.step_seconds <= 0) return {};
  std::vector<std::string> lines{formatted("hvdrun: {}, {} each; {} of it ({}) was waiting", count_of(d.steps, "step"),
                                           duration_text(d.step_seconds), percent(d.waiting_seconds / d.step_seconds),
                                           duration_text(d.waiting_seconds))};
  for (const Finding& f : d.findings) {
    lines.push_back(formatted("  {}  {}{}", cause_word(f.cause), whose(f), f.what));
    std::string second;
    if (f.seconds_a_step > 0 && f.cause != SlowCause::balanced && f.cause != SlowCause::memory_creep)
      second = formatted("  Without it: {} a step (−{}). ", duration_text(d.step_seconds - f.seconds_a_step),
                         percent(f.seconds_a_step / d.step_seconds));
    if (!f.advice.empty())
      second += (second.empty() ? "  Try: " : "Try: ") + f.advice + (f.advice.back() == '?' ? "" : ".");
    if (!second.empty()) lines.push_back(second);
  }
  return lines;
}

}  // namespace hvd::launcher
