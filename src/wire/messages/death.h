/// @file death.h — the death record: how a rank ended, written by its guard.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/shared/failure.h"
#include "wire/shared/mismatched_call.h"
#include "wire/shared/source_frame.h"

namespace hvd::wire {

enum class Cause : std::uint8_t {
  finished,   ///< exit code 0
  exited,     ///< exit code ≠ 0
  signalled,  ///< by a signal that hvdrun did not send
  oom,        ///< SIGKILL by the kernel's out-of-memory killer (cgroup or host)
  stopped,    ///< hvdrun stopped the rank; code as in a shell (128 + signal)
  unstarted,  ///< payload, interpreter or working folder could not be used
  vanished,   ///< hvdrun writes this record: the guard was killed, or its host is gone
};

/// A fact about an end that Cause and code do not tell.
enum class DeathFact : std::uint8_t {
  none,
  gpu_memory,          ///< the GPU's memory ran out
  gpu_error,           ///< the driver reports a fault of the GPU
  gpu_program,         ///< the driver reports a fault of the program's kernel
  shared_memory_full,  ///< /dev/shm
  disk_full,
  limit,          ///< of the user's processes (ulimit)
  worker_killed,  ///< a signal has ended a process that the rank needed, such as a data loader's worker
  ended_outside,  ///< somebody has ended the rank in order, without hvdrun
  alone,          ///< a process of hvdrun or mpirun above the rank was killed
  host_lost,      ///< the connection to the whole host has ended
};

/// The phase of a rank that leaves by SIGTERM.  The rank ends itself after all other ranks know
/// (hvd/_job/preemption.py).
inline constexpr const char* leaving_phase = "leaves";

struct DeathRecord {
  int rank = 0;
  std::string host;
  std::int64_t pid = 0;
  std::int64_t time_ns = 0;  ///< CLOCK_MONOTONIC of the host; hvdrun aligns the hosts' clocks
  Cause cause = Cause::finished;
  int code = 0;  ///< exit code, signal number (signalled, oom), 2 or 4 (unstarted)
  bool core_dumped = false;
  std::string text;   ///< unstarted, oom: one line that explains the end
  std::string hint;   ///< advice for the user
  std::string phase;  ///< the last Type::phase
  DeathFact fact = DeathFact::none;
  std::optional<SourceFrame> frame;               ///< of a crash: the innermost Python line
  std::optional<Failure> failure;                 ///< the last failure that the rank's libhvd reported
  std::optional<MismatchedCall> mismatched_call;  ///< the last one; the rank may have gone on after it
  std::string traceback;                          ///< the last Python traceback on stderr; empty: none
  bool traceback_shown = false;                   ///< the user has seen the traceback: the rank lived on for seconds
  double cpu_seconds = 0;                         ///< of the rank and of the children that it waited for
  std::int64_t peak_bytes = 0;                    ///< largest resident memory of one of its processes
  std::int64_t steps = 0;                         ///< repetitions of a round of operations (status_page.h)
  double step_seconds = 0;                        ///< mean of the steps that were timed; 0: none
  double waited_seconds = 0;         ///< the part of step_seconds in which the rank only waited for operations
  double gpu_busy_percent = -1;      ///< of the rank's GPU, by NVML; -1: unknown
  std::int64_t gpu_peak_bytes = 0;   ///< memory that all processes used on the rank's GPU; 0: unknown
  std::int64_t gpu_bytes_left = -1;  ///< memory that the rank still had on its GPU after its end; -1: unknown
  std::vector<std::string> ended;    ///< names of descendants that the guard had to kill
  std::vector<std::string> tail;     ///< last 20 lines of both streams
};

std::string to_json(const DeathRecord& r);
DeathRecord death_from_json(const std::string& text);

/// hvdrun's exit code for this death: the rank's own code, or 128 + signal.
int exit_code(const DeathRecord& r);

}  // namespace hvd::wire
