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

DaemonLinks::DaemonLinks(wire::DaemonManifest manifest, DaemonEvents events)
    : manifest_(std::move(manifest)),
      events_(std::move(events)),
      host_of_rank_(hosts_of_ranks(manifest_)),
      first_hosts_(static_cast<int>(manifest_.hosts.size())),
      links_(manifest_.hosts.size()),
      hub_(host_of_rank_, static_cast<int>(manifest_.hosts.size())),
      meetings_(host_of_rank_) {}

bool DaemonLinks::greet(wire::Listener& listener, const wire::PeerId& from, const wire::Hello& hello) {
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
    flush(listener, h);
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

bool DaemonLinks::receive(wire::Listener& listener, const wire::PeerId& from, const wire::Frame& frame) {
  const int host = host_of(from);
  if (host < 0) return false;
  const auto type = static_cast<Type>(frame.type);
  if (type == Type::meeting) try {
      take_meeting(listener, host, wire::decode_meeting_message(frame.body));
    } catch (const Error&) {}  // no daemon of ours says that
  if (type == Type::pmix) take_pmix(listener, host, frame.body);
  return true;
}

void DaemonLinks::take_meeting(wire::Listener& listener, int host, const wire::MeetingMessage& message) {
  const auto rank = static_cast<std::size_t>(message.rank);
  const bool is_its_own = message.rank >= 0 && rank < host_of_rank_.size() && host_of_rank_[rank] == host;
  if (message.kind == wire::MeetingMessage::Kind::expect) {
    std::vector<std::int32_t> all(host_of_rank_.size());
    std::iota(all.begin(), all.end(), 0);
    if (is_its_own)
      send(listener, meetings_.tell_expected(message, events_.expects ? events_.expects(message.rank) : all));
    return;
  }
  const bool of_all = message.kind == wire::MeetingMessage::Kind::join && message.ranks.empty() && is_its_own;
  if (of_all && events_.waits) events_.waits(message.rank);
  const MeetingHub::Answers answers = meetings_.receive(host, message);
  if (of_all) tell_world(answers);
  send(listener, answers);
}

void DaemonLinks::tell_world(const MeetingHub::Answers& answers) {
  for (const MeetingAnswer& answer : answers) {
    if (answer.message.kind != wire::MeetingMessage::Kind::world || !events_.met) continue;
    std::vector<std::int32_t> ranks;
    for (const auto& member : answer.message.members) ranks.push_back(member.rank);
    events_.met(answer.message.epoch, ranks);
  }
}

void DaemonLinks::invite(wire::Listener& listener, std::vector<std::int32_t> ranks) {
  const MeetingHub::Answers answers = meetings_.invite(std::move(ranks));
  tell_world(answers);
  send(listener, answers);
}

void DaemonLinks::dismiss(wire::Listener& listener, int rank) { send(listener, meetings_.dismiss(rank)); }

int DaemonLinks::add_host(const std::string& name) {
  manifest_.hosts.push_back({name, {static_cast<int>(host_of_rank_.size())}});  // the first that it will have
  manifest_frame_.reset();
  links_.emplace_back();
  return static_cast<int>(links_.size()) - 1;
}

void DaemonLinks::start_rank(wire::Listener& listener, int host, bool begins_with_daemon) {
  const auto number = static_cast<std::int32_t>(host_of_rank_.size());
  host_of_rank_.push_back(host);
  meetings_.add(host);
  DaemonLink& link = links_[static_cast<std::size_t>(host)];
  if (link.gone || begins_with_daemon) return;
  link.queue.push_back(frame(Type::start_rank, {reinterpret_cast<const char*>(&number), sizeof number}));
  flush(listener, static_cast<std::size_t>(host));
}

void DaemonLinks::give_up(int host) {
  if (DaemonLink& link = links_[static_cast<std::size_t>(host)]; link.peer.empty()) lose(link);
}

void DaemonLinks::release(wire::Listener& listener) {
  for (std::size_t h = 0; h < links_.size(); ++h) {
    if (links_[h].peer.empty() || links_[h].gone) continue;
    links_[h].queue.push_back(frame(Type::release, {}));
    flush(listener, h);
  }
}

void DaemonLinks::take_pmix(wire::Listener& listener, int host, const std::string& body) {
  const PmixMessage message = wire::decode_pmix_message(body);
  const auto rank = static_cast<std::size_t>(message.rank);
  const bool is_its_own = message.rank >= 0 && rank < host_of_rank_.size() && host_of_rank_[rank] == host;
  if (message.kind == PmixMessage::Kind::abort && is_its_own)
    events_.abort(message.rank, message.status);
  else if (message.kind == PmixMessage::Kind::spawn && is_its_own)
    events_.spawn(message.rank);
  else if (message.kind == PmixMessage::Kind::guard_ended && is_its_own)
    events_.guard_ended(message.rank, message.status);
  else if (message.kind == PmixMessage::Kind::broken) {
    events_.no_server(host, message.data);
    send(listener, hub_.lose(host));  // other hosts' MPI would wait for this one's
  } else
    send(listener, hub_.receive(host, message));
}

void DaemonLinks::send(wire::Listener& listener, const PmixHub::Outgoing& messages) {
  for (const auto& [host, message] : messages) {
    DaemonLink& link = links_[static_cast<std::size_t>(host)];
    if (link.peer.empty() || link.gone) continue;
    link.queue.push_back(frame(Type::pmix, encode(message)));
    flush(listener, static_cast<std::size_t>(host));
  }
}

void DaemonLinks::send(wire::Listener& listener, const MeetingHub::Answers& answers) {
  for (const MeetingAnswer& answer : answers) {
    const auto shared = frame(Type::meeting, encode(answer.message));
    for (const int host : answer.hosts) {
      DaemonLink& link = links_[static_cast<std::size_t>(host)];
      if (link.peer.empty() || link.gone) continue;
      link.queue.push_back(shared);
      flush(listener, static_cast<std::size_t>(host));
    }
  }
}

void DaemonLinks::end_rank(wire::Listener& listener, int rank, const std::string& why, bool died) {
  if (died) send(listener, meetings_.revoke(rank, why));
  send(listener, meetings_.end(rank, why));
}

void DaemonLinks::flush(wire::Listener& listener) {
  const std::vector<std::size_t> hosts(behind_.begin(), behind_.end());
  for (const std::size_t host : hosts) flush(listener, host);
}

void DaemonLinks::flush(wire::Listener& listener, std::size_t host) {
  DaemonLink& link = links_[host];
  if (link.gone || link.peer.empty()) return;
  try {
    while (!link.queue.empty() && listener.send(link.peer, *link.queue.front())) link.queue.pop_front();
  } catch (const Error& e) {
    if (e.code != Code::peer_lost) throw;
    lose(link);  // the other lose() follows
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

void DaemonLinks::lose(wire::Listener& listener, const wire::PeerId& peer) {
  const int host = host_of(peer);
  if (host < 0) return;
  lose(links_[static_cast<std::size_t>(host)]);
  behind_.erase(static_cast<std::size_t>(host));
  if (host < first_hosts_) send(listener, hub_.lose(host));
  for (std::size_t r = 0; r < host_of_rank_.size(); ++r)
    if (host_of_rank_[r] == host)
      end_rank(listener, static_cast<int>(r),
               "rank " + std::to_string(r) + " is gone: the daemon of its host, " +
                   manifest_.hosts[static_cast<std::size_t>(host)].name + ", has ended or is out of reach",
               false);  // its guard's end says whether it has died
}

}  // namespace hvd::launcher
