/// @file death.h — the death record: how a rank ended, written by its guard.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/shared/failure.h"

namespace hvd::wire {

enum class Cause : std::uint8_t {
  finished,   ///< exit code 0
  exited,     ///< exit code ≠ 0
  signalled,  ///< signal, not by us
  oom,        ///< SIGKILL by the kernel's out-of-memory killer (cgroup or host)
  stopped,    ///< by a stop or signal of hvdrun; code as in a shell (128 + signal)
  unstarted,  ///< could not be started: payload, interpreter, working folder
  vanished,   ///< the guard itself was killed or its host is gone (made by hvdrun)
};

/// The phase of a rank that ends itself because it was told to, when all others know (hvd/_job/preemption.py).
inline constexpr const char* leaving_phase = "leaves";

struct DeathRecord {
  int rank = 0;
  std::string host;
  std::int64_t pid = 0;
  std::int64_t time_ns = 0;  ///< CLOCK_MONOTONIC of the host; hvdrun aligns it
  Cause cause = Cause::finished;
  int code = 0;  ///< exit code, signal number (signalled, oom), 2 or 4 (unstarted)
  bool core_dumped = false;
  std::string text;                 ///< for unstarted, oom: one line that explains
  std::string hint;                 ///< what to do next
  std::string phase;                ///< last phase message
  std::optional<Failure> failure;   ///< the last failure that the rank's libhvd reported
  std::string traceback;            ///< last Python traceback on stderr, whole; empty: none
  bool traceback_shown = false;     ///< the traceback was printed too (the rank lived on for seconds after it)
  double cpu_seconds = 0;           ///< of the rank and its children that it waited for
  std::int64_t peak_bytes = 0;      ///< largest resident memory of one of its processes
  std::int64_t steps = 0;           ///< how often the rank repeated its round of operations (status_page.h)
  double step_seconds = 0;          ///< mean of the steps that were timed; 0: none
  double waited_seconds = 0;        ///< of step_seconds: time in which the rank only waited for operations
  double gpu_busy_percent = -1;     ///< of the rank's GPU, by NVML; -1: not known
  std::int64_t gpu_peak_bytes = 0;  ///< memory in use on the rank's GPU, by all processes; 0: not known
  std::vector<std::string> ended;   ///< names of the rank's processes that did not end by themselves and were killed
  std::vector<std::string> tail;    ///< last 20 lines of output (both streams)
};

std::string to_json(const DeathRecord& r);
DeathRecord death_from_json(const std::string& text);

/// The exit code of hvdrun for this death: the rank's own code; 128 + signal.
int exit_code(const DeathRecord& r);

}  // namespace hvd::wire
