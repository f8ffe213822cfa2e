/// @file elastic_job.h — what becomes of an elastic job when workers and hosts come and go.  Pure: the caller's clock
/// comes in, and the caller carries out what it decides.
///
/// The rules: members go on with whom there is, at once.  Nobody waits for a new worker: it is taken in when it is
/// ready to receive the state (docs/decisions/63-elastic-jobs.md).  A spare is ready already: it is in the next world
/// after a death.  A slot that fails twice is left alone.  The job ends when no member is left, when it has too few for
/// too long, and when the same traceback ends workers three times.
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

/// How hosts have changed, as the ranks hear it.  Horovod's numbers.
enum class HostChange : std::uint8_t { none = 0, removed = 1, added = 2, mixed = 3 };

/// What is to be done now.
struct ElasticOrders {
  std::vector<std::string> lines;                   ///< for the user
  std::vector<ElasticWorker> start;                 ///< workers with new numbers
  std::vector<ElasticWorker> promoted;              ///< spares that have got a slot
  std::optional<std::vector<std::int32_t>> invite;  ///< members of the next world, by rank; empty: nobody yet
  std::vector<int> tell;                            ///< workers that are to meet again at their next commit
  HostChange change = HostChange::none;             ///< what they are told; none: workers are being started
  std::vector<int> dismiss;                         ///< workers that are in no world any more: meetings refuse them
  std::vector<int> stop;                            ///< of these, those that do not leave by themselves
  std::string end;                                  ///< why the job cannot go on; empty: it does
};

class ElasticJob {
 public:
  /// @param workers  the first ones, numbers 0 to n-1.  All of them make the first world
  ElasticJob(ElasticLimits limits, std::vector<ElasticWorker> workers, std::vector<ElasticHost> hosts,
             SlotHistory history);

  // What happens:
  void hosts_are(std::vector<ElasticHost> hosts) { hosts_ = std::move(hosts); }
  /// A new one has called init(), and prepares.  @return the next world's members as it is told them, by rank
  std::vector<std::int32_t> expects(int worker, double now);
  /// It is ready, and waits for a world of all.
  void waits(int worker, double now);
  /// A world has formed.
  void met(std::uint64_t epoch, const std::vector<std::int32_t>& members, double now);
  /// A new one that will not come, through no fault of its slot: another is started.
  void withdraw(int worker);
  /// False where the job cannot live with that death: it ends as a job of fixed ranks does.
  /// @param since  when the rank was lost, where that is known only now: seconds of the caller's clock
  bool survives(const wire::DeathRecord& death, double now, std::optional<double> since = {});

  ElasticOrders turn(double now);

  /// The worker's end is no reason for the job's: others have gone on, or it was to leave.
  bool is_excused(int worker) const;
  /// A member has ended well: nobody is started any more.
  bool is_finishing() const { return finishing_; }
  /// Numbers of the ranks that the job has now: of the last world, or before the first one of all that are to make it.
  std::vector<int> ranks() const;
  /// It is not over when no worker is left: new ones go on from what --state-dir has.
  bool outlives_its_workers() const { return limits_.world.state_is_kept && epoch_ > 0 && !finishing_; }

 private:
  struct WorkerRecord {
    ElasticWorker worker;
    bool gone = false, excused = false, stopped = false, was_spare = false;
    bool is_proven = false;    ///< it has had the state: a world that it was in ended at a commit
    bool meets_again = false;  ///< a member that waits for the next world
    bool is_late = false;      ///< it has been said that it is not ready yet
    std::optional<double> dismissed_at{}, prepares_since{};
  };
  /// What survives() decides.
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
  std::vector<std::int32_t> invited_;  ///< of the next one
  std::uint64_t epoch_ = 0;            ///< 0: no world yet
  bool broken_ = false;                ///< a member of world_ is dead
  bool finishing_ = false;             ///< a member has ended well
  bool is_over_ = false;               ///< the job cannot live with a death
  int resets_ = 0;
  std::vector<std::string> causes_;  ///< of the change under way
  std::vector<std::string> lines_;   ///< not said yet
  std::string blamed_;               ///< the last slot's host and reason: they are not told again at once
  double blamed_at_ = 0;
  double broken_at_ = 0;
  std::optional<double> first_waits_at_, too_few_since_;
  std::string last_words_;  ///< of the last worker's traceback
  int same_words_ = 0;      ///< how often in a row
};

}  // namespace hvd::launcher
