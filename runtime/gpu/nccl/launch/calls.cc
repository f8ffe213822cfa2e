#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "gpu/nccl/launch/launch.h"

namespace hvd::nccl {

using cuda::Pointer;

namespace {

const unsigned char* at(const void* base, std::size_t offset) {
  return static_cast<const unsigned char*>(base) + offset;
}
void* at(Pointer base, std::size_t offset = 0) { return reinterpret_cast<void*>(base + offset); }

std::int64_t total(const std::vector<std::int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

}  // namespace

RedOp NcclLaunch::operation(const DeviceTensor& t, DType dtype, double inside, Communicator& c) {
  switch (t.reduce) {
    case Reduce::min:
      return min;
    case Reduce::max:
      return max;
    case Reduce::product:
      return product;
    default:
      return inside == 1 ? sum : c.premultiplied(dtype, inside);
  }
}

/// Allocates memory and makes operators.  Runs before the first group begins: a group may contain only calls that move
/// data.
void NcclLaunch::prepare() {
  for (Communicator* c : {slot().whole, slot().inside, slot().across})
    if (c) c->forget_factors();
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (alone_[i]) prepare(tensors_[i]);
  prepare_by_nodes();
  bool all = false;
  for (const FusedGroup& f : fused_) {
    const DeviceTensor& t = tensors_[f.tensors.front()];
    if (by_nodes(t)) continue;
    all = true;
    operation(t, f.wide ? DType::f32 : t.dtype, f.scaling.inside, *slot().whole);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) all |= alone_[i] && !by_nodes(tensors_[i]);
  if (all || by_nodes_.empty()) groups_.push_back(Group::all);
  if (!by_nodes_.empty()) groups_.insert(groups_.end(), {Group::inside, Group::across, Group::gather});
}

/// Registers the memory of tensors that have calls of their own, if it comes from RegisteredMemory.
void NcclLaunch::register_tensors() {
  const RegisteredMemory& memory = RegisteredMemory::process();
  if (!memory.any() || !slot().whole->library().register_local) return;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const DeviceTensor& t = tensors_[i];
    if (!alone_[i] || t.absent || t.bytes() == 0 || by_nodes(t)) continue;
    for (const void* part : {t.in, static_cast<const void*>(t.out)})
      if (const auto block = memory.block_of(part)) slot().whole->register_once(*block);
  }
}

void NcclLaunch::make_result(DeviceTensor& t, std::size_t bytes) {
  if (!t.takes(bytes)) t.result = where_.gpu.allocate(bytes, where_.stream, where_.set);
}

void NcclLaunch::prepare(DeviceTensor& t) {
  std::int64_t rows = 0;  // rows of the result
  if (t.kind == Kind::allgather || t.kind == Kind::alltoall) {
    make_result(t, static_cast<std::size_t>(total(t.received)) * t.row_bytes);
    return;
  }
  if (t.kind == Kind::reducescatter) {
    rows = t.rows / size() + (slot().whole->rank() < t.rows % size() ? 1 : 0);
    make_result(t, static_cast<std::size_t>(rows) * t.row_bytes);
  }
  if (t.bytes() == 0) return;
  if (t.absent) {
    const Pointer zeros = scratch(t.bytes());
    where_.gpu.driver().check(where_.gpu.driver().fill(zeros, 0, t.bytes(), where_.stream), "cuMemsetD8Async");
    t.in = t.out = at(zeros);
  }
  if (const double factor = scaled_alone(t).gather; factor != 1 && !t.absent) {
    scale(t, t.in, t.out, factor);
    t.in = t.out;
  }
  if (t.kind == Kind::reducescatter && widened(t, where_.capabilities))
    widen(t, static_cast<std::size_t>(rows) * t.row_bytes / element_bytes(t.dtype));
  else if (t.kind != Kind::broadcast && !by_nodes(t))
    operation(t, t.dtype, scaling_of(t, size(), where_.capabilities, false).inside, *slot().whole);
}

/// The factors for a sum of its own: it is not packed and not widened.  The runtime's kernels apply them in the
/// tensor's own memory.
Scaling NcclLaunch::scaled_alone(const DeviceTensor& t) const {
  return t.kind == Kind::allreduce ? scaling_of(t, size(), where_.capabilities, false) : Scaling{};
}

/// True if the tensor needs no packing and no NCCL.  Either the tensor is empty, or the set has one rank, which already
/// has the result.  All ranks return the same value.
bool NcclLaunch::local(const DeviceTensor& t) const {
  if (t.kind != Kind::broadcast && t.kind != Kind::allreduce) return false;
  if (t.bytes() == 0) return true;
  if (size() > 1) return false;
  if (t.kind == Kind::broadcast) return true;
  const Scaling s = scaled_alone(t);
  const bool once = s.gather == 1 || s.scatter == 1;  // with two factors, the value would be rounded in between
  const bool plain = s.none() && s.inside == 1;
  return plain || (once && where_.capabilities.kernels && !is_float8(t.dtype));
}

void NcclLaunch::finish_here(const DeviceTensor& t) {
  if (t.absent || t.bytes() == 0) return;
  const Scaling s = scaled_alone(t);
  const double factor = s.gather * s.inside * s.scatter;
  const void* in = t.in ? t.in : t.out;
  if (factor != 1)
    scale(t, in, t.out, factor);
  else if (in != t.out)
    where_.gpu.driver().check(where_.gpu.driver().copy(reinterpret_cast<Pointer>(t.out), reinterpret_cast<Pointer>(in),
                                                       t.bytes(), where_.stream),
                              "cuMemcpyDtoDAsync");
}

/// @param elements  elements of this rank's part
void NcclLaunch::widen(DeviceTensor& t, std::size_t elements) {
  const Scaling scaling = scaling_of(t, size(), where_.capabilities, false);
  const Pointer whole = scratch(t.elements() * sizeof(float)), part = scratch(elements * sizeof(float));
  convert(true, t, const_cast<void*>(t.in), t.elements(), whole, scaling.gather);
  operation(t, DType::f32, scaling.inside, *slot().whole);
  wider_.push_back({&t, whole, part, elements, scaling});
}

/// Makes the calls of the current group.
void NcclLaunch::call() {
  communicator().group([this] {
    if (groups_[at_] == Group::all)
      call_all();
    else
      for (const ByNodes& n : by_nodes_) call(n, groups_[at_]);
  });
}

void NcclLaunch::call_all() {
  for (const FusedGroup& f : fused_)
    if (!by_nodes(tensors_[f.tensors.front()])) call(f);
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (alone_[i] && !by_nodes(tensors_[i])) call(tensors_[i]);
}

void NcclLaunch::call(const FusedGroup& f) {
  Communicator& c = *slot().whole;
  const DeviceTensor& t = tensors_[f.tensors.front()];
  const DType dtype = f.wide ? DType::f32 : t.dtype;
  void* buffer = at(buffer_, f.begin);
  c.check(c.library().all_reduce(buffer, buffer, f.bytes / element_bytes(dtype), type_of(dtype),
                                 operation(t, dtype, f.scaling.inside, c), c.comm(), where_.stream),
          "ncclAllReduce");
}

void NcclLaunch::call(DeviceTensor& t) {
  Communicator& c = *slot().whole;
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
  if (t.kind == Kind::broadcast) {
    c.check(c.library().broadcast(t.in ? t.in : t.out, t.out, t.bytes(), type_u8, t.root, c.comm(), where_.stream),
            "ncclBroadcast");
    return;
  }
  const RedOp op = operation(t, t.dtype, scaling_of(t, size(), where_.capabilities, false).inside, c);
  c.check(c.library().all_reduce(t.in, t.out, t.elements(), type_of(t.dtype), op, c.comm(), where_.stream),
          "ncclAllReduce");
}

void NcclLaunch::call_gather(DeviceTensor& t) {
  Communicator& c = *slot().whole;
  if (total(t.received) == 0 || t.row_bytes == 0) return;
  if (std::all_of(t.received.begin(), t.received.end(), [&](std::int64_t r) { return r == t.received.front(); })) {
    c.check(c.library().all_gather(t.in, at(t.destination()), t.bytes(), type_u8, c.comm(), where_.stream),
            "ncclAllGather");
    return;
  }
  std::size_t offset = 0;
  for (int r = 0; r < size(); ++r) {
    const std::size_t bytes = static_cast<std::size_t>(t.received[static_cast<std::size_t>(r)]) * t.row_bytes;
    if (bytes == 0) continue;
    void* part = at(t.destination(), offset);
    c.check(c.library().broadcast(r == c.rank() ? t.in : part, part, bytes, type_u8, r, c.comm(), where_.stream),
            "ncclBroadcast");
    offset += bytes;
  }
}

void NcclLaunch::call_alltoall(DeviceTensor& t) {
  Communicator& c = *slot().whole;
  std::size_t from = 0, to = 0;
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    const std::size_t sent = static_cast<std::size_t>(t.sent[i]) * t.row_bytes;
    const std::size_t received = static_cast<std::size_t>(t.received[i]) * t.row_bytes;
    if (sent) c.check(c.library().send(at(t.in, from), sent, type_u8, r, c.comm(), where_.stream), "ncclSend");
    if (received)
      c.check(c.library().receive(at(t.destination(), to), received, type_u8, r, c.comm(), where_.stream), "ncclRecv");
    from += sent;
    to += received;
  }
}

/// The first (rows mod size) ranks get one row more.  If the parts differ in size, each part is a reduce to its owner.
void NcclLaunch::call_reducescatter(DeviceTensor& t) {
  Communicator& c = *slot().whole;
  if (t.bytes() == 0) return;
  const auto wide = std::find_if(wider_.begin(), wider_.end(), [&](const Wider& w) { return w.tensor == &t; });
  const bool is_wide = wide != wider_.end();
  const DType dtype = is_wide ? DType::f32 : t.dtype;
  const void* in = is_wide ? at(wide->whole) : t.in;
  void* out = at(is_wide ? wide->part : t.destination());
  const std::size_t row = t.row_bytes / element_bytes(t.dtype);  // elements of a row
  const std::int64_t each = t.rows / size(), more = t.rows % size();
  auto begin = [&](int r) { return each * r + std::min<std::int64_t>(r, more); };
  auto elements = [&](int r) { return static_cast<std::size_t>(begin(r + 1) - begin(r)) * row; };
  const int type = type_of(dtype);
  const RedOp op = operation(t, dtype, scaling_of(t, size(), where_.capabilities, false).inside, c);
  if (more == 0) {
    c.check(c.library().reduce_scatter(in, out, elements(0), type, op, c.comm(), where_.stream), "ncclReduceScatter");
    return;
  }
  for (int r = 0; r < size(); ++r) {
    if (elements(r) == 0) continue;
    const void* part = at(in, static_cast<std::size_t>(begin(r)) * row * element_bytes(dtype));
    void* to = r == c.rank() ? out : nullptr;
    c.check(c.library().reduce(part, to, elements(r), type, op, r, c.comm(), where_.stream), "ncclReduce");
  }
}

}  // namespace hvd::nccl
