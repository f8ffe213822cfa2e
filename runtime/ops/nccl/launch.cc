#include "ops/nccl/launch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace hvd::nccl {

using cuda::Pointer;

namespace {

cuda::Number number_of(DType d) {
  switch (d) {
    case DType::f64:
      return cuda::Number::f64;
    case DType::f16:
      return cuda::Number::f16;
    case DType::bf16:
      return cuda::Number::bf16;
    default:
      return cuda::Number::f32;
  }
}

}  // namespace

Pointer Buffer::of(std::size_t bytes) {
  if (bytes > bytes_) {
    gpu_.free(address_, last);
    address_ = 0;
    bytes_ = 0;
    address_ = gpu_.allocate(bytes);
    bytes_ = bytes;
  }
  return address_;
}

Launch::Launch(const Where& where, int size, std::vector<Tensor> tensors)
    : where_(where), size_(size), tensors_(std::move(tensors)) {
  std::size_t bytes = 0;
  fused_ = fuse(tensors_, size, where_.means, &bytes, where_.sums_by_nodes ? where_.nodes.ranks : 1);
  alone_.assign(tensors_.size(), true);
  for (const Fused& f : fused_)
    for (std::size_t i : f.tensors) alone_[i] = false;
  const cuda::Current current(where_.gpu.driver(), where_.gpu.context());
  if (bytes > 0) buffer_ = where_.buffer.of(bytes);
}

Launch::~Launch() {
  if (state_ != State::queued) return;  // see take_rest()
  for (Pointer p : scratch_) where_.gpu.free(p, marks_.back());
  for (void* p : pinned_) where_.gpu.free_pinned(p, marks_.back());
}

Launch::Rest Launch::take_rest() {
  if (state_ == State::queued) return {};
  Rest rest{std::move(scratch_), std::move(pinned_)};
  for (const Tensor& t : tensors_)
    if (t.result) rest.device.push_back(t.result);
  return rest;
}

bool Launch::step() {
  if (state_ == State::queued) return false;
  const cuda::Current current(where_.gpu.driver(), where_.gpu.context());
  if (state_ == State::joining) {
    if (!where_.clique.made() || !lane().whole->ready()) return false;
    enqueue();
  } else {
    if (!communicator().ready()) return false;
    advance();
  }
  return true;
}

/// Whose group it is at.
Communicator& Launch::communicator() const {
  const Group group = groups_[at_];
  return group == Group::all ? *lane().whole : group == Group::across ? *lane().across : *lane().inside;
}

void Launch::note() {
  if (where_.timed) marks_.push_back(where_.gpu.mark(where_.stream, true));
}

void Launch::enqueue() {
  const auto& driver = where_.gpu.driver();
  state_ = State::calling;
  began_ns_ =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  note();
  const cuda::Mark* held = nullptr;  // tensors of one call share a mark
  for (const Tensor& t : tensors_)
    if (t.ready && t.ready.get() != std::exchange(held, t.ready.get()))
      driver.check(driver.stream_wait_event(where_.stream, t.ready->event(), 0), "cuStreamWaitEvent");
  note();
  for (const Fused& f : fused_) pack(f);
  note();
  prepare();
  call();
  if (communicator().ready()) advance();
}

/// NCCL has queued the group it was at.
void Launch::advance() {
  while (++at_ < groups_.size()) {
    call();
    if (!communicator().ready()) return;
  }
  finish();
}

/// NCCL has queued everything.
void Launch::finish() {
  for (const ByNodes& n : by_nodes_) put_in_order(n);
  note();
  for (const Fused& f : fused_) move(f, false);
  marks_.push_back(where_.gpu.mark(where_.stream, where_.timed));
  where_.buffer.last = marks_.back();
  state_ = State::queued;
}

Pointer Launch::scratch(std::size_t bytes) {
  scratch_.push_back(where_.gpu.allocate(bytes));
  return scratch_.back();
}

// ---- packing

void Launch::pack(const Fused& f) {
  const auto& driver = where_.gpu.driver();
  for (std::size_t k = 0; k < f.tensors.size(); ++k) {
    if (!tensors_[f.tensors[k]].absent) continue;
    const std::size_t end = k + 1 < f.at.size() ? f.at[k + 1] : f.begin + f.bytes;
    driver.check(driver.fill(buffer_ + f.at[k], 0, end - f.at[k], where_.stream), "cuMemsetD8Async");
  }
  move(f, true);
}

/// Between the tensors and the fusion buffer, in one launch; without our kernels a copy for each.
void Launch::move(const Fused& f, bool gather) {
  const auto& driver = where_.gpu.driver();
  const double factor = gather ? f.scaling.gather : f.scaling.scatter;
  const bool computes = factor != 1 || f.wide;
  std::vector<cuda::Piece> pieces;
  std::uint64_t tiles = 0;
  for (std::size_t k = 0; k < f.tensors.size(); ++k) {
    const Tensor& t = tensors_[f.tensors[k]];
    if (t.absent) continue;
    void* memory = gather ? const_cast<void*>(t.in) : t.out;
    if (!where_.means.kernels) {
      const auto address = reinterpret_cast<Pointer>(memory);
      const Pointer packed = buffer_ + f.at[k];
      driver.check(driver.copy(gather ? packed : address, gather ? address : packed, t.bytes(), where_.stream),
                   "cuMemcpyDtoDAsync");
      continue;
    }
    const std::uint64_t units = computes ? t.elements() : t.bytes();
    pieces.push_back({memory, f.at[k], units, tiles});
    tiles += cuda::tiles_of(units, computes ? cuda::tile_elements : cuda::tile_bytes);
  }
  if (pieces.empty()) return;
  const std::size_t bytes = pieces.size() * sizeof(cuda::Piece);
  void* pinned = where_.gpu.allocate_pinned(bytes);
  pinned_.push_back(pinned);
  std::memcpy(pinned, pieces.data(), bytes);
  const Pointer table = scratch(bytes);
  driver.check(driver.copy_to_device(table, pinned, bytes, where_.stream), "cuMemcpyHtoDAsync");
  const auto count = static_cast<std::uint32_t>(pieces.size());
  if (computes)
    where_.gpu.scale(gather, number_of(tensors_[f.tensors.front()].dtype), f.wide, table, count, tiles, buffer_, factor,
                     where_.stream);
  else
    where_.gpu.copy(gather, table, count, tiles, buffer_, where_.stream);
}

}  // namespace hvd::nccl
