/// @file gpu_backends.cc — the backends for tensors on GPUs.  `nccl` runs operations on the GPUs, `pinned` copies
/// tensors to the host.
#include "core/backends/device_operations.h"
#include "core/backends/workspace.h"
#include "core/operation/name_entry.h"

namespace hvd::core::backend {
namespace {

bool gpus_can(const OperationFacts& o, const SetFacts& s) {
  if (!o.on_gpu || !s.device.among_gpus || s.device.through_host & bit_of(o.signature.operation())) return false;
  gpu::DeviceTensor t;
  t.kind = o.signature.operation();
  t.dtype = o.signature.type();
  t.reduce = o.signature.reduction();
  if (t.reduce != Reduce::product) t.dtype = part_type(t.dtype);
  t.before = o.signature.before;
  t.after = o.signature.after;
  return gpu::possible(t, s.ranks, s.device.capabilities);
}

/// Watches the operations while the device runs them.
class SubmittedStage final : public ops::Stage {
 public:
  explicit SubmittedStage(gpu::SetDevice& device) : device_(device) {}
  bool step() override { return device_.step(); }
  bool done() const override { return device_.done(); }

 private:
  gpu::SetDevice& device_;
};

/// Waits until the device has copied the inputs to the host.
class CopiesStage final : public ops::Stage {
 public:
  explicit CopiesStage(gpu::SetDevice& device) : device_(device) {}
  bool step() override { return false; }
  bool done() const override { return device_.staged(); }

 private:
  gpu::SetDevice& device_;
};

void take_turns(SliceTurns& turns, std::span<Operation* const> ops, std::vector<gpu::DeviceTensor>& tensors) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const NameEntry& e = *ops[i]->entry;
    if (same_on_all(e.signature)) tensors[i].slice = turns.next(e.id, e.bytes);
  }
}

ops::Stage* submit(Workspace& work, BatchPart& part) {
  gpu::SetDevice& device = *work.device;
  work.phase = trace::Phase::queue;
  if (device.joins())
    work.rows.next(part.row, std::exchange(work.phase, trace::Phase::init_nccl), trace::Phase::init_nccl);
  std::vector<gpu::DeviceTensor> tensors = device_tensors(part.ops);
  if (work.turns) take_turns(*work.turns, part.ops, tensors);
  device.submit(std::move(tensors), work.tracer.enabled() ? part.row : 0);
  return work.own(std::make_unique<SubmittedStage>(device));
}

void take_submitted(Workspace& work, BatchPart& part) {
  gpu::SetDevice::Result results = work.device->finish();
  work.hashes = std::move(results.hashes);
  take_results(part.ops, std::move(results), work.world);
}

ops::Stage* wait_for_copies(Workspace& work, BatchPart&) {
  return work.own(std::make_unique<CopiesStage>(*work.device));
}

}  // namespace

extern const Backend nccl{
    .name = "nccl",
    .kinds = tensor_kinds,
    .possible = gpus_can,
    .cost = line<20000, 20>,
    .make = submit,
    .take = take_submitted,
    .place = BackendPlace::gpu,
};

extern const Backend pinned{
    .name = "pinned",
    .kinds = tensor_kinds,
    .possible = [](const OperationFacts& o, const SetFacts&) { return o.on_gpu; },
    .cost = line<50000, 200>,
    .make = wait_for_copies,
    .place = BackendPlace::copied,
};

}  // namespace hvd::core::backend
