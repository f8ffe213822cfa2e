/// @file elastic_job.h — the decisions of an elastic job when workers and hosts come and go.  Pure: the caller passes
/// its clock, and carries the decisions out.
///
/// The rules (docs/decisions/63-elastic-jobs.md):
/// - After a death the other members go on at once.
/// - Members do not wait for a new worker: it joins when it is ready to receive the state.  A spare is ready already,
/// so
///   it is in the next world after a death.
/// - A slot that fails twice gets no worker.
/// - The job ends when no member is left, when it has had too few for too long, and when the same traceback has ended
///   workers three times.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/elastic/next_world.h"
#include "launcher/elastic/slot_history.h"
#include "wire/messages/death.h"

namespace hvd::launcher {

struct ElasticLimits {
  WorldLimits world;
  double wait_seconds = 600;         ///< for enough workers
  std::optional<int> most_resets{};  ///< changes of the world
  double prepare_seconds = 600;      ///< from a new worker's init() until it is ready
};

/// How hosts have changed, as the ranks are told.  Horovod's numbers.
enum class HostChange : std::uint8_t { none = 0, removed = 1, added = 2, mixed = 3 };

/// What the caller has to do now.
struct ElasticOrders {
  std::vector<std::string> lines;                   ///< for the user
  std::vector<ElasticWorker> start;                 ///< workers with new numbers
  std::vector<ElasticWorker> promoted;              ///< spares that have got a slot
  std::optional<std::vector<std::int32_t>> invite;  ///< members of the next world, by rank; empty: nobody yet
  std::vector<int> tell;                            ///< workers that meet again at their next commit
  HostChange change = HostChange::none;             ///< for the workers of `tell`; none: new workers are being started
  std::vector<int> dismiss;                         ///< workers that will be in no world: meetings refuse them
  std::vector<int> stop;                            ///< dismissed workers that do not leave by themselves
  std::string end;                                  ///< why the job cannot go on; empty: it goes on
};

/// The class has more than 15 members on purpose: each decision depends on all of them, and parts of it would only pass
/// them around.
class ElasticJob {
 public:
  /// @param workers  of the first world, with the numbers 0 to n-1
  ElasticJob(ElasticLimits limits, std::vector<ElasticWorker> workers, std::vector<ElasticHost> hosts,
             SlotHistory history);

  // What happens:
  void hosts_are(std::vector<ElasticHost> hosts) { hosts_ = std::move(hosts); }
  /// A new worker has called init(), and prepares.  Returns the next world's members by rank, for that worker.
  std::vector<std::int32_t> expects(int worker, double now);
  /// The worker is ready, and waits for its world.
  void waits(int worker, double now);
  /// A world has formed.
  void met(std::uint64_t epoch, const std::vector<std::int32_t>& members, double now);
  /// A new worker will not come, without a fault of its slot: another worker is started there.
  void withdraw(int worker);
  /// False when the job cannot go on after that death: it ends like a job of fixed ranks.
  /// @param since  when the rank was lost, if that was earlier than @p now: seconds of the caller's clock
  bool survives(const wire::DeathRecord& death, double now, std::optional<double> since = {});

  ElasticOrders turn(double now);

  /// The worker's end is no reason for the job's end: others have gone on, or the worker was told to leave.
  bool is_excused(int worker) const;
  /// A member has ended well: no worker is started any more.
  bool is_finishing() const { return finishing_; }
  /// Numbers of the job's workers: of the last world; before the first world, of all that will make it.
  std::vector<int> ranks() const;
  /// The job goes on when no worker is left: new workers take the state from --state-dir.
  bool outlives_its_workers() const { return limits_.world.state_is_kept && epoch_ > 0 && !finishing_; }

 private:
  struct WorkerRecord {
    ElasticWorker worker;
    bool gone = false, excused = false, stopped = false, was_spare = false;
    bool is_proven = false;    ///< has had the state: a world of this worker ended at a commit
    bool meets_again = false;  ///< a member that waits for the next world
    bool is_late = false;      ///< the user was told that the worker is not ready yet
    std::optional<double> dismissed_at{}, prepares_since{};
  };
  /// The decision of survives().
  bool takes(const wire::DeathRecord& death, double now, double since);
  void blame(const ElasticWorker& worker, const std::string& story, double now);
  WorkerRecord* find(int number);
  bool is_member(int number) const;  ///< of the last world
  std::vector<ElasticWorker> alive() const;
  WorldPlan plan(double now) const;
  void start(const WorldPlan& plan, ElasticOrders* orders);
  void promote(const WorldPlan& plan, double now, ElasticOrders* orders);
  void invite(const WorldPlan& plan, ElasticOrders* orders);
  void dismiss(const std::vector<int>& workers, double now, ElasticOrders* orders);
  void end_late_ones(double now, ElasticOrders* orders);
  void check_limits(const WorldPlan& plan, double now, ElasticOrders* orders);
  HostChange change_to(const std::vector<std::int32_t>& next) const;
  std::string sizes() const;

  const ElasticLimits limits_;
  std::map<int, WorkerRecord> workers_;
  std::vector<ElasticHost> hosts_;
  SlotHistory history_;
  int next_number_;
  std::vector<std::int32_t> world_;    ///< members by rank, of the last world that formed
  std::vector<std::int32_t> invited_;  ///< members of the next world
  std::uint64_t epoch_ = 0;            ///< 0: no world yet
  bool broken_ = false;                ///< a member of world_ is dead
  bool finishing_ = false;             ///< a member has ended well
  bool is_over_ = false;               ///< the job cannot go on after a death
  int resets_ = 0;
  std::vector<std::string> causes_;  ///< why the world changes
  std::vector<std::string> lines_;   ///< the user was not told yet
  std::string blamed_;               ///< host and reason of the last slot that failed: not told again at once
  double blamed_at_ = 0;
  double broken_at_ = 0;
  std::optional<double> first_waits_at_, too_few_since_;
  std::string last_words_;  ///< of the last worker's traceback
  int same_words_ = 0;      ///< how often in a row
};

}  // namespace hvd::launcher
