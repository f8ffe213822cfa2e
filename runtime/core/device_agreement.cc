/// @file device_agreement.cc — what the ranks of a set tell each other about their GPUs, and the communicators that
/// come of it.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/environment.h"
#include "common/log.h"
#include "core/device.h"
#include "core/peers.h"

namespace hvd::core {

using cuda::CurrentContext;

namespace {

bool is_set(const char* name) {
  const char* text = environment_value(name);
  return text && std::strcmp(text, "1") == 0;
}

/// hvdrun planned a GPU for this rank, near its cores.  Another one works, so it is no error.
/// @param planned  a UUID, or where none was known a PCI address; empty: none was planned
void check_plan(const cuda::Gpu& gpu, int rank, const std::string& planned) {
  if (!planned.starts_with("GPU-") && !planned.starts_with("MIG-")) return;
  if (gpu.uuid().compare(4, std::string::npos, planned, 4) == 0) return;
  log_warning("rank " + std::to_string(rank) + " uses cuda:" + std::to_string(gpu.ordinal()) + ", " + gpu.uuid() +
              ", but " + planned +
              " was planned for it (torch.cuda.set_device(hvd.local_rank()), or hvdrun --gpus own)");
}

void copy_text(std::span<char> to, const std::string& text) {
  const std::size_t n = std::min(text.size(), to.size() - 1);
  std::memcpy(to.data(), text.data(), n);
  to[n] = 0;
}

}  // namespace

/// The GPU of the first tensor; a rank that has joined and never had one takes its turn's.
void Device::begin_agreement(std::span<Operation* const> ops) {
  for (const Operation* op : ops)
    if (op->gpu && !gpu_) gpu_ = &cuda::Gpu::at(op->gpu->ordinal);
  if (!gpu_ && cuda::Driver::get()) gpu_ = &cuda::Gpu::at(world_.local_rank() % cuda::Driver::get()->devices);
  if (gpu_) check_plan(*gpu_, world_.world_rank(world_.rank), config_.text("HVD_GPU"));
  if (inherited_ && gpu_ != &inherited_->gpu) inherited_.reset();
  if (inherited_) share_ = std::move(inherited_->share);
  mine_ = device_info();
  delivery_ = exchange(&mine_, sizeof mine_);
}

nccl::DeviceInfo Device::device_info() {
  nccl::DeviceInfo c;
  c.through_host = kinds_through_host(config_);
  c.wide = config_.flag("HVD_NCCL_WIDE");
  c.float8 = config_.flag("HVD_NCCL_FLOAT8");
  c.host = PeerProcess::mine().host;
  c.shares_gpu = is_set("NCCL_MULTI_RANK_GPU_ENABLE");
  if (!gpu_) {
    copy_text(c.why, cuda::Driver::why_not());
    return c;
  }
  c.kernels = gpu_->no_kernels().empty();
  c.generation = gpu_->generation();
  copy_text(c.uuid, gpu_->uuid());
  if (c.through_host == nccl::gpu_kinds) return c;
  const nccl::Library* library = nccl::Library::get();
  if (!library) {
    copy_text(c.why, nccl::Library::why_not());
    return c;
  }
  c.version = library->version;
  c.splits = library->split != nullptr;
  c.inherited = inherited_ != nullptr;
  c.slots = static_cast<int>(config_.integer("HOROVOD_NUM_NCCL_STREAMS"));
  if (inherited_) c.slots = std::min(c.slots, inherited_->slots);
  c.sums_by_nodes = config_.flag("HOROVOD_HIERARCHICAL_ALLREDUCE") || config_.flag("HOROVOD_TORUS_ALLREDUCE");
  c.gathers_by_nodes = config_.flag("HOROVOD_HIERARCHICAL_ALLGATHER");
  if (!share_) share_ = std::make_unique<nccl::MultiprocessorShare>(*gpu_);
  c.blocks = share_->blocks();
  if (world_.rank == 0) {
    const CurrentContext current(gpu_->driver(), gpu_->context());
    if (const int code = library->get_unique_id(&c.id); code != nccl::success) {
      copy_text(c.why, "ncclGetUniqueId: " + library->text(code, nullptr));
      c.version = 0;
    }
  }
  return c;
}

/// Every rank's bytes to every rank.
std::unique_ptr<ops::Movement> Device::exchange(const void* bytes, std::size_t count) {
  ops::MovedTensor p;
  p.kind = Kind::allgather;
  p.in = static_cast<const unsigned char*>(bytes);
  p.row_bytes = count;
  p.rows = 1;
  std::vector<ops::MovedTensor> moved_tensors;
  moved_tensors.push_back(std::move(p));
  return exchange_(std::move(moved_tensors));
}

bool Device::step_agreement() {
  if (!delivery_->done()) {
    const bool moved = delivery_->step();
    if (!delivery_->done()) return moved;
  }
  std::vector<ops::MovedTensor> moved_tensors = delivery_->take();
  delivery_.reset();
  const std::unique_ptr<void, void (*)(void*)> hold(moved_tensors.front().result, std::free);
  const auto* received = static_cast<const nccl::DeviceInfo*>(hold.get());
  std::vector<nccl::DeviceInfo> devices(received, received + world_.size);
  std::transform(devices.begin(), devices.end(), devices.begin(), nccl::sound);
  std::vector<std::size_t> nodes;
  for (const std::vector<int>& n : world_.nodes) nodes.push_back(n.size());
  decision_ = nccl::decide(devices, world_.world_ranks, nodes);
  if (!decision_.nccl) share_.reset();
  if (share_) share_->shrink(decision_.blocks * decision_.slots);
  mine_.id = devices.front().id;
  if (gpu_) {
    const CurrentContext current(gpu_->driver(), gpu_->context());
    while (slots_.size() < static_cast<std::size_t>(decision_.slots)) slots_.emplace_back(gpu_busy_, tracer_);
    for (StreamSlot& l : slots_) {
      l.stream = gpu_->make_stream();
      l.buffer = std::make_unique<nccl::FusionBuffer>(*gpu_);
    }
    staging_ = std::make_unique<Staging>(*gpu_, slots_.front().stream, slots_.front().running);
  }
  if (world_.rank == 0) say();
  agreed_ = true;
  return true;
}

/// What is not as one would expect, and to who asks for it what is.
void Device::say() const {
  const nccl::GpuDecision& d = decision_;
  const std::string way = std::string("tensors on GPUs go through ") +
                          (d.nccl ? "NCCL " + nccl::version_text(nccl::Library::get()->version) : "host memory");
  if (!d.nccl && !d.reason.empty())
    log_warning(way + ": " + d.reason);
  else
    log_info(way + (d.nccl && d.through_host ? ", some operations through host memory" : ""));
  for (const std::string& note : d.notes)
    if (d.nccl) log_warning(note);
}

/// Begins the communicators: when NCCL is needed for the first time.
void Device::join() {
  if (communicators_) return;
  const CurrentContext current(gpu_->driver(), gpu_->context());
  if (decision_.sums_by_nodes || decision_.gathers_by_nodes) {
    nodes_ = {static_cast<int>(world_.nodes.size()), world_.node(), world_.local_size(), world_.local_rank(), {}};
    for (const std::vector<int>& n : world_.nodes) nodes_.of.insert(nodes_.of.end(), n.begin(), n.end());
  }
  std::unique_ptr<nccl::Communicator> whole;
  if (decision_.inherits)
    whole = std::move(inherited_->whole);
  else
    whole = std::make_unique<nccl::Communicator>(*nccl::Library::get(), *gpu_, mine_.id, world_.rank, world_.size,
                                                 decision_.blocks);
  communicators_ =
      std::make_unique<nccl::CommunicatorGroup>(std::move(whole), decision_.slots, nodes_, decision_.blocks);
}

std::unique_ptr<InheritedGpu> Device::split(int rank, int size, int blocks,
                                            std::unique_ptr<nccl::MultiprocessorShare> share) {
  const CurrentContext current(gpu_->driver(), gpu_->context());
  const int slots = std::min(decision_.slots, blocks);
  auto whole = communicators_->split(rank < 0 ? nccl::no_color : 0, rank, size, blocks / slots);
  if (!whole) return nullptr;
  share->shrink(blocks);
  return std::make_unique<InheritedGpu>(InheritedGpu{*gpu_, std::move(share), slots, std::move(whole)});
}

}  // namespace hvd::core
