#include "core/backends/workspace.h"
#include "core/operation/name_entry.h"
#include "ops/movement/movement.h"

namespace hvd::core::backend {
namespace {

ops::Stage* begin_movement(Workspace& work, BatchPart& part) {
  work.begin_transfer(part);
  std::vector<ops::MovedTensor> tensors;
  std::size_t bytes = 0;  // of broadcasts only: other kinds may have a different number of rows on each rank
  for (const Operation* op : part.ops) {
    const Signature& s = op->entry->signature;
    ops::MovedTensor& t = tensors.emplace_back();
    t.kind = s.operation();
    t.in = static_cast<const unsigned char*>(op->in);
    t.out = static_cast<unsigned char*>(op->out);
    t.out_bytes = op->out_bytes;
    t.row_bytes = static_cast<std::size_t>(s.payload_bytes());
    t.rows = op->dim0;
    t.root = s.root;
    t.splits = op->splits.data();
    if (t.kind == Kind::broadcast) bytes += t.row_bytes;
  }
  work.set_bytes(bytes);
  return work.own(std::make_unique<ops::Movement>(work.rings, work.nodes, work.transport, std::move(tensors)));
}

/// Gives each allgather and alltoall its result: the memory, the shape, and the number of rows from each rank.
void take_moved(Workspace& work, BatchPart& part) {
  std::vector<ops::MovedTensor> tensors = static_cast<ops::Movement&>(*work.owned).take();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ops::MovedTensor& t = tensors[i];
    if (t.kind == Kind::broadcast) continue;
    Operation& op = *part.ops[i];
    const Signature& s = op.entry->signature;
    op.result = t.result;
    op.received = std::move(t.received);
    op.result_shape.assign(s.dims, s.dims + s.ndim);
    op.result_shape[0] = 0;
    for (std::int64_t rows : op.received) op.result_shape[0] += rows;
  }
}

}  // namespace

extern const Backend movement{
    .name = "movement",
    .kinds = moving_kinds,
    .possible = [](const OperationFacts& o, const SetFacts&) { return !o.on_gpu; },
    .cost = line<10000, 300>,
    .make = begin_movement,
    .take = take_moved,
    .origin = ResultOrigin::moved,
};

}  // namespace hvd::core::backend
