#include "launcher/control/session.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "wire/messages/payload_ready.h"

namespace hvd::launcher {

namespace {

using wire::Type;

// Of clocks that drift by up to 50 µs a second: between two pings which rank failed first stays known to half a
// millisecond.  A timeline shows microseconds.
constexpr std::int64_t ping_interval_ns = 10'000'000'000, ping_interval_of_timeline_ns = 1'000'000'000;
constexpr int first_pings = 4;
constexpr std::size_t most_deliveries =
    8;  // payloads on their way at once: what the channel's queues hold of them is memory

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <class T>
T value_at(std::string_view body, std::size_t at) {
  T value{};
  std::memcpy(&value, body.data() + at, sizeof value);
  return value;
}

/// Of a manifest that no message holds: what is in it is the user's.
Error too_long(const wire::RankManifest& m, std::size_t bytes) {
  std::size_t arguments = 0, variables = 0, longest_bytes = 0;
  std::string longest;
  for (const std::string& a : m.payload.args) arguments += a.size();
  for (const auto& [name, value] : m.env) {
    variables += name.size() + value.size();
    if (value.size() > longest_bytes) longest = name, longest_bytes = value.size();
  }
  return {Code::usage, "the ranks' environment and arguments",
          formatted("are {} KiB as they are sent, of 4 MiB that they may be", bytes >> 10),
          arguments > variables
              ? formatted("give the ranks a file instead of {} KiB of arguments", arguments >> 10)
              : formatted("unset what the ranks do not need; the longest is {}, {} KiB", longest, longest_bytes >> 10)};
}

const char* lost_text(const RankState& state) {
  return state.local ? "its guard ended without a word"
                     : "no word comes from its host any more: the network or the host is down, or its guard was killed";
}

}  // namespace

std::int64_t monotonic_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

Session::Session(std::unique_ptr<wire::Listener> listener, std::vector<wire::RankManifest> manifests,
                 std::string payload, std::string local_payload_path, SessionEvents events)
    : listener_(std::move(listener)),
      manifests_(std::move(manifests)),
      payload_(std::move(payload)),
      local_payload_path_(std::move(local_payload_path)),
      events_(std::move(events)),
      ranks_(manifests_.size()) {
  num_in_stage_[static_cast<std::size_t>(RankStage::absent)] = ranks_.size();
  records_timeline_ = !manifests_.empty() && manifests_[0].timeline;
}

void Session::enter(RankState& state, RankStage stage) {
  --num_in_stage_[static_cast<std::size_t>(state.stage)];
  ++num_in_stage_[static_cast<std::size_t>(stage)];
  state.stage = stage;
}

void Session::pump(const std::function<bool()>& keep_receiving) {
  const std::vector<int> behind(behind_.begin(), behind_.end());
  for (const int rank : behind) flush(rank);
  if (daemons_) daemons_->flush(*listener_);
  left_unread_ = false;
  while (!keep_receiving || keep_receiving()) {
    const auto received = listener_->receive();
    if (!received) return;
    receive(received->from, received->frame);
  }
  left_unread_ = true;
}

bool Session::is_quiet() const { return !left_unread_ && (!daemons_ || daemons_->is_quiet()) && behind_.empty(); }

void Session::tick() {
  std::vector<wire::PeerId> gone;
  std::set<int> cut_off;  // hosts
  while (auto peer = listener_->gone()) {
    if (daemons_) cut_off.insert(daemons_->host_of(*peer));
    gone.push_back(std::move(*peer));
  }
  for (const wire::PeerId& peer : gone) {
    if (daemons_) daemons_->lose(*listener_, peer);
    const auto it = rank_of_.find(peer);
    if (it == rank_of_.end() || at(it->second).peer != peer) continue;
    lose_guard(it->second, daemons_ && cut_off.contains(daemons_->host_of(it->second)));
  }
  const std::int64_t now = monotonic_ns();
  if (now >= next_ping_ns_) ping_hosts(now);
}

/// @param with_host  the connection to its host has ended
void Session::lose_guard(int rank, bool with_host) {
  RankState& state = at(rank);
  if (with_host && !state.local) state.cut_ns = last_word_of_host(rank);
  vanish(rank, lost_text(state));
}

std::int64_t Session::last_word_of_host(int rank) const {
  std::int64_t last = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (manifests_[r].host == manifest(rank).host) last = std::max(last, ranks_[r].heard_ns);
  return last;
}

/// One rank of each other host is woken; of a timeline all.
void Session::ping_hosts(std::int64_t now) {
  next_ping_ns_ = now + (records_timeline_ ? ping_interval_of_timeline_ns : ping_interval_ns);
  std::set<std::string> asked;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].stage == RankStage::running && !ranks_[r].local &&
        (records_timeline_ || asked.insert(manifests_[r].host).second))
      ping(static_cast<int>(r));
}

void Session::receive(const wire::PeerId& from, const wire::Frame& frame) {
  const auto type = static_cast<Type>(frame.type);
  if (type == Type::hello) return greet(from, frame);
  if (daemons_ && daemons_->receive(*listener_, from, frame)) return;
  const auto it = rank_of_.find(from);
  if (it == rank_of_.end()) return;  // was refused
  const int rank = it->second;
  RankState& state = at(rank);
  state.heard_ns = monotonic_ns();
  const std::string_view body = frame.body;
  switch (type) {
    case Type::output:
      if (events_.output && body.size() > 1) events_.output(rank, body[0] == 2 ? 2 : 1, body.substr(1));
      break;
    case Type::started: {
      const wire::StartReport started = wire::start_report_from_json(frame.body);
      state.rank_pid = started.pid;
      if (events_.started) events_.started(rank, started);
      break;
    }
    case Type::death:
      died(rank, wire::death_from_json(frame.body));
      break;
    case Type::clean:
      if (!state.death) vanish(rank, "its guard gave no cause");
      enter(state, RankStage::clean);
      if (released_) release(rank);
      if (elastic_ && !released_) send(rank, Type::release, "");
      break;
    case Type::payload_ready:
      payload_is_ready(rank, wire::payload_ready_from_json(frame.body).path);
      break;
    case Type::trace:
      if (events_.trace) events_.trace(rank, body);
      break;
    case Type::result:
      if (events_.result && !body.empty()) events_.result(rank, body);
      break;
    case Type::phase:
      state.phase = frame.body;
      break;
    case Type::pong:
      if (body.size() >= 16) {
        const auto sent = value_at<std::int64_t>(body, 0), theirs = value_at<std::int64_t>(body, 8),
                   now = monotonic_ns();
        if (!state.local) clock_of(rank).add(sent, now, theirs);
        if (!state.local && events_.clock) events_.clock(rank, sent, now, theirs);
      }
      break;
    case Type::stack:
      if (events_.stack) events_.stack(rank, wire::stack_picture_from_json(frame.body));
      break;
    case Type::swept:
      --sweeps_open_;
      if (events_.swept) events_.swept(manifest(rank).host, wire::cleanup_result_from_json(frame.body));
      break;
    case Type::taken:
      if (events_.taken && body.size() == sizeof(std::uint64_t)) events_.taken(rank, value_at<std::uint64_t>(body, 0));
      break;
    case Type::paused:
      if (events_.paused && body.size() == 1) events_.paused(rank, body[0] == 1);
      break;
    case Type::console:
      if (events_.console) events_.console(rank, body);
      break;
    case Type::standing:
      if (events_.standing) events_.standing(rank, wire::status_report_from_json(frame.body));
      break;
    case Type::steps:
      if (events_.steps) events_.steps(rank, wire::decode_step_records(frame.body));
      break;
    case Type::want_report:
      if (events_.want_report) events_.want_report(rank);
      break;
    case Type::operations:
      if (events_.operations) try {
          events_.operations(rank, wire::rank_operations_from_json(frame.body));
        } catch (const Error&) {}
      break;
    case Type::stall:
      if (events_.stall) try {
          events_.stall(rank, wire::stalls_from_json(frame.body, static_cast<int>(ranks_.size())));
        } catch (const Error&) {}  // from the rank itself, which may send anything
      break;
    case Type::collective_wait:
      if (events_.collective_wait) try {
          events_.collective_wait(rank, wire::collective_wait_from_json(frame.body));
        } catch (const Error&) {}
      break;
    default:
      break;  // a newer guard's message that we need not know
  }
}

void Session::greet(const wire::PeerId& from, const wire::Frame& frame) {
  const wire::Hello hello = wire::hello_from_json(frame.body);
  if (hello.daemon) {
    const bool known = daemons_ && daemons_->greet(*listener_, from, hello);
    if (!known && events_.note) events_.note("refused a host daemon for rank " + std::to_string(hello.rank));
    return;
  }
  if (hello.rank < 0 || hello.rank >= static_cast<int>(ranks_.size()) || at(hello.rank).stage != RankStage::absent) {
    if (events_.note) events_.note(formatted("refused a guard that calls itself rank {}", hello.rank));
    return;
  }
  RankState& state = at(hello.rank);
  enter(state, RankStage::greeted);
  state.peer = from;
  state.local = hello.local;
  state.heard_ns = monotonic_ns();
  rank_of_[from] = hello.rank;
  if (events_.hello) events_.hello(hello);
  if (stopping_) return send(hello.rank, Type::stop, to_json(*stopping_));
  const bool is_first = !hello.local && clocks_.try_emplace(manifest(hello.rank).host).second;
  if (is_first || (records_timeline_ && !hello.local))
    for (int i = 0; i < first_pings; ++i) ping(hello.rank);
  give_manifest(hello.rank);
}

void Session::give_manifest(int rank) {
  wire::RankManifest m = manifest(rank);
  RankState& state = at(rank);
  if (m.payload.kind == wire::PayloadKind::pickle) {
    const auto shared = host_payload_.find(m.host);
    if (state.local)
      m.payload.path = local_payload_path_;
    else if (rank >= first_late_)
      m.payload.deliver = true;  // the guard that has its host's copy may have gone
    else if (shared != host_payload_.end())
      m.payload.path = shared->second;
    else if (m.local_rank == 0)
      m.payload.deliver = true;
    else
      return;  // when its host's leader has the payload
  }
  enter(state, RankStage::running);
  std::string body = to_json(m);
  if (body.size() > wire::max_frame_bytes) throw too_long(m, body.size());
  send(rank, Type::manifest, std::move(body));
  if (m.payload.deliver) {
    state.payload_sent_bytes = 0;
    flush(rank);
  }
}

void Session::payload_is_ready(int leader, const std::string& path) {
  const std::string& host = manifest(leader).host;
  host_payload_[host] = path;
  std::erase(deliveries_, leader);
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].stage == RankStage::greeted && manifests_[r].host == host && !stopping_)
      give_manifest(static_cast<int>(r));
    else if (ranks_[r].payload_sent_bytes == 0)
      flush(static_cast<int>(r));  // its turn has come, perhaps
}

void Session::died(int rank, wire::DeathRecord record) {
  std::erase(deliveries_, rank);
  RankState& state = at(rank);
  if (state.death) return;
  record.rank = rank;
  record.host = manifest(rank).host;
  const ClockEstimate clock = state.local ? ClockEstimate::same_clock() : clock_of(rank);
  record.time_ns = clock.known() && !state.gone ? record.time_ns - clock.offset_ns() : monotonic_ns();
  if (record.cause == wire::Cause::stopped && !stopping_ &&
      !state.told_to_stop) {  // not by us: somebody ended it or its mpirun
    record.cause = wire::Cause::vanished;
    if (record.text.empty())
      record.text = record.code != 128 + SIGKILL
                        ? "it was ended from outside"
                        : formatted("it was told to end from outside, and had not after {:g} s (--grace)",
                                    manifest(rank).grace_seconds);
    if (record.code > 128) record.code -= 128;
  }
  if (record.phase.empty()) record.phase = state.phase;
  if (state.aborted && record.cause != wire::Cause::finished) {  // however it was ended for that
    record.cause = wire::Cause::exited;
    record.code = state.aborted->status;
    record.text = state.aborted->text;
    record.time_ns = std::min(record.time_ns, state.aborted->time_ns);
  }
  enter(state, std::max(state.stage, RankStage::ended));
  state.death = std::move(record);
  if (events_.death) events_.death(*state.death);
  // Where the job ends for it, the others need no reason of their own.
  if (!daemons_ || stopping_) return;
  const bool died = state.death->cause != wire::Cause::finished && !state.told_to_stop;
  daemons_->end_rank(*listener_, rank, formatted("rank {} has {}", rank, died ? "died" : "ended"), died && elastic_);
}

void Session::vanish(int rank, const std::string& text, int code) {
  RankState& state = at(rank);
  state.gone = true;
  state.queue.clear();
  behind_.erase(rank);
  if (!state.death) {
    wire::DeathRecord record;
    record.pid = state.rank_pid;
    record.cause = wire::Cause::vanished;
    record.code = code;
    record.text = text;
    died(rank, std::move(record));
  }
  enter(state, RankStage::clean);
}

void Session::send(int rank, Type type, std::string body) {
  at(rank).queue.push_back({static_cast<std::uint16_t>(type), std::move(body)});
  flush(rank);
}

void Session::flush(int rank) {
  RankState& state = at(rank);
  if (state.stage == RankStage::absent || state.gone) return;
  try {
    if (send_what_waits(rank))
      behind_.erase(rank);
    else
      behind_.insert(rank);
  } catch (const Error& e) {
    if (e.code != Code::peer_lost) throw;
    vanish(rank, lost_text(state));
  }
}

bool Session::send_what_waits(int rank) {
  RankState& state = at(rank);
  for (; !state.queue.empty(); state.queue.pop_front())
    if (!listener_->send(state.peer, state.queue.front())) return false;
  while (state.payload_sent_bytes) {
    if (!may_deliver(rank)) return false;
    const std::size_t size = std::min(payload_.size() - *state.payload_sent_bytes, wire::max_frame_bytes);
    const wire::Frame piece{static_cast<std::uint16_t>(Type::payload),
                            payload_.substr(*state.payload_sent_bytes, size)};
    if (!listener_->send(state.peer, piece)) return false;
    *state.payload_sent_bytes += size;
    if (size == 0) state.payload_sent_bytes.reset();  // the empty piece was the end
  }
  return true;
}

bool Session::may_deliver(int rank) {
  if (std::find(deliveries_.begin(), deliveries_.end(), rank) != deliveries_.end()) return true;
  if (deliveries_.size() >= most_deliveries) return false;
  deliveries_.push_back(rank);
  return true;
}

void Session::ping(int rank) { send(rank, Type::ping, bytes_of(monotonic_ns())); }

void Session::stop_all(const std::string& reason, double grace_seconds, int signal) {
  stopping_ = wire::StopRequest{reason, grace_seconds, signal};
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].stage == RankStage::greeted || ranks_[r].stage == RankStage::running)
      send(static_cast<int>(r), Type::stop, to_json(*stopping_));
}

void Session::abort(int rank, int status, const std::string& text) {
  constexpr double grace_seconds = 0.3;  // 4.1's process waits to be killed, 5.0's is about to exit
  RankState& state = at(rank);
  if (state.aborted || state.death || stopping_) return;
  state.aborted = RankState::AbortCall{status, text, monotonic_ns()};
  send(rank, Type::stop, to_json(wire::StopRequest{text, grace_seconds, SIGTERM}));
}

void Session::become_elastic() {
  elastic_ = true;
  first_late_ = static_cast<int>(ranks_.size());
  daemons_->hold_strangers();
}

void Session::start_rank(wire::RankManifest manifest, int host, bool begins_with_daemon) {
  manifests_.push_back(std::move(manifest));
  ranks_.emplace_back();
  ++num_in_stage_[static_cast<std::size_t>(RankStage::absent)];
  daemons_->start_rank(*listener_, host, begins_with_daemon);
}

void Session::stop_rank(int rank, const std::string& reason, double grace_seconds) {
  RankState& state = at(rank);
  if (state.stage != RankStage::greeted && state.stage != RankStage::running) return;
  state.told_to_stop = true;
  send(rank, Type::stop, to_json(wire::StopRequest{reason, grace_seconds, SIGTERM}));
}

void Session::signal_all(int number) {
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].stage == RankStage::running) send(static_cast<int>(r), Type::signal, bytes_of(std::int32_t{number}));
}

void Session::tell_complete() {
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (!ranks_[r].local && manifests_[r].local_rank == 0) send(static_cast<int>(r), Type::complete, {});
}

bool Session::has_guard(int rank) const {
  const RankState& state = ranks_[static_cast<std::size_t>(rank)];
  return !state.gone && state.stage != RankStage::absent && state.stage != RankStage::clean;
}

bool Session::ask_stack(int rank, bool native) {
  if (!has_guard(rank)) return false;
  send(rank, Type::stacks, native ? "native" : "");
  return true;
}

bool Session::send_to_console(int rank, std::string body) {
  if (!has_guard(rank)) return false;
  send(rank, Type::console_input, std::move(body));
  return true;
}

bool Session::ask_operations(int rank, std::uint32_t most) {
  if (!has_guard(rank)) return false;
  send(rank, Type::ask_operations, bytes_of(most));
  return true;
}

void Session::send_report(int rank, const std::string& json) {
  if (has_guard(rank)) send(rank, Type::live_report, json);
}

void Session::record_timeline(int rank, bool on) {
  records_timeline_ = on;
  if (on) next_ping_ns_ = 0;
  if (!has_guard(rank)) return;
  for (int i = 0; on && !at(rank).local && i < first_pings; ++i) ping(rank);
  send(rank, Type::timeline, std::string(1, on ? '\1' : '\0'));
}

void Session::release_all() {
  released_ = true;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].stage == RankStage::clean && !ranks_[r].gone) release(static_cast<int>(r));
  if (elastic_) daemons_->release(*listener_);
}

void Session::release(int rank) {
  const bool sweep = !at(rank).local && swept_.insert(manifest(rank).host).second;
  if (sweep) ++sweeps_open_;
  send(rank, Type::release, sweep ? "sweep" : "");
}

std::vector<int> Session::in_stage(RankStage stage) const {
  std::vector<int> found;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].stage == stage) found.push_back(static_cast<int>(r));
  return found;
}

}  // namespace hvd::launcher
