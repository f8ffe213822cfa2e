#include "core/backends/workspace.h"

namespace hvd::core::backend {
namespace {

ops::Stage* begin_set_change(Workspace& work, BatchPart& part) {
  work.begin_transfer(part);
  return work.own(work.special(part.ops, work.rings, work.nodes));
}

}  // namespace

extern const Backend set_change{
    .name = "set_change",
    .kinds = bit_of(Kind::set_change),
    .possible = [](const OperationFacts&, const SetFacts&) { return true; },
    .cost = line<0, 0>,
    .make = begin_set_change,
};

}  // namespace hvd::core::backend
