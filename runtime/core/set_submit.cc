/// @file set_submit.cc — what the callers' threads do in a process set: names, checks, ready bits, records.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/set.h"
#include "memory/arena.h"
#include "memory/doorbell.h"

namespace hvd::core {

using negotiate::no_slot;

std::string ProcessSet::make_name(const Signature& s) {
  return negotiate::made_name(name_of(s.operation()), made_names_[s.kind]++);
}

NameEntry& ProcessSet::entry(std::string_view name) {
  auto it = names_.find(name);
  if (it == names_.end()) {
    it = names_.emplace(name, std::make_unique<NameEntry>()).first;
    it->second->name = name;
  }
  return *it->second;
}

/// The same for submit.  Programs submit their names in the same order again and again: the one that followed last time
/// is looked at first.
NameEntry& ProcessSet::next_entry(std::string_view name) {
  if (last_ && last_->after && last_->after_epoch == erased_ && last_->after->name == name)
    return *(last_ = last_->after);
  NameEntry& e = entry(name);
  if (last_) {
    last_->after = &e;
    last_->after_epoch = erased_;
  }
  return *(last_ = &e);
}

/// Pointers to entries that other entries keep are void from now on.
void ProcessSet::forget_name(const std::string& name) {
  last_ = nullptr;
  ++erased_;
  names_.erase(name);
}

/// All or nothing: looks at every name before anything is taken.  Fills chosen_; throws Error{usage}.
void ProcessSet::choose(std::span<const CheckedRequest> requests) {
  chosen_.clear();
  std::array<std::uint64_t, num_kinds> made;
  std::copy(std::begin(made_names_), std::end(made_names_), made.begin());
  for (const CheckedRequest& p : requests) {
    NameEntry& e = next_entry(p.name.empty() ? make_name(p.signature) : p.name);
    const bool under_way = e.in_flight.load(std::memory_order_acquire);
    if (!under_way && !e.chosen) {
      e.chosen = true;
      chosen_.push_back(&e);
      continue;
    }
    for (NameEntry* c : chosen_) c->chosen = false;
    std::copy(made.begin(), made.end(), made_names_);
    if (!under_way) throw Error(Code::usage, "'" + e.name + "'", "the same name twice in one call");
    throw Error(Code::usage, "'" + e.name + "'", "an operation of this name is already under way on this rank",
                "wait for it, or give each its own name");
  }
}

/// What the caller's stream has been given so far is what the tensor is made of.  Under mutex_.
std::shared_ptr<cuda::Mark> ProcessSet::mark_ready(cuda::Gpu& gpu, cuda::Stream stream, std::string_view name,
                                                   int kind) {
  if (gpu_ && gpu_ != &gpu)
    throw Error(Code::usage, "cuda:" + std::to_string(gpu.ordinal()),
                "this process set's tensors have been on cuda:" + std::to_string(gpu_->ordinal()),
                "a rank uses one GPU: torch.cuda.set_device(hvd.local_rank())");
  gpu_ = &gpu;
  const cuda::CurrentContext current(gpu_->driver(), gpu_->context());
  if (gpu_->driver().capturing(stream))
    throw Error(
        Code::usage, name.empty() ? name_of(static_cast<Kind>(kind)) : "'" + std::string(name) + "'",
        "the stream that makes its tensor is being captured into a CUDA graph, and other ranks cannot be part of "
        "a graph",
        "leave hvd out of what is captured: call it behind the graph's launch");
  return gpu_->mark(stream);
}

void ProcessSet::forget_seen() {
  if (!operations_.valid(failed_handle_)) failed_handle_ = 0;
  std::erase_if(unseen_, [this](const Unseen& u) { return !operations_.valid(u.handle); });
}

/// Throws Error{mismatch} when one of them was part of a group elsewhere that has failed, and the caller cannot know.
void ProcessSet::refuse_outdated(std::span<const CheckedRequest> requests) {
  for (const CheckedRequest& p : requests) {
    const auto found = outdated_.find(p.name);
    if (found == outdated_.end() || p.signature.group_size) continue;
    for (const Unseen& u : unseen_)
      if (u.group == found->second.group)
        throw Error(Code::mismatch, name_of(p.signature.operation()),
                    "'" + std::string(p.name) + "' is in no group on rank " +
                        std::to_string(world_.world_rank(world_.rank)) +
                        ", but in one on others, which has failed: " + u.text);
  }
}

/// How many commands had been carried out when the entry was submitted, as far as the caller can know.
std::uint64_t ProcessSet::when(const NameEntry& e, std::uint64_t executed) const {
  if (e.group_size || (unseen_.empty() && failed_handle_ == 0)) return executed;
  std::uint64_t seen = unseen_.empty() ? executed : unseen_.front().command - 1;
  if (failed_handle_ != 0) seen = std::min(seen, failed_command_ - 1);
  const auto found = outdated_.find(e.name);
  return std::max(seen, found == outdated_.end() ? 0 : found->second.command);
}

bool ProcessSet::submit(std::span<const CheckedRequest> requests, Operation** ops) {
  std::lock_guard lock(mutex_);
  if (broken_code_) throw Error(static_cast<Code>(broken_code_), "", broken_text_);
  if (join_op_)
    throw Error(Code::usage, name_of(requests.front().signature.operation()), "this rank has joined",
                "wait until join has ended");
  if (requests.size() == 1 && requests.front().signature.operation() == Kind::join) {
    *ops = &submit_join(requests.front());
    return true;
  }
  if (std::any_of(requests.begin(), requests.end(),
                  [](const CheckedRequest& p) { return p.signature.operation() == Kind::join; }))
    throw Error(Code::usage, "join", "cannot be one of many");
  if (failed_handle_ != 0 || !unseen_.empty()) {
    forget_seen();
    refuse_outdated(requests);
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const CheckedRequest& p = requests[i];
    if (!p.gpu) continue;
    ready_.resize(requests.size());
    const bool same = i > 0 && requests[i - 1].gpu == p.gpu && requests[i - 1].stream == p.stream;
    ready_[i] = same ? ready_[i - 1] : mark_ready(*p.gpu, p.stream, p.name, p.signature.kind);
  }
  choose(requests);
  operations_.take(requests.size(), ops);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const CheckedRequest& p = requests[i];
    Operation& op = *ops[i];
    NameEntry& e = *chosen_[i];
    e.chosen = false;
    op.of_set = this;
    op.entry = &e;
    op.in = p.in;
    op.out = p.out;
    op.dim0 = p.dim0;
    op.more = p.has_result();
    if (!p.splits.empty()) op.splits = p.splits;
    if (p.gpu) {
      op.more = true;
      op.gpu.make(p.gpu->ordinal(), p.stream, std::move(ready_[i]));
    }
    e.operation = &op;
    e.in_flight.store(true, std::memory_order_relaxed);
  }
  count(requests.size());
  bool records = false;
  const std::uint64_t executed = node_.board(node_.me).executed.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Operation& op = *ops[i];
    NameEntry& e = *op.entry;
    const bool same = e.signature == requests[i].signature;
    if (!same) e.describe(requests[i].signature, world_.rank, world_.size);
    e.submitted_at = when(e, executed);
    e.key = requests[i].key;
    if (tracer_.enabled()) trace_submitted(e, op.dim0);
    if (e.id != no_slot && same && !records_only_) {
      announce(e, op);
    } else {
      op.by_bit = false;
      e.id = no_slot;
      send_record(e);
      records = true;
    }
  }
  return flip() || records;
}

bool ProcessSet::submit_again(std::span<const hvd_request> requests, bool group, Operation** ops, bool& due) {
  std::lock_guard lock(mutex_);
  if (broken_code_ || join_op_ || records_only_ || !unseen_.empty() || failed_handle_ != 0 || !recall(requests, group))
    return false;
  try {
    mark_ready(requests);
  } catch (...) {
    for (NameEntry* c : chosen_) c->in_flight.store(false, std::memory_order_relaxed);
    throw;
  }
  operations_.take(requests.size(), ops);
  count(requests.size());
  const bool traced = tracer_.enabled();
  const std::uint64_t executed = node_.board(node_.me).executed.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Operation& op = *ops[i];
    NameEntry& e = *chosen_[i];
    op.of_set = this;
    op.entry = &e;
    op.in = requests[i].in;
    op.out = requests[i].out;
    if (requests[i].device >= 0) {
      op.more = true;
      op.gpu.make(requests[i].device, requests[i].stream, std::move(ready_[i]));
    }
    e.operation = &op;
    e.submitted_at = executed;
    if (traced) trace_submitted(e, 0);
    announce(e, op);
  }
  due = flip();
  return true;
}

/// Fills ready_.  The set has had tensors of these requests' GPU before: they are as they were.
void ProcessSet::mark_ready(std::span<const hvd_request> requests) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const hvd_request& q = requests[i];
    if (q.device < 0) continue;
    ready_.resize(requests.size());
    const bool same = i > 0 && requests[i - 1].device == q.device && requests[i - 1].stream == q.stream;
    ready_[i] = same ? ready_[i - 1] : mark_ready(*gpu_, q.stream, q.name, q.kind);
  }
}

/// All or nothing: fills chosen_ with entries that are in flight now.
bool ProcessSet::recall(std::span<const hvd_request> requests, bool group) {
  chosen_.clear();
  NameEntry* const before = last_;
  for (const hvd_request& q : requests) {
    NameEntry* e = q.set == requests.front().set ? known(q) : nullptr;
    bool fits = e && !e->in_flight.load(std::memory_order_acquire);
    if (fits)
      fits = group ? e->group_size == requests.size() && e->key.place == chosen_.size() &&
                         (chosen_.empty() || e->signature.group == chosen_.front()->signature.group)
                   : e->group_size == 0;
    if (!fits) {
      for (NameEntry* c : chosen_) c->in_flight.store(false, std::memory_order_relaxed);
      last_ = before;
      return false;
    }
    e->in_flight.store(true, std::memory_order_relaxed);
    chosen_.push_back(e);
  }
  return true;
}

/// The entry of a request that has an id and asks for the same as before; it is last_ then.
NameEntry* ProcessSet::known(const hvd_request& q) {
  const bool follows = last_ && last_->after && last_->after_epoch == erased_;
  NameEntry* e = follows ? last_->after : nullptr;
  if (!e || !e->key.same(q) || std::strcmp(e->name.c_str(), q.name) != 0) {
    if (!q.name || q.struct_size != sizeof q) return nullptr;
    const auto found = names_.find(std::string_view(q.name));
    if (found == names_.end()) return nullptr;
    e = found->second.get();
    if (!e->key.same(q)) return nullptr;
    if (last_) {
      last_->after = e;
      last_->after_epoch = erased_;
    }
  }
  return e->id == no_slot ? nullptr : (last_ = e);
}

void ProcessSet::count(std::size_t operations) {
  submitted_.store(submitted_.load(std::memory_order_relaxed) + operations, std::memory_order_relaxed);
  shared_.outstanding.fetch_add(static_cast<int>(operations), std::memory_order_seq_cst);
}

/// By its bit, which flip() sets.
void ProcessSet::announce(NameEntry& e, Operation& op) {
  op.by_bit = true;
  op.parity = e.round ^= 1;
  if (e.slot == no_slot)
    tell_place(e, op);
  else if (e.fills)
    std::memcpy(slots_.at(node_.me, e.slot, op.parity), op.in, e.bytes);
  pending_[e.id] = &op;
  flips_[e.id / 64] |= 1ull << (e.id % 64);
  words_ = std::max(words_, e.id / 64 + 1);
}

/// Sets the bits of flips_.  True when that makes some complete: all local ranks have set them.
bool ProcessSet::flip() {
  bool last = false;
  for (std::uint32_t w = 0; w < words_; ++w) {
    if (!flips_[w]) continue;
    const std::uint64_t mine = node_.word(node_.me, w).fetch_xor(flips_[w], std::memory_order_seq_cst) ^ flips_[w];
    std::uint64_t complete = flips_[w];  // complete: their bits are equal
    for (int r = 0; r < node_.ranks && complete; ++r)
      if (r != node_.me) complete &= ~(node_.word(r, w).load(std::memory_order_seq_cst) ^ mine);
    flips_[w] = 0;
    last |= complete != 0;
  }
  words_ = 0;
  return last;
}

/// Where a larger tensor lies, for the other ranks of the node; before its ready bit.
void ProcessSet::tell_place(const NameEntry& e, const Operation& op) {
  if (e.signature.operation() != Kind::allreduce || e.signature.device >= 0) return;
  const memory::Arena& arena = memory::Arena::process();
  const auto in = arena.offset(op.in, e.bytes), out = arena.offset(op.out, e.bytes);
  memory::TensorAddress& place = node_.tensor_address(node_.me, e.id, op.parity);
  auto tell = [](std::atomic<std::uint64_t>& word, std::uint64_t value) {  // others read the line: no needless store
    if (word.load(std::memory_order_relaxed) != value) word.store(value, std::memory_order_release);
  };
  tell(place.in, in && out ? *in + 1 : 0);
  tell(place.out, in && out ? *out + 1 : 0);
}

void ProcessSet::send_record(NameEntry& e) {
  negotiate::append_record(outbox_, e.submitted_at, e.signature, e.name);
  flush_records();
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

/// Under mutex_.
bool ProcessSet::flush_records() {
  const std::size_t n = memory::post_records(node_, outbox_);
  outbox_.erase(0, n);
  outbox_waits_.store(!outbox_.empty(), std::memory_order_release);
  return n > 0;
}

std::string ProcessSet::names_under_way() {
  std::lock_guard lock(mutex_);
  std::string text;
  int count = 0;
  for (const auto& [name, e] : names_) {
    if (!e->in_flight.load()) continue;
    if (++count > 5) continue;
    text += (text.empty() ? "" : ", ") + name;
  }
  if (count > 5) text += ", and " + std::to_string(count - 5) + " more";
  return text;
}

std::string ProcessSet::first_name_under_way() {
  std::lock_guard lock(mutex_);
  const std::string* first = nullptr;
  for (const auto& [name, e] : names_)
    if (e->in_flight.load() && e->operation != join_op_ && (!first || name < *first)) first = &name;
  return first ? *first : join_op_ ? negotiate::join_text : "";
}

std::string ProcessSet::broken() {
  std::lock_guard lock(mutex_);
  return broken_text_;
}

}  // namespace hvd::core
