#include "core/batch/batch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/batch/peers.h"
#include "core/operation/name_entry.h"
#include "ops/adasum/adasum.h"
#include "ops/movement/movement.h"
#include "ops/reduce_scatter/reduce_scatter.h"

namespace hvd::core {
namespace {

const unsigned char* in_of(const Operation& op) { return static_cast<const unsigned char*>(op.in); }
unsigned char* out_of(const Operation& op) { return static_cast<unsigned char*>(op.out); }

}  // namespace

Batch::Batch(const World& world, const Config& config, const memory::Node& node, transport::Transport& transport,
             trace::Tracer& tracer, std::uint32_t& traced, gpu::Platform& gpus, std::atomic<bool>& gpu_busy,
             const std::function<void()>& wake, End end)
    : world_(world),
      config_(config),
      node_(node),
      transport_(transport),
      tracer_(tracer),
      rows_(tracer, traced),
      gpus_(gpus),
      gpu_busy_(gpu_busy),
      wake_(wake),
      end_(std::move(end)),
      slots_(node),
      nodes_{world.nodes, world.node_of, world.local_of, world.node(), world.local_rank(), world.in_rank_order},
      rings_(node),
      reduction_(rings_, distance_, nodes_, transport),
      facts_{world.size, nodes_.count(), {}},
      overrides_(parse_overrides(config.text("HVD_BACKENDS"), "HVD_BACKENDS")) {}

trace::Phase Batch::transfer() const { return nodes_.count() > 1 ? trace::Phase::mpi : trace::Phase::shm; }

void Batch::begin(std::span<Operation* const> ops, bool eager) {
  running_ = true;
  if (eager && overrides_.empty()) {  // what choose() would say, at less cost
    run_eager(ops);
    return;
  }
  for (Part& p : parts_) p.ops.clear(), p.chosen.clear(), p.row = 0;
  unagreed_.clear();
  for (Operation* op : ops) {
    if (op->entry->signature.device >= 0)
      unagreed_.push_back(op);
    else
      sort(*op, eager);
  }
  if (device_ && device_->agreed()) sort_device(std::exchange(unagreed_, {}));
  queue_rows();
  at_ = 0;
  if (unagreed_.empty())
    start();
  else
    begin_agreement();
}

const Backend* Batch::choose(const Operation& op, bool on_gpu, bool eager) {
  const Signature& s = op.entry->signature;
  const bool registered = s.operation() == Kind::allreduce && !on_gpu && reduction_.lies_registered(op);
  return core::choose({s, static_cast<std::size_t>(s.payload_bytes()), on_gpu, eager, registered}, facts_, overrides_);
}

void Batch::add(Operation& op, const Backend& backend) {
  Part& p = parts_[part_of(backend)];
  p.ops.push_back(&op);
  p.chosen.push_back(&backend);
}

/// Into its part, as a host tensor.
void Batch::sort(Operation& op, bool eager) {
  if (const Backend* backend = choose(op, false, eager))
    add(op, *backend);
  else
    end_barrier(op);
}

/// That all have submitted it is all there is to do.
void Batch::end_barrier(Operation& op) {
  Operation* one = &op;
  const std::uint32_t row = rows_.begin({&one, 1}, trace::Phase::queue);
  rows_.next(row, trace::Phase::queue, transfer());
  rows_.end(row, transfer());
  end_({&one, 1});
}

/// Tensors on GPUs: what does not stay there becomes host tensors, once the copies are there.
void Batch::sort_device(std::span<Operation* const> ops) {
  for (Operation* op : ops) {
    const Backend* backend = choose(*op, true, false);
    if (!backend) {
      end_barrier(*op);
      continue;
    }
    add(*op, *backend);
    if (backend->make != make_pinned) continue;
    stage(*op, *device_);
    sort(*op, false);
  }
}

/// Parts that have operations and no row yet.
void Batch::queue_rows() {
  using trace::Phase;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& p = parts_[i];
    const auto make = backends()[i].make;
    if (p.ops.empty() || p.row || make == make_pinned) continue;
    p.row = rows_.begin(p.ops, make == make_allreduce ? Phase::memcpy_in_fusion_buffer : Phase::queue);
  }
}

void Batch::run_eager(std::span<Operation* const> ops) {
  const std::uint32_t row = rows_.begin(ops, transfer());
  for (Operation* op : ops) run_eager(*op);
  rows_.end(row, transfer());
  running_ = false;
  end_(ops);
}

/// Everybody's input is in the slots, or between nodes the result in the leader's: nobody waits for anybody.
void Batch::run_eager(Operation& op) {
  const NameEntry& e = *op.entry;
  if (nodes_.count() > 1) {
    std::memcpy(op.out, slots_.at(0, e.slot, op.parity), e.bytes);
  } else if (e.reduce) {
    slots_.reduce(e.reduce, e.scale, e.slot, op.parity, e.elements, op.out);
  } else if (e.signature.operation() == Kind::broadcast) {
    std::memcpy(op.out, slots_.at(e.signature.root, e.slot, op.parity), e.bytes);
  } else {  // reducescatter
    const ops::DividedTensor t = divide(op);
    const std::size_t begin = t.begin(world_.rank, world_.size), end = t.end(world_.rank, world_.size);
    slots_.reduce(t.item.reduce, t.item.scale, e.slot + begin, op.parity, (end - begin) / t.item.element_bytes,
                  t.item.out);
  }
}

// ---- one part after the other

/// Begins the next part that has operations.
void Batch::start() {
  for (;; ++at_) {
    while (at_ < parts_.size() && parts_[at_].ops.empty()) ++at_;
    running_ = at_ < parts_.size();
    if (!running_) return;
    stage_ = backends()[at_].make(*this);
    if (stage_) return;
    end_(parts_[at_].ops);
  }
}

bool Batch::step() {
  if (!running_) return false;
  if (!stage_->done()) {
    const bool moved = stage_->step();
    if (moved && unagreed_.empty() && is(make_allreduce)) trace_allreduce();
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
  Part& p = parts_[at_];
  if (is(make_pinned)) return;  // the copies are there; the operations are in other parts too
  if (is(make_on_device)) {
    take_results(p.ops, device_->finish(), world_);
    rows_.queued(p.row, phase_);
    end_(p.ops);
    return;
  }
  if (is(make_reduce_scatter)) take_scattered();
  if (is(make_movement)) take_moved();
  owned_.reset();
  rows_.end(p.row, phase_);
  for (Operation* op : p.ops)
    if (op->gpu && op->gpu->staged) give_back(*op, *device_);  // a tensor that came from a GPU goes back there first
  end_(p.ops);
}

void Batch::drop() {
  running_ = false;
  reduction_.drop();
  widened_.clear();
  if (nodes_.count() > 1)
    (void)owned_.release();  // a message may still arrive in its memory
  else
    owned_.reset();
}

// ---- the parts

/// Chunks overlap in the pipeline, so the copies show only where nothing else runs: while it fills and while it drains.
void Batch::trace_allreduce() {
  using trace::Phase;
  auto advance = [this](Phase to) {
    rows_.next(parts_[at_].row, phase_, to);
    phase_ = to;
  };
  if (phase_ == Phase::memcpy_in_fusion_buffer && reduction_.entered()) advance(transfer());
  if (phase_ == transfer() && reduction_.reduced()) advance(Phase::memcpy_out_fusion_buffer);
}

/// What the device does, as a stage of the batch.
class Batch::DeviceStage final : public ops::Stage {
 public:
  enum class What { agree, submitted, copies };
  DeviceStage(gpu::SetDevice& device, What what) : device_(device), what_(what) {}
  bool step() override {
    return what_ == What::agree ? device_.step_agreement() : what_ == What::submitted && device_.step();
  }
  bool done() const override {
    return what_ == What::agree ? device_.agreed() : what_ == What::submitted ? device_.done() : device_.staged();
  }

 private:
  gpu::SetDevice& device_;
  const What what_;
};

void Batch::begin_agreement() {
  auto exchange = [this](const void* bytes, std::size_t count) {
    std::vector<ops::MovedTensor> row(1);
    row.front().kind = Kind::allgather;
    row.front().in = static_cast<const unsigned char*>(bytes);
    row.front().row_bytes = count;
    row.front().rows = 1;
    return std::make_unique<ops::Movement>(rings_, nodes_, transport_, std::move(row));
  };
  device_ = gpus_.open({world_, config_, gpu_busy_, tracer_, PeerProcess::mine().host, exchange, wake_},
                       std::move(inherited_));
  const auto first =
      std::find_if(unagreed_.begin(), unagreed_.end(), [](const Operation* op) { return bool(op->gpu); });
  device_->begin_agreement(first == unagreed_.end() ? nullptr : (*first)->gpu->device);
  device_stage_ = std::make_unique<DeviceStage>(*device_, DeviceStage::What::agree);
  stage_ = device_stage_.get();
}

void Batch::end_agreement() {
  facts_.device = device_->facts();
  sort_device(std::exchange(unagreed_, {}));
  queue_rows();
}

ops::Stage* Batch::make_on_device(Batch& b) {
  const Part& p = b.parts_[b.at_];
  b.phase_ = trace::Phase::queue;
  if (b.device_->joins())
    b.rows_.next(p.row, std::exchange(b.phase_, trace::Phase::init_nccl), trace::Phase::init_nccl);
  b.device_->submit(device_tensors(p.ops), b.tracer_.enabled() ? p.row : 0);
  b.device_stage_ = std::make_unique<DeviceStage>(*b.device_, DeviceStage::What::submitted);
  return b.device_stage_.get();
}

ops::Stage* Batch::make_pinned(Batch& b) {
  b.device_stage_ = std::make_unique<DeviceStage>(*b.device_, DeviceStage::What::copies);
  return b.device_stage_.get();
}

ops::Stage* Batch::make_eager(Batch& b) {
  const Part& p = b.parts_[b.at_];
  b.rows_.next(p.row, trace::Phase::queue, b.transfer());
  for (Operation* op : p.ops) b.run_eager(*op);
  b.rows_.end(p.row, b.transfer());
  return nullptr;
}

ops::Stage* Batch::make_allreduce(Batch& b) {
  const Part& p = b.parts_[b.at_];
  b.reduction_.begin(p.ops, p.chosen);
  b.phase_ = trace::Phase::memcpy_in_fusion_buffer;
  return &b.reduction_;
}

void Batch::begin_transfer() {
  phase_ = transfer();
  rows_.next(parts_[at_].row, trace::Phase::queue, phase_);
}

ops::Stage* Batch::make_adasum(Batch& b) {
  b.begin_transfer();
  std::vector<ops::AdasumTensor> tensors;
  std::size_t bytes = 0;
  for (const Operation* op : b.parts_[b.at_].ops) {
    tensors.push_back({item_of(*op), op->entry->signature.type()});
    tensors.back().item.wide = ops::wide_reducer(tensors.back().dtype, Reduce::sum);  // nodes' parts of the result
    bytes += tensors.back().item.bytes;
  }
  b.rings_.streaming = b.distance_.streaming(b.node_, bytes);
  return b.own(std::make_unique<ops::Adasum>(b.rings_, b.nodes_, b.transport_, std::move(tensors)));
}

ops::Stage* Batch::make_set_change(Batch& b) {
  b.begin_transfer();
  return b.own(b.special_(b.parts_[b.at_].ops, b.rings_, b.nodes_));
}

/// A reducescatter, and memory for this rank's part of the result.
ops::DividedTensor Batch::divide(Operation& op) const {
  const Signature& s = op.entry->signature;
  const std::int64_t rows = s.dims[0];
  op.result_shape.assign(s.dims, s.dims + s.ndim);
  op.result_shape[0] = rows / world_.size + (world_.rank < rows % world_.size ? 1 : 0);
  ops::DividedTensor t{item_of(op), rows};
  const std::size_t bytes = t.end(world_.rank, world_.size) - t.begin(world_.rank, world_.size);
  t.item.out = static_cast<unsigned char*>(op.memory_for(bytes));
  return t;
}

ops::Stage* Batch::make_reduce_scatter(Batch& b) {
  b.begin_transfer();
  const World& w = b.world_;
  std::vector<ops::DividedTensor> tensors;
  std::size_t bytes = 0;
  for (Operation* op : b.parts_[b.at_].ops) {
    ops::DividedTensor t = b.divide(*op);
    if (b.nodes_.count() > 1 && WideCopy::needed(op->entry->signature)) {
      t.item = b.widened_.emplace_back(*op).item(t.item);
      t.item.out += t.begin(w.rank, w.size);
    }
    bytes += t.item.bytes;
    tensors.push_back(t);
  }
  b.rings_.streaming = b.distance_.streaming(b.node_, bytes);
  return b.own(std::make_unique<ops::ReduceScatter>(b.rings_, b.nodes_, b.transport_, std::move(tensors)));
}

void Batch::take_scattered() {
  for (const WideCopy& w : widened_) {
    const Operation& op = w.operation();
    const ops::DividedTensor t{item_of(op), op.entry->signature.dims[0]};
    const std::size_t begin = t.begin(world_.rank, world_.size), end = t.end(world_.rank, world_.size);
    w.narrow(op.result ? op.result : op.out, begin / t.item.element_bytes, (end - begin) / t.item.element_bytes);
  }
  widened_.clear();
}

ops::Stage* Batch::make_movement(Batch& b) {
  b.begin_transfer();
  std::vector<ops::MovedTensor> tensors;
  std::size_t bytes = 0;  // what all ranks know of
  for (const Operation* op : b.parts_[b.at_].ops) {
    const Signature& s = op->entry->signature;
    ops::MovedTensor& t = tensors.emplace_back();
    t.kind = s.operation();
    t.in = in_of(*op);
    t.out = out_of(*op);
    t.out_bytes = op->out_bytes;
    t.row_bytes = static_cast<std::size_t>(s.payload_bytes());
    t.rows = op->dim0;
    t.root = s.root;
    t.splits = op->splits.data();
    if (t.kind == Kind::broadcast) bytes += t.row_bytes;
  }
  b.rings_.streaming = b.distance_.streaming(b.node_, bytes);
  return b.own(std::make_unique<ops::Movement>(b.rings_, b.nodes_, b.transport_, std::move(tensors)));
}

void Batch::take_moved() {
  std::vector<ops::MovedTensor> tensors = static_cast<ops::Movement&>(*owned_).take();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ops::MovedTensor& t = tensors[i];
    if (t.kind == Kind::broadcast) continue;
    Operation& op = *parts_[at_].ops[i];
    const Signature& s = op.entry->signature;
    op.result = t.result;
    op.received = std::move(t.received);
    op.result_shape.assign(s.dims, s.dims + s.ndim);
    op.result_shape[0] = 0;
    for (std::int64_t rows : op.received) op.result_shape[0] += rows;
  }
}

}  // namespace hvd::core
