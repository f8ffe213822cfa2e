#include "gpu/nccl/nccl_device.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

namespace hvd::nccl {

using cuda::CurrentContext;

namespace {

constexpr std::size_t many_marks = 8;           ///< of batches on the device: from here on it is asked which are over
constexpr std::chrono::milliseconds brief{50};  ///< for a launch that is given up: NCCL's calls take less
constexpr std::chrono::milliseconds patience{500};  ///< for one that had to be torn out of NCCL
constexpr std::chrono::seconds grace{2};  ///< for what is queued when a peer is lost; a healthy GPU needs less

}  // namespace

NcclDevice::NcclDevice(gpu::SetContext context, std::unique_ptr<InheritedGpu> inherited)
    : context_(std::move(context)), inherited_(std::move(inherited)) {
  side_->slots.emplace_back(context_.busy, context_.tracer);
}

/// Other ranks may need this rank's part of queued work.  The set is removed, or the runtime shut down, after that
/// work.
NcclDevice::~NcclDevice() {
  fail(HVD_PEER_LOST, "the runtime was shut down");
  while (running() && std::chrono::steady_clock::now() < end_by_) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    reap();
  }
  end_now(failed_, why_failed_);
  if (thread_) thread_->idle_by(std::chrono::steady_clock::now() + patience);
  if (at_rest())
    for (StreamSlot& l : side_->slots) l.buffer.reset();
  thread_.reset();
  if (gpu_) gpu_->tidy();
}

bool NcclDevice::running() const {
  return std::any_of(side_->slots.begin(), side_->slots.end(), [](const StreamSlot& l) { return !l.running.empty(); });
}

bool NcclDevice::busy() {
  bool any = false;
  for (StreamSlot& l : side_->slots) any |= l.running.busy();
  return any;
}

bool NcclDevice::quiet() {
  watch();
  const CurrentContext current(gpu_->driver(), gpu_->context());
  return !running() && at_rest() && side_->communicators->complete() && side_->communicators->made();
}

bool NcclDevice::reap() {
  bool any = false;
  for (StreamSlot& l : side_->slots) any |= l.running.reap();
  if (any && gpu_) gpu_->tidy();
  return any;
}

// ---- through NCCL

void NcclDevice::submit(std::vector<DeviceTensor> tensors, std::uint32_t row) {
  tensors_ = std::move(tensors);
  row_ = row;
  join();
  begin_lengths();
}

/// Rows that only the other ranks know, of all operations at once: [size of the set] numbers for an alltoall, one for
/// an allgather.
void NcclDevice::begin_lengths() {
  my_lengths_.clear();
  for (const DeviceTensor& t : tensors_) {
    if (t.kind == Kind::allgather) my_lengths_.push_back(t.rows);
    if (t.kind == Kind::alltoall) my_lengths_.insert(my_lengths_.end(), t.sent.begin(), t.sent.end());
  }
  if (my_lengths_.empty())
    launch();
  else
    delivery_ = context_.exchange(my_lengths_.data(), my_lengths_.size() * sizeof(std::int64_t));
}

void NcclDevice::take_lengths() {
  std::vector<ops::MovedTensor> moved_tensors = delivery_->take();
  delivery_.reset();
  const std::unique_ptr<void, void (*)(void*)> hold(moved_tensors.front().result, std::free);
  const auto* lengths = static_cast<const std::int64_t*>(hold.get());
  const auto size = static_cast<std::size_t>(context_.world.size);
  std::size_t column = 0;
  for (DeviceTensor& t : tensors_) {
    const bool all = t.kind == Kind::alltoall;
    if (!all && t.kind != Kind::allgather) continue;
    t.received.resize(size);
    for (std::size_t r = 0; r < size; ++r)
      t.received[r] =
          lengths[r * my_lengths_.size() + column + (all ? static_cast<std::size_t>(context_.world.rank) : 0)];
    column += all ? size : 1;
  }
}

void NcclDevice::launch() {
  StreamSlot& l = slot();
  const CurrentContext current(gpu_->driver(), gpu_->context());
  if (row_ != 0 || l.running.size() >= many_marks) l.running.reap();
  idle_ = l.running.empty() && staging_->arrived();
  const NcclLaunch::Where where{{*gpu_, l.stream, *l.buffer, l.waits, this, decision_.capabilities, row_ != 0},
                                *side_->communicators,
                                turn_ % side_->slots.size(),
                                side_->nodes,
                                decision_.sums_by_nodes,
                                decision_.gathers_by_nodes};
  launch_ = std::make_shared<NcclLaunch>(where, context_.world.size, std::move(tensors_));
  thread_->run([side = side_, launch = launch_] { launch->run(); });
}

/// The marks of the queued launch, for the timeline; nullptr where there is none.
std::unique_ptr<cuda::LaunchTimes> NcclDevice::timed() {
  if (row_ == 0) return nullptr;
  auto t = std::make_unique<cuda::LaunchTimes>();
  t->row = row_;
  t->by = trace::Phase::nccl;
  t->packs = launch_->packs();
  t->idle = idle_;
  t->recorded_ns = launch_->began_ns();
  t->marks = launch_->marks();
  return t;
}

bool NcclDevice::step() {
  if (!delivery_) {
    launch_->check();
    return launch_->done();
  }
  if (!delivery_->done()) return delivery_->step();
  take_lengths();
  launch();
  return true;
}

bool NcclDevice::done() const { return !delivery_ && launch_ && launch_->done(); }

gpu::SetDevice::Result NcclDevice::finish() {
  const auto end = slot().running.add(launch_->mark(), timed(), launch_->take_work());
  Result results{std::move(launch_->tensors()), end};
  for (DeviceTensor& t : results.tensors) {
    if (!t.result) continue;
    gpu_->lend(t.result, slot().stream);  // until somebody takes it
    if (t.absent) gpu_->free(std::exchange(t.result, 0), end->mark);
  }
  launch_.reset();
  ++turn_;
  return results;
}

// ---- what runs on the device

bool NcclDevice::watch() {
  const bool any = reap();
  if (failed_) {
    if (running() && std::chrono::steady_clock::now() > end_by_) end_now(failed_, why_failed_);
    return any;
  }
  if (!side_->communicators) return any;
  try {
    side_->communicators->watch(at_rest());
  } catch (const Error& e) {
    end_now(static_cast<int>(e.code), e.what());
    throw;
  }
  return any;
}

void NcclDevice::fail(int code, const std::string& text) {
  stop_launch();
  const bool midway = launch_ && launch_->midway();
  forget_launch();
  delivery_.release();  // a message may still arrive in its memory
  try {
    if (staging_) staging_->drop(context_.world.nodes.size() > 1);
  } catch (const Error&) {  // the driver is gone
  }
  if (!failed_) {
    failed_ = code;
    why_failed_ = text;
    end_by_ = std::chrono::steady_clock::now() + grace;
  }
  // NCCL is left with half a batch: nothing of it may touch the callers' memory once they have been told.
  if (midway)
    end_now(code, text);
  else
    reap();
}

/// The memory that it had taken is given back when NCCL has been ended.
void NcclDevice::forget_launch() {
  if (!launch_) return;
  if (at_rest()) rest_ = launch_->take_rest();
  launch_.reset();
}

/// The thread leaves what it is at, and queues nothing anymore.  Mostly it does so at once.  Where a call of NCCL holds
/// it, the communicators' end frees it; and where that does not, it is left behind with all that it uses.
void NcclDevice::stop_launch() {
  if (!launch_ || at_rest()) return;
  launch_->cancel();
  if (thread_->idle_by(std::chrono::steady_clock::now() + brief)) return;
  side_->communicators->abort();
  thread_->idle_by(std::chrono::steady_clock::now() + patience);
}

/// The callers learn that what runs has failed, and NCCL's kernels end.
void NcclDevice::end_now(int code, const std::string& text) {
  stop_launch();
  reap();
  for (StreamSlot& l : side_->slots) l.running.fail(code, text);
  if (!gpu_ || !side_->communicators) return;
  try {
    const CurrentContext current(gpu_->driver(), gpu_->context());
    side_->communicators->abort();
    free_rest();
  } catch (const Error&) {  // the driver is gone: so is what ran there
  }
}

/// NCCL queues nothing anymore, so a mark behind all of it can be had.
void NcclDevice::free_rest() {
  if (rest_.empty()) return;
  const std::shared_ptr<cuda::Mark> mark = gpu_->mark(slot().stream);
  slot().buffer->last = mark;
  for (const cuda::Pointer p : rest_) gpu_->free(p, mark);
  rest_.clear();
}

}  // namespace hvd::nccl
