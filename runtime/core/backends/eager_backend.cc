#include "core/backends/eager_backend.h"

#include <cstring>

#include "core/operation/name_entry.h"

namespace hvd::core {

void run_eager(Workspace& work, Operation& op) {
  const NameEntry& e = *op.entry;
  if (work.nodes.count() > 1) {
    std::memcpy(op.out, work.slots.at(0, e.slot, op.parity), e.bytes);
  } else if (e.reduce) {
    work.slots.reduce(e.reduce, e.scale, e.slot, op.parity, e.elements, op.out);
    if (work.check && work.node.me == 0) [[unlikely]]  // every rank has the same sum
      item_of(op, work.check)
          .look(0, e.bytes, op.out, work.slots.sources().data(), work.node.ranks, e.signature.type());
  } else if (e.signature.operation() == Kind::broadcast) {
    std::memcpy(op.out, work.slots.at(e.signature.root, e.slot, op.parity), e.bytes);
  } else {  // reducescatter
    const World& w = work.world;
    const ops::DividedTensor t = divided(op, w, work.check);
    const std::size_t begin = t.begin(w.rank, w.size), end = t.end(w.rank, w.size);
    work.slots.reduce(t.item.reduce, t.item.scale, e.slot + begin, op.parity, (end - begin) / t.item.element_bytes,
                      t.item.out);
    t.item.look(begin, end - begin, t.item.out, work.slots.sources().data(), work.node.ranks, t.item.dtype);
  }
}

namespace backend {
namespace {

ops::Stage* run_all(Workspace& work, BatchPart& part) {
  work.rows.next(part.row, trace::Phase::queue, work.transfer());
  for (Operation* op : part.ops) run_eager(work, *op);
  work.rows.end(part.row, work.transfer());
  return nullptr;
}

}  // namespace

extern const Backend shm_eager{
    .name = "shm_eager",
    .kinds = tensor_kinds,
    .possible = [](const OperationFacts& o, const SetFacts&) { return o.in_slots; },
    .cost = line<500, 400>,
    .make = run_all,
    .origin = ResultOrigin::slot,
};

}  // namespace backend
}  // namespace hvd::core
