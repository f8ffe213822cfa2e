/// @file elastic_job.h — the decisions of an elastic job when workers and hosts come and go.
///
/// Pure: the caller passes the time, and carries out the decisions.  Times are seconds of the caller's clock.
///
/// The rules (docs/decisions/63-elastic-jobs.md):
/// - After a death, the other members go on at once.
/// - Members do not wait for a new worker.  A new worker joins when it is ready to receive the state.  A spare is
///   ready before a death, so the spare is in the next world.
/// - A slot that fails twice gets no worker, permanently or for a time (slot_history.h).
/// - The job ends if no member is left and the state is not kept elsewhere.  A world that is too small for too long
/// ends the job.  Too few remaining slots end the job, if no other slot can come.  A traceback that ends workers three
/// times in a row ends the job.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/elastic/next_world.h"
#include "launcher/elastic/slot_history.h"
#include "wire/messages/death.h"

namespace hvd::launcher {

struct ElasticLimits {
  WorldLimits world;
  double wait_seconds = 600;         ///< limit of the wait for enough workers
  std::optional<int> most_resets{};  ///< limit of the changes of the world; nothing: no limit
  double prepare_seconds = 600;      ///< from a new worker's init() until it is ready
  bool hosts_may_change = true;      ///< a script or a file may name other slots while the job runs
};

/// The change of hosts that is reported to ranks.  The numbers are Horovod's.
enum class HostChange : std::uint8_t { none = 0, removed = 1, added = 2, mixed = 3 };

/// Orders that the caller must carry out now.
struct ElasticOrders {
  std::vector<std::string> lines;                   ///< messages for the user
  std::vector<ElasticWorker> start;                 ///< workers to start, with new numbers
  std::vector<ElasticWorker> promoted;              ///< spares that have got a slot
  std::optional<std::vector<std::int32_t>> invite;  ///< members of the next world, by rank; empty: none yet
  std::vector<int> tell;                 ///< workers to tell that hosts change: they meet again at their next commit
  HostChange change = HostChange::none;  ///< for the workers of `tell`; none: new workers are being started
  std::vector<int> dismiss;              ///< workers that will be in no world: meetings must refuse them
  std::vector<int> stop;                 ///< workers to stop: dismissed ones that do not leave, or late ones
  std::string end;                       ///< why the job cannot go on; empty: it goes on
};

/// Size: each decision depends on most of the members, so smaller classes would only pass them around.
class ElasticJob {
 public:
  /// @param workers  the workers of the first world, with the numbers 0 to n-1
  ElasticJob(ElasticLimits limits, std::vector<ElasticWorker> workers, std::vector<ElasticHost> hosts,
             SlotHistory history);

  // Events, passed by the caller:
  void hosts_are(std::vector<ElasticHost> hosts);
  /// A new worker has called init(), and prepares.  Returns the next world's members by rank, for that worker.
  std::vector<std::int32_t> expects(int worker, double now);
  /// The worker is ready, and waits for its world.
  void waits(int worker, double now);
  /// A world has formed.
  void met(std::uint64_t epoch, const std::vector<std::int32_t>& members, double now);
  /// A new worker will not come, but its slot has no fault: another worker is started in the slot.
  void withdraw(int worker);
  /// A worker has died.  False: the job cannot go on, and ends like a job of fixed ranks.
  /// @param since  when the rank was lost, if earlier than @p now
  bool survives(const wire::DeathRecord& death, double now, std::optional<double> since = {});

  /// Decides.  To be called after events, and regularly.
  ElasticOrders turn(double now);

  /// True if the job survives this worker's end: other workers have gone on, or the worker was told to leave.
  bool is_excused(int worker) const;
  /// True after a member has ended well: no worker is started any more.
  bool is_finishing() const { return finishing_; }
  /// Numbers of the living workers of the last world.  Before the first world: of the workers invited to it.
  std::vector<int> ranks() const;
  /// True if the job goes on when no worker is left: new workers take the state from --state-dir.
  bool outlives_its_workers() const { return limits_.world.state_is_kept && epoch_ > 0 && !finishing_; }

 private:
  struct WorkerRecord {
    ElasticWorker worker;
    bool gone = false, excused = false, stopped = false, was_spare = false;
    bool is_proven = false;    ///< has certainly received the state: see met()
    bool meets_again = false;  ///< a member that waits for the next world
    bool is_late = false;      ///< the user has got the message that the worker is not ready
    std::optional<double> dismissed_at{}, prepares_since{};
  };
  /// The decision of survives(): true if the job goes on.
  bool takes(const wire::DeathRecord& death, double now, double since);
  void leave(const std::string& host);
  void blame(const ElasticWorker& worker, const std::string& story, double now);
  WorkerRecord* find(int number);
  bool is_member(int number) const;  ///< member of the last world
  std::vector<ElasticWorker> alive() const;
  WorldPlan plan(double now) const;
  void start(const WorldPlan& plan, ElasticOrders* orders);
  void promote(const WorldPlan& plan, double now, ElasticOrders* orders);
  void invite(const WorldPlan& plan, ElasticOrders* orders);
  void dismiss(const std::vector<int>& workers, double now, ElasticOrders* orders);
  void end_late_ones(double now, ElasticOrders* orders);
  void check_limits(const WorldPlan& plan, double now, ElasticOrders* orders);
  int most_workers() const;
  std::string lost_slots() const;
  HostChange change_to(const std::vector<std::int32_t>& next) const;
  std::string sizes() const;

  const ElasticLimits limits_;
  std::map<int, WorkerRecord> workers_;
  std::vector<ElasticHost> hosts_;
  std::set<std::string> left_hosts_;  ///< not used any more, whatever discovery says
  SlotHistory history_;
  int next_number_;
  std::vector<std::int32_t> world_;    ///< members of the last world that formed, by rank
  std::vector<std::int32_t> invited_;  ///< members of the next world, by rank
  std::uint64_t epoch_ = 0;            ///< 0: no world yet
  bool broken_ = false;                ///< a member of world_ is dead
  bool finishing_ = false;             ///< a member has ended well
  int finished_ = -1;                  ///< with finishing_: the first such member
  bool tells_training_ = false;  ///< the user has got the message that other workers still train after finished_ ended
  bool is_over_ = false;         ///< the job cannot go on after a death
  int resets_ = 0;
  std::vector<std::string> causes_;  ///< reasons of the next change of the world
  std::vector<std::string> lines_;   ///< messages that the next turn() returns
  std::string blamed_;               ///< host and reason of the last failed slot, so no message repeats at once
  double blamed_at_ = 0;
  double broken_at_ = 0;
  std::optional<double> first_waits_at_, too_few_since_;
  std::string last_words_;  ///< traceback of the last worker that died
  int same_words_ = 0;      ///< number of equal tracebacks in a row
};

}  // namespace hvd::launcher
