/// @file process_set_join.cc — join, on each rank: a rank without further data takes part in the other ranks'
/// operations.
///
/// negotiate/coordinator.h explains how the ranks agree.  Between `joining` and `joined`, the coordinator sends the
/// signature of each operation that this rank has not submitted.  The rank takes part with zeros, or without rows, and
/// discards the result.
#include <utility>

#include "core/set/process_set.h"
#include "memory/doorbell.h"

namespace hvd::core {

using negotiate::ByteReader;

namespace {

/// A name that no request can have: the name in a request ends before its first zero byte.
const std::string join_name{"join\0", 5};

}  // namespace

/// Under mutex_.
Operation& ProcessSet::submit_join(const CheckedRequest& p) {
  NameEntry& e = names_.entry(join_name);
  Operation* op = nullptr;
  operations_.take(1, &op);
  bind(p, e, *op);
  e.signature = p.whole_signature();
  e.in_flight.store(true, std::memory_order_relaxed);
  join_op_ = op;
  op->recorded = shared_.recorder.submitted({submitted_.load(std::memory_order_relaxed), id_, p.signature.kind}, "join",
                                            e.recorded_at, shared_.recorder.now());
  count(1);
  if (tracer_.enabled()) tracer_.submitted(e.track, {"join", trace::TraceOp::join, 0, {}, world_.world_rank(0)});
  announce_join(records_only_ ? negotiate::has_joined : negotiate::wants_to_join);
  return *op;
}

/// Under mutex_.
void ProcessSet::announce_join(int what) {
  Signature s;
  s.kind = static_cast<std::uint8_t>(Kind::join);
  s.root = what;
  announcer_.record(node_.board(node_.me).executed.load(std::memory_order_relaxed), s, join_name);
  node_.doorbell(0).ring();
}

void ProcessSet::joining() {
  std::lock_guard lock(mutex_);
  records_only_ = true;
  // All operations announced by ready bit have been evicted by now.  So their records precede this one.
  if (join_op_) announce_join(negotiate::has_joined);
}

void ProcessSet::stand_in(ByteReader& r) {
  std::lock_guard lock(mutex_);
  const auto id = r.index(pending_.size());
  if (pending_[id]) return;  // this rank has submitted the operation too
  auto s = StandIn::make(negotiate::read_signature(r.rest()), id, world_.rank, world_.size);
  Operation* taken = nullptr;
  operations_.take(1, &taken);
  Operation& op = *taken;
  operations_.release(op);  // no caller has a handle
  op.of_set = this;
  op.entry = &s->entry;
  op.in = s->zeros.get();
  op.out = is_among(s->entry.signature.operation(), taken_kinds) ? nullptr : s->zeros.get();
  op.dim0 = 0;
  op.by_bit = false;
  op.more = true;
  op.splits.assign(static_cast<std::size_t>(world_.size), 0);
  s->entry.operation = pending_[id] = &op;
  count(1);
  stand_ins_[id] = std::move(s);
}

/// Under mutex_.  To be called when the id is evicted: after its batch, or because its group failed.
void ProcessSet::drop_stand_in(std::uint32_t id) {
  const auto found = stand_ins_.find(id);
  if (found == stand_ins_.end()) return;
  if (Operation* op = found->second->entry.operation) {
    pending_[id] = nullptr;
    end(*op, HVD_OK, {});
  }
  stand_ins_.erase(found);
}

void ProcessSet::joined(ByteReader& r) {
  std::lock_guard lock(mutex_);
  records_only_ = false;
  // Ranks with more data have made more calls without a name.  From here on, all ranks count these calls from 0 again.
  names_.restart_made_names();
  Operation* op = std::exchange(join_op_, nullptr);
  if (!op) return;
  op->more = true;
  op->last_rank = world_.world_rank(static_cast<int>(r.index(world_.world_ranks.size())));
  const std::uint32_t row = ++shared_.traced;
  tracer_.batch_begin(row);
  tracer_.batch_tensor(op->entry->track);
  tracer_.batch_end(row);
  end(*op, HVD_OK, {});
}

}  // namespace hvd::core
