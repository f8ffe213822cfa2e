#include "gpu/cuda/stream_queue.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "recorder/steps/ticks.h"

namespace hvd::cuda {

/// A stream that already waits for the mark needs neither a check nor a second wait.  For any other stream, the capture
/// check comes first.  Otherwise the wait would become part of the graph, and take effect only when the graph runs.
/// The default stream itself cannot be captured.
void StreamEnd::hold(gpu::StreamHandle stream, gpu::StreamId id) const {
  if (const int code = status.load(std::memory_order_acquire)) throw Error(static_cast<Code>(code), "", error);
  if (stream == whole_context) return;
  if (is_default(stream)) id = default_stream;
  if (id != 0 && std::any_of(held_.begin(), held_.end(), [id](const auto& h) { return h.load() == id; })) return;
  const StreamContextScope current(mark->gpu().driver(), mark->gpu().context());
  if (mark->gpu().driver().capturing(stream))
    throw Error(Code::usage, "CUDA graph", "the stream that is to wait for the result is being captured",
                "wait for operations of hvd before or after the capture; the result is kept");
  if (measured) {
    const std::lock_guard lock(mutex_);
    if (!arrival_) arrival_ = mark->gpu().arrival(stream, id);
  }
  mark->hold(stream);
  if (id == 0) return;
  for (auto& h : held_) {
    gpu::StreamId none = 0;
    if (h.compare_exchange_strong(none, id)) return;
  }
}

std::shared_ptr<Mark> StreamEnd::arrival() const {
  const std::lock_guard lock(mutex_);
  return arrival_;
}

bool StreamEnd::reached() const {
  if (!reached_.load(std::memory_order_acquire) && mark->reached()) reached_.store(true, std::memory_order_release);
  return reached_.load(std::memory_order_acquire);
}

bool StreamEnd::arrived() const { return status.load(std::memory_order_acquire) != 0 || reached(); }

std::vector<BatchInput> inputs_of(std::span<const gpu::DeviceTensor> tensors) {
  std::vector<BatchInput> inputs;
  for (const gpu::DeviceTensor& t : tensors)
    if (inputs.empty() || inputs.back().ready != t.ready) inputs.push_back({t.ready, std::string(t.name)});
  return inputs;
}

gpu::DeviceWait wait_of(std::span<const BatchInput> inputs) {
  using State = gpu::DeviceWait::State;
  if (inputs.empty()) return {};
  for (const BatchInput& i : inputs)
    if (i.ready && !static_cast<const Mark&>(*i.ready).reached())
      return {State::computing, inputs.front().name, i.name};
  return {State::exchanging, inputs.front().name, ""};
}

void DeviceWaits::ended(std::shared_ptr<const StreamEnd> end) {
  if (const auto arrival = end->arrival()) {
    const bool same = last_ && last_->arrival() == arrival;
    const std::int64_t waited = end->mark->since_ns(*arrival);
    waited_ns_ += std::max<std::int64_t>(same ? std::min(waited, end->mark->since_ns(*last_->mark)) : waited, 0);
  }
  last_ = std::move(end);
}

std::int64_t DeviceWaits::take() { return std::exchange(waited_ns_, 0); }

/// Returns false also when the device has failed: lost() then has the error.
bool StreamQueue::reached(const StreamEnd& end) {
  try {
    return end.reached();
  } catch (const Error& e) {
    lost_ = e.what();
    return false;
  }
}

std::shared_ptr<StreamEnd> StreamQueue::add(std::shared_ptr<Mark> mark, std::unique_ptr<LaunchTimes> timed,
                                            std::unique_ptr<DeviceWork> work, std::vector<BatchInput> inputs) {
  auto end = std::make_shared<StreamEnd>();
  end->mark = std::move(mark);
  end->measured = measures_ && !inputs.empty();
  all_.push_back({end, std::move(timed), std::move(work), std::move(inputs)});
  queued_.store(true, std::memory_order_seq_cst);
  return end;
}

/// If the stream's last mark is reached, all earlier marks are reached too.
bool StreamQueue::reap() {
  bool any = false;
  const bool all = !all_.empty() && reached(*all_.back().end);
  while (!all_.empty() && (all || reached(*all_.front().end))) {
    const One one = std::move(all_.front());
    all_.pop_front();
    any = true;
    if (!one.timed && !one.end->measured) continue;
    try {
      const Gpu& gpu = one.end->mark->gpu();
      const CurrentContext current(gpu.driver(), gpu.context());
      if (one.end->measured) waits_.ended(one.end);
      if (one.timed) times_.tell(tracer_, *one.timed);
    } catch (const Error&) {  // the timeline or the report lacks these times
    }
  }
  return any;
}

bool StreamQueue::busy(std::int64_t every_ns) {
  if (all_.empty()) return false;
  const std::int64_t now = trace::monotonic_ns();
  if (now - looked_ns_ >= every_ns) {
    looked_ns_ = now;
    reap();
  }
  return !all_.empty();
}

void StreamQueue::fail(int code, const std::string& text) {
  for (const One& one : all_) {
    one.end->error = text;
    one.end->status.store(code, std::memory_order_release);
    if (one.timed) tracer_.ran(one.timed->row, {}, trace::monotonic_ns());
  }
  all_.clear();
  waits_ = {};
}

}  // namespace hvd::cuda
