/// @file tracer_state.cc — rings of threads, names of tracks, and lost records.
#include "recorder/trace/tracer_state.h"

#include <algorithm>

namespace hvd::trace {

namespace {

std::uint64_t next_tracer_id() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

/// A thread's cached ring of the tracer that it used last.  The destructor, at the end of the thread, gives the ring
/// back.
struct ThreadRing {
  std::uint64_t tracer = 0;
  TraceRing* ring = nullptr;
  std::shared_ptr<TraceRingPool> pool;

  void reset() {
    if (ring != nullptr) pool->give_back(ring);
    ring = nullptr;
    pool.reset();
  }
  ~ThreadRing() { reset(); }
};
thread_local ThreadRing thread_cache;

}  // namespace

TraceRing* TraceRingPool::take() {
  const std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    TraceRing* ring = free_.back();
    free_.pop_back();
    return ring;
  }
  if (rings_.size() == max_rings) return nullptr;
  // Streams 0, 1 and 2 belong to names and clocks, to the engine, and to the shared ring.
  rings_.push_back(std::make_unique<TraceRing>(ring_bytes_, static_cast<std::uint16_t>(3 + rings_.size())));
  return rings_.back().get();
}

void TraceRingPool::give_back(TraceRing* ring) {
  const std::lock_guard lock(mutex_);
  free_.push_back(ring);
}

std::vector<TraceRing*> TraceRingPool::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<TraceRing*> rings;
  for (const auto& ring : rings_) rings.push_back(ring.get());
  return rings;
}

Tracer::State::State(const Options& options, std::atomic<bool>& enabled)
    : engine_ring(options.ring_bytes, trace_engine_stream),
      shared_ring(options.ring_bytes, 2),
      options_(options),
      use_counter_(counter_is_trusted()),
      id_(next_tracer_id()),
      enabled_(enabled),
      pool_(std::make_shared<TraceRingPool>(options.ring_bytes)) {}

TraceRing* Tracer::State::thread_ring() {
  ThreadRing& cache = thread_cache;
  if (cache.tracer == id_) [[likely]]
    return cache.ring;
  cache.reset();
  cache.pool = pool_;
  cache.ring = pool_->take();
  cache.tracer = id_;
  return cache.ring;
}

std::uint32_t Tracer::State::add_name(const TraceTensor& tensor) {
  const std::size_t name_bytes = std::min(tensor.name.size(), trace_name_bytes);
  const std::size_t dims = std::min(tensor.shape.size(), trace_max_dims);
  std::uint8_t head[3 * varint_max_bytes + 4 + trace_max_dims * varint_max_bytes];
  std::uint8_t* to = head;

  const std::lock_guard lock(names_mutex_);
  *to++ = static_cast<std::uint8_t>(TraceTag::name);
  to = put_varint(to, ++tracks_);
  *to++ = static_cast<std::uint8_t>(tensor.op);
  *to++ = static_cast<std::uint8_t>(tensor.dtype);
  to = put_varint(to, static_cast<std::uint64_t>(std::max(tensor.home, 0)));
  *to++ = static_cast<std::uint8_t>(dims);
  for (std::size_t i = 0; i < dims; ++i) to = put_varint(to, static_cast<std::uint64_t>(tensor.shape[i]));
  to = put_varint(to, name_bytes);
  names_.insert(names_.end(), head, to);
  names_.insert(names_.end(), tensor.name.begin(), tensor.name.begin() + static_cast<std::ptrdiff_t>(name_bytes));
  return tracks_;
}

std::uint64_t Tracer::State::ticks_at(std::int64_t ns, const ClockPair& now) const noexcept {
  const std::uint64_t begun = begun_ticks_.load(std::memory_order_relaxed);
  const std::int64_t begun_ns = begun_ns_.load(std::memory_order_relaxed);
  if (ns <= begun_ns || now.ns <= begun_ns) return begun;
  const double part = std::clamp(static_cast<double>(now.ns - ns) / static_cast<double>(now.ns - begun_ns), 0.0, 1.0);
  return now.ticks - static_cast<std::uint64_t>(static_cast<double>(now.ticks - begun) * part);
}

bool Tracer::State::prepare_slowly(TraceRing& ring) noexcept {
  std::uint8_t* to = ring.reserve();
  if (to == nullptr) return false;
  const std::uint64_t run = run_.load(std::memory_order_relaxed);
  if (ring.run != run) {
    ring.run = run;
    ring.last_ticks = 0;
    ring.last_track = 0;
    *to++ = static_cast<std::uint8_t>(TraceTag::reset);
  }
  if (const std::uint64_t lost = ring.take_lost()) {
    *to++ = static_cast<std::uint8_t>(TraceTag::lost);
    to = put_varint(to, lost);
  }
  publish(ring, to);
  return true;
}

std::uint64_t Tracer::State::lost() const {
  std::uint64_t sum = engine_ring.lost() + shared_ring.lost();
  for (const TraceRing* ring : pool_->all()) sum += ring->lost();
  return sum - lost_before_;
}

}  // namespace hvd::trace
