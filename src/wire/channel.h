/// @file channel.h — the authenticated, encrypted path between hvdrun and the guards.
///
/// A seam: between hosts zmq_channel.cc (ZeroMQ with CURVE) is what runs, in a job of one host local_channel.cc (a unix
/// socket), sim_channel.cc is their twin for tests, and nothing else in the tree names the library.
/// Thread: a channel belongs to one thread.  fd() lets that thread poll() it
/// together with its other descriptors.  It may be edge-triggered and serves both
/// directions: after poll() said so, and after every send(), receive until empty (what the kernel had no room for
/// leaves then, where no thread of a library sees to it).
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::wire {

/// One key pair of CURVE, each half 40 characters of Z85.
struct KeyPair {
  std::string public_key, secret_key;
  static KeyPair generate();
  /// Random words that look alike, for unix:// addresses only: made without loading ZeroMQ.
  static KeyPair for_this_host();
};

/// What goes over the channel: a type (message.h) and bytes that the channel does not interpret.
struct Frame {
  std::uint16_t type = 0;
  std::string body;
};

/// A peer as the listening side sees it: stable while the peer is connected.
using PeerId = std::string;

/// What a guard needs in order to reach hvdrun.
struct Endpoint {
  std::string address;     ///< "unix:///…/local.sock", "ipc:///…/control.sock" or "tcp://10.0.0.1:4123"
  std::string server_key;  ///< public, Z85
};

/// hvdrun's end.
class Listener {
 public:
  struct PeerFrame {
    PeerId from;
    Frame frame;
  };
  virtual ~Listener() = default;
  /// Addresses really bound, with ports filled in.
  virtual std::vector<std::string> addresses() const = 0;
  virtual int fd() const = 0;
  /// Next frame from an authenticated peer, or nothing if none waits.
  virtual std::optional<PeerFrame> receive() = 0;
  /// False when the peer's queue is full: keep the frame and try again.  Throws when the peer is gone.
  virtual bool send(const PeerId& to, const Frame& frame) = 0;
  /// The next peer whose connection has ended for good (its guard is gone), or nothing.  Every peer once.
  /// Costs no wake-up of fd(): ask now and then.
  virtual std::optional<PeerId> gone() = 0;
};

/// A guard's end.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual int fd() const = 0;
  virtual std::optional<Frame> receive() = 0;
  /// False when the queue is full.
  virtual bool send(const Frame& frame) = 0;
  /// True once the other end has let us in; it stays true when the connection is lost later.
  virtual bool connected() = 0;
  /// How long the other end has been known to be gone; nothing while it is there.  Before the first
  /// contact: how long ago connect() was called.
  virtual std::optional<std::chrono::milliseconds> lost_for() = 0;
};

inline constexpr std::size_t max_frame_bytes = 4u << 20;  ///< larger bodies (payload, results) travel in chunks

/// Binds every address in @p bind ("ipc:///path", "tcp://ip:*"; or "unix:///path" alone).  Only @p client_public_key is
/// let in.
std::unique_ptr<Listener> listen(const std::vector<std::string>& bind, const KeyPair& server,
                                 const std::string& client_public_key);
/// Both ends, when destroyed, wait at most a second for what has been sent to leave.
/// Connects; returns at once, the handshake goes on in the background.
std::unique_ptr<Connection> connect(const Endpoint& endpoint, const KeyPair& client);

}  // namespace hvd::wire
