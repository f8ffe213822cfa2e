#include "core/batch.h"

#include <cstdlib>

#include "core/set.h"
#include "ops/hierarchical/broadcast.h"
#include "ops/hierarchical/gather.h"
#include "ops/shm/eager.h"

namespace hvd::core {
namespace {

void* allocate(std::size_t bytes) {
  void* p = std::malloc(bytes > 0 ? bytes : 1);
  if (!p) throw Error(Code::unavailable, "allgather", "no memory for a result of " + std::to_string(bytes) + " bytes");
  return p;
}

/// allgather: first everybody's first dimension, then the data.
class Allgather final : public ops::Stage {
 public:
  Allgather(ops::Rings& rings, const ops::Nodes& nodes, transport::Transport& transport, Operation& op)
      : rings_(rings), nodes_(nodes), transport_(transport), op_(op), first_dims_(nodes.node_of.size()) {
    std::vector<unsigned char*> to;
    for (std::int64_t& d : first_dims_) to.push_back(reinterpret_cast<unsigned char*>(&d));
    lengths_ = std::make_unique<ops::CrossGather>(rings, nodes, transport, &op.dim0,
                                                  std::vector<std::size_t>(first_dims_.size(), sizeof(std::int64_t)),
                                                  std::move(to));
  }
  bool step() override {
    if (data_) return data_->step();
    const bool moved = lengths_->step();
    if (!lengths_->done()) return moved;
    begin_data();
    return true;
  }
  bool done() const override { return data_ && data_->done(); }

 private:
  void begin_data() {
    const Signature& s = op_.entry->signature;
    const std::size_t row = static_cast<std::size_t>(s.payload_bytes());
    std::vector<std::size_t> bytes;
    std::size_t total = 0;
    std::int64_t rows = 0;
    for (std::int64_t d : first_dims_) {
      bytes.push_back(row * static_cast<std::size_t>(d));
      total += bytes.back();
      rows += d;
    }
    op_.result = allocate(total);
    op_.result_shape.assign(s.dims, s.dims + s.ndim);
    op_.result_shape[0] = rows;
    std::vector<unsigned char*> to;
    auto* at = static_cast<unsigned char*>(op_.result);
    for (std::size_t b : bytes) {
      to.push_back(at);
      at += b;
    }
    data_ = std::make_unique<ops::CrossGather>(rings_, nodes_, transport_, op_.in, std::move(bytes), std::move(to));
  }
  ops::Rings& rings_;
  const ops::Nodes& nodes_;
  transport::Transport& transport_;
  Operation& op_;
  std::vector<std::int64_t> first_dims_;
  std::unique_ptr<ops::CrossGather> lengths_, data_;
};

}  // namespace

Batch::Batch(const World& world, const memory::Node& node, transport::Transport& transport, trace::Tracer& tracer,
             End end)
    : world_(world),
      node_(node),
      transport_(transport),
      tracer_(tracer),
      end_(std::move(end)),
      nodes_{world.nodes, world.node_of, world.local_of, world.node(), world.local_rank()},
      rings_(node),
      exchange_(nodes_, transport),
      allreduce_(rings_),
      places_(node),
      direct_(rings_) {}

ops::Item Batch::item_of(const Operation& op) const {
  const Signature& s = op.entry->signature;
  ops::Item item;
  item.in = static_cast<const unsigned char*>(op.in);
  item.out = static_cast<unsigned char*>(op.out);
  item.bytes = static_cast<std::size_t>(s.payload_bytes());
  item.element_bytes = element_bytes(s.type());
  item.reduce = ops::reducer(s.type(), s.reduction());
  item.scale = {s.before, s.after, s.reduction() == Reduce::average ? world_.size : 1};
  const bool sums = s.reduction() == Reduce::sum || s.reduction() == Reduce::average;
  // Half precision ends at 65504: a node's part of a sum is made small before it is rounded, not when it is infinite.
  item.part = s.type() == DType::f16 && sums ? item.scale : ops::Scale{s.before, 1, 1};
  item.whole = s.type() == DType::f16 && sums ? ops::Scale{} : ops::Scale{1, s.after, item.scale.divisor};
  return item;
}

void Batch::begin(std::span<Operation* const> ops, bool eager) {
  ops_.assign(ops.begin(), ops.end());
  running_ = true;
  if (eager)
    run_eager();
  else
    begin_stream();
}

trace::Phase Batch::transfer() const { return world_.nodes.size() > 1 ? trace::Phase::mpi : trace::Phase::shm; }

/// One row of operations in the timeline, in its first phase.  Returns its number.
std::uint32_t Batch::trace_begin(std::span<Operation* const> ops, trace::Phase phase) {
  const std::uint32_t number = ++traced_;
  if (!tracer_.enabled()) return number;
  tracer_.batch_begin(number);
  for (const Operation* op : ops) tracer_.batch_tensor(op->entry->track);
  tracer_.phase_begin(number, phase);
  return number;
}

void Batch::trace_next(std::uint32_t number, trace::Phase from, trace::Phase to) {
  if (!tracer_.enabled()) return;
  tracer_.phase_end(number, from);
  tracer_.phase_begin(number, to);
}

void Batch::trace_end(std::uint32_t number, trace::Phase phase) {
  if (!tracer_.enabled()) return;
  tracer_.phase_end(number, phase);
  tracer_.batch_end(number);
}

/// Chunks overlap in the pipeline, so the copies show only where nothing else runs: while it fills and while it drains.
void Batch::trace_stream() {
  using trace::Phase;
  auto advance = [this](Phase to) {
    trace_next(stream_number_, stream_phase_, to);
    stream_phase_ = to;
  };
  if (stream_phase_ == Phase::memcpy_in_fusion_buffer && allreduce_.entered()) advance(transfer());
  if (stream_phase_ == transfer() && allreduce_.reduced()) advance(Phase::memcpy_out_fusion_buffer);
}

void Batch::run_eager() {
  const std::uint32_t number = trace_begin(ops_, trace::Phase::shm);
  for (Operation* op : ops_) ops::eager_reduce(node_, item_of(*op), op->entry->slot, op->parity);
  trace_end(number, trace::Phase::shm);
  for (Operation* op : ops_) end_(*op, HVD_OK, {});
  running_ = false;
}

/// The same on all ranks.  What has an eager slot says nothing about its place; what came by record neither.
bool Batch::lies_registered(const Operation& op) {
  return nodes_.count() == 1 && op.by_bit && op.entry->slot == negotiate::no_slot &&
         places_.registered(op.entry->id, op.parity);
}

void Batch::begin_stream() {
  stream_.clear();
  direct_.clear();
  streamed_.clear();
  single_.clear();
  widened_.clear();
  for (Operation* op : ops_) {
    if (op->entry->signature.operation() == Kind::allreduce) {
      streamed_.push_back(op);
      if (lies_registered(*op))
        direct_.add(item_of(*op), op->entry->id, op->parity);
      else if (nodes_.count() > 1 && Widened::needed(op->entry->signature))
        stream_.add(widened_.emplace_back(*op).item(item_of(*op)));
      else
        stream_.add(item_of(*op));
    } else {
      single_.push_back(op);
    }
  }
  rings_.streaming = distance_.streaming(node_, stream_.bytes);
  direct_.begin();
  exchange_.begin(stream_);
  allreduce_.begin(stream_, nodes_.carriers(), nodes_.count() > 1 ? &exchange_ : nullptr);
  streaming_ = true;
  stream_phase_ = trace::Phase::memcpy_in_fusion_buffer;
  if (!streamed_.empty()) stream_number_ = trace_begin(streamed_, stream_phase_);
  queued_ = traced_;
  for (Operation*& op : single_) trace_begin({&op, 1}, trace::Phase::queue);
  at_ = 0;
  begun_ = false;
  stage_.reset();
}

std::unique_ptr<ops::Stage> Batch::stage_of(Operation& op) {
  const Signature& s = op.entry->signature;
  switch (s.operation()) {
    case Kind::broadcast:
      return std::make_unique<ops::CrossBroadcast>(
          rings_, nodes_, transport_, s.root, static_cast<const unsigned char*>(op.in),
          static_cast<unsigned char*>(op.out), static_cast<std::size_t>(s.payload_bytes()));
    case Kind::allgather:
      return std::make_unique<Allgather>(rings_, nodes_, transport_, op);
    default:
      return nullptr;  // barrier: that all have submitted it is all there is to do
  }
}

bool Batch::step() {
  if (!running_) return false;
  if (streaming_) {
    bool moved = allreduce_.step();
    if (moved && !streamed_.empty()) trace_stream();
    moved |= direct_.step();
    if (!allreduce_.done() || !direct_.done()) return moved;
    streaming_ = false;
    for (Widened& w : widened_) w.narrow();
    widened_.clear();
    if (!streamed_.empty()) trace_end(stream_number_, stream_phase_);
    for (Operation* op : streamed_) end_(*op, HVD_OK, {});
    running_ = at_ < single_.size();
    return true;
  }
  return next_stage();
}

bool Batch::next_stage() {
  Operation& op = *single_[at_];
  const std::uint32_t number = queued_ + 1 + static_cast<std::uint32_t>(at_);
  bool moved = false;
  if (!begun_) {
    begun_ = true;
    trace_next(number, trace::Phase::queue, transfer());
    stage_ = stage_of(op);
    moved = true;
  }
  if (stage_ && !stage_->done()) {
    moved |= stage_->step();
    if (!stage_->done()) return moved;
  }
  stage_.reset();
  begun_ = false;
  trace_end(number, transfer());
  end_(op, HVD_OK, {});
  running_ = ++at_ < single_.size();
  return true;
}

void Batch::drop() {
  running_ = streaming_ = begun_ = false;
  exchange_.drop();
  widened_.clear();
  (void)stage_.release();  // a message may still arrive in its memory
}

}  // namespace hvd::core
