/// @file tracer.cc — the recording side of Tracer; the writing side is trace_writer.cc.
#include "recorder/trace/tracer.h"

#include <algorithm>

#include "recorder/trace/tracer_state.h"

namespace hvd::trace {

namespace {

std::uint8_t* put_tag(std::uint8_t* to, TraceTag tag) {
  *to++ = static_cast<std::uint8_t>(tag);
  return to;
}

/// Writes the time as a difference to the ring's last time.  Call it only after reserve() has returned room, because a
/// dropped record must not change the last time.  The same holds for put_track().
std::uint8_t* put_time(TraceRing& ring, std::uint8_t* to, std::uint64_t now) {
  to = put_varint(to, zigzag(static_cast<std::int64_t>(now - ring.last_ticks)));
  ring.last_ticks = now;
  return to;
}

std::uint8_t* put_track(TraceRing& ring, std::uint8_t* to, std::uint32_t track) {
  to = put_varint(to, zigzag(std::int64_t{track} - std::int64_t{ring.last_track}));
  ring.last_track = track;
  return to;
}

}  // namespace

Tracer::Tracer() : Tracer(Options{}) {}
Tracer::Tracer(const Options& options) : state_(std::make_unique<State>(options, enabled_)) {}
Tracer::~Tracer() { stop(); }

void Tracer::start(std::unique_ptr<Sink> sink, bool mark_cycles) {
  if (enabled()) return;
  state_->start(std::move(sink));
  cycles_.store(mark_cycles, std::memory_order_release);
}

void Tracer::stop_soon() {
  enabled_.store(false, std::memory_order_release);
  cycles_.store(false, std::memory_order_release);
  state_->stop_soon();
}

void Tracer::stop() {
  enabled_.store(false, std::memory_order_release);
  cycles_.store(false, std::memory_order_release);
  state_->stop();
}

std::uint64_t Tracer::lost() const { return state_->lost(); }

void Tracer::record_submitted(Track& track, const TraceTensor& tensor) {
  if (track.id == 0) [[unlikely]]
    track.id = state_->add_name(tensor);
  const auto record = [&](TraceRing& ring) {
    std::uint8_t* to = state_->prepare(ring) ? ring.reserve() : nullptr;
    if (to == nullptr) return;
    to = put_tag(to, TraceTag::submitted);
    to = put_time(ring, to, state_->now());
    state_->publish(ring, put_track(ring, to, track.id));
  };
  if (TraceRing* ring = state_->thread_ring()) return record(*ring);
  const std::lock_guard lock(state_->shared_mutex);
  record(state_->shared_ring);
}

void Tracer::record_batch(TraceTag tag, std::uint32_t batch) {
  TraceRing& ring = state_->engine_ring;
  std::uint8_t* to = state_->prepare(ring) ? ring.reserve() : nullptr;
  if (to == nullptr) return;
  to = put_tag(to, tag);
  to = put_time(ring, to, state_->now());
  state_->publish(ring, put_varint(to, batch));
}

void Tracer::record_batch_tensor(Track track) {
  if (track.id == 0) return;  // the tensor was submitted before recording began
  TraceRing& ring = state_->engine_ring;
  std::uint8_t* to = state_->prepare(ring) ? ring.reserve() : nullptr;
  if (to == nullptr) return;
  to = put_tag(to, TraceTag::batch_tensor);
  state_->publish(ring, put_track(ring, to, track.id));
}

void Tracer::record_phase(TraceTag tag, std::uint32_t batch, Phase phase) {
  TraceRing& ring = state_->engine_ring;
  std::uint8_t* to = state_->prepare(ring) ? ring.reserve() : nullptr;
  if (to == nullptr) return;
  to = put_tag(to, tag);
  to = put_time(ring, to, state_->now());
  to = put_varint(to, batch);
  *to++ = static_cast<std::uint8_t>(phase);
  state_->publish(ring, to);
}

void Tracer::record_ran(std::uint32_t batch, std::span<const DevicePhase> phases, std::int64_t end_ns) {
  TraceRing& ring = state_->engine_ring;
  const ClockPair now = state_->clocks();
  const auto put = [&](TraceTag tag, std::int64_t begin, const DevicePhase* phase) {
    std::uint8_t* to = state_->prepare(ring) ? ring.reserve() : nullptr;
    if (to == nullptr) return;
    const std::uint64_t at = state_->ticks_at(begin, now);
    to = put_tag(to, tag);
    to = put_varint(to, zigzag(static_cast<std::int64_t>(at - ring.last_ticks)));
    to = put_varint(to, batch);
    if (phase != nullptr) {
      *to++ = static_cast<std::uint8_t>(phase->phase);
      to = put_varint(to, std::max(at, state_->ticks_at(phase->end_ns, now)) - at);
    }
    state_->publish(ring, to);
  };
  for (const DevicePhase& phase : phases) put(TraceTag::ran, phase.begin_ns, &phase);
  put(TraceTag::ran_all, end_ns, nullptr);
}

void Tracer::record_failed(Track track) {
  if (track.id == 0) return;
  TraceRing& ring = state_->engine_ring;
  std::uint8_t* to = state_->prepare(ring) ? ring.reserve() : nullptr;
  if (to == nullptr) return;
  to = put_tag(to, TraceTag::failed);
  to = put_time(ring, to, state_->now());
  state_->publish(ring, put_track(ring, to, track.id));
}

/// All threads write steps and their parts to one ring, so that these stay in order.
void Tracer::record_step(std::int64_t number) {
  const std::lock_guard lock(state_->shared_mutex);
  TraceRing& ring = state_->shared_ring;
  std::uint8_t* to = state_->prepare(ring) ? ring.reserve() : nullptr;
  if (to == nullptr) return;
  to = put_time(ring, put_tag(to, TraceTag::step), state_->now());
  state_->publish(ring, put_varint(to, zigzag(number)));
}

void Tracer::record_part(TracedPart part, bool begins) {
  const std::lock_guard lock(state_->shared_mutex);
  TraceRing& ring = state_->shared_ring;
  std::uint8_t* to = state_->prepare(ring) ? ring.reserve() : nullptr;
  if (to == nullptr) return;
  to = put_time(ring, put_tag(to, TraceTag::part), state_->now());
  *to++ = static_cast<std::uint8_t>(part);
  *to++ = begins ? 1 : 0;
  state_->publish(ring, to);
}

void Tracer::record_cycle() {
  TraceRing& ring = state_->engine_ring;
  std::uint8_t* to = state_->prepare(ring) ? ring.reserve() : nullptr;
  if (to == nullptr) return;
  to = put_tag(to, TraceTag::cycle);
  state_->publish(ring, put_time(ring, to, state_->now()));
}

}  // namespace hvd::trace
