#include "launcher/control/session.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/network/interface_address.h"
#include "base/text.h"
#include "wire/messages/payload_ready.h"

namespace hvd::launcher {

namespace {

using wire::Type;

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

/// Thrown when a manifest is larger than a message.  Manifests hold the user's environment and arguments.
Error too_long(const wire::RankManifest& m, std::size_t bytes) {
  std::size_t arguments = 0, variables = 0, longest_bytes = 0;
  std::string longest;
  for (const std::string& a : m.payload.args) arguments += a.size();
  for (const auto& [name, value] : m.env) {
    variables += name.size() + value.size();
    if (value.size() > longest_bytes) longest = name, longest_bytes = value.size();
  }
  return {Code::usage, "the ranks' environment and arguments",
          formatted("need {} KiB; the limit is 4096 KiB", bytes >> 10),
          arguments > variables
              ? formatted("give the ranks a file instead of {} KiB of arguments", arguments >> 10)
              : formatted("unset what the ranks do not need; the longest is {}, {} KiB", longest, longest_bytes >> 10)};
}

}  // namespace

Session::Session(std::unique_ptr<wire::Listener> listener, std::vector<wire::RankManifest> manifests,
                 PayloadDelivery payload, EventSink events)
    : listener_(std::move(listener)),
      manifests_(std::move(manifests)),
      payload_(std::move(payload)),
      events_(std::move(events)),
      ranks_(manifests_.size()),
      clocks_(!manifests_.empty() && manifests_[0].timeline) {}

void Session::serve(wire::DaemonManifest manifest) {
  daemons_ = std::make_unique<DaemonLinks>(*listener_, std::move(manifest), events_);
}

void Session::pump(const std::function<bool()>& keep_receiving) {
  const std::vector<int> behind(behind_.begin(), behind_.end());
  for (const int rank : behind) flush(rank);
  if (daemons_) daemons_->flush();
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
  while (const auto move = listener_->moved())
    if (daemons_) daemons_->take(*move);
  std::vector<wire::PeerId> gone;
  std::set<int> cut_off;  // hosts
  while (auto peer = listener_->gone()) {
    if (daemons_) cut_off.insert(daemons_->host_of(*peer));
    gone.push_back(std::move(*peer));
  }
  for (const wire::PeerId& peer : gone) {
    if (daemons_) daemons_->lose(peer);
    const int rank = ranks_.rank_of(peer);
    if (rank < 0 || ranks_[rank].peer != peer) continue;
    lose_guard(rank, daemons_ && cut_off.contains(daemons_->host_of(rank)));
  }
  if (clocks_.take_due(monotonic_ns())) ping_hosts();
}

/// @param with_host  the connection to its host has ended
void Session::lose_guard(int rank, bool with_host) {
  RankState& state = ranks_[rank];
  if (with_host && !state.local) state.cut_ns = last_word_of_host(rank);
  vanish(rank, lost_text(rank));
}

std::string Session::lost_text(int rank) const {
  if (ranks_[rank].local) return "its guard ended without a message";
  std::vector<std::string> networks;
  if (daemons_) {
    const std::vector<InterfaceAddress> own = interface_addresses();
    for (const std::string& address : listener_->lost_networks(daemons_->peer_of(daemons_->host_of(rank))))
      networks.push_back(text_with_interface(address, own));
  }
  return "its host sends no messages any more: the network or the host is down, or its guard was killed" +
         (networks.empty() ? "" : "; no answer came through " + join(networks, " or "));
}

std::int64_t Session::last_word_of_host(int rank) const {
  std::int64_t last = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (manifests_[r].host == manifest(rank).host) last = std::max(last, ranks()[r].heard_ns);
  return last;
}

void Session::ping_hosts() {
  std::set<std::string> asked;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks()[r].stage == RankStage::running && !ranks()[r].local &&
        (clocks_.asks_all() || asked.insert(manifests_[r].host).second))
      ping(static_cast<int>(r));
}

/// Messages that only report something are events; the session itself acts on the others.
void Session::receive(const wire::PeerId& from, const wire::Frame& frame) {
  const auto type = static_cast<Type>(frame.type);
  if (type == Type::hello) return greet(from, frame);
  if (daemons_ && daemons_->receive(from, frame)) return;
  const int rank = ranks_.rank_of(from);
  if (rank < 0) return;  // a guard that was refused
  ranks_[rank].heard_ns = monotonic_ns();
  switch (type) {
    case Type::death:
      return died(rank, wire::death_from_json(frame.body));
    case Type::clean:
      return clean(rank);
    case Type::payload_ready:
      return payload_is_ready(rank, wire::payload_ready_from_json(frame.body).path);
    case Type::phase:
      ranks_[rank].phase = frame.body;
      return;
    case Type::pong:
      return take_pong(rank, frame.body);
    default:
      return take_event(rank, type, frame.body);
  }
}

void Session::take_event(int rank, Type type, const std::string& body) {
  const auto event = event_of(type, rank, body, static_cast<int>(ranks_.size()));
  if (!event) return;
  if (const auto* started = std::get_if<RankStarted>(&*event)) ranks_[rank].rank_pid = started->body.pid;
  if (std::holds_alternative<HostSwept>(*event)) --sweeps_open_;
  emit(*event);
}

void Session::take_pong(int rank, std::string_view body) {
  if (body.size() < 16 || ranks_[rank].local) return;
  const auto sent = value_at<std::int64_t>(body, 0), theirs = value_at<std::int64_t>(body, 8), now = monotonic_ns();
  clocks_.add(manifest(rank).host, sent, now, theirs);
  emit(ClockSampled{rank, sent, now, theirs});
}

void Session::clean(int rank) {
  if (!ranks_[rank].death) vanish(rank, "its guard gave no cause");
  ranks_.enter(ranks_[rank], RankStage::clean);
  if (released_) release(rank);
  if (elastic_ && !released_) send(rank, Type::release, "");
}

void Session::greet(const wire::PeerId& from, const wire::Frame& frame) {
  const wire::Hello hello = wire::hello_from_json(frame.body);
  if (hello.daemon) {
    const bool known = daemons_ && daemons_->greet(from, hello);
    if (!known) emit(SessionNote{formatted("refused a host daemon for rank {}", hello.rank)});
    return;
  }
  if (hello.rank < 0 || hello.rank >= static_cast<int>(ranks_.size()) || ranks_[hello.rank].stage != RankStage::absent)
    return emit(SessionNote{formatted("refused a guard that calls itself rank {}", hello.rank)});
  RankState& state = ranks_[hello.rank];
  ranks_.enter(state, RankStage::greeted);
  ranks_.connect(hello.rank, from);
  state.local = hello.local;
  state.heard_ns = monotonic_ns();
  emit(GuardCame{hello});
  if (stopping_) return send(hello.rank, Type::stop, to_json(*stopping_));
  if (!hello.local && clocks_.begins_with(manifest(hello.rank).host))
    for (int i = 0; i < HostClocks::first_pings; ++i) ping(hello.rank);
  if (manifests_after_rank_0_ && hello.rank == 0) return rank_0_has_come(hello);
  if (!manifests_after_rank_0_) give_manifest(hello.rank);
}

void Session::rank_0_has_come(const wire::Hello& hello) {
  manifests_ = std::exchange(manifests_after_rank_0_, {})(hello);
  for (const int rank : in_stage(RankStage::greeted)) give_manifest(rank);
}

void Session::give_manifest(int rank) {
  wire::RankManifest m = manifest(rank);
  if (!payload_.complete(m, ranks_[rank].local)) return;
  ranks_.enter(ranks_[rank], RankStage::running);
  std::string body = to_json(m);
  if (body.size() > wire::max_frame_bytes) throw too_long(m, body.size());
  send(rank, Type::manifest, std::move(body));
  if (!m.payload.deliver) return;
  payload_.begin(rank);
  flush(rank);
}

void Session::payload_is_ready(int leader, const std::string& path) {
  const std::string& host = manifest(leader).host;
  payload_.arrived(leader, host, path);
  for (std::size_t r = 0; r < ranks_.size() && !stopping_; ++r)
    if (ranks()[r].stage == RankStage::greeted && manifests_[r].host == host) give_manifest(static_cast<int>(r));
  for (const int rank : payload_.waiting()) flush(rank);
}

void Session::died(int rank, wire::DeathRecord record) {
  payload_.forget(rank);
  RankState& state = ranks_[rank];
  if (state.death) return;
  record.rank = rank;
  record.host = manifest(rank).host;
  const auto ours = state.local ? record.time_ns : clocks_.our_ns(record.host, record.time_ns);
  record.time_ns = ours && !state.gone ? *ours : monotonic_ns();
  if (record.cause == wire::Cause::stopped && !stopping_ &&
      !state.told_to_stop) {  // hvdrun did not stop the rank: somebody ended it or its mpirun
    record.cause = wire::Cause::vanished;
    if (record.fact == wire::DeathFact::none) record.fact = wire::DeathFact::ended_outside;
    if (record.text.empty())
      record.text = record.code != 128 + SIGKILL
                        ? "it was ended from outside"
                        : formatted("another program asked it to end, and it still ran after {:g} s (--grace)",
                                    manifest(rank).grace_seconds);
    if (record.fact == wire::DeathFact::alone)
      record.code = 0;  // the guard's own signal ended the rank: the job ends with 5, as for a lost connection
    else if (record.code > 128)
      record.code -= 128;
  }
  if (record.phase.empty()) record.phase = state.phase;
  if (state.aborted && record.cause != wire::Cause::finished) {  // MPI_Abort counts as the cause of the end
    record.cause = wire::Cause::exited;
    record.fact = wire::DeathFact::none;
    record.code = state.aborted->status;
    record.text = state.aborted->text;
    record.time_ns = std::min(record.time_ns, state.aborted->time_ns);
  }
  ranks_.enter(state, std::max(state.stage, RankStage::ended));
  state.death = std::move(record);
  emit(RankEnded{*state.death});
  // Once the job is ended for this death, the other ranks need no reason of their own.
  if (!daemons_ || stopping_) return;
  const bool died = state.death->cause != wire::Cause::finished && !state.told_to_stop;
  daemons_->end_rank(rank, formatted("rank {} has {}", rank, died ? "died" : "ended"), died && elastic_);
}

void Session::vanish(int rank, const std::string& text, int code) {
  RankState& state = ranks_[rank];
  state.gone = true;
  state.queue.clear();
  behind_.erase(rank);
  if (!state.death) {
    wire::DeathRecord record;
    record.pid = state.rank_pid;
    record.cause = wire::Cause::vanished;
    record.code = code;
    record.text = text;
    if (state.cut_ns > 0) record.fact = wire::DeathFact::host_lost;
    died(rank, std::move(record));
  }
  ranks_.enter(state, RankStage::clean);
}

bool Session::tell(int rank, Type type, std::string body) {
  if (!ranks_[rank].has_guard()) return false;
  send(rank, type, std::move(body));
  return true;
}

void Session::send(int rank, Type type, std::string body) {
  ranks_[rank].queue.push_back({static_cast<std::uint16_t>(type), std::move(body)});
  flush(rank);
}

void Session::flush(int rank) {
  RankState& state = ranks_[rank];
  if (state.stage == RankStage::absent || state.gone) return;
  try {
    if (send_what_waits(rank))
      behind_.erase(rank);
    else
      behind_.insert(rank);
  } catch (const Error& e) {
    if (e.code != Code::peer_lost) throw;
    vanish(rank, lost_text(rank));
  }
}

bool Session::send_what_waits(int rank) {
  RankState& state = ranks_[rank];
  for (; !state.queue.empty(); state.queue.pop_front())
    if (!listener_->send(state.peer, state.queue.front())) return false;
  while (payload_.is_under_way(rank)) {
    const auto piece = payload_.next_piece(rank);
    if (!piece || !listener_->send(state.peer, *piece)) return false;
    payload_.has_sent(rank, *piece);
  }
  return true;
}

void Session::ping(int rank) { send(rank, Type::ping, bytes_of(monotonic_ns())); }

void Session::stop_all(const std::string& reason, double grace_seconds, int signal) {
  stopping_ = wire::StopRequest{reason, grace_seconds, signal};
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks()[r].stage == RankStage::greeted || ranks()[r].stage == RankStage::running)
      send(static_cast<int>(r), Type::stop, to_json(*stopping_));
}

void Session::abort(int rank, int status, const std::string& text) {
  constexpr double grace_seconds = 0.3;  // Open MPI 4.1's process waits to be killed, 5.0's is about to exit
  RankState& state = ranks_[rank];
  if (state.aborted || state.death || stopping_) return;
  state.aborted = RankState::AbortCall{status, text, monotonic_ns()};
  send(rank, Type::stop, to_json(wire::StopRequest{text, grace_seconds, SIGTERM}));
}

void Session::become_elastic() {
  elastic_ = true;
  payload_.copy_for_each_from(static_cast<int>(ranks_.size()));
  daemons_->hold_strangers();
}

void Session::start_rank(wire::RankManifest manifest, int host, bool begins_with_daemon) {
  manifests_.push_back(std::move(manifest));
  ranks_.add();
  daemons_->start_rank(host, begins_with_daemon);
}

void Session::stop_rank(int rank, const std::string& reason, double grace_seconds) {
  RankState& state = ranks_[rank];
  if (state.stage != RankStage::greeted && state.stage != RankStage::running) return;
  state.told_to_stop = true;
  send(rank, Type::stop, to_json(wire::StopRequest{reason, grace_seconds, SIGTERM}));
}

void Session::signal_all(int number) {
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks()[r].stage == RankStage::running) send(static_cast<int>(r), Type::signal, bytes_of(std::int32_t{number}));
}

void Session::tell_complete() {
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (!ranks()[r].local && manifests_[r].local_rank == 0) send(static_cast<int>(r), Type::complete, {});
}

void Session::record_timeline(int rank, bool on) {
  clocks_.set_for_timeline(on);
  if (!ranks_[rank].has_guard()) return;
  for (int i = 0; on && !ranks_[rank].local && i < HostClocks::first_pings; ++i) ping(rank);
  send(rank, Type::timeline, std::string(1, on ? '\1' : '\0'));
}

void Session::pause_limits(std::uint32_t seconds) {
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks()[r].stage == RankStage::running) send(static_cast<int>(r), Type::pause_limit, bytes_of(seconds));
}

void Session::release_all() {
  released_ = true;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks()[r].stage == RankStage::clean && !ranks()[r].gone) release(static_cast<int>(r));
  if (elastic_) daemons_->release();
}

void Session::release(int rank) {
  const bool sweep = !ranks_[rank].local && swept_.insert(manifest(rank).host).second;
  if (sweep) ++sweeps_open_;
  send(rank, Type::release, sweep ? "sweep" : "");
}

}  // namespace hvd::launcher
