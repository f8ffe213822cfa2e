/// @file diagnosis.h — why a job's steps take the time they take: a few findings, the largest first.  Pure.
///
/// Two questions.  Who keeps the others waiting: the rank, the ranks or the host that wait least themselves.  And what
/// all ranks do in a step besides computing.  A cause counts from a twentieth of the steps' time on; what another rank
/// causes each time only counts where a hook saw it (input, checkpoint, garbage collector), or where it is a lot,
/// since on any machine some rank is last.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/report/steps/step_statistics.h"

namespace hvd::launcher {

enum class SlowCause : std::uint8_t {
  input,          ///< batches come late
  compute,        ///< the program's own work, where something is to be said of it
  communication,  ///< data under way, after all ranks had come
  straggler,      ///< a rank or a host is slower than the others
  checkpoint,     ///< a checkpoint is written
  collector,      ///< Python's garbage collector
  memory_creep,   ///< memory grows with each step
  balanced,       ///< nothing of these
};
/// "INPUT", "MEMORY_CREEP", …
const char* cause_word(SlowCause cause);

/// What is known of a rank besides its steps.
struct RankPlace {
  std::string host;
  int cores = 0;  ///< that it may use; 0: not known
};

struct Finding {
  SlowCause cause = SlowCause::balanced;
  std::vector<int> ranks;     ///< whom it concerns; empty: all, or another one each time
  std::string host;           ///< where these ranks are, if it is one host
  bool whole_host = false;    ///< they are all the ranks of that host, and there are other hosts
  double seconds_a_step = 0;  ///< what it costs
  double share_of_steps = 1;  ///< in which it was seen
  double seconds_in_all = 0;  ///< that the other ranks waited for it, the mean of them
  bool certain = true;        ///< something saw why: a hook, the kernel; else it may be another cause's effect
  std::string what;           ///< a sentence without a full stop: what was seen
  std::string advice;         ///< one thing to try
};

struct Diagnosis {
  std::int64_t steps = 0;
  double step_seconds = 0;           ///< the mean
  double waiting_seconds = 0;        ///< of a step: for other ranks, or for data under way; the mean of the ranks
  double communication_seconds = 0;  ///< of that: data under way
  std::vector<Finding> findings;     ///< at least one, where there are steps
};

/// @param places  by rank; may be incomplete
Diagnosis diagnose(const StepStatistics& statistics, const std::map<int, RankPlace>& places);

/// "hvdrun: 1842 steps, 212 ms each; 31 % of it (65 ms) was waiting", then two lines a finding.
std::vector<std::string> diagnosis_lines(const Diagnosis& diagnosis);

/// "58 ms", "4 min 12 s": two figures that count.
std::string duration_text(double seconds);

}  // namespace hvd::launcher
