/// @file cause_class.h — the cause of a job's end from a closed list, and advice for programs that restart jobs.
///
/// The words are a part of the verdict's schema: src/python/hvd/verdict.schema.json, hvdrun-verdict(5).  Pure.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/verdict/verdict.h"

namespace hvd::launcher {

enum class CauseClass {
  none,  ///< the job has ended well
  exception,
  missing_module,
  exit_code,  ///< the program chose an exit code, without an exception
  crash,
  killed,
  preempted,
  out_of_memory,
  gpu_out_of_memory,
  gpu_fault,
  shared_memory_full,
  disk_full,
  limit,  ///< ulimit
  worker_killed,
  mismatch,
  diverged,  ///< results or parameters differ between ranks (--agreement)
  left_early,
  peer_lost,
  hang,
  host_lost,
  launcher_lost,  ///< a guard, a host daemon, mpirun
  not_started,
  too_few_workers,
  time_limit,
  interrupted,
  output_lost,
  unknown,
};

inline constexpr std::array cause_words{"none",
                                        "exception",
                                        "missing_module",
                                        "exit_code",
                                        "crash",
                                        "killed",
                                        "preempted",
                                        "out_of_memory",
                                        "gpu_out_of_memory",
                                        "gpu_fault",
                                        "shared_memory_full",
                                        "disk_full",
                                        "limit",
                                        "worker_killed",
                                        "mismatch",
                                        "diverged",
                                        "left_early",
                                        "peer_lost",
                                        "hang",
                                        "host_lost",
                                        "launcher_lost",
                                        "not_started",
                                        "too_few_workers",
                                        "time_limit",
                                        "interrupted",
                                        "output_lost",
                                        "unknown"};

enum class AdviceKind { none, stop, restart, restart_elsewhere, more_memory, fix_code };

inline constexpr std::array advice_words{"NONE", "STOP", "RESTART", "RESTART_ELSEWHERE", "MORE_MEMORY", "FIX_CODE"};

struct Advice {
  AdviceKind kind = AdviceKind::none;
  std::string reason;  ///< one sentence
};

struct JobCause {
  CauseClass kind = CauseClass::none;
  int rank = -1;  ///< -1: no rank is to blame
  std::string host;
  std::string operation;
  std::optional<wire::SourceFrame> frame;
  Advice advice;
};

/// The cause of one rank's end.
JobCause cause_of_death(const wire::DeathRecord& death);

/// The cause of the job's end.
JobCause cause_of(const Verdict& verdict, const EndReason& ended);

/// The cause of a start that failed with an error of this code.
JobCause cause_of_failed_start(Code code);

}  // namespace hvd::launcher
