#include "gpu/nccl/launch.h"

#include <utility>

namespace hvd::nccl {

using cuda::Pointer;

NcclLaunch::NcclLaunch(const Where& where, int size, std::vector<DeviceTensor> tensors)
    : GpuBatch(where, size, std::move(tensors)), where_(where) {
  std::size_t bytes = 0;
  fused_ = fuse(tensors_, size, where_.capabilities, &bytes, where_.sums_by_nodes ? where_.nodes.ranks : 1);
  alone_.assign(tensors_.size(), true);
  for (const FusedGroup& f : fused_)
    for (std::size_t i : f.tensors) alone_[i] = false;
  const cuda::CurrentContext current(where_.gpu.driver(), where_.gpu.context());
  if (bytes > 0) buffer_ = where_.buffer.of(bytes, where_.stream, where_.capabilities.kernels);
}

bool NcclLaunch::step() {
  if (done() || (state_ == State::calling && !communicator().ready())) return false;
  const cuda::CurrentContext current(where_.gpu.driver(), where_.gpu.context());
  if (state_ == State::calling) {
    advance();
    return true;
  }
  if (!where_.communicators.made() || !slot().whole->ready()) return false;
  enqueue();
  return true;
}

/// Whose group it is at.
Communicator& NcclLaunch::communicator() const {
  const Group group = groups_[at_];
  return group == Group::all ? *slot().whole : group == Group::across ? *slot().across : *slot().inside;
}

void NcclLaunch::enqueue() {
  state_ = State::calling;
  begin();
  prepare();
  call();
  if (communicator().ready()) advance();
}

/// NCCL has queued the group it was at.
void NcclLaunch::advance() {
  while (++at_ < groups_.size()) {
    call();
    if (!communicator().ready()) return;
  }
  finish();
}

/// NCCL has queued everything.
void NcclLaunch::finish() {
  for (const ByNodes& n : by_nodes_) put_in_order(n);
  for (const Wider& w : wider_)
    if (w.elements > 0)
      convert(false, *w.tensor, reinterpret_cast<void*>(w.tensor->result), w.elements, w.part, w.scaling.scatter);
  end();
}

}  // namespace hvd::nccl
