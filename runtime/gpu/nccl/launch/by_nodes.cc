/// @file by_nodes.cc — the operations of a launch that run node by node.
///
/// The sum is Horovod's NCCL torus allreduce.  Each rank of a node gets a part of the node's sum.  The ranks with the
/// same part on all nodes then reduce this part.  Last, the ranks of a node exchange their parts.  So each node sends
/// one tensor to other nodes, over all of its network devices.
#include <algorithm>

#include "gpu/nccl/launch/launch.h"

namespace hvd::nccl {

using cuda::Pointer;

namespace {

void* address(Pointer base, std::size_t offset = 0) { return reinterpret_cast<void*>(base + offset); }

bool same_rows(const DeviceTensor& t) {
  return std::all_of(t.received.begin(), t.received.end(), [&](std::int64_t r) { return r == t.received.front(); });
}

}  // namespace

bool NcclLaunch::by_nodes(const DeviceTensor& t) const {
  if (t.kind == Kind::allreduce) return where_.sums_by_nodes && t.bytes() > 0;
  return t.kind == Kind::allgather && where_.gathers_by_nodes && t.bytes() > 0 && same_rows(t);
}

void NcclLaunch::prepare_by_nodes() {
  // The first sum applies the factor.  The second sum adds results that have the factor already.
  auto add = [&](const DeviceTensor& t, const void* in, void* out, std::size_t bytes, DType dtype, double factor) {
    by_nodes_.push_back({in, out, bytes / element_bytes(dtype), element_bytes(dtype), type_of(dtype),
                         operation(t, dtype, factor, *slot().inside), operation(t, dtype, 1, *slot().across), nullptr,
                         0, 0});
  };
  for (const FusedGroup& f : fused_) {
    const DeviceTensor& t = tensors_[f.tensors.front()];
    if (by_nodes(t))
      add(t, address(buffer_, f.begin), address(buffer_, f.begin), f.bytes, f.wide ? DType::f32 : t.dtype,
          f.scaling.inside);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    DeviceTensor& t = tensors_[i];
    if (!alone_[i] || !by_nodes(t)) continue;
    if (t.kind == Kind::allreduce) {
      add(t, t.in, t.out, t.bytes(), t.dtype, scaling_of(t, size(), where_.capabilities, false).inside);
      continue;
    }
    const Pointer row = scratch(t.bytes() * static_cast<std::size_t>(where_.nodes.count));
    const Pointer box = scratch(t.bytes() * static_cast<std::size_t>(size()));
    by_nodes_.push_back({t.in, nullptr, t.bytes(), 1, type_u8, sum, sum, &t, row, box});
  }
}

void NcclLaunch::call(const ByNodes& n, Group group) {
  Communicator& c = communicator();
  const Library& nccl = c.library();
  if (n.gathered) {
    const auto count = static_cast<std::size_t>(where_.nodes.count);
    if (group == Group::across)
      c.check(nccl.all_gather(n.in, address(n.row), n.elements, n.type, c.comm(), where_.stream), "ncclAllGather");
    if (group == Group::gather)
      c.check(nccl.all_gather(address(n.row), address(n.box), n.elements * count, n.type, c.comm(), where_.stream),
              "ncclAllGather");
    return;
  }
  // The remainder of the division by the node's ranks is small.  So every rank reduces the whole remainder.
  const auto ranks = static_cast<std::size_t>(where_.nodes.ranks);
  const std::size_t part = n.elements / ranks, rest = n.elements % ranks;
  const std::size_t bytes = part * n.element;
  const auto* in = static_cast<const unsigned char*>(n.in);
  auto* out = static_cast<unsigned char*>(n.out);
  unsigned char* mine = out + bytes * static_cast<std::size_t>(where_.nodes.local);
  const void* in_rest = in + bytes * ranks;
  void* out_rest = out + bytes * ranks;
  auto add_up = [&](const void* from, void* to, std::size_t count, RedOp op) {
    if (count) c.check(nccl.all_reduce(from, to, count, n.type, op, c.comm(), where_.stream), "ncclAllReduce");
  };
  if (group == Group::inside) {
    if (part)
      c.check(nccl.reduce_scatter(in, mine, part, n.type, n.first, c.comm(), where_.stream), "ncclReduceScatter");
    add_up(in_rest, out_rest, rest, n.first);
  } else if (group == Group::across) {
    add_up(mine, mine, part, n.then);
    add_up(out_rest, out_rest, rest, n.then);
  } else if (part) {
    c.check(nccl.all_gather(mine, out, part, n.type, c.comm(), where_.stream), "ncclAllGather");
  }
}

/// Copies the gathered blocks to rank order.  NCCL leaves them in the order of places in the node, then of nodes.
void NcclLaunch::put_in_order(const ByNodes& n) {
  if (!n.gathered) return;
  const cuda::Driver& driver = where_.gpu.driver();
  for (int local = 0; local < where_.nodes.ranks; ++local)
    for (int node = 0; node < where_.nodes.count; ++node) {
      const auto from = static_cast<std::size_t>(local * where_.nodes.count + node) * n.elements;
      const auto to = static_cast<std::size_t>(where_.nodes.rank_of(node, local)) * n.elements;
      driver.check(driver.copy(n.gathered->result + to, n.box + from, n.elements, where_.stream), "cuMemcpyDtoDAsync");
    }
}

}  // namespace hvd::nccl
