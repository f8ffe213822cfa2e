/// @file allreduce_backends.cc — the allreduces that reduce on the host, except Adasum.
///
/// The costs are orders of magnitude.  shm_direct reads and writes each tensor once.  shm_rings copies each tensor
/// twice more.  between_nodes adds messages to the work of shm_rings.
#include "core/backends/workspace.h"

namespace hvd::core::backend {
namespace {

bool adds_on_host(const OperationFacts& o) { return !o.on_gpu && o.signature.reduction() != Reduce::adasum; }

ops::Stage* begin_reduction(Workspace& work, BatchPart& part) {
  work.reduction.begin(part.ops, part.chosen);
  work.phase = trace::Phase::memcpy_in_fusion_buffer;
  return &work.reduction;
}

/// Chunks overlap in the pipeline.  So the timeline shows copies only while the pipeline fills and while it drains.
void trace_reduction(Workspace& work, BatchPart& part) {
  using trace::Phase;
  const auto advance = [&](Phase to) { work.rows.next(part.row, std::exchange(work.phase, to), to); };
  if (work.phase == Phase::memcpy_in_fusion_buffer && work.reduction.entered()) advance(work.transfer());
  if (work.phase == work.transfer() && work.reduction.reduced()) advance(Phase::memcpy_out_fusion_buffer);
}

}  // namespace

extern const Backend shm_direct{
    .name = "shm_direct",
    .kinds = bit_of(Kind::allreduce),
    .possible = [](const OperationFacts& o,
                   const SetFacts& s) { return adds_on_host(o) && !o.in_slots && o.registered && s.nodes == 1; },
    .cost = line<2000, 150>,
    .make = begin_reduction,
    .trace = trace_reduction,
    .in_place = true,
    .first = trace::Phase::memcpy_in_fusion_buffer,
    .origin = ResultOrigin::neighbour,
};

extern const Backend shm_rings{
    .name = "shm_rings",
    .kinds = bit_of(Kind::allreduce),
    .possible = [](const OperationFacts& o, const SetFacts& s) { return adds_on_host(o) && s.nodes == 1; },
    .cost = line<6000, 300>,
    .make = begin_reduction,
    .trace = trace_reduction,
    .first = trace::Phase::memcpy_in_fusion_buffer,
    .origin = ResultOrigin::ring,
};

extern const Backend between_nodes{
    .name = "between_nodes",
    .kinds = bit_of(Kind::allreduce),
    .possible = [](const OperationFacts& o, const SetFacts& s) { return adds_on_host(o) && s.nodes > 1; },
    .cost = line<30000, 1000>,
    .make = begin_reduction,
    .trace = trace_reduction,
    .first = trace::Phase::memcpy_in_fusion_buffer,
    .origin = ResultOrigin::ring,
};

}  // namespace hvd::core::backend
