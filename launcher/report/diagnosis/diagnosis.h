/// @file diagnosis.h — explains where the time of a job's steps goes: a few findings, the largest first.  Pure.
///
/// Two questions are asked:
/// - Which ranks keep the others waiting?  These are the rank, the ranks or the host that wait least themselves.
/// - What do all ranks do in a step besides computing?
/// A cause counts if it takes a twentieth of the steps' time.  On any machine some rank is last.  So a delay of another
/// rank each time counts only if a hook saw the cause (input, checkpoint, garbage collector), or if it is long.
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
  communication,  ///< data under way, after all ranks had come
  straggler,      ///< a rank or a host is slower than the others
  checkpoint,     ///< a checkpoint is written
  collector,      ///< Python's garbage collector
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
  std::vector<int> ranks;     ///< the ranks that are slow; empty: all, or another one each time
  std::string host;           ///< the ranks' host, if they share one
  bool whole_host = false;    ///< `ranks` are all ranks of the host, and there are other hosts
  double seconds_a_step = 0;  ///< the cost
  double share_of_steps = 1;  ///< the share of steps with this finding
  double seconds_in_all = 0;  ///< waiting time of the other ranks, their mean
  bool certain = true;        ///< a hook or the kernel saw the cause; false: it may be the effect of another one
  std::string what;           ///< what was seen: a sentence without a full stop
  std::string advice;         ///< one thing to try
};

struct Diagnosis {
  std::int64_t steps = 0;
  double step_seconds = 0;           ///< the mean
  double waiting_seconds = 0;        ///< in a step, for other ranks or for data under way; the mean of the ranks
  double communication_seconds = 0;  ///< the part of it for data under way
  std::vector<Finding> findings;     ///< at least one, if there are steps
};

/// @param places  by rank; may be incomplete
Diagnosis diagnose(const StepStatistics& statistics, const std::map<int, RankPlace>& places);

/// "hvdrun: 1842 steps, 212 ms each; 31 % of it (65 ms) was waiting", then two lines for each finding.
std::vector<std::string> diagnosis_lines(const Diagnosis& diagnosis);

/// "58 ms", "4 min 12 s": two significant figures.
std::string duration_text(double seconds);

}  // namespace hvd::launcher
