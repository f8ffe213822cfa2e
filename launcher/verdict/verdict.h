/// @file verdict.h — the verdict on a job: which rank failed first and why, and all other ranks in one line.  Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "wire/messages/death.h"

namespace hvd::launcher {

/// Why hvdrun itself ended the job, if it did.
struct EndReason {
  int signal = 0;                        ///< SIGINT, SIGTERM, SIGHUP, SIGPIPE sent to hvdrun
  int output_errno = 0;                  ///< why standard output could not be written
  double time_limit_seconds = 0;         ///< > 0: it was reached
  std::string hang;                      ///< it went on for longer than the user allows: who waited for whom
  std::vector<std::string> waits;        ///< what hvdrun had told of a hang that was not over
  std::string elastic;                   ///< why an elastic job cannot go on
  std::string starter = "mpirun";        ///< through which the ranks came up, as messages have it
  std::string starter_fault;             ///< it died under the ranks: "was killed by signal 9 (SIGKILL)"
  int starter_code = 0;                  ///< exit code for that
  std::vector<std::string> mpirun_said;  ///< of MPI in the ranks (first_words); shown when the culprit wrote nothing
};

struct Verdict {
  int exit_code = 0;
  std::vector<std::string> lines;                ///< hvdrun's own words; empty after a good end
  std::optional<wire::DeathRecord> first_cause;  ///< whose traceback is printed after the lines
};

/// @param deaths  of all ranks that ended, with times in one clock
/// @param size    number of ranks of the job
Verdict judge(const std::vector<wire::DeathRecord>& deaths, int size, const EndReason& ended);

/// "rank 3 on node2".
std::string rank_text(const wire::DeathRecord& death);

/// "ended with exit code 3", "was killed by signal 9 (SIGKILL)".
std::string story(const wire::DeathRecord& death);

/// "signal 9 (SIGKILL)", with a word on what it mostly means.
std::string signal_text(int number);

}  // namespace hvd::launcher
