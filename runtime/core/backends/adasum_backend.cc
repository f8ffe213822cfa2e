#include "core/backends/workspace.h"
#include "core/operation/name_entry.h"
#include "ops/adasum/adasum.h"

namespace hvd::core::backend {
namespace {

ops::Stage* begin_adasum(Workspace& work, BatchPart& part) {
  work.begin_transfer(part);
  std::vector<ops::AdasumTensor> tensors;
  std::size_t bytes = 0;
  for (const Operation* op : part.ops) {
    tensors.push_back({item_of(*op), op->entry->signature.type()});
    tensors.back().item.wide = ops::wide_reducer(tensors.back().dtype, Reduce::sum);  // for parts between nodes
    bytes += tensors.back().item.bytes;
  }
  work.set_bytes(bytes);
  return work.own(std::make_unique<ops::Adasum>(work.rings, work.nodes, work.transport, std::move(tensors)));
}

}  // namespace

extern const Backend adasum{
    .name = "adasum",
    .kinds = bit_of(Kind::allreduce),
    .possible = [](const OperationFacts& o,
                   const SetFacts&) { return !o.on_gpu && !o.in_slots && o.signature.reduction() == Reduce::adasum; },
    .cost = line<20000, 900>,
    .make = begin_adasum,
};

}  // namespace hvd::core::backend
