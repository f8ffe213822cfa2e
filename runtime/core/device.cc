#include "core/device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/peers.h"
#include "core/set.h"

namespace hvd::core {

using cuda::Current;
using cuda::Pointer;

namespace {

constexpr std::chrono::seconds grace{2};  ///< for what is queued when a peer is lost; a healthy GPU needs less

Pointer address(const void* p) { return reinterpret_cast<Pointer>(p); }

bool is_set(const char* name) {
  const char* text = std::getenv(name);
  return text && std::strcmp(text, "1") == 0;
}

bool arrived(const DeviceEnd& end) {
  try {
    return end.mark->reached();
  } catch (const Error&) {  // the device has failed
    return false;
  }
}

/// hvdrun planned a GPU for this rank, near its cores.  Another one works, so it is no error.
void check_plan(const cuda::Gpu& gpu, int rank) {
  const char* planned = std::getenv("HVD_GPU");  // a UUID, or where none was known a PCI address
  if (!planned || (std::strncmp(planned, "GPU-", 4) != 0 && std::strncmp(planned, "MIG-", 4) != 0)) return;
  if (gpu.uuid().compare(4, std::string::npos, planned + 4) == 0) return;
  std::fprintf(stderr,
               "hvd: rank %d uses cuda:%d, %s, but %s was planned for it (torch.cuda.set_device(hvd.local_rank()), or "
               "hvdrun --gpus own)\n",
               rank, gpu.ordinal(), gpu.uuid().c_str(), planned);
}

void copy_text(std::span<char> to, const std::string& text) {
  const std::size_t n = std::min(text.size(), to.size() - 1);
  std::memcpy(to.data(), text.data(), n);
  to[n] = 0;
}

}  // namespace

void hand_over(const Operation& op, cuda::Stream stream) {
  if (!op.gpu || !op.gpu->end) return;
  const DeviceEnd& end = *op.gpu->end;
  if (const int status = end.status.load(std::memory_order_acquire))
    throw Error(static_cast<Code>(status), "", end.error);
  end.mark->hold(stream);
}

bool arrived(const Operation& op) {
  return !op.gpu || !op.gpu->end || op.gpu->end->status.load(std::memory_order_acquire) != 0 ||
         op.gpu->end->mark->reached();
}

Device::Device(const World& world, const Config& config, std::atomic<bool>& queued, Exchange exchange)
    : world_(world), config_(config), queued_(queued), exchange_(std::move(exchange)) {}

/// Others may need this rank's part of what is queued: the set is removed, or the runtime shut down, behind it.
Device::~Device() {
  fail(HVD_PEER_LOST, "the runtime was shut down");
  while (!running_.empty() && std::chrono::steady_clock::now() < end_by_) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    reap();
  }
  end_now(failed_, why_failed_);
}

// ---- agreement

/// The GPU of the first tensor; a rank that has joined and never had one takes its turn's.
void Device::begin_agreement(std::span<Operation* const> ops) {
  for (const Operation* op : ops)
    if (op->gpu && !gpu_) gpu_ = &cuda::Gpu::at(op->gpu->ordinal);
  if (!gpu_ && cuda::Driver::get()) gpu_ = &cuda::Gpu::at(world_.local_rank() % cuda::Driver::get()->devices);
  if (gpu_) check_plan(*gpu_, world_.world_rank(world_.rank));
  mine_ = card();
  delivery_ = exchange(&mine_, sizeof mine_);
}

nccl::Card Device::card() const {
  nccl::Card c;
  c.stages = config_.gpu_through_host;
  c.wide = config_.nccl_wide;
  c.host = Card::mine().host;
  c.shares_gpu = is_set("NCCL_MULTI_RANK_GPU_ENABLE");
  if (!gpu_) {
    copy_text(c.why, cuda::Driver::why_not());
    return c;
  }
  c.kernels = gpu_->no_kernels().empty();
  copy_text(c.uuid, gpu_->uuid());
  if (c.stages) return c;
  const nccl::Library* library = nccl::Library::get();
  if (!library) {
    copy_text(c.why, nccl::Library::why_not());
    return c;
  }
  c.version = library->version;
  if (world_.rank == 0) {
    const Current current(gpu_->driver(), gpu_->context());
    if (const int code = library->get_unique_id(&c.id); code != nccl::success) {
      copy_text(c.why, "ncclGetUniqueId: " + library->text(code, nullptr));
      c.version = 0;
    }
  }
  return c;
}

/// Every rank's bytes to every rank.
std::unique_ptr<ops::Delivery> Device::exchange(const void* bytes, std::size_t count) {
  ops::Parcel p;
  p.kind = Kind::allgather;
  p.in = static_cast<const unsigned char*>(bytes);
  p.row_bytes = count;
  p.rows = 1;
  std::vector<ops::Parcel> parcels;
  parcels.push_back(std::move(p));
  return exchange_(std::move(parcels));
}

bool Device::step_agreement() {
  if (!delivery_->done()) {
    const bool moved = delivery_->step();
    if (!delivery_->done()) return moved;
  }
  std::vector<ops::Parcel> parcels = delivery_->take();
  delivery_.reset();
  const std::unique_ptr<void, void (*)(void*)> hold(parcels.front().result, std::free);
  const std::span cards(static_cast<const nccl::Card*>(hold.get()), static_cast<std::size_t>(world_.size));
  decision_ = nccl::decide(cards, world_.world_ranks);
  mine_.id = cards.front().id;
  if (gpu_) {
    const Current current(gpu_->driver(), gpu_->context());
    stream_ = gpu_->make_stream();
    buffer_ = std::make_unique<nccl::Buffer>(*gpu_);
  }
  if (!decision_.nccl && !decision_.reason.empty() && world_.rank == 0)
    std::fprintf(stderr, "hvd: tensors on GPUs go through host memory: %s\n", decision_.reason.c_str());
  agreed_ = true;
  return true;
}

/// Begins the communicator: when NCCL is needed for the first time.
void Device::join() {
  if (communicator_) return;
  const Current current(gpu_->driver(), gpu_->context());
  communicator_ = std::make_unique<nccl::Communicator>(*nccl::Library::get(), mine_.id, world_.rank, world_.size);
}

// ---- through host memory

namespace {

nccl::Tensor tensor_of(const Operation& op) {
  const Signature& s = op.entry->signature;
  nccl::Tensor t;
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
  if (op.gpu) t.ready = op.gpu->ready;
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

std::vector<Operation*> Device::take(std::span<Operation* const> ops) {
  std::vector<Operation*> taken;
  for (Operation* op : ops) {
    if (decision_.nccl && nccl::possible(tensor_of(*op), world_.size, decision_.means))
      taken.push_back(op);
    else
      stage(*op);
  }
  return taken;
}

/// Its input to pinned memory; a result of known size gets pinned memory too.  Stand-ins are in host memory already.
void Device::stage(Operation& op) {
  if (!op.gpu) return;
  const nccl::Tensor t = tensor_of(op);
  const Current current(gpu_->driver(), gpu_->context());
  const auto& driver = gpu_->driver();
  op.gpu->staged = true;
  op.gpu->out = op.out;
  const std::size_t bytes = t.bytes();
  void* pinned = gpu_->allocate_pinned(bytes);
  op.gpu->pinned = pinned;
  const bool reads = t.kind != Kind::broadcast || t.root == world_.rank;
  if (bytes > 0 && reads) {
    if (op.gpu->ready) driver.check(driver.stream_wait_event(stream_, op.gpu->ready->event(), 0), "cuStreamWaitEvent");
    driver.check(driver.copy_to_host(pinned, address(op.in), bytes, stream_), "cuMemcpyDtoHAsync");
    staging_.push_back(gpu_->mark(stream_));
  }
  op.in = pinned;
  if (op.out) op.out = pinned;
}

bool Device::staged() const {
  for (const auto& mark : staging_)
    if (!mark->reached()) return false;
  return true;
}

void Device::give_back(Operation& op) {
  staging_.clear();
  const Current current(gpu_->driver(), gpu_->context());
  const auto& driver = gpu_->driver();
  if (op.gpu->ready)  // a broadcast's other ranks have not waited for it yet
    driver.check(driver.stream_wait_event(stream_, op.gpu->ready->event(), 0), "cuStreamWaitEvent");
  void* host = op.gpu->pinned;
  if (op.gpu->out) {
    const auto bytes = static_cast<std::size_t>(op.entry->signature.payload_bytes());
    if (bytes > 0) driver.check(driver.copy_to_device(address(op.gpu->out), host, bytes, stream_), "cuMemcpyHtoDAsync");
  } else if (op.result) {  // of a size that only now is known, in ordinary memory
    std::size_t bytes = element_bytes(op.entry->signature.type());
    for (std::int64_t d : op.result_shape) bytes *= static_cast<std::size_t>(d);
    const Pointer result = gpu_->allocate(bytes);
    void* through = gpu_->allocate_pinned(bytes);
    std::memcpy(through, op.result, bytes);
    std::free(op.result);
    op.result = reinterpret_cast<void*>(result);
    op.gpu->result = true;
    if (bytes > 0) driver.check(driver.copy_to_device(result, through, bytes, stream_), "cuMemcpyHtoDAsync");
    op.gpu->end = ended(gpu_->mark(stream_));
    gpu_->free_pinned(through, op.gpu->end->mark);
  }
  if (!op.gpu->end) op.gpu->end = ended(gpu_->mark(stream_));
  gpu_->free_pinned(host, op.gpu->end->mark);
  op.gpu->ready.reset();
  op.gpu->staged = false;
}

std::shared_ptr<DeviceEnd> Device::ended(std::shared_ptr<cuda::Mark> mark) {
  auto end = std::make_shared<DeviceEnd>();
  end->mark = std::move(mark);
  running_.push_back(end);
  queued_.store(true, std::memory_order_seq_cst);
  return end;
}

// ---- through NCCL

void Device::begin(std::span<Operation* const> ops, bool timed) {
  ops_.assign(ops.begin(), ops.end());
  timed_ = timed;
  join();
  tensors_.clear();
  for (const Operation* op : ops_) tensors_.push_back(tensor_of(*op));
  begin_lengths();
}

/// Rows that only the other ranks know, of all operations at once: [size of the set] numbers for an alltoall, one for
/// an allgather.
void Device::begin_lengths() {
  my_lengths_.clear();
  for (const nccl::Tensor& t : tensors_) {
    if (t.kind == Kind::allgather) my_lengths_.push_back(t.rows);
    if (t.kind == Kind::alltoall) my_lengths_.insert(my_lengths_.end(), t.sent.begin(), t.sent.end());
  }
  if (my_lengths_.empty())
    launch();
  else
    delivery_ = exchange(my_lengths_.data(), my_lengths_.size() * sizeof(std::int64_t));
}

void Device::take_lengths() {
  std::vector<ops::Parcel> parcels = delivery_->take();
  delivery_.reset();
  const std::unique_ptr<void, void (*)(void*)> hold(parcels.front().result, std::free);
  const auto* lengths = static_cast<const std::int64_t*>(hold.get());
  const auto size = static_cast<std::size_t>(world_.size);
  std::size_t column = 0;
  for (nccl::Tensor& t : tensors_) {
    const bool all = t.kind == Kind::alltoall;
    if (!all && t.kind != Kind::allgather) continue;
    t.received.resize(size);
    for (std::size_t r = 0; r < size; ++r)
      t.received[r] = lengths[r * my_lengths_.size() + column + (all ? static_cast<std::size_t>(world_.rank) : 0)];
    column += all ? size : 1;
  }
}

void Device::launch() {
  launch_ = std::make_unique<nccl::Launch>(
      nccl::Launch::Where{*gpu_, stream_, *communicator_, *buffer_, decision_.means, timed_}, std::move(tensors_));
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
  const auto end = ended(launch_->mark());
  std::vector<nccl::Tensor>& tensors = launch_->tensors();
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    Operation& op = *ops_[i];
    nccl::Tensor& t = tensors[i];
    if (!t.absent) {
      op.gpu->ready.reset();
      op.gpu->end = end;
    }
    if (!t.result) continue;
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
  launch_.reset();
  ops_.clear();
}

// ---- what runs on the device

/// Forgets what has ended, in the order of the stream.
bool Device::reap() {
  bool any = false;
  while (!running_.empty() && arrived(*running_.front())) {
    running_.pop_front();
    any = true;
  }
  return any;
}

bool Device::watch() {
  const bool any = reap();
  if (failed_) {
    if (!running_.empty() && std::chrono::steady_clock::now() > end_by_) end_now(failed_, why_failed_);
    return any;
  }
  if (!communicator_) return any;
  try {
    const Current current(gpu_->driver(), gpu_->context());
    communicator_->ready();
  } catch (const Error& e) {
    end_now(static_cast<int>(e.code), e.what());
    throw;
  }
  return any;
}

void Device::fail(int code, const std::string& text) {
  launch_.reset();
  delivery_.release();  // a message may still arrive in its memory
  ops_.clear();
  staging_.clear();
  if (failed_) return;
  failed_ = code;
  why_failed_ = text;
  end_by_ = std::chrono::steady_clock::now() + grace;
  reap();
}

/// The callers learn that what runs has failed, and NCCL's kernels end.
void Device::end_now(int code, const std::string& text) {
  reap();
  for (const auto& end : running_) {
    end->error = text;
    end->status.store(code, std::memory_order_release);
  }
  running_.clear();
  if (!gpu_ || !communicator_) return;
  try {
    const Current current(gpu_->driver(), gpu_->context());
    communicator_->abort();
  } catch (const Error&) {  // the driver is gone: so is what ran there
  }
}

}  // namespace hvd::core
