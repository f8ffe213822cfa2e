/// @file daemon_links.h — hvdrun's conversation with the host daemons: who is there, what each host's PMIx server is
/// told, the ranks' meetings (meeting_hub.h), and PMIx's words between hosts (pmix_hub.h).
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/start/meeting_hub.h"
#include "launcher/start/pmix_hub.h"
#include "wire/channel.h"
#include "wire/daemon_manifest.h"
#include "wire/hello.h"

namespace hvd::launcher {

/// What the daemons report.  All are called from receive().
struct DaemonEvents {
  std::function<void(int rank, int status)> abort;           ///< that rank has called MPI_Abort
  std::function<void(int rank)> spawn;                       ///< that rank has called MPI_Comm_spawn, which was refused
  std::function<void(int host, std::string why)> no_server;  ///< no PMIx server there: its ranks run without MPI
  std::function<void(int rank, int status)> guard_ended;     ///< badly, and perhaps before it could come
};

class DaemonLinks {
 public:
  /// @param manifests  [hosts], each with its own index
  DaemonLinks(std::vector<wire::DaemonManifest> manifests, DaemonEvents events);

  /// A daemon's hello.  Once all daemons have come they get their manifests, and start their ranks: no rank runs in a
  /// job that lacks a host.  False where there is no such host, or its daemon has come before.
  bool greet(wire::Listener& listener, const wire::PeerId& from, const wire::Hello& hello);
  bool all_have_come() const;
  /// All have come, and their connections have ended.
  bool all_are_gone() const;
  /// False when @p from is no daemon's.
  bool receive(wire::Listener& listener, const wire::PeerId& from, const wire::Frame& frame);
  /// Sends what the channel did not take yet.
  void flush(wire::Listener& listener);
  /// The rank has ended, or will not come: whoever waits for it in a meeting is told.  @p why  one line that names it
  void end_rank(wire::Listener& listener, int rank, const std::string& why);
  /// That connection has ended for good.  Other hosts that wait for this one are told.
  void lose(wire::Listener& listener, const wire::PeerId& peer);

 private:
  struct DaemonLink {
    wire::PeerId peer;  ///< empty: has not come
    bool gone = false;
    std::deque<std::shared_ptr<const wire::Frame>> queue{};  ///< one for many hosts lies in memory once
  };
  int host_of(const wire::PeerId& peer) const;
  void take_pmix(wire::Listener& listener, int host, const std::string& body);
  void send(wire::Listener& listener, const PmixHub::Outgoing& messages);
  void send(wire::Listener& listener, const MeetingHub::Answers& answers);
  void flush(wire::Listener& listener, DaemonLink& link);

  const std::vector<wire::DaemonManifest> manifests_;
  const DaemonEvents events_;
  std::vector<int> host_of_rank_;
  std::vector<DaemonLink> links_;  ///< [hosts]
  PmixHub hub_;
  MeetingHub meetings_;
};

}  // namespace hvd::launcher
