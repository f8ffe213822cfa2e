#include "gpu/nccl/launch/gpu_batch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "common/log.h"

namespace hvd::nccl {

using cuda::Mark;
using cuda::mark_of;
using cuda::Pointer;

Pointer FusionBuffer::of(std::size_t bytes, cuda::Stream stream, bool kernels) {
  if (bytes <= preferred_.bytes) return reinterpret_cast<Pointer>(preferred_.data);
  if (bytes > bytes_) {
    release();
    ask(bytes, stream, kernels);
    bytes_ = bytes;
  }
  return address_;
}

void FusionBuffer::release() {
  if (on_host_)
    gpu_.free_pinned(reinterpret_cast<void*>(address_), last);
  else
    gpu_.free(address_, last);
  address_ = 0;
  bytes_ = 0;
  on_host_ = false;
}

void FusionBuffer::ask(std::size_t bytes, cuda::Stream stream, bool kernels) {
  try {
    address_ = gpu_.allocate(bytes, stream, of_);
  } catch (const Error& full) {
    if (!kernels) throw;
    try {
      address_ = reinterpret_cast<Pointer>(gpu_.allocate_pinned(bytes));
    } catch (const Error&) { throw full; }
    on_host_ = true;
    log_warning(std::string("a fusion buffer is in host memory, and slow: ") + full.what());
  }
}

bool StreamWaits::add(const Mark& mark) {
  constexpr std::size_t most = 16;
  if (mark.stream() == 0) return false;
  const auto known = std::find_if(all_.begin(), all_.end(), [&](const Last& l) { return l.stream == mark.stream(); });
  if (known != all_.end() && known->number >= mark.number()) return true;
  if (known != all_.end())
    known->number = mark.number();
  else if (all_.size() < most)
    all_.push_back({mark.stream(), mark.number()});
  else
    all_[mark.number() % most] = {mark.stream(), mark.number()};
  return false;
}

GpuBatch::~GpuBatch() {
  if (!done()) return;  // then take_rest() returns the memory
  for (Pointer p : scratch_) context_.gpu.free(p, marks_.back());
}

std::vector<Pointer> GpuBatch::take_rest() {
  if (done()) return {};
  std::vector<Pointer> rest = std::move(scratch_);
  for (const DeviceTensor& t : tensors_)
    if (t.result) rest.push_back(t.result);
  return rest;
}

void GpuBatch::note() {
  if (context_.timed) marks_.push_back(context_.gpu.mark(context_.stream, true));
}

void GpuBatch::begin() {
  work_ = std::make_unique<cuda::DeviceWork>(context_.gpu, context_.set);
  began_ns_ =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  if (context_.hashes)
    hashes_ = std::make_shared<BatchHashes>(context_.gpu, context_.stream, context_.set, tensors_.size());
  note();
  wait();
  note();
  for (const FusedGroup& f : fused_) pack(f);
  note();
}

/// Makes the stream wait for all tensors.  A stream runs in order, so its last mark covers its earlier marks.  So one
/// driver call for each stream is enough, for a batch of perhaps hundreds of tensors.  Tensors may also share a mark. A
/// mark without a stream id, such as the mark of a whole context, does not cover other marks.
void GpuBatch::wait() {
  const auto& driver = context_.gpu.driver();
  std::vector<const Mark*> last;  // last mark of each stream
  for (const DeviceTensor& t : tensors_) {
    if (!t.ready) continue;
    const Mark& mark = mark_of(t);
    const auto same = std::find_if(last.begin(), last.end(), [&mark](const Mark* l) {
      return l == &mark || (mark.stream() != 0 && l->stream() == mark.stream());
    });
    if (same == last.end())
      last.push_back(&mark);
    else if ((*same)->number() < mark.number())
      *same = &mark;
  }
  for (const Mark* mark : last)
    if (!context_.waits.add(*mark))
      driver.check(driver.stream_wait_event(context_.stream, mark->event(), 0), "cuStreamWaitEvent");
}

void GpuBatch::end() {
  note();
  for (const FusedGroup& f : fused_) move(f, false);
  if (hashes_) hashes_->queue(tensors_);
  marks_.push_back(context_.gpu.mark(context_.stream, true));
  context_.buffer.last = marks_.back();
  work_->queued(marks_.back());
  // The engine's thread may be about to sleep, and must see this store.
  queued_.store(true, std::memory_order_seq_cst);
}

Pointer GpuBatch::scratch(std::size_t bytes) {
  scratch_.push_back(context_.gpu.allocate(bytes, context_.stream, context_.set));
  return scratch_.back();
}

void GpuBatch::convert(bool gather, const DeviceTensor& t, void* memory, std::size_t elements, Pointer wide,
                       double factor) {
  const cuda::Piece piece{memory, 0, elements};
  context_.gpu.scale(gather, t.dtype, true, {&piece, 1}, wide, factor, context_.stream);
}

void GpuBatch::scale(const DeviceTensor& t, const void* from, void* to, double factor) {
  const cuda::Piece piece{const_cast<void*>(from), 0, t.elements()};
  context_.gpu.scale(true, t.dtype, false, {&piece, 1}, reinterpret_cast<Pointer>(to), factor, context_.stream);
}

void GpuBatch::pack(const FusedGroup& f) {
  const auto& driver = context_.gpu.driver();
  for (std::size_t k = 0; k < f.tensors.size(); ++k) {
    if (!tensors_[f.tensors[k]].absent) continue;
    const std::size_t end = k + 1 < f.at.size() ? f.at[k + 1] : f.begin + f.bytes;
    driver.check(driver.fill(buffer_ + f.at[k], 0, end - f.at[k], context_.stream), "cuMemsetD8Async");
  }
  move(f, true);
}

void GpuBatch::move(const FusedGroup& f, bool gather) {
  std::vector<Slice> slices;
  for (std::size_t k = 0; k < f.tensors.size(); ++k) {
    const DeviceTensor& t = tensors_[f.tensors[k]];
    if (!t.absent) slices.push_back({gather ? const_cast<void*>(t.in) : t.out, f.at[k], t.bytes()});
  }
  move(slices, {tensors_[f.tensors.front()].dtype, gather ? f.scaling.gather : f.scaling.scatter, f.wide}, gather);
}

void GpuBatch::move(const std::vector<Slice>& slices, const Change& change, bool gather) {
  if (slices.empty()) return;
  const auto& driver = context_.gpu.driver();
  std::vector<cuda::Piece> pieces;
  pieces.reserve(slices.size());
  for (const Slice& s : slices) {
    if (!context_.capabilities.kernels) {
      const auto address = reinterpret_cast<Pointer>(s.memory);
      const Pointer packed = buffer_ + s.at;
      driver.check(driver.copy(gather ? packed : address, gather ? address : packed, s.bytes, context_.stream),
                   "cuMemcpyDtoDAsync");
      continue;
    }
    pieces.push_back({s.memory, s.at, change.none() ? s.bytes : s.bytes / element_bytes(change.dtype)});
  }
  if (change.none())
    context_.gpu.copy(gather, pieces, buffer_, context_.stream);
  else
    context_.gpu.scale(gather, change.dtype, change.wide, pieces, buffer_, change.factor, context_.stream);
}

}  // namespace hvd::nccl
