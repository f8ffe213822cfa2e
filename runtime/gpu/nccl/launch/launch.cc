#include "gpu/nccl/launch/launch.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"

namespace hvd::nccl {

using cuda::Pointer;

namespace {

/// wait_until() queries NCCL at once for the first `brief_looks` times, since a group takes microseconds.  Later it
/// sleeps for `nap` between queries.
constexpr int brief_looks = 200;
constexpr std::chrono::microseconds nap{50};

}  // namespace

NcclLaunch::NcclLaunch(const Where& where, int size, std::vector<DeviceTensor> tensors)
    : GpuBatch(where, size, std::move(tensors)), where_(where) {}

void NcclLaunch::run() noexcept {
  try {
    queue();
  } catch (...) {
    error_ = std::current_exception();
    failed_.store(true, std::memory_order_seq_cst);
  }
}

void NcclLaunch::check() const {
  if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(error_);
}

void NcclLaunch::go_on() const {
  if (cancelled_) throw Error(Code::peer_lost, "NCCL", "the batch was given up");
}

template <class Ready>
void NcclLaunch::wait_until(Ready ready) const {
  for (int looks = 0; !ready(); ++looks) {
    go_on();
    if (looks < brief_looks)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(nap);
  }
}

/// Runs a batch whose tensors are all local().
void NcclLaunch::queue_here() {
  calling_ = true;
  begin();
  for (const DeviceTensor& t : tensors_) finish_here(t);
  end();
}

void NcclLaunch::queue() {
  if (std::all_of(tensors_.begin(), tensors_.end(), [this](const auto& t) { return local(t); })) return queue_here();
  wait_until([this] { return where_.communicators.made() && slot().whole->ready(); });
  go_on();
  calling_ = true;
  std::size_t bytes = 0;
  fused_ = fuse(tensors_, size(), where_.capabilities, &bytes, where_.sums_by_nodes ? where_.nodes.ranks : 1);
  alone_.assign(tensors_.size(), true);
  for (const FusedGroup& f : fused_)
    for (std::size_t i : f.tensors) alone_[i] = false;
  if (bytes > 0) buffer_ = where_.buffer.of(bytes, where_.stream, where_.capabilities.kernels);
  register_tensors();
  begin();
  prepare();
  for (at_ = 0; at_ < groups_.size(); ++at_) {
    call();
    wait_until([this] { return communicator().ready(); });
  }
  go_on();
  finish();
}

void NcclLaunch::record() {
  alone_.assign(tensors_.size(), true);
  if (std::all_of(tensors_.begin(), tensors_.end(), [this](const auto& t) { return local(t); })) {
    for (const DeviceTensor& t : tensors_) finish_here(t);
    return;
  }
  prepare();
  call();
  scale_alone();
}

/// The communicator of the current group.
Communicator& NcclLaunch::communicator() const {
  const Group group = groups_[at_];
  return group == Group::all ? *slot().whole : group == Group::across ? *slot().across : *slot().inside;
}

/// Applies the second factor of sums that are not packed.
void NcclLaunch::scale_alone() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const DeviceTensor& t = tensors_[i];
    const double factor = alone_[i] && !t.absent && t.bytes() > 0 ? scaled_alone(t).scatter : 1;
    if (factor != 1) scale(t, t.out, t.out, factor);
  }
}

/// Queues the work that follows NCCL's work.
void NcclLaunch::finish() {
  for (const ByNodes& n : by_nodes_) put_in_order(n);
  scale_alone();
  for (const Wider& w : wider_)
    if (w.elements > 0)
      convert(false, *w.tensor, reinterpret_cast<void*>(w.tensor->destination()), w.elements, w.part,
              w.scaling.scatter);
  end();
}

}  // namespace hvd::nccl
