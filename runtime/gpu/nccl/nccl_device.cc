#include "gpu/nccl/nccl_device.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

namespace hvd::nccl {

using cuda::CurrentContext;

namespace {

/// With this number of running batches, a launch first removes those that have ended.
constexpr std::size_t many_marks = 8;
/// A launch also removes them once in this time, so that DeviceWaits belong to their steps.
constexpr std::int64_t reap_every_ns = 5'000'000;
constexpr std::chrono::milliseconds brief{50};  ///< time that a cancelled launch gets to end; NCCL's calls take less
constexpr std::chrono::milliseconds patience{500};  ///< time that a launch gets after its communicators were aborted
constexpr std::chrono::seconds grace{2};            ///< time for queued work after a failure; a healthy GPU needs less

/// True also when the device has failed.
bool has_passed(const cuda::Mark& mark) {
  try {
    return mark.reached();
  } catch (const Error&) { return true; }
}

}  // namespace

NcclDevice::NcclDevice(gpu::SetContext context, std::unique_ptr<InheritedGpu> inherited)
    : context_(std::move(context)), inherited_(std::move(inherited)) {
  side_->slots.emplace_back(context_.busy, context_.tracer);
}

/// Other ranks may need this rank's part of queued work.  So the destructor gives this work time to end, at most
/// `grace`.
NcclDevice::~NcclDevice() {
  fail(HVD_PEER_LOST, "the runtime was shut down");
  const auto graphs = graphs_may_run() ? captures_->running_graphs() : nullptr;
  while ((slots_run() || (graphs && !has_passed(*graphs))) && std::chrono::steady_clock::now() < end_by_) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    reap();
  }
  end_now(failed_, why_failed_);
  if (thread_) thread_->idle_by(std::chrono::steady_clock::now() + patience);
  if (at_rest()) {
    for (StreamSlot& l : side_->slots) l.buffer.reset();
    if (!side_->communicators || side_->communicators->ended()) give_back_windows();
  }
  thread_.reset();
  if (gpu_) gpu_->tidy();
}

/// After a failure, graphs with captured calls may wait for the lost peer, until end_now().
bool NcclDevice::running() const { return slots_run() || (failed_ && graphs_may_run()); }

bool NcclDevice::slots_run() const {
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

/// Exchanges the numbers of rows that only other ranks know, for all operations at once.  Each rank sends one number
/// for an allgather, and [size of the set] numbers for an alltoall.
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
  if (row_ != 0 || l.running.size() >= many_marks)
    l.running.reap();
  else
    l.running.busy(reap_every_ns);
  idle_ = l.running.empty() && staging_->arrived();
  const NcclLaunch::Where where{{*gpu_, l.stream, *l.buffer, l.waits, this, decision_.capabilities, row_ != 0, hashes_},
                                *side_->communicators,
                                turn_ % side_->slots.size(),
                                side_->nodes,
                                decision_.sums_by_nodes,
                                decision_.gathers_by_nodes};
  launch_ = std::make_shared<NcclLaunch>(where, context_.world.size, std::move(tensors_));
  thread_->run([side = side_, launch = launch_] { launch->run(); });
}

/// Returns the marks of the queued launch for the timeline, or nullptr without a timeline.
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
  auto inputs = cuda::inputs_of(launch_->tensors());
  const auto end = slot().running.add(launch_->mark(), timed(), launch_->take_work(), std::move(inputs));
  Result results{std::move(launch_->tensors()), end, launch_->take_hashes(end)};
  for (DeviceTensor& t : results.tensors) {
    if (!t.result) continue;
    gpu_->lend(t.result, slot().stream);  // until lend_result() names the caller's stream
    if (t.absent) gpu_->free(std::exchange(t.result, 0), end->mark);
  }
  launch_.reset();
  ++turn_;
  say_windows();
  return results;
}

// ---- work on the device

bool NcclDevice::watch() {
  const bool any = reap();
  if (failed_) {
    if (running() && std::chrono::steady_clock::now() > end_by_) end_now(failed_, why_failed_);
    return any;
  }
  try {
    for (const StreamSlot& l : side_->slots)
      if (!l.running.lost().empty())
        throw Error(Code::unavailable, "cuda:" + std::to_string(gpu_->ordinal()),
                    "the GPU has failed: " + l.running.lost(), "nvidia-smi and dmesg (Xid) tell more");
    if (side_->communicators) side_->communicators->watch(at_rest());
    if (captures_) captures_->watch();
  } catch (const Error& e) {
    end_now(static_cast<int>(e.code), e.what());
    throw;
  }
  return any;
}

/// The oldest batch of all streams.  Before it, tensors that are being copied to the host.
gpu::DeviceWait NcclDevice::wait() const {
  if (staging_ && !staging_->arrived()) return staging_->wait();
  const cuda::StreamQueue* oldest = nullptr;
  for (const StreamSlot& l : side_->slots)
    if (!l.running.empty() && (!oldest || l.running.oldest() < oldest->oldest())) oldest = &l.running;
  return oldest ? oldest->wait() : gpu::DeviceWait{};
}

std::int64_t NcclDevice::take_waited() { return side_->slots.front().running.waits().take(); }

void NcclDevice::fail(int code, const std::string& text) {
  stop_launch();
  const bool midway = launch_ && launch_->midway();
  forget_launch();
  delivery_.release();  // never freed: a message may still arrive in the memory
  try {
    if (staging_) staging_->drop(context_.world.nodes.size() > 1);
  } catch (const Error&) {  // the driver is gone
  }
  if (!failed_) {
    failed_ = code;
    why_failed_ = text;
    end_by_ = std::chrono::steady_clock::now() + grace;
    if (graphs_may_run()) context_.busy.store(true, std::memory_order_seq_cst);  // so the engine calls watch()
  }
  // NCCL has queued half a batch.  After the callers learn of the failure, no work of the batch may touch their memory.
  if (midway)
    end_now(code, text);
  else
    reap();
}

/// Drops the launch.  rest_ keeps its memory until NCCL has been ended.
void NcclDevice::forget_launch() {
  if (!launch_) return;
  if (at_rest()) rest_ = launch_->take_rest();
  launch_.reset();
}

/// Makes the thread leave the launch and queue nothing more.  Usually the thread leaves at once.  If a call of NCCL
/// blocks the thread, aborting the communicators ends the call.  If that fails too, the thread is abandoned, with all
/// objects that it uses.
void NcclDevice::stop_launch() {
  if (!launch_ || at_rest()) return;
  launch_->cancel();
  if (thread_->idle_by(std::chrono::steady_clock::now() + brief)) return;
  side_->communicators->abort();
  thread_->idle_by(std::chrono::steady_clock::now() + patience);
}

/// Reports the failure to the callers of running work, and ends NCCL's kernels.
void NcclDevice::end_now(int code, const std::string& text) {
  stop_launch();
  reap();
  for (StreamSlot& l : side_->slots) l.running.fail(code, text);
  if (captures_) captures_->end();
  if (!gpu_ || !side_->communicators) return;
  try {
    const CurrentContext current(gpu_->driver(), gpu_->context());
    side_->communicators->abort();
    free_rest();
  } catch (const Error&) {  // the driver is gone, and the device's work with it
  }
}

/// Frees rest_.  NCCL queues nothing more, so a mark recorded now follows all of its work.
void NcclDevice::free_rest() {
  if (rest_.empty()) return;
  const std::shared_ptr<cuda::Mark> mark = gpu_->mark(slot().stream);
  slot().buffer->last = mark;
  for (const cuda::Pointer p : rest_) gpu_->free(p, mark);
  rest_.clear();
}

}  // namespace hvd::nccl
