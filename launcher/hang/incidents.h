/// @file incidents.h — what keeps a job from going on, from the first instruction of its ranks to the last.  Pure.
///
/// Facts go in:
/// - where each rank is in its life, and the operation for which it has long waited.  The rank's guard reads both, even
///   while the rank is stopped;
/// - the operations that some ranks have not submitted.  The coordinator in rank 0 tells them, if it can.
/// Incidents come out.  An incident opens, is told again ever more rarely, and closes.  Operations for which the same
/// ranks are missing are one incident.  Times are seconds of the caller's clock.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wire/shared/stalls.h"

namespace hvd::launcher {

/// Where a rank is in its life: wire::RankPhase, with a stage before it and one after it.
/// outside: in no world of an elastic job, so nobody waits for it.
enum class LifeStage { absent, script, init, working, leaving, ended, outside };

/// One rank.
struct RankActivity {
  LifeStage where = LifeStage::absent;
  double since = 0;                     ///< when the rank came there
  std::optional<double> stopped_since;  ///< by a signal
  std::string waits_for;                ///< of the operations that do not move: the first by name; empty: none
  double waits_since = 0;
};

/// The coordinator's report on operations that the same ranks have not submitted.
struct StalledOperation {
  wire::Stall stall;
  double since = 0;  ///< when the longest of them began to wait
};

struct HangLimits {
  double hang = 5;      ///< the least wait for an operation that is worth a word
  double warn = 60;     ///< HOROVOD_STALL_CHECK_TIME_SECONDS
  double shutdown = 0;  ///< HOROVOD_STALL_SHUTDOWN_TIME_SECONDS; 0: never
};

enum class IncidentKind {
  init,       ///< some ranks wait in hvd.init(), `missing` have not called it (empty: all have)
  operation,  ///< some ranks wait for an operation that `missing` have not submitted
  stuck,      ///< all ranks have submitted an operation, and it does not end: the network?
  end,        ///< the other ranks have finished; `missing` still work
  leaving,    ///< all other ranks have ended; the scripts of `missing` have ended too, but not their processes
  stopped,    ///< `missing` are stopped by a signal, and no rank has waited for them yet
};

struct Incident {
  IncidentKind kind = IncidentKind::operation;
  std::vector<int> missing;  ///< sorted
  int more = 0;              ///< missing ranks that are not in the list
  int waiting = 0;           ///< ranks that wait
  double since = 0;
  std::string tensor;
  int tensors = 0;
  std::string headline{};              ///< in place of who is missing where; empty: that is told
  std::vector<std::string> details{};  ///< more lines for the user
};

struct JobFacts {
  double now = 0;
  std::vector<RankActivity> ranks;      ///< [np]
  std::vector<StalledOperation> waits;  ///< empty also when the coordinator cannot tell
  std::vector<Incident> others{};       ///< of torch.distributed: collective_waits.h
};

/// The incidents of this moment, those with the fewest missing ranks first.
std::vector<Incident> incidents_now(const JobFacts& facts, const HangLimits& patience);

/// Whether time alone can make an incident of them: somebody waits, has ended, or is stopped.
bool may_become_hang(const JobFacts& facts);

enum class NoticeKind {
  opened,   ///< also when other ranks are missing than before
  again,    ///< the incident lasts
  closed,   ///< an incident that was told is over: all ranks go on
  give_up,  ///< the incident has lasted for HangLimits::shutdown
};

/// What the user is to be told.
struct IncidentNotice {
  NoticeKind kind = NoticeKind::opened;
  Incident incident;
  double seconds = 0;  ///< how long the incident has lasted
};

/// Follows incidents over time.
class Incidents {
 public:
  explicit Incidents(HangLimits patience) : patience_(patience) {}
  std::vector<IncidentNotice> look(const JobFacts& facts);
  bool none_open() const { return open_.empty(); }

 private:
  struct OpenIncident {
    Incident incident;
    double seen = 0;             ///< last
    std::optional<double> told;  ///< last
    double next = 0;             ///< time for the next word
    double pause = 0;            ///< between the last two words
    bool given_up = false;
  };
  OpenIncident* same(const Incident& incident, double now);
  void take(const Incident& incident, double now, std::vector<IncidentNotice>& events);
  void close(const JobFacts& facts, const std::vector<Incident>& current, std::vector<IncidentNotice>& events);

  const HangLimits patience_;
  std::vector<OpenIncident> open_;
  std::map<std::vector<int>, int> closings_;  ///< by ranks: how often they went on; such ranks may just be slow
};

}  // namespace hvd::launcher
