#include "core/batch.h"

#include <cstring>
#include <utility>

#include "core/set.h"
#include "ops/adasum/adasum.h"
#include "ops/movement/movement.h"
#include "ops/reduce_scatter/reduce_scatter.h"

namespace hvd::core {
namespace {

const unsigned char* in_of(const Operation& op) { return static_cast<const unsigned char*>(op.in); }
unsigned char* out_of(const Operation& op) { return static_cast<unsigned char*>(op.out); }

}  // namespace

Batch::Batch(const World& world, const Config& config, const memory::Node& node, transport::Transport& transport,
             trace::Tracer& tracer, std::uint32_t& traced, std::atomic<bool>& gpu_busy, End end)
    : world_(world),
      config_(config),
      node_(node),
      transport_(transport),
      tracer_(tracer),
      rows_(tracer, traced),
      gpu_busy_(gpu_busy),
      end_(std::move(end)),
      slots_(node),
      nodes_{world.nodes, world.node_of, world.local_of, world.node(), world.local_rank()},
      rings_(node),
      reduction_(rings_, distance_, nodes_, transport) {}

trace::Phase Batch::transfer() const { return nodes_.count() > 1 ? trace::Phase::mpi : trace::Phase::shm; }

void Batch::begin(std::span<Operation* const> ops, bool eager) {
  running_ = true;
  if (eager) {
    run_eager(ops);
    return;
  }
  for (Part& p : parts_) p.ops.clear(), p.row = 0;
  for (Operation* op : ops) {
    if (op->entry->signature.device >= 0)
      parts_[agreed].ops.push_back(op);
    else
      sort(*op);
  }
  if (device_ && device_->agreed()) sort_device(std::exchange(parts_[agreed].ops, {}));
  queue_rows();
  at_ = 0;
  start();
}

/// Into its part, as a host tensor.
void Batch::sort(Operation& op) {
  switch (op.entry->signature.operation()) {
    case Kind::allreduce:
      parts_[op.entry->signature.reduction() == Reduce::adasum ? adapted : reduced].ops.push_back(&op);
      break;
    case Kind::reducescatter:
      parts_[scattered].ops.push_back(&op);
      break;
    case Kind::allgather:
    case Kind::alltoall:
    case Kind::broadcast:
      parts_[delivered].ops.push_back(&op);
      break;
    case Kind::set_change:
      parts_[special].ops.push_back(&op);
      break;
    default: {  // barrier: that all have submitted it is all there is to do
      Operation* one = &op;
      const std::uint32_t row = rows_.begin({&one, 1}, trace::Phase::queue);
      rows_.next(row, trace::Phase::queue, transfer());
      rows_.end(row, transfer());
      end_({&one, 1});
    }
  }
}

/// Tensors on GPUs: what does not stay there becomes host tensors, once the copies are there.
void Batch::sort_device(std::span<Operation* const> ops) {
  const std::vector<Operation*>& stay = parts_[by_nccl].ops = device_->take(ops);
  std::size_t next = 0;  // both lists are in the coordinator's order
  for (Operation* op : ops) {
    if (next < stay.size() && stay[next] == op) {
      ++next;
      continue;
    }
    parts_[copied].ops.push_back(op);
    sort(*op);
  }
}

/// Parts that have operations and no row yet.
void Batch::queue_rows() {
  using trace::Phase;
  for (std::size_t i = 0; i < parts; ++i) {
    Part& p = parts_[i];
    if (p.ops.empty() || p.row || i == agreed || i == copied) continue;
    p.row = rows_.begin(p.ops, i == reduced ? Phase::memcpy_in_fusion_buffer : Phase::queue);
  }
}

void Batch::run_eager(std::span<Operation* const> ops) {
  const std::uint32_t row = rows_.begin(ops, trace::Phase::shm);
  for (Operation* op : ops) run_eager(*op);
  rows_.end(row, trace::Phase::shm);
  running_ = false;
  end_(ops);
}

/// Everybody's input is in the slots: nobody waits for anybody.
void Batch::run_eager(Operation& op) {
  const NameEntry& e = *op.entry;
  if (e.reduce) {
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
  while (at_ < parts && parts_[at_].ops.empty()) ++at_;
  running_ = at_ < parts;
  if (!running_) return;
  if (at_ == agreed) {
    auto exchange = [this](std::vector<ops::MovedTensor> moved_tensors) {
      return std::make_unique<ops::Movement>(rings_, nodes_, transport_, std::move(moved_tensors));
    };
    device_ = std::make_unique<Device>(world_, config_, gpu_busy_, tracer_, exchange, std::move(inherited_));
    device_->begin_agreement(parts_[agreed].ops);
  } else if (at_ == by_nccl) {
    const Part& p = parts_[at_];
    phase_ = trace::Phase::queue;
    if (device_->joins()) rows_.next(p.row, std::exchange(phase_, trace::Phase::init_nccl), trace::Phase::init_nccl);
    device_->begin(p.ops, tracer_.enabled() ? p.row : 0);
  } else if (at_ == copied) {
    return;
  } else if (at_ == reduced) {
    reduction_.begin(parts_[reduced].ops);
    stage_ = &reduction_;
    phase_ = trace::Phase::memcpy_in_fusion_buffer;
  } else {
    phase_ = transfer();
    rows_.next(parts_[at_].row, trace::Phase::queue, phase_);
    owned_ = stage_of(at_);
    stage_ = owned_.get();
  }
}

bool Batch::step() {
  if (!running_) return false;
  if (at_ <= copied) return step_device();
  if (!stage_->done()) {
    const bool moved = stage_->step();
    if (moved && at_ == reduced) trace_allreduce();
    if (!stage_->done()) return moved;
  }
  finish();
  ++at_;
  start();
  return true;
}

bool Batch::step_device() {
  if (at_ == agreed) {
    const bool moved = device_->step_agreement();
    if (!device_->agreed()) return moved;
    sort_device(parts_[agreed].ops);
    queue_rows();
  } else if (at_ == by_nccl) {
    const bool moved = device_->step();
    if (!device_->done()) return moved;
    device_->finish();
    rows_.queued(parts_[at_].row, phase_);
    end_(parts_[at_].ops);
  } else if (!device_->staged()) {
    return false;
  }
  ++at_;
  start();
  return true;
}

void Batch::finish() {
  if (at_ == scattered) take_scattered();
  if (at_ == delivered) take_delivered();
  owned_.reset();
  rows_.end(parts_[at_].row, phase_);
  for (Operation* op : parts_[at_].ops)
    if (op->gpu && op->gpu->staged) device_->give_back(*op);  // a tensor that came from a GPU goes back there first
  end_(parts_[at_].ops);
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
    rows_.next(parts_[reduced].row, phase_, to);
    phase_ = to;
  };
  if (phase_ == Phase::memcpy_in_fusion_buffer && reduction_.entered()) advance(transfer());
  if (phase_ == transfer() && reduction_.reduced()) advance(Phase::memcpy_out_fusion_buffer);
}

std::unique_ptr<ops::Stage> Batch::stage_of(std::size_t part) {
  switch (part) {
    case adapted:
      return adasum();
    case scattered:
      return reducescatter();
    case delivered:
      return delivery();
    default:
      return special_(parts_[special].ops, rings_, nodes_);
  }
}

std::unique_ptr<ops::Stage> Batch::adasum() {
  std::vector<ops::AdasumTensor> tensors;
  std::size_t bytes = 0;
  for (const Operation* op : parts_[adapted].ops) {
    tensors.push_back({item_of(*op), op->entry->signature.type()});
    tensors.back().item.wide = ops::wide_reducer(tensors.back().dtype, Reduce::sum);  // nodes' parts of the result
    bytes += tensors.back().item.bytes;
  }
  rings_.streaming = distance_.streaming(node_, bytes);
  return std::make_unique<ops::Adasum>(rings_, nodes_, transport_, std::move(tensors));
}

/// A reducescatter, and memory for this rank's part of the result.
ops::DividedTensor Batch::divide(Operation& op) const {
  const Signature& s = op.entry->signature;
  const std::int64_t rows = s.dims[0];
  op.result_shape.assign(s.dims, s.dims + s.ndim);
  op.result_shape[0] = rows / world_.size + (world_.rank < rows % world_.size ? 1 : 0);
  ops::DividedTensor t{item_of(op), rows};
  op.allocate(t.end(world_.rank, world_.size) - t.begin(world_.rank, world_.size));
  t.item.out = static_cast<unsigned char*>(op.result);
  return t;
}

std::unique_ptr<ops::Stage> Batch::reducescatter() {
  std::vector<ops::DividedTensor> tensors;
  std::size_t bytes = 0;
  for (Operation* op : parts_[scattered].ops) {
    ops::DividedTensor t = divide(*op);
    if (nodes_.count() > 1 && WideCopy::needed(op->entry->signature)) {
      t.item = widened_.emplace_back(*op).item(t.item);
      t.item.out += t.begin(world_.rank, world_.size);
    }
    bytes += t.item.bytes;
    tensors.push_back(t);
  }
  rings_.streaming = distance_.streaming(node_, bytes);
  return std::make_unique<ops::ReduceScatter>(rings_, nodes_, transport_, std::move(tensors));
}

void Batch::take_scattered() {
  for (const WideCopy& w : widened_) {
    const Operation& op = w.operation();
    const ops::DividedTensor t{item_of(op), op.entry->signature.dims[0]};
    const std::size_t begin = t.begin(world_.rank, world_.size), end = t.end(world_.rank, world_.size);
    w.narrow(op.result, begin / t.item.element_bytes, (end - begin) / t.item.element_bytes);
  }
  widened_.clear();
}

std::unique_ptr<ops::Stage> Batch::delivery() {
  std::vector<ops::MovedTensor> moved_tensors;
  std::size_t bytes = 0;  // what all ranks know of
  for (const Operation* op : parts_[delivered].ops) {
    const Signature& s = op->entry->signature;
    ops::MovedTensor p;
    p.kind = s.operation();
    p.in = in_of(*op);
    p.out = out_of(*op);
    p.row_bytes = static_cast<std::size_t>(s.payload_bytes());
    p.rows = op->dim0;
    p.root = s.root;
    p.splits = op->splits.data();
    if (p.kind == Kind::broadcast) bytes += p.row_bytes;
    moved_tensors.push_back(std::move(p));
  }
  rings_.streaming = distance_.streaming(node_, bytes);
  return std::make_unique<ops::Movement>(rings_, nodes_, transport_, std::move(moved_tensors));
}

void Batch::take_delivered() {
  std::vector<ops::MovedTensor> moved_tensors = static_cast<ops::Movement&>(*owned_).take();
  for (std::size_t i = 0; i < moved_tensors.size(); ++i) {
    ops::MovedTensor& p = moved_tensors[i];
    if (!p.result) continue;  // broadcast
    Operation& op = *parts_[delivered].ops[i];
    const Signature& s = op.entry->signature;
    op.result = p.result;
    op.received = std::move(p.received);
    op.result_shape.assign(s.dims, s.dims + s.ndim);
    op.result_shape[0] = 0;
    for (std::int64_t rows : op.received) op.result_shape[0] += rows;
  }
}

}  // namespace hvd::core
