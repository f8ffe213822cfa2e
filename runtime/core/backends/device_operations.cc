#include "core/backends/device_operations.h"

#include <cstdlib>
#include <utility>

#include "core/operation/name_entry.h"

namespace hvd::core {
namespace {

/// @p from: a request or an operation, with its signature @p s.
template <class From>
gpu::DeviceTensor device_tensor(const From& from, const Signature& s) {
  gpu::DeviceTensor t;
  t.kind = s.operation();
  t.dtype = s.type();
  t.reduce = s.reduction();
  if (t.reduce != Reduce::product) t.dtype = part_type(t.dtype);  // complex numbers are summed by parts
  t.before = s.before;
  t.after = s.after;
  t.root = s.root;
  t.row_bytes = static_cast<std::size_t>(s.payload_bytes());
  t.in = from.in;
  t.out = from.out;
  t.out_bytes = from.out_bytes;
  t.absent = !from.gpu;
  if (t.kind == Kind::allgather || t.kind == Kind::alltoall) {
    t.rows = from.dim0;
  } else if (t.kind == Kind::reducescatter) {
    t.rows = s.dims[0];
    if (t.rows > 0) t.row_bytes /= static_cast<std::size_t>(t.rows);
  }
  return t;
}

gpu::DeviceTensor device_tensor(const Operation& op) {
  gpu::DeviceTensor t = device_tensor(op, op.entry->signature);
  if (is_among(t.kind, own_rows_kinds)) t.sent = op.splits;
  if (op.gpu) t.ready = op.gpu->ready;
  t.name = op.entry->name;
  return t;
}

/// Writes the result of @p t, which is on the device, into @p op.  t.result is 0 if the result is in the caller's
/// memory.
void take_result(Operation& op, gpu::DeviceTensor& t, const World& world) {
  const Signature& s = op.entry->signature;
  op.result = reinterpret_cast<void*>(t.result);
  op.gpu->result = true;
  op.received = std::move(t.received);
  op.result_shape.assign(s.dims, s.dims + s.ndim);
  if (t.kind == Kind::reducescatter) {
    op.result_shape[0] = t.rows / world.size + (world.rank < t.rows % world.size ? 1 : 0);
  } else {
    op.result_shape[0] = 0;
    for (std::int64_t rows : op.received) op.result_shape[0] += rows;
  }
}

}  // namespace

gpu::DeviceTensor device_tensor(const CheckedRequest& request, int members) {
  gpu::DeviceTensor t = device_tensor(request, request.whole_signature());
  if (t.kind == Kind::alltoall) t.sent = request.rows_for(members);
  return t;
}

std::vector<gpu::DeviceTensor> device_tensors(std::span<Operation* const> ops) {
  std::vector<gpu::DeviceTensor> tensors;
  tensors.reserve(ops.size());
  for (const Operation* op : ops) tensors.push_back(device_tensor(*op));
  return tensors;
}

void take_results(std::span<Operation* const> ops, gpu::SetDevice::Result results, const World& world) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    gpu::DeviceTensor& t = results.tensors[i];
    if (t.absent) continue;
    ops[i]->gpu->ready.reset();
    ops[i]->gpu->end = results.end;
    if (t.result || t.out_bytes > 0) take_result(*ops[i], t, world);
  }
}

void stage(Operation& op, gpu::SetDevice& device) {
  if (!op.gpu) return;
  void* pinned = device.stage(device_tensor(op));
  op.gpu->staged = true;
  op.gpu->out = op.out;
  op.gpu->pinned = pinned;
  op.in = pinned;
  if (op.out) op.out = op.out_bytes > 0 ? nullptr : pinned;  // the result must not overwrite the input
}

void give_back(Operation& op, gpu::SetDevice& device) {
  gpu::DeviceTensor t = device_tensor(op);
  t.out = op.gpu->out;
  std::size_t bytes = element_bytes(op.entry->signature.type());
  for (std::int64_t d : op.result_shape) bytes *= static_cast<std::size_t>(d);
  op.gpu->end = device.give_back(t, op.gpu->pinned, {static_cast<const std::byte*>(op.result), op.result ? bytes : 0});
  if (t.result || t.takes(bytes)) {
    std::free(op.result);
    op.result = reinterpret_cast<void*>(t.result);
    op.gpu->result = true;
  }
  op.gpu->ready.reset();
  op.gpu->staged = false;
}

}  // namespace hvd::core
