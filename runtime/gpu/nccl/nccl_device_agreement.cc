/// @file nccl_device_agreement.cc — how the ranks of a set exchange facts about their GPUs, and make communicators.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "common/log.h"
#include "gpu/nccl/nccl_device.h"
#include "gpu/nccl/through_host.h"

namespace hvd::nccl {

using cuda::CurrentContext;

namespace {

bool is_set(const char* name) {
  const char* text = environment_value(name);
  return text && std::strcmp(text, "1") == 0;
}

/// Warns if hvdrun planned another GPU, near the rank's cores.  Any GPU works, so another GPU is no error.
/// @param planned  a UUID; a PCI address if hvdrun knows no UUID; empty: no GPU was planned
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

/// Uses the GPU of the first tensor.  A rank that has joined without a tensor uses GPU number local_rank mod GPUs.
void NcclDevice::begin_agreement(gpu::LocalGpu* gpu) {
  gpu_ = static_cast<cuda::Gpu*>(gpu);
  if (!gpu_ && cuda::Driver::get()) gpu_ = &cuda::Gpu::at(context_.world.local_rank() % cuda::Driver::get()->devices);
  if (gpu_) check_plan(*gpu_, context_.world.world_rank(context_.world.rank), context_.config.text("HVD_GPU"));
  if (inherited_ && gpu_ != &inherited_->gpu) inherited_.reset();
  if (inherited_) share_.reset(static_cast<MultiprocessorShare*>(inherited_->share.release()));
  mine_ = device_info();
  delivery_ = context_.exchange(&mine_, sizeof mine_);
}

DeviceInfo NcclDevice::device_info() {
  DeviceInfo c;
  c.through_host = kinds_through_host(context_.config);
  c.encrypts = context_.config.flag("HVD_ENCRYPT_TENSORS");
  c.wide = context_.config.flag("HVD_NCCL_WIDE");
  c.float8 = context_.config.flag("HVD_NCCL_FLOAT8");
  c.host = context_.host;
  c.shares_gpu = is_set("NCCL_MULTI_RANK_GPU_ENABLE");
  if (!gpu_) {
    copy_text(c.why, cuda::Driver::why_not());
    return c;
  }
  c.kernels = gpu_->no_kernels().empty();
  c.generation = gpu_->generation();
  copy_text(c.uuid, gpu_->uuid());
  if (c.through_host == gpu_kinds || (c.encrypts != 0 && context_.world.nodes.size() > 1)) return c;
  const Library* library = Library::get();
  if (!library) {
    copy_text(c.why, Library::why_not());
    return c;
  }
  c.version = library->version;
  c.splits = library->split != nullptr;
  c.inherited = inherited_ != nullptr;
  c.slots = static_cast<int>(context_.config.integer("HOROVOD_NUM_NCCL_STREAMS"));
  if (inherited_) c.slots = std::min(c.slots, inherited_->slots);
  c.sums_by_nodes =
      context_.config.flag("HOROVOD_HIERARCHICAL_ALLREDUCE") || context_.config.flag("HOROVOD_TORUS_ALLREDUCE");
  c.gathers_by_nodes = context_.config.flag("HOROVOD_HIERARCHICAL_ALLGATHER");
  c.window_bytes = take_windows(*library, c.slots);
  if (!share_) share_ = std::make_unique<MultiprocessorShare>(*gpu_);
  c.blocks = share_->blocks();
  if (context_.world.rank == 0) {
    const CurrentContext current(gpu_->driver(), gpu_->context());
    if (const int code = library->get_unique_id(&c.id); code != success) {
      copy_text(c.why, "ncclGetUniqueId: " + library->text(code, nullptr));
      c.version = 0;
    }
  }
  return c;
}

/// Takes memory for the windows, before the ranks agree on them.  Returns the bytes of each; 0: there are none.
std::int64_t NcclDevice::take_windows(const Library& library, int slots) {
  const auto bytes = static_cast<std::size_t>(context_.config.number("HOROVOD_FUSION_THRESHOLD"));
  if (!context_.config.flag("HVD_NCCL_WINDOWS") || bytes == 0 || context_.world.size == 1) return 0;
  if (library.version < window_version || !library.register_window) {
    log_warning("HVD_NCCL_WINDOWS requires NCCL 2.27, and this is " + version_text(library.version));
    return 0;
  }
  try {
    for (int i = 0; i < slots; ++i) windows_.push_back(RegisteredMemory::process().take(library, *gpu_, bytes));
  } catch (const Error& e) {
    log_warning(std::string("HVD_NCCL_WINDOWS: ") + e.what());
    give_back_windows();
    return 0;
  }
  return static_cast<std::int64_t>(windows_.front().bytes);
}

void NcclDevice::give_back_windows() {
  for (const RegisteredMemory::Block& window : windows_) RegisteredMemory::process().give_back(window.data);
  windows_.clear();
}

bool NcclDevice::step_agreement() {
  if (!delivery_->done()) {
    const bool moved = delivery_->step();
    if (!delivery_->done()) return moved;
  }
  std::vector<ops::MovedTensor> moved_tensors = delivery_->take();
  delivery_.reset();
  const std::unique_ptr<void, void (*)(void*)> hold(moved_tensors.front().result, std::free);
  const auto* received = static_cast<const DeviceInfo*>(hold.get());
  std::vector<DeviceInfo> devices(received, received + context_.world.size);
  std::transform(devices.begin(), devices.end(), devices.begin(), sound);
  std::vector<std::size_t> nodes;
  for (const std::vector<int>& n : context_.world.nodes) nodes.push_back(n.size());
  decision_ = decide(devices, context_.world.world_ranks, nodes);
  facts_ = {decision_.nccl, decision_.through_host, decision_.capabilities};
  hashes_ = context_.config.text("HVD_AGREEMENT") != "off" && context_.world.size > 1 && decision_.capabilities.kernels;
  if (!decision_.nccl) share_.reset();
  if (share_) share_->shrink(decision_.blocks * decision_.slots);
  if (!decision_.nccl || decision_.window_bytes == 0) give_back_windows();
  mine_.id = devices.front().id;
  if (gpu_) {
    const CurrentContext current(gpu_->driver(), gpu_->context());
    while (side_->slots.size() < static_cast<std::size_t>(decision_.slots))
      side_->slots.emplace_back(context_.busy, context_.tracer);
    for (StreamSlot& l : side_->slots) {
      l.stream = gpu_->make_stream();
      l.buffer = std::make_unique<FusionBuffer>(*gpu_, this);
    }
    prefer_windows();
    captures_ = std::make_shared<NcclCaptures>(*gpu_, context_.world.rank, context_.world.size, decision_);
    if (side_->slots.size() == 1 && context_.config.integer("HVD_RECORDER_FD") >= 0)
      side_->slots.front().running.measure();  // batches of several streams overlap
    staging_ = std::make_unique<cuda::Staging>(*gpu_, side_->slots.front().stream, side_->slots.front().running);
  }
  if (context_.world.rank == 0) say();
  agreed_ = true;
  return true;
}

/// Gives each slot's fusion buffer its window.  All windows have the size on which the ranks have agreed.
void NcclDevice::prefer_windows() {
  while (windows_.size() > side_->slots.size()) {
    RegisteredMemory::process().give_back(windows_.back().data);
    windows_.pop_back();
  }
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    windows_[i].bytes = static_cast<std::size_t>(decision_.window_bytes);
    side_->slots[i].buffer->prefer(windows_[i]);
  }
}

/// Logs how tensors on GPUs travel: a warning if the user may expect another way, else information.
void NcclDevice::say() const {
  const GpuDecision& d = decision_;
  const std::string way = std::string("tensors on GPUs go through ") +
                          (d.nccl ? "NCCL " + version_text(Library::get()->version) : "host memory");
  if (!d.nccl && !d.reason.empty())
    log_warning(way + ": " + d.reason);
  else
    log_info(way + (d.nccl && d.through_host ? ", some operations through host memory" : ""));
  for (const std::string& note : d.notes)
    if (d.nccl) log_warning(note);
}

/// Says once whether NCCL has made the windows.
void NcclDevice::say_windows() {
  if (said_windows_ || windows_.empty() || context_.world.rank != 0 || !side_->communicators->complete()) return;
  said_windows_ = true;
  if (side_->communicators->windows() == windows_.size())
    log_info("the fusion buffer is a window of NCCL, " + std::to_string(windows_.front().bytes >> 20) + " MiB");
  else
    log_warning("HVD_NCCL_WINDOWS: NCCL makes no window: it requires that the GPUs can access each other");
}

/// Makes the thread and the group, when the set first needs NCCL.  The thread makes the communicators.
void NcclDevice::join() {
  if (side_->communicators) return;
  NodeLayout& nodes = side_->nodes;
  if (decision_.sums_by_nodes || decision_.gathers_by_nodes) {
    nodes = {static_cast<int>(context_.world.nodes.size()),
             context_.world.node(),
             context_.world.local_size(),
             context_.world.local_rank(),
             {}};
    for (const std::vector<int>& n : context_.world.nodes) nodes.of.insert(nodes.of.end(), n.begin(), n.end());
  }
  const Library& library = *Library::get();
  std::shared_ptr<Communicator> split;
  if (decision_.inherits) split = std::move(inherited_->whole);
  auto root = [&library, &gpu = *gpu_, split, id = mine_.id, rank = context_.world.rank, size = context_.world.size,
               blocks = decision_.blocks]() -> std::shared_ptr<Communicator> {
    return split ? split : std::make_shared<Communicator>(library, gpu, id, rank, size, blocks);
  };
  thread_ = std::make_unique<LaunchThread>(*gpu_, context_.wake);
  const bool blocking = decision_.splits && library.version >= blocking_version;
  side_->communicators = std::make_unique<CommunicatorGroup>(
      std::move(root), nodes, CommunicatorGroup::Form{decision_.slots, decision_.blocks, blocking, windows_});
}

/// Runs on the LaunchThread, which is idle.  NCCL ties its background work to the thread that makes the call.
std::unique_ptr<gpu::DeviceInheritance> NcclDevice::split(int rank, int size, int blocks,
                                                          std::unique_ptr<gpu::DeviceShare> share) {
  struct Call {
    std::unique_ptr<Communicator> made;
    std::exception_ptr error;
  };
  const int slots = std::min(decision_.slots, blocks);
  const auto call = std::make_shared<Call>();
  thread_->run(
      [side = side_, call, color = rank < 0 ? no_color : 0, part = Communicator::Subset{rank, size, blocks / slots}] {
        try {
          call->made = side->communicators->split(color, part);
        } catch (...) { call->error = std::current_exception(); }
      });
  if (!thread_->idle_by(std::chrono::steady_clock::now() + std::chrono::seconds(2)))
    throw Error(Code::unavailable, "ncclCommSplit", "does not return");
  if (call->error) std::rethrow_exception(call->error);
  if (!call->made) return nullptr;
  static_cast<MultiprocessorShare&>(*share).shrink(blocks);
  return std::make_unique<InheritedGpu>(*gpu_, std::move(share), slots, std::move(call->made));
}

}  // namespace hvd::nccl
