#include "recorder/steps/step_recorder.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "wire/shared/inherited_memory.h"

namespace hvd::recorder {
namespace {

using trace::monotonic_ns;

// Records of short steps are merged, until there are at most about 100 records in a second.
constexpr std::int64_t shortest_record_ns = 10'000'000, longest_record_ns = 4 * shortest_record_ns;
constexpr int enough_short_records = 4;  // after this many in a row, a record covers twice as many steps
constexpr std::int64_t most_steps_a_record = 1 << 16;
constexpr std::int64_t look_again_ns = 250'000'000;
constexpr std::int64_t storage_block = 512;
constexpr std::int64_t short_of_cores = 20;  // a lack of cores for this part of a record is measured within waits
constexpr std::int64_t read_delay_again_ns = 250'000;

/// Opens the file with the calling thread's time without a core.  @p fd  the file of the thread before, or -1
void follow_this_thread(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
}

/// An address that only the calling thread has.
const void* this_thread() {
  thread_local const char own = 0;
  return &own;
}

std::int64_t ns_of(const timeval& t) { return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_usec * 1000; }

/// The first two numbers in a small file of the kernel; 0: there is no such number.
std::array<std::int64_t, 2> numbers_in(int fd) {
  std::array<std::int64_t, 2> numbers{};
  char text[128];
  const ssize_t n = fd < 0 ? -1 : ::pread(fd, text, sizeof text - 1, 0);
  if (n <= 0) return numbers;
  text[n] = '\0';
  char* at = text;
  for (std::int64_t& number : numbers) number = std::strtoll(at, &at, 10);
  return numbers;
}

/// True if the process may run on one core only.
bool has_one_core() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1;
}

}  // namespace

StepRecorder::StepRecorder(int fd)
    : memory_(static_cast<wire::RecorderMemory*>(wire::map_inherited(fd, wire::recorder_bytes, wire::recorder_mark))) {
  if (!memory_) return;
  throttled_.emplace();
  throttled_ns_ = throttled_->ns();
  begin_epoch(0);
}

StepRecorder::~StepRecorder() {
  if (!memory_) return;
  {
    const std::lock_guard lock(mutex_);
    if (number_ > written_number_) write(monotonic_ns());
  }
  for (const int fd : {schedstat_, engine_schedstat_})
    if (fd >= 0) ::close(fd);
  ::munmap(memory_, wire::recorder_bytes);
}

void StepRecorder::follow(StepListener* listener) {
  const std::lock_guard lock(mutex_);
  listener_ = listener;
  if (listener) adopt_thread();
}

void StepRecorder::begin_epoch(std::int64_t epoch) {
  if (!used()) return;
  const std::lock_guard lock(mutex_);
  adopt_thread();
  epoch_ = epoch;
  number_ = written_number_ = 0;
  steps_a_record_ = 1;
  short_records_ = 0;
  told_of_steps_ = false;
  links_.clear();
  restart(monotonic_ns());
}

std::string StepRecorder::live_report() {
  if (!memory_) return {};
  memory_->report.wanted.store(1, std::memory_order_relaxed);
  return memory_->report.newest();
}

bool StepRecorder::trains_here() const { return trainer_.load(std::memory_order_relaxed) == this_thread(); }

/// Makes the calling thread the training thread.
void StepRecorder::adopt_thread() {
  if (trains_here()) return;
  trainer_.store(this_thread(), std::memory_order_relaxed);
  depth_ = 0;
  follow_this_thread(schedstat_);
}

void StepRecorder::engine_runs() {
  if (!memory_) return;
  const std::lock_guard lock(mutex_);
  follow_this_thread(engine_schedstat_);
}

StepRecorder::RunDelay StepRecorder::delay_so_far() const {
  const auto [training_ran, training] = numbers_in(schedstat_);
  const auto [engine_ran, engine] = numbers_in(engine_schedstat_);
  return {training, engine, training_ran, engine_ran};
}

/// The delay up to @p now if cores are short, else the last value.  A value up to read_delay_again_ns old is good
/// enough: a thread has lost at most that time since.  The reading takes longer than a small operation.
StepRecorder::RunDelay StepRecorder::recent_delay(std::int64_t now) {
  if (!cores_are_short_ || now - read_delay_ns_ < read_delay_again_ns) return read_delay_;
  read_delay_ns_ = now;
  return read_delay_ = delay_so_far();
}

/// Differences below 0 become 0: the counters may belong to another thread than before.
StepRecorder::RunDelay StepRecorder::RunDelay::since(RunDelay before, bool one_core) const {
  const auto more = [](std::int64_t now, std::int64_t then) { return std::max<std::int64_t>(now - then, 0); };
  RunDelay d{more(training_ns, before.training_ns), more(engine_ns, before.engine_ns),
             more(training_ran_ns, before.training_ran_ns), more(engine_ran_ns, before.engine_ran_ns)};
  if (!one_core) return d;
  d.training_ns = more(d.training_ns, d.engine_ran_ns);
  d.engine_ns = more(more(d.engine_ns, d.training_ran_ns), d.training_ns);  // both lack it at the same time
  return d;
}

/// Adds @p time of waiting, in which data moved for @p moved.
void StepRecorder::Waiting::add(std::int64_t time, std::int64_t moved, RunDelay lost) {
  moved = std::clamp<std::int64_t>(moved, 0, time);
  const std::int64_t delayed = std::min(lost.sum(), moved);
  waited_ns += time - moved;
  moved_ns += moved - delayed;
  delayed_ns += delayed;
  training_ns += std::min(lost.training_ns, time);
}

/// Begins a record at @p now.  All time before belongs to no step.
void StepRecorder::restart(std::int64_t now) {
  count_until(now);
  sums_ = {};
  fetched_ns_ = made_ns_ = 0;
  blocked_ = told_ = {};
  operations_.store(0, std::memory_order_relaxed);
  bytes_.store(0, std::memory_order_relaxed);
  device_wait_ns_.store(0, std::memory_order_relaxed);
  used_ = use();
  delayed_ = counted_delay_ = asked_delay_ = read_delay_ = delay_so_far();
  began_ns_ = step_began_ns_ = now;
  longest_ns_ = 0;
}

void StepRecorder::begin_slowly(StepPart part, wire::Loader loader) {
  if (!trains_here()) return;
  const std::lock_guard lock(mutex_);
  if (depth_ == deepest) return;
  loader_ = std::max(loader_, loader);  // a step may use several loaders, as in Keras' epochs
  const std::int64_t now = monotonic_ns();
  if (part == StepPart::input && number_ == 0 && sums_[static_cast<std::size_t>(StepPart::input)] == 0 && depth_ == 0)
    restart(now);
  else
    count_until(now);
  within_[depth_++] = part;
  if (StepListener* const listener = listener_) listener->part(part, true);
}

/// Also ends the parts within @p part, because a program may omit their ends.
void StepRecorder::end_slowly(StepPart part) {
  if (!trains_here()) return;
  const std::lock_guard lock(mutex_);
  for (std::size_t outer = depth_; outer-- > 0;)
    if (within_[outer] == part) {
      count_until(monotonic_ns());
      depth_ = outer;
      if (StepListener* const listener = listener_) listener->part(part, false);
      return;
    }
}

/// Adds the time since the last call to the innermost open part.
void StepRecorder::count_until(std::int64_t now) {
  const std::int64_t time = now - counted_ns_, moved_now = moved_until(now);
  const StepPart part = depth_ > 0 ? within_[depth_ - 1] : StepPart::work;
  sums_[static_cast<std::size_t>(part)] += time;
  const RunDelay delay = recent_delay(now);
  if (part == StepPart::waiting) blocked_.add(time, moved_now - counted_moved_, delay.since(counted_delay_, one_core_));
  counted_delay_ = delay;
  counted_ns_ = now;
  counted_moved_ = moved_now;
}

/// Counts the time since the last asked(), or since the start of the record, as waiting.
void StepRecorder::count_asked_until(std::int64_t now) {
  const std::int64_t time = std::max<std::int64_t>(now - std::max(asked_ns_, began_ns_), 0);
  told_.add(time, moved_until(now) - asked_moved_, recent_delay(now).since(asked_delay_, one_core_));
}

void StepRecorder::asked() {
  if (!memory_) return;
  const std::lock_guard lock(mutex_);
  ++asked_;
  asked_ns_ = monotonic_ns();
  asked_moved_ = moved_until(asked_ns_);
  asked_delay_ = recent_delay(asked_ns_);
}

void StepRecorder::told() {
  if (!memory_) return;
  const std::lock_guard lock(mutex_);
  if (asked_ > 0 && --asked_ == 0) count_asked_until(monotonic_ns());
}

void StepRecorder::batches_made(std::int64_t ns) {
  if (!memory_) return;
  const std::lock_guard lock(mutex_);
  made_ns_ += ns;
}

void StepRecorder::links(const std::vector<LinkCounts>& so_far) {
  if (!memory_) return;
  const std::lock_guard lock(mutex_);
  for (const LinkCounts& now : so_far) {
    TwoCounts& link = links_[now.peer];
    link.now = now;
    // A count falls when connections end.
    if (now.bytes < link.told.bytes || now.busy_ns < link.told.busy_ns) link.told = now;
  }
}

/// Puts one link with traffic into the record.  The links take turns, so each appears in records equally often.
void StepRecorder::tell_link(wire::StepRecord& r) {
  const auto untold = [](const auto& link) { return link.second.now.busy_ns > link.second.told.busy_ns; };
  auto next = std::find_if(links_.upper_bound(link_told_), links_.end(), untold);
  if (next == links_.end()) next = std::find_if(links_.begin(), links_.end(), untold);
  if (next == links_.end()) return;
  TwoCounts& link = next->second;
  r.link_peer = link_told_ = link.now.peer;
  r.link_round_trip_ns = link.now.round_trip_ns;
  r.link_bytes = link.now.bytes - link.told.bytes;
  r.link_busy_ns = link.now.busy_ns - link.told.busy_ns;
  link.told = link.now;
}

void StepRecorder::fetch_begins(wire::Loader loader) {
  if (!memory_) return;
  const std::lock_guard lock(mutex_);
  loader_ = std::max(loader_, loader);
  fetch_ns_ = monotonic_ns();
}

/// At the end of the data no batch arrives, so fetch_ended() is not called, and the fetch is not counted.
void StepRecorder::fetch_ended() {
  if (!memory_) return;
  const std::lock_guard lock(mutex_);
  if (fetch_ns_ != 0) fetched_ns_ += monotonic_ns() - std::max(fetch_ns_, began_ns_);
  fetch_ns_ = 0;
}

void StepRecorder::step_ended() {
  if (!used()) return;
  const std::lock_guard lock(mutex_);
  adopt_thread();
  if (!told_of_steps_) forget_rounds();
  end_step(number_ + 1);
}

/// From now on the program tells of its steps.  Ranks may have seen different numbers of rounds by then, so all count
/// from 1.
void StepRecorder::forget_rounds() {
  told_of_steps_ = true;
  number_ = written_number_ = 0;
  steps_a_record_ = 1;
  short_records_ = 0;
}

void StepRecorder::round_ended(std::int64_t number) {
  if (!used()) return;
  const std::lock_guard lock(mutex_);
  if (told_of_steps_ || number <= number_) return;
  if (number_ > 0) return end_step(number);
  restart(monotonic_ns());  // the time before belongs to no round
  number_ = written_number_ = number;
  if (StepListener* const listener = listener_) listener->step_ended(number);
}

void StepRecorder::end_step(std::int64_t number) {
  number_ = number;
  if (StepListener* const listener = listener_) listener->step_ended(number);
  if (!memory_) return;
  const std::int64_t now = monotonic_ns(), time = now - began_ns_;
  longest_ns_ = std::max(longest_ns_, now - step_began_ns_);
  step_began_ns_ = now;
  if (number / steps_a_record_ == written_number_ / steps_a_record_) return;
  write(now);
  short_records_ = time < shortest_record_ns ? short_records_ + 1 : 0;
  if (short_records_ == enough_short_records && steps_a_record_ < most_steps_a_record)
    steps_a_record_ *= 2, short_records_ = 0;
  else if (time > longest_record_ns && steps_a_record_ > 1)
    steps_a_record_ /= 2;
}

/// Ends the current record at @p now, writes it, and begins the next.
void StepRecorder::write(std::int64_t now) {
  count_until(now);
  if (asked_ > 0) {
    count_asked_until(now);
    asked_moved_ = moved_until(now);
    asked_ns_ = now;
  }
  const auto sum = [this](StepPart part) { return sums_[static_cast<std::size_t>(part)]; };
  wire::StepRecord r;
  r.number = written_number_ = number_;
  r.epoch = wire::record_epoch(epoch_, told_of_steps_);
  r.end_ns = now;
  r.step_ns = now - began_ns_;
  r.longest_ns = std::exchange(longest_ns_, 0);
  r.collect_ns = sum(StepPart::collect);
  r.save_ns = sum(StepPart::save);
  r.compile_ns = sum(StepPart::compile);
  // Any thread calls fetch_begins() and asked().  So their times overlap the parts of the training thread.  The
  // overlapping times replace only time that counts as the thread's own work, because the thread may have waited in
  // that time.
  std::int64_t work = sum(StepPart::work);
  const auto beside = [&work](std::int64_t told) {
    told = std::min(told, work);
    work -= told;
    return told;
  };
  r.input_ns = sum(StepPart::input) + beside(fetched_ns_);
  r.moved_ns = blocked_.moved_ns + beside(told_.moved_ns);
  r.waited_ns = blocked_.waited_ns + beside(told_.waited_ns);
  look_at_cores(r);
  const ProcessUse before = used_;
  used_ = use();
  r.cpu_ns = used_.cpu_ns - before.cpu_ns;
  r.read_bytes = used_.read_bytes - before.read_bytes;
  r.written_bytes = used_.written_bytes - before.written_bytes;
  r.major_faults = static_cast<std::int32_t>(used_.major_faults - before.major_faults);
  look_at_sleep(now, r);
  look_at_group(now, r);
  r.operations = static_cast<std::int32_t>(operations_.exchange(0, std::memory_order_relaxed));
  r.operation_bytes = bytes_.exchange(0, std::memory_order_relaxed);
  r.device_wait_ns = device_wait_ns_.exchange(0, std::memory_order_relaxed);
  r.made_ns = made_ns_;
  r.loader = loader_;
  r.core = static_cast<std::int16_t>(::sched_getcpu());
  tell_link(r);
  memory_->steps.put(r);
  sums_ = {};
  fetched_ns_ = made_ns_ = 0;
  loader_ = wire::Loader::none;
  blocked_ = told_ = {};
  began_ns_ = now;
}

ProcessUse StepRecorder::use() const {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {ns_of(usage.ru_utime) + ns_of(usage.ru_stime), usage.ru_inblock * storage_block,
          usage.ru_oublock * storage_block, usage.ru_majflt};
}

/// Adds the time without a core to a record.
void StepRecorder::look_at_cores(wire::StepRecord& r) {
  one_core_ = has_one_core();
  const RunDelay now = delay_so_far(), all = now.since(delayed_, one_core_);
  r.operation_delay_ns = blocked_.delayed_ns + told_.delayed_ns;
  const std::int64_t in_operations = blocked_.training_ns + told_.training_ns;
  r.run_delay_ns = std::max<std::int64_t>(all.training_ns - in_operations, 0) + r.operation_delay_ns;
  cores_are_short_ = short_of_cores * all.sum() > r.step_ns;
  delayed_ = counted_delay_ = asked_delay_ = read_delay_ = now;
}

/// While the training thread slept, it may have waited for another thread of this process that had no core.
void StepRecorder::look_at_sleep(std::int64_t now, wire::StepRecord& r) {
  const std::int64_t own =
      r.step_ns - r.waited_ns - r.moved_ns - r.input_ns - r.collect_ns - r.save_ns - r.compile_ns - r.run_delay_ns;
  const std::int64_t asleep = own - r.cpu_ns;
  if (short_of_cores * asleep < r.step_ns) return;
  const double without_core = thread_delays_.share(now) * static_cast<double>(r.step_ns);
  r.run_delay_ns += std::min(asleep, static_cast<std::int64_t>(without_core));
}

/// Adds the resident memory and the time throttled by the cgroup to a record.  Both values come from files, so this
/// function reads them at most four times a second.
void StepRecorder::look_at_group(std::int64_t now, wire::StepRecord& r) {
  if (looked_ns_ != 0 && now - looked_ns_ < look_again_ns) return;
  looked_ns_ = now;
  const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  r.resident_bytes = numbers_in(fd)[1] * ::sysconf(_SC_PAGESIZE);
  if (fd >= 0) ::close(fd);
  const std::int64_t throttled = throttled_->ns();
  r.throttled_ns = std::max<std::int64_t>(throttled - throttled_ns_, 0);
  throttled_ns_ = throttled;
}

}  // namespace hvd::recorder
