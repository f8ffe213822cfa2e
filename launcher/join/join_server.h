/// @file join_server.h — hvdrun's open port, at which hosts join a job, and the way of scripts to them.
///
/// A host (hvdrun join) offers its slots and waits for a script.  hvdrun starts a launch agent for each host
/// (pass_script.h).  The agent passes the script through a unix socket in a private folder.
/// Only holders of the token get past the port (wire/channel/channel.h).
#pragma once
#include <deque>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "launcher/join/join_token.h"
#include "wire/channel/channel.h"
#include "wire/messages/join_offer.h"
#include "wire/messages/message.h"

namespace hvd::launcher {

class JoinServer {
 public:
  /// @param agents_path  of the unix socket to make
  /// Throws Error{unavailable} when the port is taken.
  JoinServer(int port, const JoinKeys& keys, const std::string& agents_path);

  /// Waits for events until @p also is readable, or for @p milliseconds, and serves them.
  void turn(int also, int milliseconds);
  /// The hosts that are there and stay, by name, "w-2" before "w-10".
  std::vector<wire::JoinOffer> hosts() const;
  /// True once a host that runs a script was told to end; then false again.
  bool take_leave();
  /// Tells all hosts that the job has ended, and waits a moment until they are gone.
  void dismiss_all(int code, const std::string& reason);

 private:
  struct Guest {
    wire::PeerId peer;
    wire::JoinOffer offer;
    bool is_leaving = false, is_busy = false;  ///< is_busy: it runs a script
    std::deque<wire::Frame> out{};             ///< frames that the channel has not taken yet
  };
  /// A launch agent of hvdrun's.
  struct Agent {
    Fd link;
    std::string host, script;
    bool has_all = false;    ///< the script is complete
    wire::PeerId runs_on{};  ///< empty: not yet
  };

  void receive(const wire::Listener::PeerFrame& got);
  void take_offer(const wire::PeerId& from, const std::string& body);
  void admit_agents();
  bool serve(Agent& agent);
  bool start(Agent& agent);
  void lose(const wire::PeerId& peer);
  Guest* guest(const wire::PeerId& peer);
  Agent* agent_on(const wire::PeerId& peer);
  void send(Guest& to, wire::Type type, std::string body) {
    to.out.push_back({static_cast<std::uint16_t>(type), std::move(body)});
  }
  void flush();

  std::unique_ptr<wire::Listener> listener_;
  Fd door_;                  ///< where agents come in
  std::list<Guest> guests_;  ///< by arrival: of two with one name, the later counts
  std::list<Agent> agents_;
  std::set<std::string> used_;  ///< names of hosts that have run a script
  bool has_leave_ = false;
  bool is_full_ = false;  ///< no descriptor was left for an agent: the next turn does not poll door_
};

}  // namespace hvd::launcher
