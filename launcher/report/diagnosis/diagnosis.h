/// @file diagnosis.h — explains how a job's steps spend their time: a few findings, the largest cost first.  Pure.
///
/// The code answers two questions:
/// - Which ranks keep the other ranks waiting?  Such ranks have the most own time, and wait least.
/// - Which work other than computing do all ranks do in a step?
///
/// A late rank counts if its delay takes a twentieth of the steps' time.  Causes that all ranks share have higher
/// limits (diagnosis.cc).  On any host, some rank is last in each step.  So if another rank is last each time, the
/// delay counts only in two cases.  Either a hook measures its cause (input, checkpoint, garbage collector), or the
/// delay is long.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/report/steps/step_statistics.h"

namespace hvd::launcher {

enum class SlowCause : std::uint8_t {
  input,          ///< batches come late
  compute,        ///< the program's own work, if there is advice about it
  communication,  ///< data under way, after all ranks have submitted the operation
  straggler,      ///< a rank or a host is slower than the other ones
  checkpoint,     ///< a checkpoint is written
  collector,      ///< Python's garbage collector
  compilation,    ///< the program is compiled again
  memory_creep,   ///< memory grows with each step
  balanced,       ///< none of these
};
/// "INPUT", "MEMORY_CREEP", …
const char* cause_word(SlowCause cause);

/// A rank's host and cores.
struct RankPlace {
  std::string host;
  int cores = 0;  ///< cores that the rank may use; 0: not known
};

struct Finding {
  SlowCause cause = SlowCause::balanced;
  std::vector<int> ranks;     ///< the slow ranks; empty: all ranks, or another rank each time
  std::string host;           ///< the ranks' host, if they share one
  bool whole_host = false;    ///< `ranks` are all ranks of the host, and there are other hosts
  double seconds_a_step = 0;  ///< the cost: seconds in each step
  double share_of_steps = 1;  ///< the share of steps with this finding
  double seconds_in_all = 0;  ///< mean waiting time of the other ranks, in the whole job
  /// A hook or the kernel measured the cause, or only this rank computes long now and then.  False: perhaps the effect
  /// of another cause.
  bool certain = true;
  std::string what;    ///< the observation: a sentence without a full stop
  std::string advice;  ///< one thing to try
};

struct Diagnosis {
  std::int64_t steps = 0;
  double step_seconds = 0;           ///< mean time of a step
  double waiting_seconds = 0;        ///< per step, for other ranks or for data under way; the ranks' mean
  double communication_seconds = 0;  ///< the part of waiting_seconds for data under way
  std::vector<Finding> findings;     ///< at least one, if there are steps
};

/// @param places  hosts and cores by rank; may be incomplete
Diagnosis diagnose(const StepStatistics& statistics, const std::map<int, RankPlace>& places);

/// "hvdrun: 1842 steps, 212 ms each; 31 % of it (65 ms) was waiting", then two lines for each finding.
std::vector<std::string> diagnosis_lines(const Diagnosis& diagnosis);

/// "58.3 ms" (three significant figures), "4 min 12 s", "2 h 5 min".
std::string duration_text(double seconds);

}  // namespace hvd::launcher
