/// @file final_words.h — hvdrun's last output for a job: report, verdict, tracebacks.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "launcher/control/result_stream.h"
#include "launcher/options/settings.h"
#include "launcher/output/printer.h"
#include "launcher/report/job_report.h"
#include "launcher/verdict/cleanup_report.h"
#include "launcher/verdict/verdict.h"

namespace hvd::launcher {

struct JobOutcome {
  JobUse use;
  std::string same_job;  ///< equal for jobs that are the same (report/last_reports.h)
  Verdict verdict;
  bool interrupted = false;  ///< by SIGINT
  std::map<std::string, HostCleanup> hosts;
};

/// Prints, in this order: the report, the verdict, remaining leftovers, the first cause's traceback or last lines, the
/// report for programs.  With --verbose, the removed leftovers of each host come before the report for programs.
/// @param results  null: no program collects results
void tell_outcome(const JobOutcome& outcome, const Settings& settings, Printer& printer, const Results* results);

}  // namespace hvd::launcher
