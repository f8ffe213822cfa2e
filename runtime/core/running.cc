#include "core/running.h"

#include "base/error.h"
#include "recorder/ticks.h"

namespace hvd::core {

namespace {

bool arrived(const DeviceEnd& end) {
  try {
    return end.mark->reached();
  } catch (const Error&) {  // the device has failed
    return false;
  }
}

}  // namespace

void hand_over(const Operation& op, cuda::Stream stream) {
  if (!op.gpu || !op.gpu->end) return;
  const DeviceEnd& end = *op.gpu->end;
  if (const int status = end.status.load(std::memory_order_acquire))
    throw Error(static_cast<Code>(status), "", end.error);
  if (stream == cuda::whole_context) return;
  if (end.mark->gpu().capturing(stream))
    throw Error(Code::usage, "CUDA graph", "the stream that is to wait for the result is being captured",
                "wait for operations of hvd before the capture, or behind it: the result stays");
  end.mark->hold(stream);
}

bool arrived(const Operation& op) {
  return !op.gpu || !op.gpu->end || op.gpu->end->status.load(std::memory_order_acquire) != 0 ||
         op.gpu->end->mark->reached();
}

std::shared_ptr<DeviceEnd> DeviceQueue::add(std::shared_ptr<cuda::Mark> mark, std::unique_ptr<LaunchTimes> timed) {
  auto end = std::make_shared<DeviceEnd>();
  end->mark = std::move(mark);
  all_.push_back({end, std::move(timed)});
  queued_.store(true, std::memory_order_seq_cst);
  return end;
}

bool DeviceQueue::reap() {
  bool any = false;
  while (!all_.empty() && arrived(*all_.front().end)) {
    const One one = std::move(all_.front());
    all_.pop_front();
    any = true;
    if (!one.timed) continue;
    try {
      const cuda::Gpu& gpu = one.end->mark->gpu();
      const cuda::CurrentContext current(gpu.driver(), gpu.context());
      times_.tell(tracer_, *one.timed);
    } catch (const Error&) {  // a timeline with a gap
    }
  }
  return any;
}

void DeviceQueue::fail(int code, const std::string& text) {
  for (const One& one : all_) {
    one.end->error = text;
    one.end->status.store(code, std::memory_order_release);
    if (one.timed) tracer_.ran(one.timed->row, {}, trace::monotonic_ns());
  }
  all_.clear();
}

}  // namespace hvd::core
