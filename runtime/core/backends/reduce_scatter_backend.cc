#include "core/backends/workspace.h"
#include "core/operation/name_entry.h"
#include "ops/reduce_scatter/reduce_scatter.h"

namespace hvd::core::backend {
namespace {

ops::Stage* begin_reduce_scatter(Workspace& work, BatchPart& part) {
  work.begin_transfer(part);
  const World& w = work.world;
  std::vector<ops::DividedTensor> tensors;
  std::size_t bytes = 0;
  for (Operation* op : part.ops) {
    ops::DividedTensor t = divided(*op, w, work.check);
    if (work.nodes.count() > 1 && WideCopy::needed(op->entry->signature)) {
      t.item = work.widened.emplace_back(*op).item(t.item);
      t.item.out += t.begin(w.rank, w.size);
    }
    bytes += t.item.bytes;
    tensors.push_back(t);
  }
  work.set_bytes(bytes);
  return work.own(std::make_unique<ops::ReduceScatter>(work.rings, work.nodes, work.transport, std::move(tensors)));
}

/// Converts results that were added in a wider dtype back to the tensors' dtype.
void take_scattered(Workspace& work, BatchPart&) {
  const World& world = work.world;
  for (const WideCopy& w : work.widened) {
    const Operation& op = w.operation();
    const ops::DividedTensor t{item_of(op), op.entry->signature.dims[0]};
    const std::size_t begin = t.begin(world.rank, world.size), end = t.end(world.rank, world.size);
    w.narrow(op.result ? op.result : op.out, begin / t.item.element_bytes, (end - begin) / t.item.element_bytes);
  }
  work.widened.clear();
}

}  // namespace

extern const Backend reduce_scatter{
    .name = "reduce_scatter",
    .kinds = bit_of(Kind::reducescatter),
    .possible = [](const OperationFacts& o, const SetFacts&) { return !o.on_gpu; },
    .cost = line<10000, 300>,
    .make = begin_reduce_scatter,
    .take = take_scattered,
};

}  // namespace hvd::core::backend
