/// @file kept_operations.h — the last operations of all ranks: asked for, and kept in a file where a job hangs or
/// fails.
#pragma once
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "launcher/control/session.h"
#include "launcher/mapping/job_map.h"
#include "wire/shared/operation_record.h"

namespace hvd::launcher {

class KeptOperations {
 public:
  using Clock = std::chrono::steady_clock;
  /// @p job  its name, which becomes the file's
  KeptOperations(Session& session, const JobMap& map, std::string job)
      : session_(session), map_(map), job_(std::move(job)) {}

  /// Asks all ranks; @p done is called when all have answered, or after three seconds.
  void ask(std::function<void(const wire::JobOperations&)> done);
  /// An event of the session: an answer, or the last words of a rank that has failed.
  void take(int rank, wire::RankOperations operations);
  /// One turn of the loop.
  void turn();
  bool is_quiet() const { return rounds_.empty(); }
  /// What came last of each rank.
  const wire::JobOperations& last() const { return last_; }
  /// Writes @p operations to $XDG_STATE_HOME/hvdrun/operations (else ~/.local/state), where the last 20 jobs' are.
  /// Returns the file's path; empty where nothing could be written, or there is nothing.
  std::string keep(const wire::JobOperations& operations) const;

 private:
  struct Round {
    std::set<int> open;
    wire::JobOperations answers;
    Clock::time_point limit;
    std::function<void(const wire::JobOperations&)> done;
  };
  Session& session_;
  const JobMap& map_;
  const std::string job_;
  std::vector<Round> rounds_;
  wire::JobOperations last_;
};

}  // namespace hvd::launcher
