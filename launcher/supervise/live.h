/// @file live.h — a running job answers questions (control/jobs.h); and says by itself when it hangs.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/control/commands.h"
#include "launcher/control/session.h"
#include "launcher/supervise/hang.h"

namespace hvd::launcher {

/// What ps shows, and what a job asks of us.
struct JobCard {
  std::string id, payload;
  double started_seconds = 0;  ///< CLOCK_REALTIME
  double hang_seconds = 0;     ///< a wait worth a word; 0: the user wants none
  double grace_seconds = 0;    ///< between SIGTERM and SIGKILL
};

class Live {
 public:
  using Clock = std::chrono::steady_clock;
  struct Hands {
    std::function<void(const std::string& line)> say;
    std::function<void()> kill;
  };

  Live(Session& session, const Plan& plan, const std::string& folder, JobCard card, Hands hands);

  /// One turn of the loop.
  void turn();
  /// Events of the session.
  void stack(int rank, const wire::StackPicture& picture);
  void stall(std::string_view body);
  /// A rank was stopped by a signal, or goes on.  When nobody else tells of it in time, this does: the rank that looks
  /// for stalls may be the very one.
  void paused(int rank, bool paused);
  /// hvdrun itself stops them all, or lets them go on.
  void all_paused(bool paused);

 private:
  /// Ranks are asked where they are, until all have answered or the limit is over.
  struct Round {
    std::set<int> open;
    Pictures pictures;
    Clock::time_point limit;
    std::function<void(const Pictures&)> done;
  };
  void ask(const std::vector<int>& ranks, bool native, std::chrono::milliseconds limit,
           std::function<void(const Pictures&)> done);
  void obey(const CommandServer::Call& call);
  std::string status() const;
  std::string stacks_text(const Pictures& pictures) const;
  std::vector<int> ended() const;

  Session& session_;
  const Plan& plan_;
  CommandServer commands_;
  const JobCard card_;
  const Hands hands_;
  std::vector<Round> rounds_;
  void tell_of_paused();
  bool all_paused_ = false;
  std::map<int, Clock::time_point> paused_;  ///< since when; not those that were told of
  std::set<std::string> told_;               ///< tensors whose hang is known to the user
};

}  // namespace hvd::launcher
