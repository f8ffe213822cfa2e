/// @file channel.h — the authenticated, encrypted path between hvdrun, the host daemons and the guards.
///
/// There are three implementations.  zmq_channel.cc (ZeroMQ with CURVE): between hosts.  local_channel.cc (a unix
/// socket): in a job of one host.  sim_channel.cc: in tests.  Only channel/zmq names ZeroMQ.
///
/// Thread: a channel belongs to one thread, which polls fd() together with its other descriptors.  fd() may be
/// edge-triggered, and stands for both directions.  After poll() reports fd(), and after every send(), call receive()
/// until it returns nothing.  receive() also sends frames for which the kernel had no room before.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace hvd::wire {

/// One key pair of CURVE, each half 40 characters of Z85.
struct KeyPair {
  std::string public_key, secret_key;
  static KeyPair generate();
  /// The pair that belongs to 64 hexadecimal digits. A holder of the digits can make it.
  static KeyPair derived_from(const std::string& hex_digest);
  /// Random text of the same form, for unix:// addresses only: made without loading ZeroMQ.
  static KeyPair for_this_host();
};

/// One message: a type (message.h) and bytes that the channel does not interpret.
struct Frame {
  std::uint16_t type = 0;
  std::string body;
};

/// A peer as the listening side sees it: stable while the peer is connected.
using PeerId = std::string;

/// The data that a guard or a host daemon needs to connect to hvdrun.
struct Endpoint {
  std::string address;     ///< "unix:///…/local.sock", "ipc:///…/control.sock" or "tcp://10.0.0.1:4123"
  std::string server_key;  ///< public, Z85
  bool once = false;       ///< no second attempt after a failure or a loss
};

/// hvdrun's end.
class Listener {
 public:
  struct PeerFrame {
    PeerId from;
    Frame frame;
  };
  virtual ~Listener() = default;
  /// The addresses that are bound, with their ports.
  virtual std::vector<std::string> addresses() const = 0;
  virtual int fd() const = 0;
  /// Next frame from an authenticated peer, or nothing if none waits.
  virtual std::optional<PeerFrame> receive() = 0;
  /// False when the peer's queue is full: keep the frame and try again.  Throws when the peer is gone.
  virtual bool send(const PeerId& to, const Frame& frame) = 0;
  /// The next peer whose guard is gone, so that its connection will not return; or nothing.  Each peer is returned
  /// once.  fd() does not report it: call gone() from time to time.
  virtual std::optional<PeerId> gone() = 0;

  // Of peers with paths over several networks (paths.h):
  struct Move {
    PeerId peer;
    std::string from, to;  ///< hvdrun's addresses in the lost network and in the network that is used now
  };
  /// The next move of a peer to another network, or nothing.
  virtual std::optional<Move> moved() { return std::nullopt; }
  /// hvdrun's addresses in the networks of a peer that gone() has returned; empty: the peer had a single network.
  virtual std::vector<std::string> lost_networks(const PeerId& /*gone*/) const { return {}; }
  /// Peers have announced paths that have not come yet.
  virtual bool awaits_paths() const { return false; }
};

/// A guard's end.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual int fd() const = 0;
  virtual std::optional<Frame> receive() = 0;
  /// False when the queue is full.
  virtual bool send(const Frame& frame) = 0;
  /// True once the other end has accepted the key; stays true when the connection is lost later.
  virtual bool connected() = 0;
  /// The time since the connection was lost; nothing: it is not lost.  A lost connection stays lost.  Before the first
  /// contact: the time since connect().
  virtual std::optional<std::chrono::milliseconds> lost_for() = 0;
  /// True while the connection uses, or could move to, another network than its first (paths.h).
  virtual bool spans_networks() { return false; }
  /// Lets the destructor drop unsent frames instead of waiting for them.
  virtual void drop_unsent() {}
};

inline constexpr std::size_t max_frame_bytes = 4u << 20;  ///< larger bodies (payload, results) travel in chunks

/// Binds every address in @p bind: "ipc:///path" and "tcp://ip:*", or "unix:///path" alone.  Accepts only peers that
/// have the secret key of @p client_public_key.
std::unique_ptr<Listener> listen(const std::vector<std::string>& bind, const KeyPair& server,
                                 const std::string& client_public_key);
/// Returns at once; the handshake goes on in the background.
/// The destructors of both ends wait at most a second until all sent frames have left.
std::unique_ptr<Connection> connect(const Endpoint& endpoint, const KeyPair& client);
/// A connection over one end of a socket pair.  The process at the other end passes frames on (relayed_frame.h).
std::unique_ptr<Connection> connection_over(Fd socket);

}  // namespace hvd::wire
