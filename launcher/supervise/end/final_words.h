/// @file final_words.h — what hvdrun says and writes when a job is over: report, verdict, tracebacks.
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
  std::string same_job;  ///< what makes it the same job as an earlier one (report/last_reports.h)
  Verdict verdict;
  bool interrupted = false;  ///< by SIGINT
  std::map<std::string, HostCleanup> hosts;
};

/// In this order: the report, the verdict, what could not be cleaned up, the first cause's traceback or last lines, and
/// the report for programs.  @param results  null: nobody collects results
void tell_outcome(const JobOutcome& outcome, const Settings& settings, Printer& printer, const Results* results);

}  // namespace hvd::launcher
