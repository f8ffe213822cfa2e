/// @file join.cc — join, on the member's side: a rank without data of its own lends itself to the others.
///
/// negotiate/coordinator.h says how the ranks agree.  Between `joining` and `joined`
/// an operation that this rank has not submitted comes with its signature, and
/// the rank takes part with zeros (or no rows) and throws the result away.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/set.h"
#include "memory/doorbell.h"

namespace hvd::core {

using negotiate::ByteReader;

namespace {

/// A name that no request can have: those of users are no longer than 4096 bytes, and end at a zero.
const std::string join_name{"join\0", 5};

}  // namespace

/// Under mutex_.
Operation& ProcessSet::submit_join(const CheckedRequest& p) {
  NameEntry& e = entry(join_name);
  Operation* taken = nullptr;
  operations_.take(1, &taken);
  Operation& op = *taken;
  op.of_set = this;
  op.entry = &e;
  e.signature = p.signature;
  e.operation = &op;
  e.in_flight.store(true, std::memory_order_relaxed);
  join_op_ = &op;
  submitted_.store(submitted_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  shared_.outstanding.fetch_add(1, std::memory_order_seq_cst);
  if (tracer_.enabled()) tracer_.submitted(e.track, {"join", trace::TraceOp::join, 0, {}, world_.world_rank(0)});
  announce_join(records_only_ ? negotiate::has_joined : negotiate::wants_to_join);
  return op;
}

/// Under mutex_.
void ProcessSet::announce_join(int what) {
  Signature s;
  s.kind = static_cast<std::uint8_t>(Kind::join);
  s.root = what;
  negotiate::append_record(outbox_, node_.board(node_.me).executed.load(std::memory_order_relaxed), s, join_name);
  flush_records();
  node_.doorbell(0).ring();
}

void ProcessSet::joining() {
  std::lock_guard lock(mutex_);
  records_only_ = true;
  // What was under way by bits has been evicted by now, so its records are on their way, before this one.
  if (join_op_) announce_join(negotiate::has_joined);
}

void ProcessSet::stand_in(ByteReader& r) {
  std::lock_guard lock(mutex_);
  const auto id = r.index(ids_);
  if (pending_[id]) return;  // submitted here too
  auto s = std::make_unique<StandIn>();
  NameEntry& e = s->entry;
  const Signature signature = negotiate::read_signature(r.rest());
  e.describe(signature, world_.rank, world_.size);
  const bool own = signature.operation() == Kind::allgather || signature.operation() == Kind::alltoall;
  const std::size_t bytes = own ? 0 : static_cast<std::size_t>(signature.payload_bytes());
  s->zeros.reset(std::calloc(bytes + 1, 1));
  if (!s->zeros) throw Error(Code::unavailable, "join", "no memory for " + std::to_string(bytes) + " zeros");
  Operation* taken = nullptr;
  operations_.take(1, &taken);
  Operation& op = *taken;
  operations_.release(op);  // nobody has a handle
  op.of_set = this;
  op.entry = &e;
  op.in = op.out = s->zeros.get();
  op.dim0 = 0;
  op.by_bit = false;
  op.more = true;
  op.splits.assign(static_cast<std::size_t>(world_.size), 0);
  e.id = id;
  e.bytes = bytes;
  e.operation = pending_[id] = &op;
  submitted_.store(submitted_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  shared_.outstanding.fetch_add(1, std::memory_order_seq_cst);
  stand_ins_[id] = std::move(s);
}

/// Under mutex_.  The id is evicted: after its batch, or because its group failed.
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
  // Ranks with more data have made more calls without a name: from here on they count alike again.
  std::fill(std::begin(made_names_), std::end(made_names_), 0);
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
