/// @file live.h — a running job answers questions (control/jobs.h), and asks ranks where they are.
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
  double grace_seconds = 0;    ///< between SIGTERM and SIGKILL
};

class Live {
 public:
  using Clock = std::chrono::steady_clock;
  struct Hands {
    std::function<void()> kill;
  };

  Live(Session& session, const Plan& plan, const std::string& folder, JobCard card, Hands hands);

  /// One turn of the loop.
  void turn();
  /// An event of the session.
  void stack(int rank, const wire::StackPicture& picture);
  /// Python frames of these ranks; @p done is called when all have answered, or after three seconds.
  void ask(const std::vector<int>& ranks, std::function<void(const Pictures&)> done);

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
};

}  // namespace hvd::launcher
