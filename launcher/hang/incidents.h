/// @file incidents.h — which ranks keep a job from going on, from the start of its ranks to their end.  Pure.
///
/// Input:
/// - The stage of each rank, and the operation for which the rank has long waited.  The rank's guard reads both, even
///   while the rank is stopped.
/// - The operations that some ranks have not submitted.  The coordinator in rank 0 reports them, if it can.
///
/// Output: incidents.  An incident opens, is reported again at growing intervals, and closes.  Operations for which the
/// same ranks are missing are one incident.  Times are seconds of the caller's clock.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wire/shared/stalls.h"
#include "wire/shared/status_page.h"

namespace hvd::launcher {

/// The stages of a rank: those of wire::RankPhase, with `absent` before and `ended` after them.
/// outside: the rank is in no world of an elastic job, so no rank waits for it.
enum class LifeStage { absent, script, init, working, leaving, ended, outside };

struct RankActivity {
  LifeStage where = LifeStage::absent;
  double since = 0;                     ///< when the rank came to that stage
  std::optional<double> stopped_since;  ///< the time at which a signal stopped the rank
  std::optional<double> idle_since{};   ///< the time since which the rank has neither computed nor printed
  std::string waits_for;                ///< the first name among the operations that make no progress; empty: none
  double waits_since = 0;
  wire::GpuProgress gpu = wire::GpuProgress::none;  ///< while the rank waits
  std::string gpu_late{};    ///< with GpuProgress::computing: the operation whose tensor the GPU has not computed
  std::string waits_what{};  ///< wire::StatusReport::waits_what
};

/// The coordinator's report on operations that the same ranks have not submitted.
struct StalledOperation {
  wire::Stall stall;
  double since = 0;  ///< when the operation that waits longest began to wait
};

struct HangLimits {
  double hang = 5;      ///< seconds: the shortest wait for an operation that is reported
  double warn = 60;     ///< HOROVOD_STALL_CHECK_TIME_SECONDS
  double shutdown = 0;  ///< HOROVOD_STALL_SHUTDOWN_TIME_SECONDS; 0: never
};

// Seconds: the shortest waits in hvd.init() and init_process_group() that are reported.
inline constexpr double patience_with_late_at_init = 8;  ///< ranks are missing, perhaps still importing
inline constexpr double patience_with_all_at_init = 20;  ///< no rank is missing

enum class IncidentKind {
  init,       ///< some ranks wait in hvd.init(), `missing` have not called it (empty: all have)
  operation,  ///< some ranks wait for an operation that `missing` have not submitted
  stuck,      ///< all ranks have submitted an operation that does not end: perhaps the network fails
  late_gpu,   ///< all ranks have submitted an operation whose tensor the GPUs of `missing` have not computed
  end,        ///< the other ranks have finished; `missing` still work
  leaving,    ///< all other ranks have ended; the scripts of `missing` have ended too, but not their processes
  stopped,    ///< `missing` are stopped by a signal, and no rank has waited for them yet
  idle,       ///< `missing` are all ranks: none computes, and none waits in an operation that hvdrun knows
};

struct Incident {
  IncidentKind kind = IncidentKind::operation;
  std::vector<int> missing;  ///< sorted
  int more = 0;              ///< missing ranks that are not in the list
  int waiting = 0;           ///< ranks that wait
  double since = 0;
  std::string tensor;
  int tensors = 0;
  std::string headline{};                 ///< text of the first line; empty: the first line names missing ranks
  std::vector<std::string> details{};     ///< more lines for the user
  std::string what{};                     ///< kind and shape of `tensor`; empty: not known, or its name has the kind
  std::map<int, std::string> gpu_late{};  ///< of missing ranks: the operation whose tensor the GPU has not computed
  int waiter = -1;  ///< a rank that waits for `tensor`, if that is an operation of torch.distributed; -1: none
};

struct JobFacts {
  double now = 0;
  std::vector<RankActivity> ranks;      ///< [np]
  std::vector<StalledOperation> waits;  ///< also empty when the coordinator cannot report
  std::vector<Incident> others{};       ///< incidents in torch.distributed: collective_waits.h
};

/// The incidents at facts.now.  Incidents with fewer missing ranks come first.
std::vector<Incident> incidents_now(const JobFacts& facts, const HangLimits& patience);

/// True if an incident can follow without new facts.  Then a rank waits, is idle or stopped, or is in a stage other
/// than `script` and `working`.
bool may_become_hang(const JobFacts& facts);

enum class NoticeKind {
  opened,      ///< also when other ranks are missing than before
  again,       ///< the incident lasts
  closed,      ///< a reported incident is over: its ranks go on
  near_limit,  ///< an operation has almost waited for HangLimits::shutdown, or longer; again every few seconds
  give_up,     ///< the incident has lasted for HangLimits::shutdown
};

/// A message for the user.
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
  /// Takes back NoticeKind::give_up for this incident; it comes again at the time @p until, if the incident lasts.
  /// False: the incident is over.
  bool put_off(const Incident& incident, double until);

 private:
  struct OpenIncident {
    Incident incident;
    double seen = 0;             ///< last time
    std::optional<double> told;  ///< last time
    std::vector<int> told_missing{};
    std::optional<double> grew_at{};  ///< since when the missing ranks differ from the reported ones
    double next = 0;                  ///< time of the next message
    double pause = 0;                 ///< between the last two messages
    bool given_up = false;
    double give_up_at = 0;  ///< not before this time
    double near_at = 0;     ///< no NoticeKind::near_limit before this time
  };
  OpenIncident* same(const Incident& incident, double now);
  void take(const Incident& incident, double now, std::vector<IncidentNotice>& events);
  void close(const JobFacts& facts, const std::vector<Incident>& current, std::vector<IncidentNotice>& events);

  const HangLimits patience_;
  std::vector<OpenIncident> open_;
  std::map<std::vector<int>, int> closings_;  ///< by missing ranks: how often they went on; such ranks may only be slow
};

}  // namespace hvd::launcher
