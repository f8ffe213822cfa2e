#include "gpu/cuda/stream_queue.h"

#include "base/error.h"
#include "recorder/ticks.h"

namespace hvd::cuda {

void StreamEnd::hold(gpu::StreamHandle stream) const {
  if (const int code = status.load(std::memory_order_acquire)) throw Error(static_cast<Code>(code), "", error);
  if (stream == whole_context) return;
  if (mark->gpu().capturing(stream))
    throw Error(Code::usage, "CUDA graph", "the stream that is to wait for the result is being captured",
                "wait for operations of hvd before the capture, or behind it: the result stays");
  mark->hold(stream);
}

bool StreamEnd::arrived() const { return status.load(std::memory_order_acquire) != 0 || mark->reached(); }

namespace {

/// False also where the device has failed: then fail() says so.
bool reached(const StreamEnd& end) {
  try {
    return end.mark->reached();
  } catch (const Error&) { return false; }
}

}  // namespace

std::shared_ptr<StreamEnd> StreamQueue::add(std::shared_ptr<Mark> mark, std::unique_ptr<LaunchTimes> timed) {
  auto end = std::make_shared<StreamEnd>();
  end->mark = std::move(mark);
  all_.push_back({end, std::move(timed)});
  queued_.store(true, std::memory_order_seq_cst);
  return end;
}

bool StreamQueue::reap() {
  bool any = false;
  while (!all_.empty() && reached(*all_.front().end)) {
    const One one = std::move(all_.front());
    all_.pop_front();
    any = true;
    if (!one.timed) continue;
    try {
      const Gpu& gpu = one.end->mark->gpu();
      const CurrentContext current(gpu.driver(), gpu.context());
      times_.tell(tracer_, *one.timed);
    } catch (const Error&) {  // a timeline with a gap
    }
  }
  return any;
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
