/// @file job_report.h — the report of a job's use of time, processors and memory, as text or as JSON.  Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/diagnosis/diagnosis.h"
#include "launcher/report/live_report.h"
#include "wire/messages/death.h"

namespace hvd::launcher {

/// The facts for a job's report.
struct JobUse {
  std::string title;                      ///< programs and arguments
  std::vector<wire::DeathRecord> deaths;  ///< of all ranks that ended, with times in one clock
  double wall_seconds = 0;                ///< from hvdrun's start
  Diagnosis diagnosis;                    ///< without steps: the ranks reported none
  StepStatistics steps;                   ///< likewise
};
std::vector<std::string> report_lines(const JobUse& job);

/// The rank that the others waited for.  Nothing: they waited less than a twentieth of their steps.
struct SlowestRank {
  const wire::DeathRecord* rank = nullptr;
  double work_seconds = 0;           ///< of each step
  double others_waited_seconds = 0;  ///< in each step, the mean; beyond this rank's own waiting
};
std::optional<SlowestRank> slowest_rank(const std::vector<wire::DeathRecord>& deaths);

/// The report as JSON.  For every rank: time from the first death on, steps and their parts, processor time, memory,
/// GPU, cause.
/// @param first_cause  the rank that failed first and so ended the job; -1: none
std::string report_json(const JobUse& job, int exit_code, int first_cause);
/// A diagnosis alone, as in report_json(), for a job that still runs.
std::string diagnosis_json(const Diagnosis& diagnosis, const StepStatistics& steps);
/// The last half minute of a running job as JSON, for hvd.report().  The text has no figures of single ranks.  Empty:
/// no step has ended.
std::string live_report_json(const LiveReport& report, double now_seconds);

}  // namespace hvd::launcher
