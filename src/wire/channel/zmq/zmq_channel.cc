/// @file zmq_channel.cc — channel.h over ZeroMQ: ROUTER and DEALER with CURVE.
///
/// A frame is one message: u16 type (little endian), body.  TCP keep-alive finds a dead host.  ZMTP heartbeats would
/// end a job with a stopped process (Ctrl-Z, a debugger), because such a process sends none.  The kernel answers
/// keep-alive for a stopped process.
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/load.h"
#include "wire/channel/bounded_accept.h"
#include "wire/channel/channel.h"
#include "wire/channel/relayed_frame.h"
#include "wire/channel/transports.h"
#include "wire/messages/message.h"
#include "zap.h"
#include "zmq_socket.h"

namespace hvd::wire {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int queue_frames = 64;  ///< each way and peer; output frames are 64 KiB, so 4 MiB of output
constexpr int linger_ms = 1000;
constexpr double handshake_ms = 5000;  ///< times load_factor()
constexpr int connect_once_ms = 5000;
constexpr std::size_t curve_overhead_bytes = 64;
constexpr std::size_t most_relayed_bytes = max_frame_bytes + relay_header_bytes;

void set_common(const zmq::Socket& s) {
  zmq::set(s, ZMQ_LINGER, linger_ms);
  zmq::set(s, ZMQ_SNDHWM, queue_frames);
  zmq::set(s, ZMQ_RCVHWM, queue_frames);
  zmq::set(s, ZMQ_HANDSHAKE_IVL, static_cast<int>(handshake_ms * load_factor()));
  const auto most = static_cast<std::int64_t>(most_relayed_bytes + 2 + curve_overhead_bytes);
  zmq::check(zmq::lib().setsockopt(s.get(), ZMQ_MAXMSGSIZE, &most, sizeof most), "zmq_setsockopt");
  zmq::set(s, ZMQ_TCP_KEEPALIVE, 1);
  // A cut is noticed within 10 s.  An interruption of 5 s is survived, because TCP tries again at 6.2 s.
  zmq::set(s, ZMQ_TCP_KEEPALIVE_IDLE, 4);
  zmq::set(s, ZMQ_TCP_KEEPALIVE_INTVL, 2);
  zmq::set(s, ZMQ_TCP_KEEPALIVE_CNT, 3);
  zmq::set(s, ZMQ_TCP_MAXRT, 10000);
}

/// IPv6 is switched on only for an IPv6 address: with it, ZeroMQ writes IPv4 ones as mapped IPv6.
void set_family(const zmq::Socket& s, const std::string& address) {
  zmq::set(s, ZMQ_IPV6, address.find('[') != std::string::npos ? 1 : 0);
}

void set_key(const zmq::Socket& s, int option, const std::string& key, const char* what) {
  if (key.size() != 40) throw Error(Code::usage, "channel", std::string(what) + " is not 40 characters of Z85");
  zmq::check(zmq::lib().setsockopt(s.get(), option, key.data(), key.size()), what);
}

std::optional<Frame> to_frame(zmq::MessagePart& part) {
  if (part.size() < 2) return std::nullopt;
  const auto* p = reinterpret_cast<const unsigned char*>(part.data());
  return Frame{static_cast<std::uint16_t>(p[0] | p[1] << 8), std::string(part.data() + 2, part.size() - 2)};
}

/// Sends @p frame as the last part.  False when the queue is full.
bool send_frame(const zmq::Socket& s, const Frame& frame) {
  const bool is_relayed = frame.type == static_cast<std::uint16_t>(Type::relayed);
  if (frame.body.size() > (is_relayed ? most_relayed_bytes : max_frame_bytes))
    throw Error(Code::internal, "channel", "a frame is longer than 4 MiB");
  zmq_msg_t m;
  if (zmq::lib().msg_init_size(&m, frame.body.size() + 2) != 0)
    zmq::fail("zmq_msg_init_size", zmq::lib().error_number());
  auto* p = static_cast<unsigned char*>(zmq::lib().msg_data(&m));
  p[0] = static_cast<unsigned char>(frame.type & 0xff);
  p[1] = static_cast<unsigned char>(frame.type >> 8);
  std::memcpy(p + 2, frame.body.data(), frame.body.size());
  while (zmq::lib().msg_send(&m, s.get(), ZMQ_DONTWAIT) < 0) {
    const int error = zmq::lib().error_number();
    if (error == EINTR) continue;
    zmq::lib().msg_close(&m);
    if (error == EAGAIN) return false;
    zmq::fail("zmq_msg_send", error);
  }
  return true;
}

/// Returns true if the other end of an accepted connection has proved the job's key.  The evidence is the number of
/// acknowledged bytes.  A stranger gets the greeting (64 bytes), CURVE's WELCOME (170) and at most an ERROR (12).
/// READY, of 54 bytes or more, is sent only after ZAP has accepted the key.
bool has_proved(int connection) {
  constexpr std::uint64_t most_to_a_stranger = 64 + 170 + 12;
  constexpr std::size_t bytes_acked = 15;  // place of eight bytes in the kernel's tcp_info, which glibc's lacks
  std::array<std::uint64_t, bytes_acked + 1> info{};
  socklen_t bytes = sizeof info;
  int unsent = 0;
  if (::getsockopt(connection, IPPROTO_TCP, TCP_INFO, info.data(), &bytes) != 0 || bytes < sizeof info ||
      ::ioctl(connection, SIOCOUTQ, &unsent) != 0)
    return true;  // unknown: no connection is ended by mistake
  return info[bytes_acked] + static_cast<std::uint64_t>(unsent) > most_to_a_stranger + 1;
}

/// Drops further parts of a message: ours have one body part.
void drop_rest(const zmq::Socket& s, const zmq::MessagePart& part) {
  bool more = part.more();
  while (more) {
    zmq::MessagePart rest;
    if (!rest.receive(s, ZMQ_DONTWAIT)) return;
    more = rest.more();
  }
}

class ZmqListener : public Listener {
 public:
  ZmqListener(const std::vector<std::string>& bind, const KeyPair& server, const std::string& client_public_key)
      : context_(zmq::make_context()), zap_(std::make_unique<ZapHandler>(context_, client_public_key)) {
    try {
      open(bind, server);
    } catch (...) {
      close();
      throw;
    }
  }
  ~ZmqListener() override { close(); }

  std::vector<std::string> addresses() const override { return addresses_; }
  int fd() const override { return fd_; }

  std::optional<PeerFrame> receive() override {
    for (;;) {
      zmq::MessagePart id, body;
      if (!id.receive(socket_, ZMQ_DONTWAIT)) return std::nullopt;
      if (!id.more() || !body.receive(socket_, ZMQ_DONTWAIT)) continue;
      const bool alone = !body.more();
      drop_rest(socket_, body);
      std::optional<Frame> frame = to_frame(body);
      if (!alone || !frame) continue;  // not one of our guards' messages
      PeerId from = id.text();
      peer_fd_[from] = body.source_fd();
      return PeerFrame{std::move(from), std::move(*frame)};
    }
  }

  bool send(const PeerId& to, const Frame& frame) override {
    while (zmq::lib().send(socket_.get(), to.data(), to.size(), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) {
      const int error = zmq::lib().error_number();
      if (error == EAGAIN) return false;
      if (error == EHOSTUNREACH) throw Error(Code::peer_lost, "channel", "the guard is gone");
      if (error != EINTR) zmq::fail("zmq_send", error);
    }
    return send_frame(socket_, frame);
  }

  /// The monitor names only descriptors, and a descriptor may have a new owner by now.  So a peer is gone only when the
  /// router has no route to it any more.  ZeroMQ may drop the route slightly after the connection's end.
  std::optional<PeerId> gone() override {
    zmq::MonitorEvent event;
    while (zmq::next_event(monitor_, &event))
      for (const auto& [peer, fd] : peer_fd_)
        if (fd == event.value) suspects_[peer] = Clock::now();
    for (auto it = suspects_.begin(); it != suspects_.end();) {
      const PeerId peer = it->first;
      if (!is_reachable(peer)) {
        suspects_.erase(it);
        peer_fd_.erase(peer);
        return peer;
      }
      it = Clock::now() - it->second > std::chrono::seconds(1) ? suspects_.erase(it) : std::next(it);
    }
    return std::nullopt;
  }

 private:
  void open(const std::vector<std::string>& bind, const KeyPair& server) {
    socket_ = zmq::make_socket(context_, ZMQ_ROUTER);
    set_common(socket_);
    zmq::set(socket_, ZMQ_ROUTER_MANDATORY, 1);
    zmq::set(socket_, ZMQ_CURVE_SERVER, 1);
    set_key(socket_, ZMQ_CURVE_SECRETKEY, server.secret_key, "the server's secret key");
    zmq::set(socket_, ZMQ_ZAP_DOMAIN, std::string("hvdrun"));
    end_unproved(has_proved);
    zmq::set(socket_, ZMQ_BACKLOG, 4096);  // all guards of a large job come at once
    monitor_ = zmq::monitor(context_, socket_, "inproc://listener", ZMQ_EVENT_DISCONNECTED);
    for (const std::string& address : bind) {
      set_family(socket_, address);
      if (zmq::lib().bind(socket_.get(), address.c_str()) != 0)
        zmq::fail("listening on " + address, zmq::lib().error_number());
      char bound[512];
      std::size_t size = sizeof bound;
      zmq::check(zmq::lib().getsockopt(socket_.get(), ZMQ_LAST_ENDPOINT, bound, &size), "zmq_getsockopt");
      addresses_.emplace_back(bound);
    }
    fd_ = zmq::get_int(socket_, ZMQ_FD);
  }

  void close() noexcept {
    monitor_.reset();
    socket_.reset();
    zmq::lib().ctx_shutdown(context_.get());
    zap_.reset();
    context_.reset();
  }

  /// Sends a ping.  Every guard answers it, and it has no other effect.
  bool is_reachable(const PeerId& peer) {
    try {
      const std::int64_t now = std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
      send(peer, {static_cast<std::uint16_t>(Type::ping), std::string(reinterpret_cast<const char*>(&now), 8)});
      return true;
    } catch (const Error& e) { return e.code != Code::peer_lost; }
  }

  zmq::Context context_;
  std::unique_ptr<ZapHandler> zap_;
  zmq::Socket socket_, monitor_;
  std::vector<std::string> addresses_;
  std::map<PeerId, int> peer_fd_;
  std::map<PeerId, Clock::time_point> suspects_;
  int fd_ = -1;
};

class ZmqConnection : public Connection {
 public:
  ZmqConnection(const Endpoint& endpoint, const KeyPair& client) : context_(zmq::make_context()) {
    socket_ = zmq::make_socket(context_, ZMQ_DEALER);
    set_common(socket_);
    set_family(socket_, endpoint.address);
    set_key(socket_, ZMQ_CURVE_SERVERKEY, endpoint.server_key, "the server's key");
    set_key(socket_, ZMQ_CURVE_PUBLICKEY, client.public_key, "the client's public key");
    set_key(socket_, ZMQ_CURVE_SECRETKEY, client.secret_key, "the client's secret key");
    zmq::set(socket_, ZMQ_RECONNECT_IVL, endpoint.once ? -1 : 50);
    zmq::set(socket_, ZMQ_RECONNECT_IVL_MAX, endpoint.once ? 0 : 1000);
    if (endpoint.once) zmq::set(socket_, ZMQ_CONNECT_TIMEOUT, connect_once_ms);
    monitor_ =
        zmq::monitor(context_, socket_, "inproc://connection", ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED);
    if (zmq::lib().connect(socket_.get(), endpoint.address.c_str()) != 0)
      zmq::fail("connecting to " + endpoint.address, zmq::lib().error_number());
    watch(socket_);
    watch(monitor_);
  }

  int fd() const override { return epoll_.get(); }

  std::optional<Frame> receive() override {
    for (;;) {
      zmq::MessagePart body;
      if (!body.receive(socket_, ZMQ_DONTWAIT)) return std::nullopt;
      const bool alone = !body.more();
      drop_rest(socket_, body);
      std::optional<Frame> frame = to_frame(body);
      if (alone && frame) return frame;
    }
  }

  bool send(const Frame& frame) override { return send_frame(socket_, frame); }

  bool connected() override {
    zmq::get_int(socket_, ZMQ_EVENTS);  // takes the wake-up off fd(), or a poll() of it before contact never sleeps
    update();
    return connected_;
  }

  std::optional<milliseconds> lost_for() override {
    update();
    if (!lost_since_) return std::nullopt;
    return std::chrono::duration_cast<milliseconds>(Clock::now() - *lost_since_);
  }

  void drop_unsent() override { zmq::set(socket_, ZMQ_LINGER, 0); }

 private:
  void update() {
    zmq::MonitorEvent event;
    while (zmq::next_event(monitor_, &event)) {
      if (event.kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
        // ZeroMQ connects again after a loss.  To the listener that is a new peer, and the former one is gone.
        if (!connected_) lost_since_.reset();
        connected_ = true;
      } else if (!lost_since_) {
        lost_since_ = Clock::now();
      }
    }
  }

  /// Makes fd() wake for the monitor's events: a contact or a loss.
  void watch(const zmq::Socket& socket) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (!epoll_ || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, zmq::get_int(socket, ZMQ_FD), &event) != 0)
      throw Error(Code::unavailable, "epoll", errno_text(errno));
  }

  zmq::Context context_;
  zmq::Socket socket_, monitor_;
  Fd epoll_{::epoll_create1(EPOLL_CLOEXEC)};
  std::optional<Clock::time_point> lost_since_ = Clock::now();
  bool connected_ = false;
};

}  // namespace

KeyPair new_curve_keys() {
  char public_key[41], secret_key[41];
  if (zmq::lib().curve_keypair(public_key, secret_key) != 0)
    throw Error(Code::unavailable, "ZeroMQ", "was built without CURVE", "install a libzmq with libsodium");
  return {public_key, secret_key};
}

KeyPair derived_curve_keys(const std::string& hex_digest) {
  std::array<std::uint8_t, 32> bytes{};
  if (hex_digest.size() != 2 * bytes.size()) throw Error(Code::internal, "channel", "a key has 64 digits");
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (std::from_chars(&hex_digest[2 * i], &hex_digest[2 * i] + 2, bytes[i], 16).ptr != &hex_digest[2 * i] + 2)
      throw Error(Code::internal, "channel", "a key is hexadecimal");
  char public_key[41], secret_key[41];
  if (zmq::lib().z85_encode(secret_key, bytes.data(), bytes.size()) == nullptr ||
      zmq::lib().curve_public(public_key, secret_key) != 0)
    throw Error(Code::unavailable, "ZeroMQ", "was built without CURVE", "install a libzmq with libsodium");
  return {public_key, secret_key};
}

std::unique_ptr<Listener> listen_on_network(const std::vector<std::string>& bind, const KeyPair& server,
                                            const std::string& client_public_key) {
  return std::make_unique<ZmqListener>(bind, server, client_public_key);
}

std::unique_ptr<Connection> connect_over_network(const Endpoint& endpoint, const KeyPair& client) {
  return std::make_unique<ZmqConnection>(endpoint, client);
}

}  // namespace hvd::wire
