#include "rank/diagnostics/usage.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "base/format.h"
#include "base/process/process.h"
#include "base/text.h"
#include "rank/diagnostics/nvml.h"

namespace hvd::rank {
namespace {

/// Loads with acquire, so before a later second read of `turn`.
std::string text_in(const std::span<const std::atomic<char>> letters) {
  std::string text;
  for (const std::atomic<char>& c : letters) {
    const char letter = c.load(std::memory_order_acquire);
    if (!letter) break;
    text += static_cast<unsigned char>(letter) < ' ' ? '?' : letter;
  }
  return text;
}

}  // namespace

StatusPageReader::StatusPageReader() : memory_("hvdrank-tally", wire::status_page_bytes) {
  if (!memory_.data()) return;
  page_ = new (memory_.data()) wire::StatusPage;
  page_->mark = wire::status_page_mark;
}

void StatusPageReader::tell_host_change(std::uint64_t change) {
  if (!page_) return;
  auto* const word = reinterpret_cast<char*>(page_) + wire::host_changes_at;
  // An announcement keeps the number of the last change, because the rank may not have seen that change yet.
  host_changes_ = change == 0 ? host_changes_ | 4 : 8 * (host_changes_ / 8 + 1) + (change & 3);
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(word)).store(host_changes_);
}

/// Leaves out impossible values, because the rank's process can write anything to the page.
void StatusPageReader::fill(wire::DeathRecord* r) const {
  if (!page_) return;
  const std::int64_t steps = page_->steps.load(), timed = page_->timed_steps.load();
  const std::int64_t span = page_->last_ns.load() - page_->first_ns.load(), waited = page_->waited_ns.load();
  if (steps < 0) return;
  r->steps = steps;
  if (timed <= 0 || span <= 0 || waited < 0) return;
  r->step_seconds = static_cast<double>(span) / 1e9 / static_cast<double>(timed);
  r->waited_seconds = static_cast<double>(std::min(waited, span)) / 1e9 / static_cast<double>(timed);
}

wire::StatusReport StatusPageReader::standing(std::int64_t now_ns) const {
  wire::StatusReport s;
  if (!page_) return s;
  const auto seconds_since = [now_ns](std::int64_t then) {
    return then > 0 && then < now_ns ? static_cast<double>(now_ns - then) / 1e9 : 0.0;
  };
  s.place = std::min(page_->place.load(std::memory_order_acquire), wire::RankPhase::leaving);
  s.place_seconds = seconds_since(page_->place_ns.load());
  const std::uint32_t turn = page_->turn.load(std::memory_order_acquire);
  const std::int64_t since = page_->waits_ns.load();
  if (since <= 0 || turn % 2 != 0) return s;
  std::string name = text_in(page_->waits_for), late = text_in(page_->gpu_late), what = text_in(page_->waits_what);
  const wire::GpuProgress gpu = std::min(page_->gpu.load(std::memory_order_acquire), wire::GpuProgress::exchanging);
  if (page_->turn.load() != turn || page_->waits_ns.load() != since) return s;
  s.waits_for = std::move(name);
  s.gpu = gpu;
  s.gpu_late = std::move(late);
  s.waits_what = std::move(what);
  s.waited_seconds = seconds_since(since);
  return s;
}

std::optional<wire::StatusReport> StatusChanges::next(wire::StatusReport now) {
  if (now.waited_seconds < long_wait_seconds)
    now = {.place = now.place, .place_seconds = now.place_seconds, .idle_seconds = now.idle_seconds};
  if (now.idle_seconds < long_idle_seconds) now.idle_seconds = 0;
  // A longer time under the same name is the same wait.  A shorter time is a new wait.
  const bool same = now.waits_for == told_.waits_for && now.waited_seconds >= told_.waited_seconds &&
                    now.gpu == told_.gpu && now.gpu_late == told_.gpu_late;
  const bool idle_as_before = (now.idle_seconds > 0) == (told_.idle_seconds > 0);
  if (now.place == told_.place && same && idle_as_before) {
    told_.waited_seconds = now.waited_seconds;
    return std::nullopt;
  }
  return told_ = now;
}

namespace {

constexpr auto look_every = std::chrono::seconds(1);
constexpr auto most_time_for_errors =
    std::chrono::milliseconds(500);  // limit for the driver's errors after a rank's death
constexpr int most_generations = 64;

pid_t parent_of(pid_t pid) {
  const auto entry = process_entry(pid);
  return entry ? entry->parent : 0;
}

bool is_below(pid_t pid, pid_t rank) {
  for (int i = 0; i < most_generations && pid > 1; ++i, pid = parent_of(pid))
    if (pid == rank) return true;
  return false;
}

std::string command_of(pid_t pid) { return first_line(formatted("/proc/{}/comm", pid)); }

}  // namespace

struct GpuWatch::State {
  std::mutex mutex;
  std::condition_variable change;
  bool over = false;
  bool errors_wanted = false;  ///< a request for errors; the thread clears the flag after it has looked
  bool gone = false;           ///< the thread has ended
  double busy_sum = 0;
  bool is_busy = false;
  int samples = 0;
  std::int64_t peak_bytes = 0;
  std::set<int> own;             ///< the rank's processes that had memory on the GPU
  std::int64_t left_bytes = -1;  ///< of them, when errors were last wanted
  GpuFacts facts;

  void run(const std::string& gpu, pid_t rank) {
    watch(gpu, rank);
    std::lock_guard lock(mutex);
    gone = true;
    change.notify_all();
  }

  /// Asks the thread to read the GPU's errors once more.  Returns true if it has done so in time.
  bool ask_once_more(std::unique_lock<std::mutex>& lock) {
    errors_wanted = true;
    change.notify_all();
    return change.wait_for(lock, most_time_for_errors, [this] { return gone || !errors_wanted; }) && !gone;
  }

 private:
  void watch(const std::string& gpu, pid_t rank) {
    Nvml nvml;
    const auto device = nvml.open() ? nvml.device(gpu) : std::nullopt;
    if (!device) return;
    nvml.watch_xids(*device);
    const std::int64_t lost_before = nvml.lost_words(*device).value_or(0);
    for (std::unique_lock lock(mutex); !over;) {
      const bool errors_only = errors_wanted;
      lock.unlock();
      if (!errors_only) look(nvml, *device, rank);
      look_for_errors(nvml, *device, lost_before);
      if (errors_only) look_for_the_rest(nvml, *device);
      lock.lock();
      if (errors_only) errors_wanted = false, change.notify_all();
      change.wait_for(lock, look_every, [this] { return over || errors_wanted; });
    }
  }

  void look(const Nvml& nvml, Nvml::Device device, pid_t rank) {
    const auto busy = nvml.busy_percent(device);
    const auto memory = nvml.memory(device);
    std::vector<GpuFacts::GpuProcess> processes;
    for (const Nvml::ProcessMemory& p : nvml.processes(device))
      processes.push_back({p.pid, command_of(p.pid), is_below(p.pid, rank), p.bytes});
    std::lock_guard lock(mutex);
    if (busy) busy_sum += *busy, ++samples;
    is_busy = busy.value_or(0) > 0;
    if (errors_wanted) return;  // the rank has ended: the state before its end counts
    for (const GpuFacts::GpuProcess& p : processes)
      if (p.own) own.insert(p.pid);
    facts.processes = std::move(processes);
    if (!memory) return;
    peak_bytes = std::max(peak_bytes, memory->used);
    facts.total_bytes = memory->total, facts.free_bytes = memory->free;
  }

  void look_for_errors(const Nvml& nvml, Nvml::Device device, std::int64_t lost_before) {
    const std::int64_t lost = nvml.lost_words(device).value_or(lost_before) - lost_before;
    std::vector<std::uint64_t> xids;
    while (xids.size() < most_xids) {
      const auto xid = nvml.next_xid();
      if (!xid) break;
      xids.push_back(*xid);
    }
    std::lock_guard lock(mutex);
    facts.lost_words = lost;
    for (const std::uint64_t xid : xids)
      if (facts.xids.size() < most_xids) facts.xids.push_back(xid);
  }

  void look_for_the_rest(const Nvml& nvml, Nvml::Device device) {
    const std::vector<Nvml::ProcessMemory> processes = nvml.processes(device);
    std::lock_guard lock(mutex);
    left_bytes = 0;
    for (const Nvml::ProcessMemory& p : processes)
      if (own.contains(p.pid)) left_bytes += p.bytes;
  }

  static constexpr std::size_t most_xids = 16;
};

GpuWatch::GpuWatch(const std::string& gpu, pid_t rank) {
  if (gpu.empty()) return;
  state_ = std::make_shared<State>();
  sigset_t all, before;  // only the guard's main loop takes signals
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_, gpu, rank] { state->run(gpu, rank); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

GpuFacts GpuWatch::facts() const {
  if (!state_) return {};
  std::unique_lock lock(state_->mutex);
  state_->ask_once_more(lock);
  return state_->facts;
}

std::int64_t GpuWatch::bytes_left() const {
  if (!state_) return -1;
  std::unique_lock lock(state_->mutex);
  return !state_->own.empty() && state_->ask_once_more(lock) ? state_->left_bytes : -1;
}

bool GpuWatch::is_busy() const {
  if (!state_) return false;
  std::lock_guard lock(state_->mutex);
  return state_->is_busy;
}

GpuWatch::~GpuWatch() {
  if (!state_) return;
  std::lock_guard lock(state_->mutex);
  state_->over = true;
  state_->change.notify_all();
}

void GpuWatch::fill(wire::DeathRecord* r) const {
  if (!state_) return;
  std::lock_guard lock(state_->mutex);
  if (state_->samples > 0) r->gpu_busy_percent = state_->busy_sum / state_->samples;
  r->gpu_peak_bytes = state_->peak_bytes;
}

}  // namespace hvd::rank
