/// @file hang_watch.h — tells the user, unasked, which ranks keep the job from going on.
///
/// Gathers the facts for incidents.h, asks ranks where they are, and prints the lines of hang_text.h.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/control/session.h"
#include "launcher/events/job_event.h"
#include "launcher/hang/collective_waits.h"
#include "launcher/hang/hang_text.h"
#include "launcher/hang/incidents.h"
#include "launcher/verdict/verdict.h"

namespace hvd::launcher {

/// Size: the members are the parts of one watch over all ranks.  Each line of text needs several of them.
class HangWatch {
 public:
  /// @param patience  std::nullopt: the user wants no messages about hangs
  /// @param elastic  ranks may come and go: see world_is()
  /// @param events  gets HangTold, StacksWanted, HangTooLong, LimitPaused, OperationsAsked, and, after lines about an
  /// operation, DifferenceWanted
  HangWatch(const Session& session, const JobMap& map, std::optional<HangLimits> patience, bool elastic,
            EventSink events);

  /// One turn of the event loop.
  void turn();
  /// True when turn() has nothing to do until a fact changes.
  bool is_quiet() const { return is_quiet_ || !patience_ || all_paused_; }
  /// To be called after a fact has changed: the next turn() checks whether a hang can follow.
  void look_again() { is_quiet_ = false; }
  /// The lines about incidents still open, as the user has read them.  The job's verdict repeats the lines.
  const std::vector<std::string>& open_lines() const { return open_lines_; }
  /// An open incident as data; nothing: no incident is open.
  std::optional<OpenHang> open_hang() const;
  /// A rank has ended.
  void rank_ended(int rank);
  /// Events of the session.
  void standing(int rank, const wire::StatusReport& standing);
  void stall(int rank, std::vector<wire::Stall> stalls);
  void paused(int rank, bool paused);
  void collective_wait(int rank, const wire::CollectiveWait& wait);
  /// hvdrun itself stops all ranks, or lets them go on.
  void all_paused(bool paused);
  /// Names an elastic job's workers, in the order of their ranks in the world.  Only workers can hang; at first all
  /// ranks are workers.
  void world_is(const std::vector<std::int32_t>& workers);

 private:
  JobFacts facts(double now) const;
  /// Elastic jobs only.  Marks ranks outside the world.  The coordinator counts ranks within the world: converts these
  /// numbers to the job's ranks.
  void leave_out_others(JobFacts* f) const;
  /// The facts about a rank.  Makes an entry for a rank that an elastic job has added.
  RankActivity& activity(int rank);
  void tell(const IncidentNotice& event);
  /// Close to the user's limit: libhvd's own limit pauses while the missing ranks do work that ends by itself.
  void pause_limit(const IncidentNotice& event);
  /// The user's limit is reached: ends the job, unless the missing ranks do work that ends by itself.
  void give_up(const IncidentNotice& event);
  void keep_lines(const std::vector<std::string>& lines);
  std::vector<int> whom_to_ask(const Incident& incident) const;
  /// Some ranks wait, but no coordinator names the missing ranks: asks the other ranks whether they can run at all.
  void look_for_frozen(const JobFacts& known);

  /// The last report of the coordinator in a rank.
  struct CoordinatorReport {
    double at = 0;
    std::vector<StalledOperation> waits;
  };
  const Session& session_;
  const JobMap& map_;
  const std::optional<HangLimits> patience_;
  const EventSink events_;
  Incidents incidents_;
  CollectiveWaits collectives_;
  std::vector<RankActivity> ranks_;
  std::map<int, CoordinatorReport> said_;
  std::optional<std::vector<std::int32_t>> world_;  ///< members of an elastic job's world; other jobs: std::nullopt
  std::vector<std::string> open_lines_;
  std::optional<OpenHang> open_hang_;
  double kept_at_ = 0;
  double next_look_ = 0;
  std::optional<double> looked_;  ///< time of the last look, if the next one follows at once
  double next_frozen_look_ = 0;
  std::map<int, double> frozen_;  ///< ranks that cannot run, though no signal has stopped them: since when
  double at_work_ = -1e9;         ///< when the user's limit was put off last
  bool all_paused_ = false, is_quiet_ = false;
  double resumed_ = 0;  ///< waits that began before this moment do not count
  double met_ = 0;      ///< the world's start: a spare's earlier wait in init() does not count
};

}  // namespace hvd::launcher
