#include "launcher/start/daemon_links.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "wire/messages/message.h"

namespace hvd::launcher {

namespace {

using wire::PmixMessage;
using wire::Type;

std::vector<int> hosts_of_ranks(const wire::DaemonManifest& manifest) {
  std::vector<int> hosts;
  for (std::size_t h = 0; h < manifest.hosts.size(); ++h)
    for (const int rank : manifest.hosts[h].ranks) {
      const auto at = static_cast<std::size_t>(rank);
      if (at >= hosts.size()) hosts.resize(at + 1);
      hosts[at] = static_cast<int>(h);
    }
  return hosts;
}

std::shared_ptr<const wire::Frame> frame(Type type, std::string body) {
  return std::make_shared<const wire::Frame>(wire::Frame{static_cast<std::uint16_t>(type), std::move(body)});
}

}  // namespace

DaemonLinks::DaemonLinks(wire::Listener& listener, wire::DaemonManifest manifest, EventSink events)
    : listener_(listener),
      manifest_(std::move(manifest)),
      events_(std::move(events)),
      host_of_rank_(hosts_of_ranks(manifest_)),
      first_hosts_(static_cast<int>(manifest_.hosts.size())),
      links_(manifest_.hosts.size()),
      hub_(host_of_rank_, static_cast<int>(manifest_.hosts.size())),
      meetings_(host_of_rank_) {}

bool DaemonLinks::greet(const wire::PeerId& from, const wire::Hello& hello) {
  const auto rank = static_cast<std::size_t>(hello.rank);
  if (hello.rank < 0 || rank >= host_of_rank_.size()) return false;
  const auto host = static_cast<std::size_t>(host_of_rank_[rank]);
  DaemonLink& link = links_[host];
  if (!link.peer.empty() || link.gone) return false;
  link.peer = from;
  host_of_[from] = static_cast<int>(host);
  if (!has_begun_ && !all_have_come()) return true;
  has_begun_ = true;
  for (std::size_t h = 0; h < links_.size(); ++h) {
    if (links_[h].started || links_[h].peer.empty()) continue;
    links_[h].started = true;
    if (!manifest_frame_) manifest_frame_ = frame(Type::daemon_manifest, to_json(manifest_));
    links_[h].queue.push_front(manifest_frame_);
    flush(h);
  }
  return true;
}

int DaemonLinks::host_of(const wire::PeerId& peer) const {
  const auto found = host_of_.find(peer);
  return found == host_of_.end() ? -1 : found->second;
}

int DaemonLinks::host_of(int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  return rank < 0 || at >= host_of_rank_.size() ? -1 : host_of_rank_[at];
}

bool DaemonLinks::receive(const wire::PeerId& from, const wire::Frame& frame) {
  const int host = host_of(from);
  if (host < 0) return false;
  const auto type = static_cast<Type>(frame.type);
  if (type == Type::meeting) try {
      take_meeting(host, wire::decode_meeting_message(frame.body));
    } catch (const Error&) {}  // our daemons send no such message: ignored
  if (type == Type::pmix) take_pmix(host, frame.body);
  return true;
}

void DaemonLinks::take_meeting(int host, const wire::MeetingMessage& message) {
  const auto rank = static_cast<std::size_t>(message.rank);
  const bool is_its_own = message.rank >= 0 && rank < host_of_rank_.size() && host_of_rank_[rank] == host;
  if (message.kind == wire::MeetingMessage::Kind::expect) {
    if (!is_its_own) return;
    if (meetings_.holds_strangers()) return emit(NextWorldAsked{message});
    std::vector<std::int32_t> all(host_of_rank_.size());
    std::iota(all.begin(), all.end(), 0);
    return tell_next_world(message, all);
  }
  const bool of_all = message.kind == wire::MeetingMessage::Kind::join && message.ranks.empty() && is_its_own;
  if (of_all) emit(WorkerWaits{message.rank});
  const MeetingHub::Answers answers = meetings_.receive(host, message);
  if (of_all) tell_world(answers);
  send(answers);
}

void DaemonLinks::tell_world(const MeetingHub::Answers& answers) {
  for (const MeetingAnswer& answer : answers) {
    if (answer.message.kind != wire::MeetingMessage::Kind::world) continue;
    std::vector<std::int32_t> ranks;
    for (const auto& member : answer.message.members) ranks.push_back(member.rank);
    emit(WorldMet{answer.message.epoch, ranks});
  }
}

void DaemonLinks::invite(std::vector<std::int32_t> ranks) {
  const MeetingHub::Answers answers = meetings_.invite(std::move(ranks));
  tell_world(answers);
  send(answers);
}

void DaemonLinks::dismiss(int rank) { send(meetings_.dismiss(rank)); }

int DaemonLinks::add_host(const std::string& name) {
  manifest_.hosts.push_back({name, {static_cast<int>(host_of_rank_.size())}});  // its first rank will have this number
  manifest_frame_.reset();
  links_.emplace_back();
  return static_cast<int>(links_.size()) - 1;
}

void DaemonLinks::start_rank(int host, bool begins_with_daemon) {
  const auto number = static_cast<std::int32_t>(host_of_rank_.size());
  host_of_rank_.push_back(host);
  meetings_.add(host);
  DaemonLink& link = links_[static_cast<std::size_t>(host)];
  if (link.gone || begins_with_daemon) return;
  link.queue.push_back(frame(Type::start_rank, {reinterpret_cast<const char*>(&number), sizeof number}));
  flush(static_cast<std::size_t>(host));
}

void DaemonLinks::give_up(int host) {
  if (DaemonLink& link = links_[static_cast<std::size_t>(host)]; link.peer.empty()) lose(link);
}

void DaemonLinks::tell_all(Type type) {
  for (std::size_t h = 0; h < links_.size(); ++h) {
    if (links_[h].peer.empty() || links_[h].gone) continue;
    links_[h].queue.push_back(frame(type, {}));
    flush(h);
  }
}

void DaemonLinks::take_pmix(int host, const std::string& body) {
  const PmixMessage message = wire::decode_pmix_message(body);
  const auto rank = static_cast<std::size_t>(message.rank);
  const bool is_its_own = message.rank >= 0 && rank < host_of_rank_.size() && host_of_rank_[rank] == host;
  if (message.kind == PmixMessage::Kind::abort && is_its_own)
    emit(RankAborted{message.rank, message.status});
  else if (message.kind == PmixMessage::Kind::spawn && is_its_own)
    emit(RankSpawned{message.rank});
  else if (message.kind == PmixMessage::Kind::guard_ended && is_its_own)
    emit(GuardEnded{message.rank, message.status, message.data});
  else if (message.kind == PmixMessage::Kind::continued && (is_its_own || message.rank == -1))
    emit(GuardContinued{host, message.rank, message.status, message.failed});
  else if (message.kind == PmixMessage::Kind::broken) {
    emit(PmixMissing{host, message.data});
    send(hub_.lose(host));  // MPI on other hosts would wait for this host
  } else
    send(hub_.receive(host, message));
}

void DaemonLinks::send(const PmixHub::Outgoing& messages) {
  for (const auto& [host, message] : messages) {
    DaemonLink& link = links_[static_cast<std::size_t>(host)];
    if (link.peer.empty() || link.gone) continue;
    link.queue.push_back(frame(Type::pmix, encode(message)));
    flush(static_cast<std::size_t>(host));
  }
}

void DaemonLinks::send(const MeetingHub::Answers& answers) {
  for (const MeetingAnswer& answer : answers) {
    const auto shared = frame(Type::meeting, encode(answer.message));
    for (const int host : answer.hosts) {
      DaemonLink& link = links_[static_cast<std::size_t>(host)];
      if (link.peer.empty() || link.gone) continue;
      link.queue.push_back(shared);
      flush(static_cast<std::size_t>(host));
    }
  }
}

void DaemonLinks::end_rank(int rank, const std::string& why, bool died) {
  if (died) send(meetings_.revoke(rank, why));
  send(meetings_.end(rank, why));
}

void DaemonLinks::flush() {
  const std::vector<std::size_t> hosts(behind_.begin(), behind_.end());
  for (const std::size_t host : hosts) flush(host);
}

void DaemonLinks::flush(std::size_t host) {
  DaemonLink& link = links_[host];
  if (link.gone || link.peer.empty()) return;
  try {
    while (!link.queue.empty() && listener_.send(link.peer, *link.queue.front())) link.queue.pop_front();
  } catch (const Error& e) {
    if (e.code != Code::peer_lost) throw;
    lose(link);  // lose(peer) follows, once the listener reports the peer as gone
  }
  if (link.queue.empty())
    behind_.erase(host);
  else
    behind_.insert(host);
}

void DaemonLinks::lose(DaemonLink& link) {
  num_gone_ += !link.gone;
  link.gone = true;
  link.queue.clear();
}

void DaemonLinks::take(const wire::Listener::Move& move) {
  const int host = host_of(move.peer);
  if (host < 0) return;
  has_moved_ = true;
  emit(HostMoved{host, move.from, move.to});
}

void DaemonLinks::lose(const wire::PeerId& peer) {
  const int host = host_of(peer);
  if (host < 0) return;
  lose(links_[static_cast<std::size_t>(host)]);
  behind_.erase(static_cast<std::size_t>(host));
  if (host < first_hosts_) send(hub_.lose(host));
  for (std::size_t r = 0; r < host_of_rank_.size(); ++r)
    if (host_of_rank_[r] == host)
      end_rank(static_cast<int>(r),
               "rank " + std::to_string(r) + " is gone: the daemon of its host, " +
                   manifest_.hosts[static_cast<std::size_t>(host)].name + ", has ended or is out of reach",
               false);  // only the guard's end tells whether the rank has died
}

}  // namespace hvd::launcher
