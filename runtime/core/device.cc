#include "core/device.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "core/name_entry.h"

namespace hvd::core {

using cuda::CurrentContext;

namespace {

constexpr std::chrono::seconds grace{2};  ///< for what is queued when a peer is lost; a healthy GPU needs less

}  // namespace

Device::Device(const World& world, const Config& config, std::atomic<bool>& gpu_busy, trace::Tracer& tracer,
               Exchange exchange, std::unique_ptr<InheritedGpu> inherited)
    : world_(world),
      config_(config),
      gpu_busy_(gpu_busy),
      tracer_(tracer),
      exchange_(std::move(exchange)),
      inherited_(std::move(inherited)) {
  slots_.emplace_back(gpu_busy_, tracer_);
}

/// Others may need this rank's part of what is queued: the set is removed, or the runtime shut down, behind it.
Device::~Device() {
  fail(HVD_PEER_LOST, "the runtime was shut down");
  while (running() && std::chrono::steady_clock::now() < end_by_) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    reap();
  }
  end_now(failed_, why_failed_);
  for (StreamSlot& l : slots_) l.buffer.reset();
  if (gpu_) gpu_->tidy();
}

bool Device::running() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const StreamSlot& l) { return !l.running.empty(); });
}

bool Device::quiet() {
  watch();
  const CurrentContext current(gpu_->driver(), gpu_->context());
  return !running() && communicators_->made() && communicators_->slot(0).whole->ready();
}

bool Device::reap() {
  bool any = false;
  for (StreamSlot& l : slots_) any |= l.running.reap();
  if (any && gpu_) gpu_->tidy();
  return any;
}

// ---- through NCCL

namespace {

/// The operation as NCCL's stage takes it, without the mark that the stream waits for.
nccl::DeviceTensor tensor_of(const Operation& op) {
  const Signature& s = op.entry->signature;
  nccl::DeviceTensor t;
  t.kind = s.operation();
  t.dtype = s.type();
  t.reduce = s.reduction();
  t.before = s.before;
  t.after = s.after;
  t.root = s.root;
  t.row_bytes = static_cast<std::size_t>(s.payload_bytes());
  t.in = op.in;
  t.out = op.out;
  t.absent = !op.gpu;
  if (t.kind == Kind::allgather || t.kind == Kind::alltoall) {
    t.rows = op.dim0;
    t.sent = op.splits;
  } else if (t.kind == Kind::reducescatter) {
    t.rows = s.dims[0];
    if (t.rows > 0) t.row_bytes /= static_cast<std::size_t>(t.rows);
  }
  return t;
}

}  // namespace

void Device::begin(std::span<Operation* const> ops, std::uint32_t row) {
  ops_.assign(ops.begin(), ops.end());
  row_ = row;
  join();
  tensors_.clear();
  for (const Operation* op : ops_) {
    nccl::DeviceTensor& t = tensors_.emplace_back(tensor_of(*op));
    if (!op->gpu) continue;
    t.ready = op->gpu->ready;
    t.stream = op->gpu->stream;
  }
  begin_lengths();
}

/// Rows that only the other ranks know, of all operations at once: [size of the set] numbers for an alltoall, one for
/// an allgather.
void Device::begin_lengths() {
  my_lengths_.clear();
  for (const nccl::DeviceTensor& t : tensors_) {
    if (t.kind == Kind::allgather) my_lengths_.push_back(t.rows);
    if (t.kind == Kind::alltoall) my_lengths_.insert(my_lengths_.end(), t.sent.begin(), t.sent.end());
  }
  if (my_lengths_.empty())
    launch();
  else
    delivery_ = exchange(my_lengths_.data(), my_lengths_.size() * sizeof(std::int64_t));
}

void Device::take_lengths() {
  std::vector<ops::MovedTensor> moved_tensors = delivery_->take();
  delivery_.reset();
  const std::unique_ptr<void, void (*)(void*)> hold(moved_tensors.front().result, std::free);
  const auto* lengths = static_cast<const std::int64_t*>(hold.get());
  const auto size = static_cast<std::size_t>(world_.size);
  std::size_t column = 0;
  for (nccl::DeviceTensor& t : tensors_) {
    const bool all = t.kind == Kind::alltoall;
    if (!all && t.kind != Kind::allgather) continue;
    t.received.resize(size);
    for (std::size_t r = 0; r < size; ++r)
      t.received[r] = lengths[r * my_lengths_.size() + column + (all ? static_cast<std::size_t>(world_.rank) : 0)];
    column += all ? size : 1;
  }
}

void Device::launch() {
  StreamSlot& l = slot();
  l.running.reap();
  idle_ = l.running.empty() && staging_->arrived();
  const nccl::NcclLaunch::Where where{{*gpu_, l.stream, *l.buffer, decision_.capabilities, row_ != 0},
                                      *communicators_,
                                      turn_ % slots_.size(),
                                      nodes_,
                                      decision_.sums_by_nodes,
                                      decision_.gathers_by_nodes};
  launch_ = std::make_unique<nccl::NcclLaunch>(where, world_.size, std::move(tensors_));
}

/// The marks of the queued launch, for the timeline; nullptr where there is none.
std::unique_ptr<LaunchTimes> Device::timed() {
  if (row_ == 0) return nullptr;
  auto t = std::make_unique<LaunchTimes>();
  t->row = row_;
  t->by = trace::Phase::nccl;
  t->packs = launch_->packs();
  t->idle = idle_;
  t->recorded_ns = launch_->began_ns();
  t->marks = launch_->marks();
  return t;
}

bool Device::step() {
  if (!delivery_) return launch_->step();
  if (!delivery_->done()) return delivery_->step();
  take_lengths();
  launch();
  return true;
}

bool Device::done() const { return !delivery_ && launch_ && launch_->done(); }

void Device::finish() {
  const auto end = slot().running.add(launch_->mark(), timed());
  std::vector<nccl::DeviceTensor>& tensors = launch_->tensors();
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    Operation& op = *ops_[i];
    nccl::DeviceTensor& t = tensors[i];
    if (!t.absent) {
      op.gpu->ready.reset();
      op.gpu->end = end;
    }
    if (!t.result) continue;
    gpu_->lend(t.result, slot().stream);  // until somebody takes it
    const Signature& s = op.entry->signature;
    op.result_shape.assign(s.dims, s.dims + s.ndim);
    op.received = std::move(t.received);
    if (t.kind == Kind::reducescatter) {
      op.result_shape[0] = t.rows / world_.size + (world_.rank < t.rows % world_.size ? 1 : 0);
    } else {
      op.result_shape[0] = 0;
      for (std::int64_t rows : op.received) op.result_shape[0] += rows;
    }
    if (t.absent) {
      gpu_->free(t.result, end->mark);
    } else {
      op.result = reinterpret_cast<void*>(t.result);
      op.gpu->result = true;
    }
  }
  tensors_ = std::move(tensors);  // for their memory
  tensors_.clear();
  launch_.reset();
  ops_.clear();
  ++turn_;
}

// ---- what runs on the device

bool Device::watch() {
  const bool any = reap();
  if (failed_) {
    if (running() && std::chrono::steady_clock::now() > end_by_) end_now(failed_, why_failed_);
    return any;
  }
  if (!communicators_) return any;
  try {
    const CurrentContext current(gpu_->driver(), gpu_->context());
    communicators_->watch();
  } catch (const Error& e) {
    end_now(static_cast<int>(e.code), e.what());
    throw;
  }
  return any;
}

void Device::fail(int code, const std::string& text) {
  const bool midway = launch_ && launch_->midway();
  forget_launch();
  delivery_.release();  // a message may still arrive in its memory
  ops_.clear();
  try {
    if (staging_) staging_->drop(world_.nodes.size() > 1);
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
void Device::forget_launch() {
  if (!launch_) return;
  rest_ = launch_->take_rest();
  launch_.reset();
}

/// The callers learn that what runs has failed, and NCCL's kernels end.
void Device::end_now(int code, const std::string& text) {
  reap();
  for (StreamSlot& l : slots_) l.running.fail(code, text);
  if (!gpu_ || !communicators_) return;
  try {
    const CurrentContext current(gpu_->driver(), gpu_->context());
    communicators_->abort();
    free_rest();
  } catch (const Error&) {  // the driver is gone: so is what ran there
  }
}

/// NCCL queues nothing anymore, so a mark behind all of it can be had.
void Device::free_rest() {
  if (rest_.empty()) return;
  const std::shared_ptr<cuda::Mark> mark = gpu_->mark(slot().stream);
  slot().buffer->last = mark;
  for (const cuda::Pointer p : rest_) gpu_->free(p, mark);
  rest_.clear();
}

}  // namespace hvd::core
