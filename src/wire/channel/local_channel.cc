/// @file local_channel.cc — channel.h over a unix socket, for jobs of one host.
///
/// No library, no thread and no cipher: the bytes never leave the kernel.  Only processes of this user are accepted
/// (SO_PEERCRED).  The socket lies in a folder that only this user may enter.  A client sends the job's key first, so
/// guards of another job are refused.  ZeroMQ would cost 4 ms of processor time for each guard.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>

#include "base/error.h"
#include "base/process/process.h"
#include "bounded_accept.h"
#include "local_socket.h"
#include "transports.h"

namespace hvd::wire {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t key_bytes = 40;
constexpr auto linger_time = milliseconds(1000);
constexpr std::uint64_t listener_id = 0;  ///< epoll data of the listening socket; peers count from 1

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path[0] != '/' || path.size() >= sizeof address.sun_path)
    throw Error(Code::usage, "unix://" + path, "is not the path of a unix socket");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Fd new_socket() {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw Error(Code::unavailable, "socket", errno_text(errno));
  return fd;
}

Fd new_epoll() {
  Fd fd(epoll_create1(EPOLL_CLOEXEC));
  if (!fd) throw Error(Code::unavailable, "epoll", errno_text(errno));
  return fd;
}

class LocalListener : public Listener {
 public:
  LocalListener(const std::string& path, const std::string& key)
      : path_(path), key_(key), epoll_(new_epoll()), listener_(new_socket()) {
    if (key.size() != key_bytes) throw Error(Code::usage, "listen", "the client's public key is not 40 characters");
    const sockaddr_un address = address_of(path);
    fchmod(listener_.get(), 0600);  // bind() gives the file no wider mode
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = listener_id;
    if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_.get(), 4096) != 0 ||  // all guards of a large job come at once
        epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0)
      throw Error(Code::unavailable, "listening on unix://" + path, errno_text(errno));
  }
  ~LocalListener() override {
    const auto limit = Clock::now() + linger_time;
    for (auto& [id, peer] : peers_)
      if (peer.let_in) peer.socket.linger(limit);
    unlink(path_.c_str());
  }

  std::vector<std::string> addresses() const override { return {"unix://" + path_}; }
  int fd() const override { return epoll_.get(); }

  std::optional<PeerFrame> receive() override {
    while (!ready_.empty() || look()) {
      while (!ready_.empty()) {
        const std::uint64_t id = ready_.front();
        ready_.pop_front();
        Peer& peer = peers_.at(id);
        std::optional<Frame> frame = peer.socket.take();
        if (peer.socket.has_frame())
          ready_.push_back(id);  // peers take turns: a peer with many frames must not delay the others
        else if (peer.socket.ended())
          gone_.push_back(id);
        if (frame) return PeerFrame{std::to_string(id), std::move(*frame)};
      }
    }
    return std::nullopt;
  }

  bool send(const PeerId& to, const Frame& frame) override {
    const auto peer = peers_.find(std::stoull(to));
    if (peer == peers_.end()) throw Error(Code::peer_lost, "channel", "the guard is gone");
    return peer->second.socket.send(frame);
  }

  std::optional<PeerId> gone() override {
    if (gone_.empty()) return std::nullopt;
    const std::uint64_t id = gone_.front();
    gone_.pop_front();
    peers_.erase(id);
    return std::to_string(id);
  }

 private:
  struct Peer {
    LocalSocket socket;
    bool let_in = false;
    Peer(Fd fd, int epoll, std::uint64_t id) : socket(std::move(fd), epoll, id) {}
  };

  /// Handles all events of the kernel.  False when there was none.
  bool look() {
    std::array<epoll_event, 64> events;
    int n;
    while ((n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0)) < 0 && errno == EINTR) {}
    bool any = false;
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == listener_id)
        any |= accept_all();
      else
        any |= hear(event.data.u64, event.events);
    }
    return any;
  }

  bool accept_all() {
    bool any = false;
    for (;;) {
      Fd fd(bounded_accept(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd) return any;
      if (!is_of_this_user(fd.get())) continue;
      const std::uint64_t id = ++last_;
      peers_.try_emplace(id, std::move(fd), epoll_.get(), id);
      any = true;
    }
  }

  bool hear(std::uint64_t id, std::uint32_t events) {
    const auto at = peers_.find(id);
    if (at == peers_.end()) return false;
    Peer& peer = at->second;
    if (events & EPOLLOUT) peer.socket.flush();
    if (!(events & ~std::uint32_t{EPOLLOUT})) return false;
    peer.socket.read();
    if (!peer.let_in) {
      const auto key = peer.socket.take_key(key_bytes);
      peer.let_in = key == key_;
      if (!peer.let_in) {
        if (key || peer.socket.ended()) peers_.erase(at);
        return true;
      }
    }
    if (peer.socket.has_frame())
      ready_.push_back(id);
    else if (peer.socket.ended())
      gone_.push_back(id);
    return true;
  }

  const std::string path_, key_;
  Fd epoll_, listener_;
  std::map<std::uint64_t, Peer> peers_;
  std::uint64_t last_ = listener_id;
  std::deque<std::uint64_t> ready_;  ///< peers with a whole frame; each once
  std::deque<std::uint64_t> gone_;   ///< peers that have ended, after their last frame was returned
};

class LocalConnection : public Connection {
 public:
  LocalConnection(const std::string& path, const KeyPair& client)
      : address_(address_of(path)), key_(client.public_key), epoll_(new_epoll()) {
    if (key_.size() != key_bytes) throw Error(Code::usage, "connect", "the key is not 40 characters");
    try_connect();
  }
  explicit LocalConnection(Fd socket) : address_{}, epoll_(new_epoll()) {
    socket_.emplace(std::move(socket), epoll_.get(), 1);
    lost_since_.reset();
  }
  ~LocalConnection() override {
    if (socket_) socket_->linger(Clock::now() + linger_time);
  }

  int fd() const override { return epoll_.get(); }

  std::optional<Frame> receive() override {
    if (!socket_) return std::nullopt;
    for (;;) {
      if (auto frame = socket_->take()) return frame;
      if (!look()) return std::nullopt;
    }
  }

  bool send(const Frame& frame) override { return socket_ && socket_->send(frame); }

  bool connected() override {
    if (!socket_) try_connect();
    return socket_.has_value();
  }

  std::optional<milliseconds> lost_for() override {
    if (!lost_since_) return std::nullopt;
    return std::chrono::duration_cast<milliseconds>(Clock::now() - *lost_since_);
  }

 private:
  void try_connect() {
    Fd fd = new_socket();
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) != 0) return;
    if (!is_of_this_user(fd.get()))
      throw Error(Code::unavailable, std::string("unix://") + address_.sun_path, "is another user's socket");
    socket_.emplace(std::move(fd), epoll_.get(), 1);
    socket_->send_key(key_);
    lost_since_.reset();
  }

  bool look() {
    epoll_event event{};
    int n;
    while ((n = epoll_wait(epoll_.get(), &event, 1, 0)) < 0 && errno == EINTR) {}
    if (n <= 0) return false;
    if (event.events & EPOLLOUT) socket_->flush();
    if (!(event.events & ~std::uint32_t{EPOLLOUT})) return false;
    socket_->read();
    if (socket_->ended() && !lost_since_) lost_since_ = Clock::now();
    return true;
  }

  const sockaddr_un address_;
  const std::string key_;
  Fd epoll_;
  std::optional<LocalSocket> socket_;
  std::optional<Clock::time_point> lost_since_ = Clock::now();
};

}  // namespace

std::unique_ptr<Listener> listen_locally(const std::string& path, const std::string& client_public_key) {
  return std::make_unique<LocalListener>(path, client_public_key);
}

std::unique_ptr<Connection> connect_locally(const std::string& path, const KeyPair& client) {
  return std::make_unique<LocalConnection>(path, client);
}

std::unique_ptr<Connection> connection_over(Fd socket) { return std::make_unique<LocalConnection>(std::move(socket)); }

}  // namespace hvd::wire
