#include "core/device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/peers.h"
#include "core/set.h"

namespace hvd::core {

using cuda::Current;

namespace {

constexpr std::chrono::seconds grace{2};  ///< for what is queued when a peer is lost; a healthy GPU needs less

bool is_set(const char* name) {
  const char* text = std::getenv(name);
  return text && std::strcmp(text, "1") == 0;
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

Device::Device(const World& world, const Config& config, std::atomic<bool>& queued, trace::Tracer& tracer,
               Exchange exchange)
    : world_(world), config_(config), tracer_(tracer), exchange_(std::move(exchange)), running_(queued, tracer) {}

/// Others may need this rank's part of what is queued: the set is removed, or the runtime shut down, behind it.
Device::~Device() {
  fail(HVD_PEER_LOST, "the runtime was shut down");
  while (!running_.empty() && std::chrono::steady_clock::now() < end_by_) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    running_.reap();
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
    staging_ = std::make_unique<Staging>(*gpu_, stream_, running_);
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

// ---- through NCCL

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
    else if (staging_)
      staging_->begin(*op, world_.rank);
  }
  return taken;
}

void Device::begin(std::span<Operation* const> ops, std::uint32_t row) {
  ops_.assign(ops.begin(), ops.end());
  row_ = row;
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
  running_.reap();
  idle_ = running_.empty() && staging_->arrived();
  launch_ = std::make_unique<nccl::Launch>(
      nccl::Launch::Where{*gpu_, stream_, *communicator_, *buffer_, decision_.means, row_ != 0}, std::move(tensors_));
}

/// What the timeline wants to know of the launch, which is queued; nullptr: nothing.
std::unique_ptr<Timed> Device::timed() {
  if (row_ == 0) return nullptr;
  auto t = std::make_unique<Timed>();
  t->row = row_;
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
  const auto end = running_.add(launch_->mark(), timed());
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

bool Device::watch() {
  const bool any = running_.reap();
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
  const bool midway = launch_ && launch_->midway();
  if (launch_) rest_ = launch_->take_rest();
  launch_.reset();
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
    running_.reap();
}

/// The callers learn that what runs has failed, and NCCL's kernels end.
void Device::end_now(int code, const std::string& text) {
  running_.reap();
  running_.fail(code, text);
  if (!gpu_ || !communicator_) return;
  try {
    const Current current(gpu_->driver(), gpu_->context());
    communicator_->abort();
    free_rest();
  } catch (const Error&) {  // the driver is gone: so is what ran there
  }
}

/// NCCL queues nothing anymore, so a mark behind all of it can be had.
void Device::free_rest() {
  if (rest_.empty()) return;
  const std::shared_ptr<cuda::Mark> mark = gpu_->mark(stream_);
  buffer_->last = mark;
  for (const cuda::Pointer p : rest_.device) gpu_->free(p, mark);
  for (void* p : rest_.pinned) gpu_->free_pinned(p, mark);
  rest_ = {};
}

}  // namespace hvd::core
