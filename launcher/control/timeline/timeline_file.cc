#include "launcher/control/timeline/timeline_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <variant>

#include "base/file.h"
#include "base/format.h"
#include "launcher/control/clock.h"
#include "launcher/control/timeline/pacer.h"
#include "trace/timeline.h"
#include "trace/trace_file.h"

namespace hvd::launcher {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds write_period{100};
constexpr milliseconds pending_period{500};  ///< between two looks at events under way
constexpr std::size_t max_waiting_bytes = 256u << 20;

std::int64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct RankStart {
  std::string host;
  bool same_clock, now;
};
struct ClockPing {
  std::int64_t sent_ns, received_ns, guard_ns;
};
struct TraceRecords {
  std::string body;
};
struct RankEnd {
  std::string text;
};
struct FoundEvent {
  int about;
  std::string name, arguments;
  std::int64_t ns;
};
using TimelineNews = std::variant<RankStart, ClockPing, TraceRecords, RankEnd, FoundEvent>;
struct TimelineItem {
  int rank;
  std::int64_t at_ns;
  TimelineNews what;
};

/// Items on their way from the threads of hvdrun to the writer's thread.  Bounded.  Thread-safe.
class TimelineQueue {
 public:
  /// Drops records that do not fit, and everything after close().
  void push(int rank, TimelineNews what);
  /// No item comes any more.  is_late() becomes true at @p deadline.
  void close(std::chrono::steady_clock::time_point deadline);
  /// Gathers the items of one period into @p items, which is empty.  False: the queue is closed and no item is left.
  bool take_all(std::deque<TimelineItem>& items);
  /// Waits for @p pause, or until the queue is closed.
  void rest(nanoseconds pause);
  bool is_late() const;
  /// The number of records that did not fit.
  std::uint64_t dropped() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TimelineItem> items_;
  std::size_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
  bool closed_ = false, reader_is_idle_ = false;
  std::chrono::steady_clock::time_point deadline_{};
};

void TimelineQueue::push(int rank, TimelineNews what) {
  const auto* records = std::get_if<TraceRecords>(&what);
  const std::size_t bytes = records != nullptr ? records->body.size() : 0;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    if (bytes_ + bytes > max_waiting_bytes) {
      ++dropped_;
      return;
    }
    bytes_ += bytes;
    items_.push_back({rank, clock_ns(CLOCK_MONOTONIC), std::move(what)});
    wake = std::exchange(reader_is_idle_, false);
  }
  if (wake) changed_.notify_one();
}

void TimelineQueue::close(std::chrono::steady_clock::time_point deadline) {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    deadline_ = deadline;
  }
  changed_.notify_one();
}

bool TimelineQueue::take_all(std::deque<TimelineItem>& items) {
  std::unique_lock lock(mutex_);
  reader_is_idle_ = true;
  changed_.wait_for(lock, pending_period, [&] { return closed_ || !reader_is_idle_; });
  reader_is_idle_ = false;
  changed_.wait_for(lock, write_period, [&] { return closed_; });
  items.swap(items_);
  bytes_ = 0;
  return !closed_ || !items.empty();
}

void TimelineQueue::rest(nanoseconds pause) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, pause, [&] { return closed_; });
}

bool TimelineQueue::is_late() const {
  const std::lock_guard lock(mutex_);
  return closed_ && std::chrono::steady_clock::now() > deadline_;
}

std::uint64_t TimelineQueue::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

/// The share of a core that the writer's thread may use, by the load of this machine.  One thread.
class CoreShare {
 public:
  /// The pause after work of @p worked; 0: the machine has free cores.
  nanoseconds pause_after(nanoseconds worked);

 private:
  double share_ = 1;
  std::int64_t read_at_ns_ = 0;
  CpuTimes before_;
};

nanoseconds CoreShare::pause_after(nanoseconds worked) {
  const std::int64_t now = clock_ns(CLOCK_MONOTONIC);
  if (now - read_at_ns_ > 100'000'000) {
    read_at_ns_ = now;
    char text[4096];
    const Fd stat(open("/proc/stat", O_RDONLY | O_CLOEXEC));
    const ssize_t got = stat ? read(stat.get(), text, sizeof text) : -1;
    const auto times = parse_cpu_times({text, static_cast<std::size_t>(std::max<ssize_t>(got, 0))});
    share_ = times && before_.total != 0 ? allowed_share(before_, *times) : 1;
    before_ = times.value_or(CpuTimes{});
  }
  if (share_ >= 1) return nanoseconds(0);
  const auto pause = std::chrono::duration_cast<nanoseconds>(worked * (1 / share_ - 1));
  return std::min<nanoseconds>(pause, std::chrono::seconds(1));
}

}  // namespace

class TimelineFile::Writer {
 public:
  explicit Writer(TimelineFileOptions options);
  ~Writer();

  TimelineQueue& queue() { return queue_; }
  std::string close(milliseconds limit);

 private:
  // the thread
  void run();
  void take(TimelineItem& item);
  void rest(nanoseconds worked);
  void update_clock(int rank);
  void finish();
  std::int64_t timeline_now() const { return clock_ns(CLOCK_MONOTONIC) + clock(0).offset_ns(); }
  const ClockEstimate& clock(int rank) const;

  const TimelineFileOptions options_;
  TimelineQueue queue_;

  // the thread; close() after it has ended
  trace::TraceFile file_;
  const std::int64_t origin_ns_;
  trace::Timeline timeline_;
  std::map<int, ClockEstimate> clocks_;
  std::map<int, bool> malformed_;
  bool cut_short_ = false;
  CoreShare share_;
  std::thread thread_;
};

TimelineFile::Writer::Writer(TimelineFileOptions options)
    : options_(std::move(options)),
      file_(options_.path, options_.max_bytes, "--timeline-filename"),
      origin_ns_(clock_ns(CLOCK_MONOTONIC)),
      timeline_(
          origin_ns_, [this](std::string_view events) { return file_.write(events); }, file_.format()) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TimelineFile::Writer::~Writer() { close(milliseconds(0)); }

std::string TimelineFile::Writer::close(milliseconds limit) {
  if (!thread_.joinable()) return {};
  queue_.close(std::chrono::steady_clock::now() + limit);
  thread_.join();
  if (const std::string warning = file_.warning(); !warning.empty()) return warning;
  if (cut_short_) return options_.path + ": the end of the timeline was not written in time";
  if (const std::uint64_t lost = timeline_.lost() + queue_.dropped())
    return formatted("{}: {} records were dropped, the ranks made more than could be written", options_.path, lost);
  for (const auto& [rank, bad] : malformed_)
    if (bad) return formatted("{}: rank {} is incomplete: {}", options_.path, rank, timeline_.why(rank));
  return {};
}

void TimelineFile::Writer::run() {
  pthread_setname_np(pthread_self(), "timeline");
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 19);
  std::deque<TimelineItem> items;
  std::int64_t pending_at_ns = clock_ns(CLOCK_MONOTONIC);
  while (queue_.take_all(items)) {
    while (!items.empty() && !cut_short_) {
      const std::int64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
      take(items.front());
      items.pop_front();
      rest(nanoseconds(clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin));
    }
    items.clear();
    const std::int64_t now = clock_ns(CLOCK_MONOTONIC);
    if (now - pending_at_ns > nanoseconds(pending_period).count()) {
      timeline_.show_pending(timeline_now());
      pending_at_ns = now;
    }
    timeline_.flush();
  }
  finish();
}

const ClockEstimate& TimelineFile::Writer::clock(int rank) const {
  static const ClockEstimate unknown;
  const auto found = clocks_.find(rank);
  return found == clocks_.end() ? unknown : found->second;
}

/// The timeline's clock is rank 0's.
void TimelineFile::Writer::update_clock(int rank) {
  const std::int64_t now = clock_ns(CLOCK_MONOTONIC);
  const auto set = [&](int which) {
    const ClockEstimate& mine = clock(which);
    const ClockEstimate& first = clock(0);
    if (!mine.known()) return;
    const std::int64_t uncertainty =
        which == 0 ? 0 : mine.uncertainty_at(now) + (first.known() ? first.uncertainty_at(now) : 0);
    timeline_.set_clock(which, {first.offset_ns() - mine.offset_ns(), uncertainty});
  };
  if (rank != 0) return set(rank);
  for (const auto& [which, estimate] : clocks_) set(which);
}

void TimelineFile::Writer::take(TimelineItem& item) {
  if (!file_.usable() || item.rank < 0) return;
  const std::int64_t at_ns = item.at_ns + clock(0).offset_ns();
  if (auto* started = std::get_if<RankStart>(&item.what)) {
    timeline_.name_rank(item.rank, started->host);
    if (started->same_clock) clocks_[item.rank] = ClockEstimate::same_clock();
    update_clock(item.rank);
    if (!started->now) return;
    timeline_.mark(item.rank, "started", at_ns);
    timeline_.stage(item.rank, "launch", origin_ns_ + clock(0).offset_ns(), at_ns);
  } else if (auto* sample = std::get_if<ClockPing>(&item.what)) {
    if (clocks_[item.rank].add(sample->sent_ns, sample->received_ns, sample->guard_ns)) update_clock(item.rank);
  } else if (auto* records = std::get_if<TraceRecords>(&item.what)) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(records->body.data());
    if (!timeline_.feed(item.rank, {bytes, records->body.size()})) malformed_[item.rank] = true;
  } else if (auto* ended = std::get_if<RankEnd>(&item.what)) {
    timeline_.rank_ended(item.rank, ended->text, at_ns);
  } else if (auto* found = std::get_if<FoundEvent>(&item.what)) {
    const ClockEstimate& mine = clock(item.rank);
    const std::int64_t ns = mine.known() ? found->ns + clock(0).offset_ns() - mine.offset_ns() : at_ns;
    timeline_.event(found->about, found->name, ns, found->arguments);
  }
}

/// Sleeps so long that @p worked took no more than the free share of a core.
void TimelineFile::Writer::rest(nanoseconds worked) {
  if (const nanoseconds pause = share_.pause_after(worked); pause.count() > 0) queue_.rest(pause);
  cut_short_ = queue_.is_late();
}

void TimelineFile::Writer::finish() {
  timeline_.show_all();
  file_.write_end("end");
}

// ---- the public face ----

TimelineFile::TimelineFile(TimelineFileOptions options) : writer_(std::make_unique<Writer>(std::move(options))) {}
TimelineFile::~TimelineFile() = default;

void TimelineFile::rank_started(int rank, std::string host, bool same_clock) {
  writer_->queue().push(rank, RankStart{std::move(host), same_clock, true});
}
void TimelineFile::rank_found(int rank, std::string host, bool same_clock) {
  writer_->queue().push(rank, RankStart{std::move(host), same_clock, false});
}
void TimelineFile::clock_sample(int rank, std::int64_t sent_ns, std::int64_t received_ns, std::int64_t guard_ns) {
  writer_->queue().push(rank, ClockPing{sent_ns, received_ns, guard_ns});
}
void TimelineFile::append(int rank, std::string body) { writer_->queue().push(rank, TraceRecords{std::move(body)}); }
void TimelineFile::rank_ended(int rank, std::string text) { writer_->queue().push(rank, RankEnd{std::move(text)}); }
void TimelineFile::found(int rank, int about, std::string name, std::string arguments, std::int64_t ns) {
  writer_->queue().push(rank, FoundEvent{about, std::move(name), std::move(arguments), ns});
}
std::string TimelineFile::close(milliseconds limit) { return writer_->close(limit); }

}  // namespace hvd::launcher
