#include "gpu/cuda/stream_queue.h"

#include <algorithm>

#include "base/error.h"
#include "recorder/steps/ticks.h"

namespace hvd::cuda {

namespace {

constexpr std::int64_t look_every_ns = 20'000;

}  // namespace

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
  mark->hold(stream);
  if (id == 0) return;
  for (auto& h : held_) {
    gpu::StreamId none = 0;
    if (h.compare_exchange_strong(none, id)) return;
  }
}

bool StreamEnd::reached() const {
  if (!reached_.load(std::memory_order_acquire) && mark->reached()) reached_.store(true, std::memory_order_release);
  return reached_.load(std::memory_order_acquire);
}

bool StreamEnd::arrived() const { return status.load(std::memory_order_acquire) != 0 || reached(); }

namespace {

/// Returns false also when the device has failed: then fail() reports the failure.
bool reached(const StreamEnd& end) {
  try {
    return end.reached();
  } catch (const Error&) { return false; }
}

}  // namespace

std::shared_ptr<StreamEnd> StreamQueue::add(std::shared_ptr<Mark> mark, std::unique_ptr<LaunchTimes> timed,
                                            std::unique_ptr<DeviceWork> work) {
  auto end = std::make_shared<StreamEnd>();
  end->mark = std::move(mark);
  all_.push_back({end, std::move(timed), std::move(work)});
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
    if (!one.timed) continue;
    try {
      const Gpu& gpu = one.end->mark->gpu();
      const CurrentContext current(gpu.driver(), gpu.context());
      times_.tell(tracer_, *one.timed);
    } catch (const Error&) {  // the timeline lacks these times
    }
  }
  return any;
}

bool StreamQueue::busy() {
  if (all_.empty()) return false;
  const std::int64_t now = trace::monotonic_ns();
  if (now - looked_ns_ >= look_every_ns) {
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
}

}  // namespace hvd::cuda
