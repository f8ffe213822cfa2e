/// @file join_server.h — hvdrun's port at which hosts join a job.  Also passes scripts to these hosts.
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
  /// @param agents_path  the path of the unix socket to make
  /// Throws Error{unavailable} when the port is taken.
  JoinServer(int port, const JoinKeys& keys, const std::string& agents_path);

  /// Waits for events until @p also is readable, or for @p milliseconds, and serves them.
  void turn(int also, int milliseconds);
  /// The connected hosts that are not leaving, sorted by name: "w-2" before "w-10".
  std::vector<wire::JoinOffer> hosts() const;
  /// True if, since the last call, a host with a running script got a signal to end.
  bool take_leave();
  /// Tells all hosts that the job has ended, and waits up to two seconds until they are gone.
  void dismiss_all(int code, const std::string& reason);

 private:
  struct Guest {
    wire::PeerId peer;
    wire::JoinOffer offer;
    bool is_leaving = false, is_busy = false;  ///< is_busy: it runs a script
    std::deque<wire::Frame> out{};             ///< frames that the channel has not taken yet
  };
  /// A launch agent of the second hvdrun (listen.h).
  struct Agent {
    Fd link;
    std::string host, script;
    bool has_all = false;    ///< the script is complete
    wire::PeerId runs_on{};  ///< the host that runs the script; empty: none yet
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
  Fd agents_socket_;         ///< the socket to which agents connect
  std::list<Guest> guests_;  ///< by arrival; if two have one name, the later one counts
  std::list<Agent> agents_;
  std::set<std::string> used_;  ///< names of hosts that have run a script
  bool has_leave_ = false;
  bool is_full_ = false;  ///< no descriptor was left for an agent: the next turn does not poll agents_socket_
};

}  // namespace hvd::launcher
