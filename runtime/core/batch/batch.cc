#include "core/batch/batch.h"

#include <algorithm>
#include <utility>

#include "common/read_ahead.h"
#include "core/backends/device_operations.h"
#include "core/backends/eager_backend.h"
#include "core/batch/peers.h"
#include "core/operation/name_entry.h"
#include "ops/movement/movement.h"

namespace hvd::core {
namespace {

/// Runs the ranks' agreement on how tensors on GPUs travel.
class AgreementStage final : public ops::Stage {
 public:
  explicit AgreementStage(gpu::SetDevice& device) : device_(device) {}
  bool step() override { return device_.step_agreement(); }
  bool done() const override { return device_.agreed(); }

 private:
  gpu::SetDevice& device_;
};

}  // namespace

Batch::Batch(const World& world, const Config& config, const memory::Node& node, transport::Transport& transport,
             trace::Tracer& tracer, std::uint32_t& traced, gpu::Platform& gpus, std::atomic<bool>& gpu_busy,
             const std::function<void()>& wake, End end)
    : config_(config),
      gpus_(gpus),
      gpu_busy_(gpu_busy),
      wake_(wake),
      end_(std::move(end)),
      work_(world, node, transport, tracer, traced),
      facts_{world.size, work_.nodes.count(), {}},
      overrides_(parse_overrides(config.text("HVD_BACKENDS"), "HVD_BACKENDS")),
      parts_(backends().size()) {}

void Batch::begin(std::span<Operation* const> ops, bool eager) {
  running_ = true;
  if (eager && overrides_.empty()) {  // choose() would return shm_eager too, but takes longer
    run_all_eager(ops);
    return;
  }
  for (BatchPart& p : parts_) p.ops.clear(), p.chosen.clear(), p.row = 0;
  unagreed_.clear();
  for (Operation* op : ops) {
    if (op->entry->signature.device >= 0)
      unagreed_.push_back(op);
    else
      sort(*op, eager);
  }
  if (work_.device && work_.device->agreed()) sort_device(std::exchange(unagreed_, {}));
  queue_rows();
  at_ = 0;
  if (unagreed_.empty())
    start();
  else
    begin_agreement();
}

const Backend* Batch::choose(const Operation& op, bool on_gpu, bool eager) {
  const Signature& s = op.entry->signature;
  const bool registered = s.operation() == Kind::allreduce && !on_gpu && work_.reduction.lies_registered(op);
  return core::choose({s, static_cast<std::size_t>(s.payload_bytes()), on_gpu, eager, registered}, facts_, overrides_);
}

void Batch::add(Operation& op, const Backend& backend) {
  BatchPart& p = parts_[part_of(backend)];
  p.ops.push_back(&op);
  p.chosen.push_back(&backend);
}

/// Puts a tensor in host memory into its part.
void Batch::sort(Operation& op, bool eager) {
  if (const Backend* backend = choose(op, false, eager))
    add(op, *backend);
  else
    end_barrier(op);
}

/// Ends a barrier.  All ranks have submitted the barrier, so no work is left.
void Batch::end_barrier(Operation& op) {
  Operation* one = &op;
  const std::uint32_t row = work_.rows.begin({&one, 1}, trace::Phase::queue);
  work_.rows.next(row, trace::Phase::queue, work_.transfer());
  work_.rows.end(row, work_.transfer());
  end_({&one, 1}, {});
}

/// Puts tensors on GPUs into their parts.  A tensor that the host handles gets two parts.  The first part copies the
/// tensor to the host, and the second runs the operation.
void Batch::sort_device(std::span<Operation* const> ops) {
  for (Operation* op : ops) {
    const Backend* backend = choose(*op, true, false);
    if (!backend) {
      end_barrier(*op);
      continue;
    }
    add(*op, *backend);
    if (backend->place != BackendPlace::copied) continue;
    stage(*op, *work_.device);
    sort(*op, false);
  }
}

/// Opens rows of the timeline for parts that have operations and no row yet.
void Batch::queue_rows() {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    BatchPart& p = parts_[i];
    if (p.ops.empty() || p.row || backends()[i]->place == BackendPlace::copied) continue;
    p.row = work_.rows.begin(p.ops, backends()[i]->first);
  }
}

void Batch::run_all_eager(std::span<Operation* const> ops) {
  const std::uint32_t row = work_.rows.begin(ops, work_.transfer());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (i + read_ahead / 2 < ops.size()) {
      const Operation& later = *ops[i + read_ahead / 2];
      fetch(later.entry, 1);
      fetch(&later.entry->scale, 1);
      fetch(later.out, 1);
    }
    fetch_later(ops, i, 1);
    run_eager(work_, *ops[i]);
  }
  work_.rows.end(row, work_.transfer());
  running_ = false;
  end_(ops, {});
}

// ---- the parts run one after another

/// Begins the next part that has operations.
void Batch::start() {
  for (;; ++at_) {
    while (at_ < parts_.size() && parts_[at_].ops.empty()) ++at_;
    running_ = at_ < parts_.size();
    if (!running_) return;
    stage_ = backends()[at_]->make(work_, parts_[at_]);
    if (stage_) return;
    end_(parts_[at_].ops, parts_[at_].chosen);
  }
}

bool Batch::step() {
  if (!running_) return false;
  if (!stage_->done()) {
    const bool moved = stage_->step();
    if (moved && unagreed_.empty() && backends()[at_]->trace) backends()[at_]->trace(work_, parts_[at_]);
    if (!stage_->done()) return moved;
  }
  if (unagreed_.empty()) {
    finish();
    ++at_;
  } else {
    end_agreement();
  }
  start();
  return true;
}

void Batch::finish() {
  BatchPart& p = parts_[at_];
  const Backend& backend = *backends()[at_];
  if (backend.place == BackendPlace::copied) return;  // the operations end in their second parts
  if (backend.take) backend.take(work_, p);
  work_.owned.reset();
  if (backend.place == BackendPlace::gpu) {
    work_.rows.queued(p.row, work_.phase);
  } else {
    work_.rows.end(p.row, work_.phase);
    for (Operation* op : p.ops)
      if (op->gpu && op->gpu->staged) give_back(*op, *work_.device);
  }
  end_(p.ops, p.chosen);
}

void Batch::drop() {
  running_ = false;
  work_.reduction.drop();
  work_.widened.clear();
  if (work_.nodes.count() > 1)
    (void)work_.owned.release();  // never freed: a message may still arrive in the stage's memory
  else
    work_.owned.reset();
}

// ---- the agreement about GPUs

void Batch::begin_agreement() {
  auto exchange = [this](const void* bytes, std::size_t count) {
    std::vector<ops::MovedTensor> row(1);
    row.front().kind = Kind::allgather;
    row.front().in = static_cast<const unsigned char*>(bytes);
    row.front().row_bytes = count;
    row.front().rows = 1;
    return std::make_unique<ops::Movement>(work_.rings, work_.nodes, work_.transport, std::move(row));
  };
  work_.device = gpus_.open({work_.world, config_, gpu_busy_, work_.tracer, PeerProcess::mine().host, exchange, wake_},
                            std::move(inherited_));
  const auto first =
      std::find_if(unagreed_.begin(), unagreed_.end(), [](const Operation* op) { return bool(op->gpu); });
  work_.device->begin_agreement(first == unagreed_.end() ? nullptr : (*first)->gpu->device);
  stage_ = work_.own(std::make_unique<AgreementStage>(*work_.device));
}

void Batch::end_agreement() {
  facts_.device = work_.device->facts();
  sort_device(std::exchange(unagreed_, {}));
  queue_rows();
}

}  // namespace hvd::core
