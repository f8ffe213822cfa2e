/// @file kept_operations.h — if a job hangs or fails, writes the last operations of all ranks to a file.
#pragma once
#include <string>

#include "launcher/control/session.h"
#include "launcher/mapping/job_map.h"
#include "launcher/supervise/watch/rounds.h"
#include "wire/collectives/operation_record.h"

namespace hvd::launcher {

class KeptOperations {
 public:
  /// @param job  the job's name, which becomes the file's
  KeptOperations(Session& session, const JobMap& map, std::string job)
      : session_(session), map_(map), job_(std::move(job)) {}

  /// Asks all ranks; @p done is called when all have answered, or after three seconds.
  void ask(Rounds<wire::RankOperations>::Done done);
  /// Takes a rank's answer, or the report of a rank that has failed.
  void take(int rank, wire::RankOperations operations);
  /// One turn of the loop.
  void turn() { rounds_.turn(); }
  bool is_quiet() const { return rounds_.empty(); }
  /// The last report of each rank.
  const wire::JobOperations& last() const { return last_; }
  /// Writes @p operations to $XDG_STATE_HOME/hvdrun/operations (else ~/.local/state), which keeps 20 files.
  /// Returns the file's path.  Empty: there are no operations, or they cannot be written.
  std::string keep(const wire::JobOperations& operations) const;

 private:
  Session& session_;
  const JobMap& map_;
  const std::string job_;
  Rounds<wire::RankOperations> rounds_;
  wire::JobOperations last_;
};

}  // namespace hvd::launcher
