#include "ops/nccl/launch.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace hvd::nccl {

using cuda::Pointer;

namespace {

const unsigned char* at(const void* base, std::size_t offset) {
  return static_cast<const unsigned char*>(base) + offset;
}
void* at(Pointer base, std::size_t offset = 0) { return reinterpret_cast<void*>(base + offset); }

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

Launch::Launch(const Where& where, std::vector<Tensor> tensors) : where_(where), tensors_(std::move(tensors)) {
  std::size_t bytes = 0;
  fused_ = fuse(tensors_, size(), where_.means, &bytes);
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
  if (!where_.communicator.ready()) return false;
  if (state_ == State::joining)
    enqueue();
  else
    finish();
  return true;
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
  call();
  if (where_.communicator.ready()) finish();
}

/// NCCL has queued everything.
void Launch::finish() {
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

// ---- NCCL

RedOp Launch::operation(const Tensor& t, int type, double inside) {
  switch (t.reduce) {
    case Reduce::min:
      return min;
    case Reduce::max:
      return max;
    case Reduce::product:
      return product;
    default:
      return inside == 1 ? sum : where_.communicator.premultiplied(type, inside);
  }
}

void Launch::call() {
  Communicator& c = where_.communicator;
  // Made before the group begins: a group holds nothing but calls that move data.
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& t = tensors_[i];
    if (alone_[i] && (t.kind == Kind::allreduce || t.kind == Kind::reducescatter))
      operation(t, type_of(t.dtype), scaling_of(t, size(), where_.means, false).inside);
  }
  for (const Fused& f : fused_) {
    const Tensor& t = tensors_[f.tensors.front()];
    operation(t, type_of(f.wide ? DType::f32 : t.dtype), f.scaling.inside);
  }
  c.begin();
  try {
    for (const Fused& f : fused_) call(f);
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (alone_[i]) call(tensors_[i]);
  } catch (...) {
    c.library().group_end();
    throw;
  }
  c.end();
}

void Launch::call(const Fused& f) {
  Communicator& c = where_.communicator;
  const Tensor& t = tensors_[f.tensors.front()];
  const DType dtype = f.wide ? DType::f32 : t.dtype;
  void* buffer = at(buffer_, f.begin);
  c.check(c.library().all_reduce(buffer, buffer, f.bytes / element_bytes(dtype), type_of(dtype),
                                 operation(t, type_of(dtype), f.scaling.inside), c.comm(), where_.stream),
          "ncclAllReduce");
}

void Launch::call(Tensor& t) {
  Communicator& c = where_.communicator;
  switch (t.kind) {
    case Kind::allgather:
      call_gather(t);
      return;
    case Kind::alltoall:
      call_alltoall(t);
      return;
    case Kind::reducescatter:
      call_reducescatter(t);
      return;
    default:
      break;
  }
  if (t.bytes() == 0) return;
  if (t.absent) {
    const Pointer zeros = scratch(t.bytes());
    where_.gpu.driver().check(where_.gpu.driver().fill(zeros, 0, t.bytes(), where_.stream), "cuMemsetD8Async");
    t.in = t.out = at(zeros);
  }
  if (t.kind == Kind::broadcast) {
    c.check(c.library().broadcast(t.in ? t.in : t.out, t.out, t.bytes(), type_u8, t.root, c.comm(), where_.stream),
            "ncclBroadcast");
    return;
  }
  const int type = type_of(t.dtype);
  const double inside = scaling_of(t, size(), where_.means, false).inside;
  c.check(c.library().all_reduce(t.in, t.out, t.elements(), type, operation(t, type, inside), c.comm(), where_.stream),
          "ncclAllReduce");
}

void Launch::call_gather(Tensor& t) {
  Communicator& c = where_.communicator;
  const auto rows = std::accumulate(t.received.begin(), t.received.end(), std::int64_t{0});
  t.result = where_.gpu.allocate(static_cast<std::size_t>(rows) * t.row_bytes);
  if (rows == 0 || t.row_bytes == 0) return;
  if (std::all_of(t.received.begin(), t.received.end(), [&](std::int64_t r) { return r == t.received.front(); })) {
    c.check(c.library().all_gather(t.in, at(t.result), t.bytes(), type_u8, c.comm(), where_.stream), "ncclAllGather");
    return;
  }
  std::size_t offset = 0;
  for (int r = 0; r < size(); ++r) {
    const std::size_t bytes = static_cast<std::size_t>(t.received[static_cast<std::size_t>(r)]) * t.row_bytes;
    if (bytes == 0) continue;
    void* part = at(t.result, offset);
    c.check(c.library().broadcast(r == c.rank() ? t.in : part, part, bytes, type_u8, r, c.comm(), where_.stream),
            "ncclBroadcast");
    offset += bytes;
  }
}

void Launch::call_alltoall(Tensor& t) {
  Communicator& c = where_.communicator;
  const auto rows = std::accumulate(t.received.begin(), t.received.end(), std::int64_t{0});
  t.result = where_.gpu.allocate(static_cast<std::size_t>(rows) * t.row_bytes);
  std::size_t from = 0, to = 0;
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    const std::size_t sent = static_cast<std::size_t>(t.sent[i]) * t.row_bytes;
    const std::size_t received = static_cast<std::size_t>(t.received[i]) * t.row_bytes;
    if (sent) c.check(c.library().send(at(t.in, from), sent, type_u8, r, c.comm(), where_.stream), "ncclSend");
    if (received)
      c.check(c.library().receive(at(t.result, to), received, type_u8, r, c.comm(), where_.stream), "ncclRecv");
    from += sent;
    to += received;
  }
}

/// The first (rows mod size) ranks get one row more; where parts differ, each is a reduction to its owner.
void Launch::call_reducescatter(Tensor& t) {
  Communicator& c = where_.communicator;
  const std::int64_t each = t.rows / size(), more = t.rows % size();
  auto begin = [&](int r) { return each * r + std::min<std::int64_t>(r, more); };
  auto bytes = [&](int r) { return static_cast<std::size_t>(begin(r + 1) - begin(r)) * t.row_bytes; };
  t.result = where_.gpu.allocate(bytes(c.rank()));
  if (t.bytes() == 0) return;
  if (t.absent) {
    const Pointer zeros = scratch(t.bytes());
    where_.gpu.driver().check(where_.gpu.driver().fill(zeros, 0, t.bytes(), where_.stream), "cuMemsetD8Async");
    t.in = at(zeros);
  }
  const int type = type_of(t.dtype);
  const std::size_t element = element_bytes(t.dtype);
  const RedOp op = operation(t, type, scaling_of(t, size(), where_.means, false).inside);
  if (more == 0) {
    c.check(c.library().reduce_scatter(t.in, at(t.result), bytes(0) / element, type, op, c.comm(), where_.stream),
            "ncclReduceScatter");
    return;
  }
  for (int r = 0; r < size(); ++r) {
    if (bytes(r) == 0) continue;
    const void* part = at(t.in, static_cast<std::size_t>(begin(r)) * t.row_bytes);
    void* to = r == c.rank() ? at(t.result) : nullptr;
    c.check(c.library().reduce(part, to, bytes(r) / element, type, op, r, c.comm(), where_.stream), "ncclReduce");
  }
}

}  // namespace hvd::nccl
