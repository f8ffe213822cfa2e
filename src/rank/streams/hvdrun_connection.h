/// @file hvdrun_connection.h — the connection of a guard or a host daemon to hvdrun.
///
/// A host may reach hvdrun by several addresses.  All are tried at once; the first that answers is kept.
/// Thread: one.  Nothing here blocks.
#pragma once
#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "rank/streams/outbox.h"
#include "wire/channel/channel.h"

namespace hvd::rank {

class HvdrunConnection {
 public:
  /// Starts one attempt for each address.  Throws Error{usage, unavailable} (wire::connect()).
  /// @param others  further addresses of hvdrun: the connection can move to those in other networks
  /// (wire/channel/paths.h)
  void begin(const std::vector<std::string>& addresses, const std::string& server_key, const wire::KeyPair& client,
             std::vector<std::string> others = {});
  /// Uses a socket that is connected already.
  void begin(Fd socket);
  /// True once an attempt has succeeded.  The other attempts end then.
  bool connect();
  /// Ends all attempts.
  void give_up() { attempts_.clear(); }

  bool is_there() const { return connection_ != nullptr; }
  /// Attempts are under way.
  bool is_trying() const { return !attempts_.empty(); }
  /// Time since the connection was lost.  nullopt: it works, or there was none yet.
  std::optional<std::chrono::milliseconds> lost_for() const {
    return connection_ ? connection_->lost_for() : std::nullopt;
  }
  /// True while the connection uses, or could move to, another network than its first.
  bool spans_networks() { return connection_ && connection_->spans_networks(); }
  /// Adds the descriptors to wait for.  @p reads  false: without those for messages
  void add_to(std::vector<pollfd>& fds, bool reads = true) const;

  void send(wire::Type type, std::string body) { outbox_.add(type, std::move(body)); }
  /// Frames on their way to hvdrun; they wait here until flush().
  Outbox& outbox() { return outbox_; }
  const Outbox& outbox() const { return outbox_; }
  /// Sends frames while the connection takes them.
  void flush() {
    if (connection_) outbox_.flush(*connection_);
  }
  /// The next message, or nothing.
  std::optional<wire::Frame> receive() { return connection_ ? connection_->receive() : std::nullopt; }

 private:
  void keep(std::size_t attempt);

  std::vector<wire::Endpoint> endpoints_;  ///< of begin()'s addresses
  wire::KeyPair client_;
  std::vector<std::string> others_;
  std::vector<std::unique_ptr<wire::Connection>> attempts_;
  std::unique_ptr<wire::Connection> connection_;
  Outbox outbox_;
};

}  // namespace hvd::rank
