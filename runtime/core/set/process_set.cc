#include "core/set/process_set.h"

#include "common/log.h"
#include "common/read_ahead.h"
#include "memory/doorbell.h"
#include "memory/futex.h"
#include "negotiate/idset.h"

namespace hvd::core {

using negotiate::ByteReader;
using negotiate::Command;
using negotiate::no_slot;

namespace {

constexpr int most_told = 1000;  ///< differences that hvdrun gets
/// After this time without a difference, the next difference is reported at once.
constexpr std::int64_t agrees_again_ns = 1'000'000'000;

}  // namespace

ProcessSet::ProcessSet(World world, const Config& config, std::shared_ptr<transport::Transport> transport,
                       memory::Node node, EngineContext& shared)
    : world_(std::move(world)),
      transport_(std::move(transport)),
      node_(std::move(node)),
      shared_(shared),
      operations_(shared.operations),
      tracer_(shared.tracer),
      ids_(node_.geometry.words * 64),
      announcer_(node_, world_.nodes.size() == 1 || !world_.leader()),
      commands_(node_),
      agreement_(ResultAgreement::make(world_, config, node_)),
      batch_(world_, config, node_, *transport_, tracer_, shared.traced, shared.gpus, shared.gpu_busy, shared.wake,
             [this](std::span<Operation* const> ops, std::span<const Backend* const> backends) {
               if (agreement_) look_at_results(ops, backends);
               end(ops, HVD_OK, {});
             }) {
  ops::FiniteCheck* const check = agreement_ ? &agreement_->finite_check() : nullptr;
  batch_.set_special(shared.special);
  batch_.look_with(check);
  if (agreement_) batch_.hash_with(&agreement_->turns());
  node_.presence(node_.me).reach.store(node_.reaches_all(), std::memory_order_release);
  if (world_.leader())
    leader_ = std::make_unique<Leader>(
        world_, config, *transport_, node_, shared_.status, pending_,
        OwnGpu{[this] { return batch_.device_busy(); }, [this] { return operations_.has_notified(); }}, check);
}

bool ProcessSet::step(StepLimit limit) {
  const bool any = advance(limit);
  moves_ += any;
  return any;
}

bool ProcessSet::stuck() {
  const bool moved = moves_ != std::exchange(moves_seen_, moves_);
  return !moved && (outstanding() > 0 || on_device());
}

bool ProcessSet::advance(StepLimit limit) {
  const int most_doorbells = limit == StepLimit::brief ? 1 : node_.ranks;
  bool any = false;
  if (announcer_.waits()) {
    std::lock_guard lock(mutex_);
    any |= announcer_.flush();
    if (any) node_.doorbell(0).ring();
  }
  if (leader_) any |= leader_->step();
  bool more = true;
  while (more) {
    if (batch_.running()) {
      if (limit == StepLimit::brief) break;
      if (leader_) leader_->ring_doorbells(most_doorbells);  // the batch needs the other ranks
      const bool moved = batch_.step();
      batch_moves_ += moved;
      any |= moved;
      if (batch_.running()) return any;
      moves(false, shared_.recorder.now());
      if (id_ == 0) shared_.status.recorder().device_waited(batch_.take_device_waited());
      executed();
    }
    const std::uint32_t type = commands_.read(command_);
    any |= type != 0;
    more = type != 0 && carry_out(type);
  }
  if (leader_) leader_->ring_doorbells(most_doorbells);
  return any;
}

/// Carries out one command.  False: a batch has begun and is not over.
bool ProcessSet::carry_out(std::uint32_t type) {
  ByteReader r(command_);
  switch (static_cast<Command>(type)) {
    case Command::batch:
      start_batch(r);
      break;
    case Command::assign:
      assign(r);
      break;
    case Command::evict:
      evict(r);
      break;
    case Command::fail:
      fail(r);
      break;
    case Command::joining:
      joining();
      break;
    case Command::stand_in:
      stand_in(r);
      break;
    case Command::joined:
      joined(r);
      break;
    case Command::fail_group:
      fail_group(r);
      break;
    case Command::outdate:
      outdate(r);
      break;
    case Command::gone:
      gone(r);
      break;
    case Command::tune:
      tune(r);
      break;
  }
  if (batch_.running()) return false;
  if (moving_) moves(false, shared_.recorder.now());
  executed();
  return true;
}

/// Tells the recorder when data begins to move, and when it stops.  Data moves while a batch of this set runs.
void ProcessSet::moves(bool now, std::int64_t ns) {
  if (std::exchange(moving_, now) != now) shared_.status.recorder().moves(now, ns);
}

void ProcessSet::executed() { node_.board(node_.me).executed.store(++executed_, std::memory_order_seq_cst); }

void ProcessSet::start_batch(ByteReader& r) {
  const auto flags = r.get<std::uint32_t>();
  const auto count = r.get<std::uint32_t>();
  thread_local std::vector<Operation*> ops;
  ops.clear();
  negotiate::get_ids(r, static_cast<std::uint32_t>(pending_.size()), [this](std::uint32_t id) {
    if (Operation* op = std::exchange(pending_[id], nullptr)) ops.push_back(op);  // nullptr only after fail_all()
    rounds_.take(id);
  });
  const int fresh = rounds_.end();
  if (fresh) shared_.status.steps(fresh, steps_ += fresh);
  tracer_.cycle();
  if (agreement_) compare_results();
  if (ops.size() != count) return;
  const std::int64_t now = shared_.recorder.now();
  if (tuning_) measure(ops, fresh);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    fetch_later(ops, i, 1);
    shared_.recorder.began(ops[i]->recorded, now);
  }
  moves(true, now);
  batch_.begin(ops, flags & negotiate::batch_eager);
}

void ProcessSet::look_at_results(std::span<Operation* const> ops, std::span<const Backend* const> backends) {
  agreement_->note(ops, backends, batch_.shared_results(), steps_);
  const std::optional<ops::NotFinite> found = agreement_->finite_check().take();
  if (!found) return;
  const std::string text = agreement_->describe(*found, steps_);
  const bool first = agreement_->first_not_finite(memory::now_ns(), agrees_again_ns);
  if (shared_.not_finite.put(text) || !first) return;  // the taker reports it, or handles the overflow
  log_warning("agreement: " + text);
  std::vector<int> ranks;
  for (const int r : found->ranks) ranks.push_back(world_.world_rank(r));
  if (ranks.empty() && found->perhaps >= 0) ranks.push_back(world_.world_rank(found->perhaps));
  tell({wire::AgreementFindingKind::not_finite, found->name, steps_, std::move(ranks), text});
}

/// Tells hvdrun.  Without hvdrun, writes a row of the timeline with one short event.
void ProcessSet::tell(wire::AgreementFinding found) {
  found.time_ns = memory::now_ns();
  if (shared_.found && shared_.found(found)) return;
  const std::string text = "agreement: " + found.text;
  trace::Track track;
  tracer_.submitted(track, {text, trace::TraceOp::barrier, 0, {}, world_.world_rank(0)});
  tracer_.failed(track);
}

void ProcessSet::compare_results() {
  if (!agreement_) return;
  agreement_->take_arrived();
  if (!leader_) return;
  for (;;) {
    std::optional<Disagreement> d = agreement_->compare(batch_.shared_results());
    if (!d && leader_->tree()) d = agreement_->compare_nodes(*leader_->tree());
    if (!d) return;
    if (told_++ < most_told) tell({wire::AgreementFindingKind::result_differs, d->tensor, d->step, d->ranks, d->text});
    const std::int64_t now = memory::now_ns();
    if (now - disagreed_ns_ > agrees_again_ns) disagreements_ = 0;
    disagreed_ns_ = now;
    if (ResultAgreement::worth_telling(++disagreements_))
      log_warning(
          "agreement: " + d->text +
          (disagreements_ > 1 ? "; " + std::to_string(disagreements_) + " results in a row have differed" : ""));
    if (agreement_->stops() && disagreements_ == 1)
      leader_->gone(d->rank, HVD_DIVERGED | (d->outvoted ? 0 : negotiate::no_culprit), d->text);
  }
}

void ProcessSet::gone(ByteReader& r) {
  const auto code_and_flag = r.get<std::uint32_t>();
  const int code = static_cast<int>(code_and_flag & ~negotiate::no_culprit);
  const auto rank = static_cast<int>(r.index(world_.world_ranks.size()));
  const std::string text(r.rest());
  const std::string names = names_under_way();
  if (code == HVD_PEER_LOST) shared_.departed.store(true);  // before the callers see the error
  fail_all(code, text);
  if (code == HVD_PEER_LOST) shared_.gone(world_.world_rank(rank), text, names);
  if (code == HVD_DIVERGED)
    shared_.diverged(code_and_flag & negotiate::no_culprit ? -1 : world_.world_rank(rank), text);
}

void ProcessSet::begin_tuning(const Config& config) {
  if (!leader_ || !leader_->coordinates()) return;
  tuning_ = Tuning::make(world_, config, node_.geometry.chunk_bytes);
  if (tuning_ && tuning_->settings() != settings_of(config)) leader_->tune(tuning_->settings());
}

void ProcessSet::plan_for(std::int64_t round_trip_ns, const Config& config) {
  if (!leader_ || !leader_->coordinates() || tuning_ || std::exchange(planned_, true)) return;
  if (const auto settings = settings_for(config, round_trip_ns)) leader_->tune(*settings);
}

/// On the coordinator's rank, when a batch begins.
void ProcessSet::measure(std::span<Operation* const> ops, int rounds) {
  std::int64_t bytes = 0;
  for (const Operation* op : ops) bytes += static_cast<std::int64_t>(op->entry->bytes);
  if (tuning_->batch(bytes, rounds, rounds > 0 ? memory::now_ns() : 0)) leader_->tune(tuning_->settings());
}

void ProcessSet::tune(ByteReader& r) {
  batch_.tune(negotiate::get_settings(r));
  if (tuning_) tuning_->in_use();
}

void ProcessSet::assign(ByteReader& r) {
  std::lock_guard lock(mutex_);
  const auto id = r.index(ids_);
  const auto slot = r.get<std::uint32_t>();
  if (id >= pending_.size()) pending_.resize(id + 1);
  pending_[id] = names_.assign(id, slot, r.rest()).operation;
}

void ProcessSet::evict(ByteReader& r) {
  std::lock_guard lock(mutex_);
  const auto id = r.index(pending_.size());
  NameEntry* e = names_.release_id(id);
  if (!stand_ins_.empty()) drop_stand_in(id);
  if (!e) return;
  const bool current = e->id == id;  // if not, this rank has already sent a record for the name
  if (current) e->id = no_slot;
  if (!e->in_flight.load(std::memory_order_acquire)) {
    names_.forget(*e);
    return;
  }
  if (!current || pending_[id] == nullptr) return;
  // This rank has submitted the operation, but other ranks have not.  The rank takes its bit back and sends a record.
  announcer_.take_back(id);
  pending_[id] = nullptr;
  e->operation->by_bit = false;
  announcer_.record(e->submitted_at, e->signature, e->name);
  node_.doorbell(0).ring();
}

void ProcessSet::fail(ByteReader& r) {
  std::lock_guard lock(mutex_);
  const int code = static_cast<int>(r.get<std::uint32_t>());
  r.get<std::uint32_t>();
  NameEntry* const e = names_.find(r.text());
  const std::uint64_t command = executed_ + 1;
  if (!e || !e->in_flight.load() || !e->operation || e->operation->by_bit)
    return group_failures_.operation_failed(0, command);
  tracer_.failed(e->track);
  group_failures_.operation_failed(OperationTable::handle(*e->operation), command);
  // The command counts as executed before a caller wakes.  Requests that the caller then submits are younger.
  node_.board(node_.me).executed.store(command, std::memory_order_seq_cst);
  end(*e->operation, code, std::string(r.rest()));
  names_.forget_unknown(*e);
}

void ProcessSet::fail_group(ByteReader& r) {
  std::lock_guard lock(mutex_);
  const int code = static_cast<int>(r.get<std::uint32_t>());
  const auto group = r.get<std::uint64_t>();
  const std::string text(r.rest());
  // The command counts as executed before a caller wakes.  If the caller submits the group again at once, its requests
  // are then younger than the failed group.
  node_.board(node_.me).executed.store(executed_ + 1, std::memory_order_seq_cst);
  std::vector<NameEntry*> members;
  names_.in_flight([&](NameEntry& e) {
    if (e.signature.in_group(group)) members.push_back(&e);
  });
  for (NameEntry* e : members) {
    tracer_.failed(e->track);
    end(*e->operation, code, text);
    names_.forget_unknown(*e);
  }
  if (members.empty()) group_failures_.group_failed(group, text);
}

void ProcessSet::outdate(ByteReader& r) {
  std::lock_guard lock(mutex_);
  const int code = static_cast<int>(r.get<std::uint32_t>());
  const auto command = r.get<std::uint64_t>();
  const auto group = r.get<std::uint64_t>();
  const auto size = r.get<std::uint32_t>();
  std::vector<NameEntry*> ended;
  for (auto count = r.get<std::uint32_t>(); count > 0; --count) {
    const std::string_view name = r.text();
    group_failures_.outdate(name, command, group);
    NameEntry* e = names_.find(name);
    if (e && e->in_flight.load() && e->operation && !e->operation->by_bit && e->submitted_at < command &&
        !e->signature.in_group(group))
      ended.push_back(e);
  }
  for (NameEntry* e : ended) {
    tracer_.failed(e->track);
    const std::string here = e->group_size ? "in a group of " + std::to_string(e->group_size) : "in no group";
    end(*e->operation, code,
        std::string(name_of(e->signature.operation())) + " '" + e->name + "': " + here + " on rank " +
            std::to_string(world_.world_rank(world_.rank)) + ", but in a group of " + std::to_string(size) +
            " on others, which failed: " + std::string(r.rest()));
    names_.forget_unknown(*e);
  }
}

void ProcessSet::end(std::span<Operation* const> ops, int status, const std::string& error) {
  const std::int64_t now = shared_.recorder.now();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (i + read_ahead / 2 < ops.size()) fetch(ops[i + read_ahead / 2]->entry, 1);
    fetch_later(ops, i, 1);
    Operation* const op = ops[i];
    shared_.recorder.ended(std::exchange(op->recorded, 0), status, now);
    op->status = status;
    if (status != HVD_OK) [[unlikely]] {
      op->error = error;
      op->more = true;
    }
    NameEntry& e = *std::exchange(op->entry, nullptr);  // the next command may forget the name
    e.operation = nullptr;
    e.in_flight.store(false, std::memory_order_release);
  }
  ended_.store(ended_.load(std::memory_order_relaxed) + ops.size(), std::memory_order_relaxed);
  shared_.outstanding.fetch_sub(static_cast<int>(ops.size()), std::memory_order_seq_cst);
  operations_.end(ops);
}

void ProcessSet::fail_all(int code, const std::string& text) {
  std::lock_guard lock(mutex_);
  if (!broken_code_) {
    broken_code_ = code;
    broken_text_ = text;
  }
  if (batch_.running() && world_.nodes.size() > 1 && !transport_->gives_memory_back()) node_.keep();
  batch_.drop();
  moves(false, shared_.recorder.now());
  batch_.fail_device(code, text);
  names_.in_flight([this](NameEntry& e) {
    tracer_.failed(e.track);
    end(*e.operation, broken_code_, broken_text_);
  });
  for (Operation*& op : pending_) op = nullptr;
  for (auto& [id, s] : stand_ins_) {
    if (s->entry.operation) end(*s->entry.operation, broken_code_, broken_text_);
    (void)s.release();  // never freed: a message may still arrive in the stand-in's memory
  }
  stand_ins_.clear();
  join_op_ = nullptr;
}

void ProcessSet::close(const std::string& why) {
  fail_all(HVD_USAGE, why);
  leader_.reset();
}

bool ProcessSet::busy() const {
  return (batch_.running() && !batch_.will_be_woken()) || commands_.waiting() || announcer_.waits() ||
         (leader_ && leader_->busy());
}

bool ProcessSet::can_end_without(std::uint64_t commands) const {
  return commands > executed_ && (batch_.running() || commands_.waiting());
}

std::string ProcessSet::broken() {
  std::lock_guard lock(mutex_);
  return broken_text_;
}

}  // namespace hvd::core
