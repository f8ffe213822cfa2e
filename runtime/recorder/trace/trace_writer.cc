/// @file trace_writer.cc — the thread that moves the bytes of the rings to the sink.
///
/// The writer wakes up every flush_ms while there are records.  After about a second of silence it sleeps until a
/// producer wakes it.  Producers need no fence for this.  Before the writer sleeps, it sets a flag and makes every core
/// of the process pass a barrier (membarrier).  So either the writer's last look finds a new record, or the producer of
/// the record sees the flag.
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "recorder/trace/tracer_state.h"

namespace hvd::trace {

namespace {

constexpr int quiet_rounds_before_sleep = 33;  // about a second, at 30 ms each

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, const timespec* limit) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, limit, nullptr, 0);
}

bool register_barrier() { return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0; }
/// The system call is also a full barrier for the caller.  So no std::atomic_thread_fence() is needed, which
/// ThreadSanitizer does not support.
void barrier_on_all_cores() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/// Blocks all signals during its lifetime.  A thread that starts meanwhile inherits this, so signals go to the
/// program's own threads.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

void put_u64(std::uint8_t* to, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) to[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

}  // namespace

void Tracer::State::start(std::unique_ptr<Sink> sink) {
  const std::lock_guard control(control_mutex_);
  if (enabled_.load()) return;
  stop_locked();
  // Drops records that a slow producer has published after the last stop.
  engine_ring.consume(engine_ring.head() - engine_ring.tail());
  shared_ring.consume(shared_ring.head() - shared_ring.tail());
  for (TraceRing* ring : pool_->all()) ring->consume(ring->head() - ring->tail());
  lost_before_ += lost();
  names_sent_ = 0;
  sink_ = std::move(sink);
  sink_gone_ = false;
  stopping_.store(false);
  sleeping_.store(false);
  frame_.reserve(trace_frame_bytes);
  barrier_works_ = register_barrier();
  run_.fetch_add(1);
  const std::uint8_t reset = static_cast<std::uint8_t>(TraceTag::reset);
  put(trace_control_stream, {&reset, 1});
  const ClockPair begun = clocks();
  begun_ticks_.store(begun.ticks, std::memory_order_relaxed);
  begun_ns_.store(begun.ns, std::memory_order_relaxed);
  put_clock();  // the times of the first records lie between this clock pair and the next
  enabled_.store(true, std::memory_order_release);  // before the writer starts: it clears the flag if its sink is gone
  const BlockedSignals blocked;
  writer_ = std::thread([this] { write_loop(); });
}

void Tracer::State::stop_soon() {
  const std::unique_lock control(control_mutex_, std::try_to_lock);
  if (!control || !writer_.joinable()) return;
  stopping_.store(true);
  wake_writer();
}

void Tracer::State::stop() {
  const std::lock_guard control(control_mutex_);
  stop_locked();
}

void Tracer::State::stop_locked() {
  if (!writer_.joinable()) return;
  stopping_.store(true);
  sink_->hurry();
  wake_writer();
  writer_.join();
  sink_.reset();
}

void Tracer::State::wake_writer() noexcept {
  sleeping_.store(false, std::memory_order_relaxed);
  doorbell_.fetch_add(1);
  syscall(SYS_futex, &doorbell_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Tracer::State::write_loop() {
  pthread_setname_np(pthread_self(), "hvd-trace");
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 19);  // the program's threads have priority
  send_frame();
  int quiet = 0;
  while (true) {
    const std::uint32_t doorbell = doorbell_.load();
    const bool last = stopping_.load();
    quiet = drain() ? 0 : quiet + 1;
    if (last || sink_gone_) break;
    const bool may_sleep = barrier_works_ && quiet >= quiet_rounds_before_sleep;
    if (may_sleep) {
      sleeping_.store(true);
      barrier_on_all_cores();
      if (!rings_are_empty()) {
        sleeping_.store(false);
        continue;
      }
      sink_->quiet();
    }
    const timespec limit{options_.flush_ms / 1000, options_.flush_ms % 1000 * 1'000'000L};
    futex_wait(doorbell_, doorbell, may_sleep ? nullptr : &limit);
    sleeping_.store(false);
  }
  if (sink_gone_) enabled_.store(false);
  sink_->close();
}

bool Tracer::State::rings_are_empty() const {
  if (engine_ring.head() != engine_ring.tail() || shared_ring.head() != shared_ring.tail()) return false;
  for (const TraceRing* ring : pool_->all())
    if (ring->head() != ring->tail()) return false;
  return true;
}

/// Sends all records that exist now.  True if there were any.  The function reads the heads in the opposite order of
/// sending.  A record refers only to records written before it, so those are in this batch or in an earlier one.
bool Tracer::State::drain() {
  const std::uint64_t engine_head = engine_ring.head();
  const std::uint64_t shared_head = shared_ring.head();
  const std::vector<TraceRing*> rings = pool_->all();
  std::vector<std::uint64_t> heads;
  bool any = engine_head != engine_ring.tail() || shared_head != shared_ring.tail();
  for (const TraceRing* ring : rings) {
    heads.push_back(ring->head());
    any = any || heads.back() != ring->tail();
  }
  std::vector<std::uint8_t> names;
  {
    const std::lock_guard lock(names_mutex_);
    names.assign(names_.begin() + static_cast<std::ptrdiff_t>(names_sent_), names_.end());
    names_sent_ = names_.size();
  }
  if (!any && names.empty()) return false;
  put_clock();
  put(trace_control_stream, names);
  put_ring(shared_ring, shared_head);
  for (std::size_t i = 0; i < rings.size(); ++i) put_ring(*rings[i], heads[i]);
  put_ring(engine_ring, engine_head);
  send_frame();
  return true;
}

void Tracer::State::put_clock() {
  const ClockPair pair = read_clocks(use_counter_);
  std::uint8_t record[17] = {static_cast<std::uint8_t>(TraceTag::clock)};
  put_u64(record + 1, pair.ticks);
  put_u64(record + 9, static_cast<std::uint64_t>(pair.ns));
  put(trace_control_stream, record);
}

void Tracer::State::put_ring(TraceRing& ring, std::uint64_t head) {
  while (ring.tail() != head) {
    const auto bytes = ring.readable(head);
    put(ring.stream, bytes);
    ring.consume(bytes.size());
  }
}

void Tracer::State::put(std::uint16_t stream, std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    if (frame_.size() + trace_section_header_bytes >= trace_frame_bytes) send_frame();
    if (frame_.empty()) frame_ = {trace_version, 0};
    const std::size_t room = trace_frame_bytes - frame_.size() - trace_section_header_bytes;
    const auto part = bytes.first(std::min(room, bytes.size()));
    const auto length = static_cast<std::uint32_t>(part.size());
    const std::uint8_t header[trace_section_header_bytes] = {
        static_cast<std::uint8_t>(stream),       static_cast<std::uint8_t>(stream >> 8),
        static_cast<std::uint8_t>(length),       static_cast<std::uint8_t>(length >> 8),
        static_cast<std::uint8_t>(length >> 16), static_cast<std::uint8_t>(length >> 24)};
    frame_.insert(frame_.end(), std::begin(header), std::end(header));
    frame_.insert(frame_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
  }
}

void Tracer::State::send_frame() {
  if (!frame_.empty() && !sink_gone_) sink_gone_ = !sink_->write(frame_);
  frame_.clear();
}

}  // namespace hvd::trace
