/// @file path_listener.cc — hvdrun's end of connections over several networks (paths.h).
#include <algorithm>
#include <deque>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "wire/channel/paths.h"
#include "wire/channel/unconfirmed_frames.h"
#include "wire/messages/message.h"

namespace hvd::wire {
namespace {

class PathListener : public Listener {
 public:
  explicit PathListener(std::unique_ptr<Listener> paths) : paths_(std::move(paths)) {}

  std::vector<std::string> addresses() const override { return paths_->addresses(); }
  int fd() const override { return paths_->fd(); }

  std::optional<PeerFrame> receive() override {
    while (auto received = paths_->receive()) {
      if (received->frame.type == static_cast<std::uint16_t>(Type::path)) {
        open(received->from, received->frame.body);
        continue;
      }
      const auto path = peer_of_.find(received->from);
      if (path == peer_of_.end()) return received;
      PeerId name = path->second;
      if (take(name, received->from, received->frame)) return PeerFrame{std::move(name), std::move(received->frame)};
    }
    for (auto name = busy_.begin(); name != busy_.end();) name = flush(*name) ? busy_.erase(name) : std::next(name);
    return std::nullopt;
  }

  bool send(const PeerId& to, const Frame& frame) override {
    const auto found = peers_.find(to);
    if (found == peers_.end()) return paths_->send(to, frame);
    Peer& peer = found->second;
    if (peer.frames.is_full() || !flush(to) || !send_by_path(to, frame)) {
      if (!peers_.contains(to)) throw Error(Code::peer_lost, "channel", "the daemon is gone");
      return false;
    }
    peer.frames.add(frame);
    return true;
  }

  std::optional<PeerId> gone() override {
    while (auto path = paths_->gone())
      if (const auto known = peer_of_.extract(*path))
        lose_path(known.mapped(), *path);
      else
        gone_.push_back(std::move(*path));
    return pop(gone_);
  }

  std::optional<Move> moved() override { return pop(moves_); }

  std::vector<std::string> lost_networks(const PeerId& gone) const override {
    const auto found = lost_networks_.find(gone);
    return found == lost_networks_.end() ? std::vector<std::string>() : found->second;
  }

  bool awaits_paths() const override {
    return std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) { return peer.second.awaited > 0; });
  }

 private:
  struct Peer {
    std::vector<std::pair<PeerId, std::string>> paths{};  ///< with hvdrun's address
    PeerId active{};                                      ///< empty: that path has ended, and the daemon has to move
    std::string address{};                                ///< of `active`, or of the path that has ended
    int awaited = 0;                                      ///< paths that have not come
    bool owes_answer = false;                             ///< to a move
    std::vector<std::string> lost{};                      ///< hvdrun's addresses of the paths that have ended
    UnconfirmedFrames frames{};
  };

  template <class T>
  static std::optional<T> pop(std::deque<T>& queue) {
    if (queue.empty()) return std::nullopt;
    T first = std::move(queue.front());
    queue.pop_front();
    return first;
  }

  void open(const PeerId& path, const std::string& body) {
    if (body.size() < path_name_letters + 2 || peer_of_.contains(path)) return;
    const PeerId name = body.substr(0, path_name_letters);
    const auto number = static_cast<unsigned char>(body[path_name_letters]);
    const auto all = static_cast<unsigned char>(body[path_name_letters + 1]);
    if (number >= all || all > most_paths) return;
    const auto [found, is_new] = peers_.try_emplace(name);
    Peer& peer = found->second;
    if (is_new) peer.awaited = all;
    --peer.awaited;
    peer_of_[path] = name;
    peer.paths.emplace_back(path, body.substr(path_name_letters + 2));
    if (number == 0) use(peer, path);
  }

  static void use(Peer& peer, const PeerId& path) {
    peer.active = path;
    for (const auto& [id, address] : peer.paths)
      if (id == path) peer.address = address;
  }

  /// False for a frame of the paths themselves, and for one that the peer will send again.
  bool take(const PeerId& name, const PeerId& path, const Frame& frame) {
    const auto found = peers_.find(name);
    if (found == peers_.end()) return false;
    Peer& peer = found->second;
    const auto type = static_cast<Type>(frame.type);
    if (type == Type::moved) return move(name, path, path_count_of(frame.body)), false;
    if (path != peer.active) return false;
    if (type == Type::confirmed) {
      if (!peer.frames.confirm(path_count_of(frame.body))) refuse(name, path);
      return false;
    }
    peer.frames.count_received(frame);
    if (peer.frames.owes_confirmation()) busy_.insert(name);
    return true;
  }

  void move(const PeerId& name, const PeerId& path, std::uint64_t count) {
    Peer& peer = peers_.at(name);
    const PeerId before = peer.active;
    const std::string lost = peer.address;
    if (lost.empty() || path == before || !peer.frames.resume(count)) return refuse(name, path);
    use(peer, path);
    moves_.push_back({name, lost, peer.address});
    peer.owes_answer = true;
    busy_.insert(name);
    if (!before.empty()) lose_path(name, before);
  }

  /// The daemon's count is impossible.  Tells the daemon, and treats it as lost.
  void refuse(const PeerId& name, const PeerId& path) {
    try {
      paths_->send(path, {static_cast<std::uint16_t>(Type::moved), path_count_body(refused_move)});
    } catch (const Error& e) {
      if (e.code != Code::peer_lost) throw;
    }
    lose(name);
  }

  /// Sends the waiting frames of the paths themselves.  False: the path takes no more, or has ended.
  bool flush(PeerId name) {
    const auto found = peers_.find(name);
    if (found == peers_.end()) return true;
    Peer& peer = found->second;
    if (peer.active.empty()) return false;
    const auto send_count = [&](Type type) {
      const std::string count = path_count_body(peer.frames.received());
      const bool sent = send_by_path(name, {static_cast<std::uint16_t>(type), count});
      if (sent) peer.frames.has_confirmed();
      return sent;
    };
    if (peer.owes_answer && !send_count(Type::moved)) return false;
    peer.owes_answer = false;
    for (; const Frame* frame = peer.frames.next_to_repeat(); peer.frames.repeated())
      if (!send_by_path(name, *frame)) return false;
    return !peer.frames.owes_confirmation() || send_count(Type::confirmed);
  }

  /// False: the path takes no more, or has ended.  In the latter case the peer may be gone.
  bool send_by_path(const PeerId& name, const Frame& frame) {
    const PeerId path = peers_.at(name).active;
    try {
      return paths_->send(path, frame);
    } catch (const Error& e) {
      if (e.code != Code::peer_lost) throw;
      lose_path(name, path);
      return false;
    }
  }

  void lose_path(const PeerId& name, const PeerId& path) {
    const auto found = peers_.find(name);
    if (found == peers_.end()) return;
    Peer& peer = found->second;
    const auto at = std::ranges::find(peer.paths, path, [](const auto& one) -> const PeerId& { return one.first; });
    if (at == peer.paths.end()) return;
    peer.lost.push_back(std::move(at->second));
    peer.paths.erase(at);
    if (peer.active == path) peer.active.clear();
    if (!peer.paths.empty()) return;
    if (peer.lost.size() > 1) lost_networks_[name] = std::move(peer.lost);
    lose(name);
  }

  void lose(const PeerId& name) {
    if (!peers_.at(name).address.empty()) gone_.push_back(name);  // else the peer was lost before this path came
    peers_.erase(name);
  }

  std::unique_ptr<Listener> paths_;
  std::unordered_map<PeerId, Peer> peers_;      ///< by the connection's name
  std::unordered_map<PeerId, PeerId> peer_of_;  ///< path → name, until the path has ended; its peer may be gone
  std::set<PeerId> busy_;                       ///< peers for which flush() has work
  std::unordered_map<PeerId, std::vector<std::string>> lost_networks_;  ///< by the connection's name
  std::deque<PeerId> gone_;
  std::deque<Move> moves_;
};

}  // namespace

std::unique_ptr<Listener> with_paths(std::unique_ptr<Listener> listener) {
  return std::make_unique<PathListener>(std::move(listener));
}

}  // namespace hvd::wire
