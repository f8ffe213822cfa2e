#include "launcher/report/diagnosis/cause_text.h"

#include <algorithm>

#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

constexpr double fault_seconds = 50e-6;  // to read a page from a fast disk; other disks take longer
const char* const own_limit = "a higher limit (docker --cpus, cpu.max, Kubernetes' limits.cpu)";
const char* const fewer_threads = "fewer threads a rank (OMP_NUM_THREADS), or fewer ranks on a host";
const char* const no_garbage =
    "gc.freeze() after the model is built, then gc.disable() and gc.collect() every some hundred steps";
const char* const same_shapes =
    "tensors of the same shapes in each step (drop the last batch, or pad it), and the same code on all ranks";
const char* const stacks = "hvdrun stacks, which shows where it stands: a disk, a network, a lock, a pause or a GPU";

/// Advice about batches that come late, in the terms of the rank's loader.
std::string faster_loader(const RankMeans& m) {
  switch (m.sums->loader) {
    case wire::Loader::torch:
      return "more DataLoader workers";
    case wire::Loader::tensorflow:
      return "map(…, num_parallel_calls=tf.data.AUTOTUNE), and prefetch(tf.data.AUTOTUNE) at the end";
    case wire::Loader::none:
    case wire::Loader::other:
      break;
  }
  return "more threads or processes that make batches ahead";
}

/// True if @p m read much more than usual.  The amount must also explain a sleep of @p seconds in each step.
bool reads_storage(const RankMeans& m, double usual_bytes, double seconds) {
  constexpr double slow_disk = 1e6;  // bytes a second, a few hundred small reads
  const auto bytes = static_cast<double>(m.sums->read_bytes);
  return bytes > 4 * usual_bytes + 1e6 && bytes > slow_disk * seconds * static_cast<double>(m.sums->steps);
}

/// True if the kernel's counts explain the delay: the cgroup's processor limit, or memory read back from storage.  The
/// finding then has its cause, text and advice.
bool tell_held(Finding& f, const LateRanks& l, const std::string& where, const std::string& cores) {
  const RankMeans& late = l.late.front();
  const auto throttled = [](const RankMeans& m) { return m.throttled; };
  const auto faults = [](const RankMeans& m) {
    return static_cast<double>(m.sums->major_faults) / static_cast<double>(m.sums->steps);
  };
  f.cause = SlowCause::straggler;
  if (const double held = late.throttled - median_of(l.others, throttled); held > f.seconds_a_step / 2) {
    f.what = "was throttled for " + duration_text(held) + " of each step by the processor limit of its container,";
    f.advice = own_limit + where + cores;
    return true;
  }
  if (const double more = faults(late) - median_of(l.others, faults); more * fault_seconds > f.seconds_a_step / 2) {
    f.what = formatted("read {:.0f} pages of its memory back from storage in each step,", more);
    f.advice = "less memory" + where + ": it swaps, or reads mapped files that do not stay in its page cache";
    return true;
  }
  return false;
}

void tell_asleep(Finding& f, const LateRanks& l, const std::string& ms, const std::string& where) {
  const auto bytes = [](const RankMeans& m) { return static_cast<double>(m.sums->read_bytes); };
  const bool reads = reads_storage(l.late.front(), median_of(l.others, bytes), l.lost);
  f.cause = SlowCause::straggler;
  f.what = "was asleep for " + ms + (reads ? ", reading from storage," : ", outside of any operation,");
  f.advice = reads ? "a faster disk" + where + ", or data that stays in memory" : stacks;
}

}  // namespace

std::string size_text(double bytes) {
  if (bytes < 1024) return formatted("{:.0f} bytes", bytes);
  return bytes < (1 << 20) ? formatted("{:.3g} KiB", bytes / 1024) : human_bytes(static_cast<std::int64_t>(bytes));
}

void tell_late(Finding& f, Delay delay, const LateRanks& l, const std::string& cores) {
  const RankMeans& late = l.late.front();
  const std::string ms = duration_text(l.each);
  const std::string where = f.host.empty() ? "" : " on " + f.host;
  if (!is_seen_by_hook(delay) && tell_held(f, l, where, cores)) return;
  f.certain = delay != Delay::no_core && delay != Delay::computing;
  switch (delay) {
    case Delay::input:
      f.cause = SlowCause::input;
      f.what = "its batches came " + ms + " late";
      f.advice = faster_loader(late) + where + cores;
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
      f.advice = no_garbage;
      return;
    case Delay::compiling:
      f.cause = SlowCause::compilation;
      f.what = "compiled its program again, " + ms + " each,";
      f.advice = same_shapes;
      return;
    case Delay::no_core:
      f.cause = SlowCause::straggler;
      f.what = "had no core to run on for " + ms;
      f.advice = "see what else runs" + where + ", and whether a limit of its container throttles it" + cores;
      return;
    case Delay::asleep:
      return tell_asleep(f, l, ms, where);
    case Delay::computing:
      f.cause = SlowCause::straggler;
      f.what = formatted("computed {} longer ({} of its own work a step, the others {})", ms, duration_text(late.own),
                         duration_text(median_of(l.others, [](const RankMeans& m) { return m.own; })));
      f.advice = "is its share of the data larger, or its processor slower" + where + "?";
      return;
  }
}

void tell_turns(Finding& f, Delay delay, const RankMeans& any) {
  const std::string ms = duration_text(f.seconds_a_step);
  f.certain = is_seen_by_hook(delay);
  switch (delay) {
    case Delay::input:
      f.cause = SlowCause::input;
      f.what = "batches come late now and then, " + ms + " a step";
      f.advice = faster_loader(any) + (any.sums->loader == wire::Loader::torch ? ", or a larger prefetch_factor" : "");
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
    case Delay::compiling:
      f.cause = SlowCause::compilation;
      f.what = "ranks compile their programs again at different times, " + ms + " a step";
      f.advice = same_shapes;
      return;
    case Delay::no_core:
      f.cause = SlowCause::compute;
      f.what = "ranks had to wait for a core, " + ms + " a step";
      f.advice = fewer_threads;
      return;
    case Delay::asleep:
    case Delay::computing:
      f.cause = SlowCause::compute;
      f.what = "the ranks' work is uneven, " + ms + " a step";
      f.advice = "batches of equal work (sort by length), or fewer threads a rank where cores are short";
      return;
  }
}

void tell_all(Finding& f, Delay delay, const RankMeans& any, const std::string& cores) {
  const std::string ms = duration_text(f.seconds_a_step) + " of each step";
  f.cause = SlowCause::compute;
  f.certain = delay != Delay::no_core;
  switch (delay) {
    case Delay::input:
      f.cause = SlowCause::input;
      f.what = "every rank waits for its batches, " + ms;
      f.advice =
          part_of(any.parts, Delay::no_core) > part_of(any.parts, Delay::input)
              ? "more cores, or fewer loading workers and threads: a rank waits longer for a core than for its batches"
              : faster_loader(any) + cores;
      return;
    case Delay::saving:
      f.cause = SlowCause::checkpoint;
      f.what = "every rank writes checkpoints, " + ms;
      f.advice = "save less often, or copy the state first and write it in a thread";
      return;
    case Delay::collecting:
      f.cause = SlowCause::collector;
      f.what = "Python's garbage collector takes " + ms;
      f.advice = no_garbage;
      return;
    case Delay::compiling:
      f.cause = SlowCause::compilation;
      f.what = "every rank compiles its program again, " + ms;
      f.advice = same_shapes;
      return;
    case Delay::no_core:
      f.what = "every rank waits for a core, " + ms;
      f.advice = fewer_threads;
      return;
    case Delay::asleep:
      f.what = "every rank is asleep outside of any operation, " + ms;
      f.advice = stacks;
      return;
    case Delay::computing:
      return;
  }
}

void tell_all_throttled(Finding& f, double each, const std::string& cores) {
  f.cause = SlowCause::compute;
  f.what = "every rank is throttled by the processor limit of its container, " + duration_text(each) + " of each step";
  if (f.seconds_a_step > 1.5 * each) f.what += ", one of them " + duration_text(f.seconds_a_step);
  f.advice = own_limit + cores;
}

void tell_slow_loaders(Finding& f, double made, const LateRanks& l, const std::string& cores) {
  f.cause = SlowCause::input;
  f.what =
      formatted("no rank's loader is fast enough: {} to make what a step needs, for {} of work; rank {} is the last",
                duration_text(made), duration_text(l.late.front().own - l.late.front().parts[0]), l.late.front().rank);
  f.advice = faster_loader(l.late.front()) + " on all ranks" + cores;
}

void tell_slow_link(Finding& f, const SlowLink& link) {
  f.cause = SlowCause::communication;
  const std::string way = link.sends && link.receives ? " sends and receives" : link.sends ? " sends" : " receives";
  const std::string other = link.other.empty() ? "" : (link.sends ? " to " : " from ") + link.other;
  f.what = formatted("one link is slow: {}{}{} at {}/s, the others at {}/s or more", link.host, way, other,
                     size_text(link.rate), size_text(link.others_rate));
  f.advice =
      "check its network interface and cable (ethtool); hvdrun -m hvd.network, with a rank on each host, measures "
      "every pair";
}

}  // namespace hvd::launcher
