#include "gpu/nccl/captures.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.h"

namespace hvd::nccl {

using cuda::CurrentContext;

namespace {

constexpr std::chrono::seconds join_limit{120};
constexpr std::chrono::microseconds between_looks{200};
constexpr std::chrono::milliseconds look_every{20};

/// One rank's facts.  Sent as raw bytes: all ranks run the same build.
struct Offer {
  std::int32_t blocks;
  UniqueId id;  ///< valid from the set's first rank only
};

/// Operations by nodes are not recorded.  Never destroyed: an abandoned thread may use it.
const NodeLayout& no_nodes() {
  static const NodeLayout& none = *new NodeLayout;
  return none;
}

[[noreturn]] void refuse(const std::string& why) { throw Error(Code::usage, "", why); }

}  // namespace

std::string NcclCaptures::offer() {
  if (!decision_.nccl) refuse("tensors on GPUs go through host memory");
  const Library& library = *Library::get();
  if (library.version < blocking_version)
    refuse("NCCL is " + version_text(library.version) + ", and 2.19 or later is needed");
  share_ = std::make_unique<MultiprocessorShare>(gpu_);
  if (share_->blocks() == 0) refuse("other process sets have reserved all multiprocessors of the GPU");
  Offer mine{share_->blocks(), {}};
  if (rank_ == 0) {
    const CurrentContext current(gpu_.driver(), gpu_.context());
    library.check(library.get_unique_id(&mine.id), "ncclGetUniqueId", nullptr);
  }
  return {reinterpret_cast<const char*>(&mine), sizeof mine};
}

/// Returns the tensor with its received rows, which are known without the other ranks.  Throws Error{usage} if the
/// operation cannot be recorded.
DeviceTensor NcclCaptures::recordable(DeviceTensor t) const {
  const char* const kind = name_of(t.kind);
  if (!is_among(t.kind, tensor_kinds)) refuse(std::string(kind) + " moves no tensor");
  if ((decision_.through_host & bit_of(t.kind)) || !gpu::possible(t, size_, decision_.capabilities))
    refuse(std::string("this ") + kind + " of " + name_of(t.dtype) + " goes through host memory");
  if (is_among(t.kind, reducing_kinds) && widened(t, decision_.capabilities))
    refuse(std::string("this ") + kind + " of " + name_of(t.dtype) + " is added in float32, which needs a buffer");
  const auto size = static_cast<std::size_t>(size_);
  std::int64_t rows = t.rows;  // of the result
  if (t.kind == Kind::allgather) {
    t.received.assign(size, t.rows);
    rows *= size_;
  } else if (t.kind == Kind::alltoall) {
    if (!std::all_of(t.sent.begin(), t.sent.end(), [&](std::int64_t n) { return n == t.sent.front(); }))
      refuse("an alltoall with different splits needs the other ranks' splits in each step");
    t.received = t.sent;
  } else if (t.kind == Kind::reducescatter) {
    rows = t.rows / size_ + (rank_ < t.rows % size_ ? 1 : 0);
  } else {
    return t;
  }
  if (rows > 0 && t.row_bytes > 0 && !t.takes(static_cast<std::size_t>(rows) * t.row_bytes))
    refuse(std::string("this ") + kind + " has no memory for the result, which belongs to the graph");
  return t;
}

void NcclCaptures::check(const gpu::LocalGpu& gpu, std::span<const DeviceTensor> tensors) const {
  if (&gpu != &gpu_) refuse("the set's tensors have been on cuda:" + std::to_string(gpu_.ordinal()));
  {
    std::lock_guard lock(mutex_);
    if (ended_ || (group_ && !ready_)) refuse("NCCL's communicator for captured calls has failed");
    if (!group_ && !share_)
      refuse("the set's first captured call was refused, so the set has no communicator for them");
  }
  for (const DeviceTensor& t : tensors) recordable(t);
}

/// The thread that captures must not join. NCCL makes calls in its own threads, unless the communicator blocks. A
/// capture in global mode forbids many of these calls. A LaunchThread is in relaxed mode, where they are allowed.
void NcclCaptures::join(std::vector<std::string> offers, const std::function<void()>& go_on) {
  Offer all{INT32_MAX, {}};
  for (std::size_t r = 0; r < offers.size(); ++r) {
    Offer one;
    if (offers[r].size() != sizeof one) return share_.reset();
    std::memcpy(&one, offers[r].data(), sizeof one);
    if (r == 0) all.id = one.id;
    all.blocks = std::min(all.blocks, one.blocks);
  }
  share_->shrink(all.blocks);
  auto root = [&gpu = gpu_, id = all.id, rank = rank_, size = size_, blocks = all.blocks] {
    return std::make_shared<Communicator>(*Library::get(), gpu, id, rank, size, blocks, true);
  };
  auto made = std::make_shared<CommunicatorGroup>(root, no_nodes(), CommunicatorGroup::Form{1, all.blocks, false});
  {
    std::lock_guard lock(mutex_);
    if (ended_) throw Error(Code::peer_lost, "NCCL", "the process set has ended");
    group_ = made;
  }
  const auto failure = std::make_shared<std::exception_ptr>();
  LaunchThread thread(gpu_, {});
  thread.run([made, failure] {
    try {
      while (!made->made()) std::this_thread::sleep_for(between_looks);
    } catch (...) { *failure = std::current_exception(); }
  });
  const auto limit = std::chrono::steady_clock::now() + join_limit;
  while (!thread.idle_by(std::chrono::steady_clock::now() + look_every)) {
    go_on();
    if (std::chrono::steady_clock::now() > limit)
      throw Error(Code::timeout, "NCCL", "the communicator for captured calls was not made within 120 s");
  }
  if (*failure) std::rethrow_exception(*failure);
  std::lock_guard lock(mutex_);
  ready_ = true;
}

std::shared_ptr<CommunicatorGroup> NcclCaptures::group() const {
  std::lock_guard lock(mutex_);
  return ended_ || !ready_ ? nullptr : group_;
}

void NcclCaptures::record(std::vector<DeviceTensor> tensors, gpu::StreamHandle stream) {
  const std::shared_ptr<CommunicatorGroup> communicators = group();
  if (!communicators) throw Error(Code::peer_lost, "NCCL", "the process set has ended");
  for (DeviceTensor& t : tensors) t = recordable(std::move(t));
  if (!used_.exchange(true)) expect_graphs();
  const CurrentContext current(gpu_.driver(), gpu_.context());
  FusionBuffer none(gpu_);
  StreamWaits waits;
  const NcclLaunch::Where where{
      {gpu_, stream, none, waits, this, decision_.capabilities, false}, *communicators, 0, no_nodes(), false, false};
  NcclLaunch(where, size_, std::move(tensors)).record();
}

void NcclCaptures::watch() {
  if (const auto communicators = used() ? group() : nullptr) communicators->watch(true);
}

std::shared_ptr<cuda::Mark> NcclCaptures::running_graphs() const {
  if (!gpu_.driver().context_record) return nullptr;
  try {
    const CurrentContext current(gpu_.driver(), gpu_.context());
    return gpu_.mark(cuda::whole_context);
  } catch (const Error&) { return nullptr; }
}

void NcclCaptures::end() noexcept {
  std::shared_ptr<CommunicatorGroup> communicators;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
    communicators = group_;
  }
  used_ = false;
  if (!communicators) return;
  try {
    const CurrentContext current(gpu_.driver(), gpu_.context());
    communicators->abort({});
  } catch (const Error&) {  // the driver is gone
  }
}

}  // namespace hvd::nccl
