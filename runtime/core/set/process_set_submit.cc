/// @file process_set_submit.cc — the functions of a process set that run on the callers' threads.
#include <algorithm>

#include "common/read_ahead.h"
#include "core/set/process_set.h"

namespace hvd::core {

using negotiate::no_slot;

void ProcessSet::check() {
  const std::lock_guard lock(mutex_);
  throw_if_broken();
}

void ProcessSet::throw_if_broken() const {
  if (broken_code_) throw Error(static_cast<Code>(broken_code_), "", broken_text_);
}

bool ProcessSet::submit(std::span<const CheckedRequest> requests, Operation** ops) {
  std::lock_guard lock(mutex_);
  throw_if_broken();
  if (join_op_)
    throw Error(Code::usage, name_of(requests.front().signature.operation()), "this rank has joined",
                "wait until join has ended");
  if (requests.size() == 1 && requests.front().signature.operation() == Kind::join) {
    *ops = &submit_join(requests.front());
    return true;
  }
  bool on_gpu = false;
  for (const CheckedRequest& p : requests) {
    if (p.signature.operation() == Kind::join) throw Error(Code::usage, "join", "cannot be one of many");
    on_gpu |= p.gpu != nullptr;
  }
  if (group_failures_.any()) {
    group_failures_.forget_seen([this](std::int64_t handle) { return operations_.valid(handle); });
    group_failures_.refuse(requests, world_.world_rank(world_.rank));
  }
  if (on_gpu) mark_ready(requests);
  const std::span<NameEntry* const> entries = names_.take(requests);
  operations_.take(requests.size(), ops);
  count(requests.size());
  return announce(requests, entries, {ops, requests.size()});
}

/// Fills ready_.  Consecutive tensors of one stream share a mark.
void ProcessSet::mark_ready(std::span<const CheckedRequest> requests) {
  ready_.resize(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const CheckedRequest& p = requests[i];
    if (!p.gpu) continue;
    if (p.whole_signature().payload_bytes() == 0) {  // an empty tensor is ready
      check_gpu(*p.gpu);
      ready_[i] = nullptr;
      continue;
    }
    const bool same = i > 0 && requests[i - 1].gpu == p.gpu && requests[i - 1].stream == p.stream;
    ready_[i] = same ? ready_[i - 1] : mark_ready(p);
  }
}

/// Marks the caller's stream: the tensor is ready when the stream has finished the work that it has received until
/// now.  Throws Error{usage}.
std::shared_ptr<gpu::StreamMark> ProcessSet::mark_ready(const CheckedRequest& p) {
  check_gpu(*p.gpu);
  if (auto mark = gpu_->mark_caller(p.stream)) return mark;
  throw Error(Code::capturing, p.name.empty() ? name_of(p.signature.operation()) : "'" + std::string(p.name) + "'",
              "the stream that makes its tensor is being captured into a CUDA graph",
              "HVD_CAPTURE records operations that have memory for their results; or call hvd outside of the capture");
}

/// Throws Error{usage} if the set has used another GPU.
void ProcessSet::check_gpu(gpu::LocalGpu& gpu) {
  if (gpu_ && gpu_ != &gpu)
    throw Error(Code::usage, "cuda:" + std::to_string(gpu.ordinal()),
                "this process set's tensors have been on cuda:" + std::to_string(gpu_->ordinal()),
                "a rank uses one GPU: torch.cuda.set_device(hvd.local_rank())");
  gpu_ = &gpu;
}

/// Fills @p op with the request, and makes it the operation of @p e.
void ProcessSet::bind(const CheckedRequest& p, NameEntry& e, Operation& op) {
  op.of_set = this;
  op.entry = &e;
  op.in = p.in;
  op.out = p.out;
  op.more = p.has_result() || p.gpu;
  if (op.more) {
    op.dim0 = p.dim0;
    op.out_bytes = p.out_bytes;
  }
  if (p.signature.operation() == Kind::alltoall) op.splits = p.rows_for(world_.size);
  e.operation = &op;
}

/// Makes each of @p ops the operation of its entry, and announces it.  The ready bit announces a name that has an id
/// and an unchanged signature.  A record announces every other name.  Between `joining` and `joined`, all names go by
/// record.  True when the leader must look.
bool ProcessSet::announce(std::span<const CheckedRequest> requests, std::span<NameEntry* const> entries,
                          std::span<Operation* const> ops) {
  bool records = false;
  std::int64_t bytes = 0;
  const std::int64_t now = shared_.recorder.now();
  // submitted_ already counts these requests.
  const std::uint64_t first = submitted_.load(std::memory_order_relaxed) - requests.size();
  const std::uint64_t executed = node_.board(node_.me).executed.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    fetch_later(entries, i, 3);
    fetch_later(ops, i, 1);
    NameEntry& e = *entries[i];
    Operation& op = *ops[i];
    bind(requests[i], e, op);
    if (requests[i].gpu) op.gpu.make(*requests[i].gpu, requests[i].stream, std::move(ready_[i]));
    const bool same = e.signature.is(requests[i].signature, requests[i].shape);
    if (!same) e.describe(requests[i].whole_signature(), world_.rank, world_.size);
    bytes += static_cast<std::int64_t>(e.bytes);
    const Signature& s = e.signature;
    op.recorded = shared_.recorder.submitted({first + i, id_, s.kind, s.dtype, static_cast<std::int64_t>(e.bytes)},
                                             e.name, e.recorded_at, now);
    e.submitted_at = group_failures_.submitted_at(e, executed);
    if (tracer_.enabled()) trace_submitted(e, requests[i].dim0);
    if (e.id != no_slot && same && !records_only_) {
      announcer_.begin(e, op);
      pending_[e.id] = &op;
    } else {
      op.by_bit = false;
      e.id = no_slot;
      announcer_.record(e.submitted_at, e.signature, e.name);
      records = true;
    }
  }
  shared_.status.recorder().submitted(requests.size(), bytes);
  return announcer_.flip() || records;
}

void ProcessSet::count(std::size_t operations) {
  submitted_.store(submitted_.load(std::memory_order_relaxed) + operations, std::memory_order_relaxed);
  shared_.outstanding.fetch_add(static_cast<int>(operations), std::memory_order_seq_cst);
}

void ProcessSet::trace_submitted(NameEntry& e, std::int64_t dim0) {
  std::int64_t dims[max_dims];
  const Signature& s = e.signature;
  std::copy(s.dims, s.dims + s.ndim, dims);
  if (s.ndim > 0 && dims[0] < 0) dims[0] = dim0;
  const bool adasum = s.operation() == Kind::allreduce && s.reduction() == Reduce::adasum;
  const auto op = s.operation() == Kind::set_change ? trace::TraceOp::barrier
                  : adasum                          ? trace::TraceOp::adasum
                                                    : static_cast<trace::TraceOp>(s.kind);
  tracer_.submitted(e.track, {e.name, op, s.dtype, {dims, s.ndim}, world_.world_rank(0)});
}

std::string ProcessSet::names_under_way() {
  std::lock_guard lock(mutex_);
  return names_.some_in_flight();
}

OperationUnderWay ProcessSet::first_under_way(const MessageWaits& messages) {
  std::lock_guard lock(mutex_);
  const NameEntry* const first = names_.first_in_flight([&](const NameEntry& e) {
    return (!join_op_ || e.operation != join_op_) && (!negotiate::is_message_name(e.name) || messages.has(e.name));
  });
  if (!first) return {join_op_ ? negotiate::join_text : "", {}};
  const bool tells = first->name.starts_with(name_of(first->signature.operation()));
  return {first->name, tells ? std::string() : negotiate::describe(first->signature)};
}

}  // namespace hvd::core
