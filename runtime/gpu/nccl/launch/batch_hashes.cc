#include "gpu/nccl/launch/batch_hashes.h"

#include <cstring>
#include <vector>

#include "base/error.h"

namespace hvd::nccl {

BatchHashes::BatchHashes(cuda::Gpu& gpu, cuda::Stream stream, const void* set, std::size_t tensors)
    : gpu_(gpu), stream_(stream), bytes_(tensors * sizeof(Record)) {
  try {
    sums_ = gpu.allocate(bytes_, stream, set);
    pinned_ = static_cast<Record*>(gpu.allocate_pinned(bytes_));
  } catch (const Error&) { return; }
  std::memset(pinned_, 0, bytes_);  // no hash, if the device fails
}

BatchHashes::~BatchHashes() {
  if (!end_) return;
  if (sums_) gpu_.free(sums_, end_->mark);
  if (pinned_) gpu_.free_pinned(pinned_, end_->mark);
}

void BatchHashes::queue(std::span<const gpu::DeviceTensor> tensors) {
  std::vector<cuda::Piece> pieces;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const gpu::DeviceTensor& t = tensors[i];
    if (!t.absent && t.slice.bytes() > 0)
      pieces.push_back({static_cast<unsigned char*>(t.out) + t.slice.begin, i * sizeof(Record), t.slice.bytes()});
  }
  if (pieces.empty() || !pinned_) return;
  const cuda::Driver& driver = gpu_.driver();
  driver.check(driver.fill(sums_, 0, bytes_, stream_), "cuMemsetD8Async");
  gpu_.hash(pieces, sums_, stream_);
  driver.check(driver.copy_to_host(pinned_, sums_, bytes_, stream_), "cuMemcpyDtoHAsync");
}

bool BatchHashes::arrived() const {
  try {
    return end_->arrived();
  } catch (const Error&) { return true; }
}

std::uint64_t BatchHashes::of(std::size_t tensor) const {
  return pinned_ && end_->status.load(std::memory_order_acquire) == 0 ? pinned_[tensor].hash : 0;
}

}  // namespace hvd::nccl
