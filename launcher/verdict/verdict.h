/// @file verdict.h — the verdict on a job: the rank that failed first, the cause, and one line about the others.  Pure.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "launcher/verdict/disagreeing_calls.h"
#include "wire/messages/death.h"

namespace hvd::launcher {

/// The values are words of the verdict's schema: outcome_words.
enum class Outcome { finished, failed, hung, time_limit, interrupted, not_started };
inline constexpr std::array outcome_words{"finished", "failed", "hung", "time_limit", "interrupted", "not_started"};

/// A hang that was not over when the job ended.
struct OpenHang {
  int rank = -1;  ///< the first rank for which others wait; -1: all have come
  std::string host;
  std::string operation;
  std::optional<wire::SourceFrame> frame;  ///< where that rank is
  bool is_stopped = false;                 ///< a signal has stopped that rank
  bool link_is_broken = false;             ///< between two hosts
  bool gpu_is_late = false;                ///< that rank's GPU still computes the tensor
};

/// Why hvdrun itself ended the job, if it did.
struct EndReason {
  int signal = 0;                        ///< SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE sent to hvdrun
  int output_errno = 0;                  ///< the error of writing standard output; 0: none
  double time_limit_seconds = 0;         ///< > 0: the limit was reached
  std::string hang;                      ///< a hang longer than the user allows: which ranks waited for which
  std::vector<std::string> waits;        ///< lines that hvdrun printed about a hang that was not over
  std::optional<OpenHang> open_hang;     ///< that hang as data
  std::string elastic;                   ///< why an elastic job cannot go on
  std::string starter = "mpirun";        ///< the program that started the ranks, for messages
  std::string starter_fault;             ///< how `starter` died before the ranks: "was killed by signal 9 (SIGKILL)"
  int starter_code = 0;                  ///< exit code after `starter_fault`
  std::vector<std::string> mpirun_said;  ///< MPI's errors in the ranks; shown if the culprit wrote nothing
};

struct Verdict {
  int exit_code = 0;
  Outcome outcome = Outcome::finished;
  std::vector<std::string> lines;                ///< hvdrun's messages; empty after a good end
  std::optional<wire::DeathRecord> first_cause;  ///< its traceback is printed after the lines
  std::optional<wire::DeathRecord> left;         ///< the rank that left without a failure, so that first_cause failed
  std::vector<DisagreeingCall> calls;            ///< on which the ranks disagreed, so that first_cause failed
};

inline constexpr std::size_t most_headline_bytes = 1000;  ///< of each line of a verdict

/// @param deaths  records of all ranks that ended, with times of one clock
/// @param size    number of ranks of the job
Verdict judge(const std::vector<wire::DeathRecord>& deaths, int size, const EndReason& ended);

/// How a rank ended, seen from the first failure: "finished before", "failed after it" or "stopped".
const char* end_of(const wire::DeathRecord& death);

/// "rank 3 on node2".
std::string rank_text(const wire::DeathRecord& death);

/// "ended with exit code 3", "was killed by signal 9 (SIGKILL)".
std::string story(const wire::DeathRecord& death);

/// " (ValueError: no such file)": the exception that ended the rank, at most 500 bytes of it.  Empty: there is none.
std::string exception_text(const wire::DeathRecord& death);

/// "signal 9 (SIGKILL)", for some signals with the usual cause.
std::string signal_text(int number);

}  // namespace hvd::launcher
