/// @file incidents.h — what keeps a job from going on, from the first instruction of its ranks to the last.  Pure.
///
/// Facts go in: where each rank is in its life, what it has long waited for (its guard reads that, also while the rank
/// is stopped), and who has not submitted what (the coordinator in rank 0 tells, if it can).  Incidents come out: they
/// open, are told again ever more rarely, and close.  What is waited for by the same ranks is one incident.  The clock
/// is the caller's, in seconds.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wire/stalls.h"

namespace hvd::launcher {

/// Where a rank is in its life; as wire::RankPhase, with the two ends.
enum class LifeStage { absent, script, init, working, leaving, ended };

/// One rank.
struct RankActivity {
  LifeStage where = LifeStage::absent;
  double since = 0;                     ///< when it came there
  std::optional<double> stopped_since;  ///< by a signal
  std::string waits_for;                ///< nothing of what it has submitted moves: the first of it by name; or empty
  double waits_since = 0;
};

/// What the coordinator says: operations that the same ranks have not submitted.
struct StalledOperation {
  wire::Stall stall;
  double since = 0;  ///< when the longest of them began to wait
};

struct JobFacts {
  double now = 0;
  std::vector<RankActivity> ranks;      ///< [np]
  std::vector<StalledOperation> waits;  ///< empty also when the coordinator cannot tell
};

struct HangLimits {
  double hang = 5;      ///< the least wait for an operation that is worth a word
  double warn = 60;     ///< HOROVOD_STALL_CHECK_TIME_SECONDS
  double shutdown = 0;  ///< HOROVOD_STALL_SHUTDOWN_TIME_SECONDS; 0: never
};

enum class IncidentKind {
  init,       ///< some wait in hvd.init(), `missing` have not come to it (empty: all have)
  operation,  ///< some wait for an operation that `missing` have not submitted
  stuck,      ///< all have submitted it and it does not end: the network?
  end,        ///< the others are through; `missing` work on
  leaving,    ///< the scripts of `missing` have ended, all others are through, and they do not end
  stopped,    ///< `missing` are stopped by a signal, and nobody has waited for them yet
};

struct Incident {
  IncidentKind kind = IncidentKind::operation;
  std::vector<int> missing;  ///< sorted
  int more = 0;              ///< missing ranks that are not in the list
  int waiting = 0;           ///< ranks that wait
  double since = 0;
  std::string tensor;
  int tensors = 0;
};

/// What is wrong now, the fewest missing ranks first.
std::vector<Incident> incidents_now(const JobFacts& facts, const HangLimits& patience);

enum class NoticeKind {
  opened,   ///< also: other ranks than before are missing
  again,    ///< it lasts
  closed,   ///< after it was told of: everybody goes on
  give_up,  ///< it has lasted for HangLimits::shutdown
};

/// What is to be told.
struct IncidentNotice {
  NoticeKind kind = NoticeKind::opened;
  Incident incident;
  double seconds = 0;  ///< that it has lasted
};

/// Follows incidents over time.
class Incidents {
 public:
  explicit Incidents(HangLimits patience) : patience_(patience) {}
  std::vector<IncidentNotice> look(const JobFacts& facts);

 private:
  struct OpenIncident {
    Incident incident;
    double seen = 0;             ///< last
    std::optional<double> told;  ///< last
    double next = 0;             ///< time for the next word
    double pause = 0;            ///< between the last two words
    bool given_up = false;
  };
  OpenIncident* same(const Incident& incident);
  void take(const Incident& incident, double now, std::vector<IncidentNotice>& events);
  void close(const JobFacts& facts, const std::vector<Incident>& current, std::vector<IncidentNotice>& events);

  const HangLimits patience_;
  std::vector<OpenIncident> open_;
  std::map<std::vector<int>, int> closings_;  ///< how often these ranks have gone on: they may just be slow
};

}  // namespace hvd::launcher
