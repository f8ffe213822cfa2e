/// @file conclude.h — the last part of a job's life: removes leftovers, and tells the user how the job ended.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "launcher/job/job.h"
#include "launcher/output/printer.h"
#include "launcher/supervise/end/ending.h"
#include "launcher/supervise/end/job_cleanup.h"
#include "launcher/supervise/serve/streams.h"
#include "launcher/supervise/start/elastic_part.h"
#include "launcher/supervise/watch/job_timeline.h"
#include "launcher/supervise/watch/kept_operations.h"
#include "launcher/supervise/watch/reports.h"
#include "launcher/verdict/verdict_document.h"

namespace hvd::launcher {

/// A job whose processes have ended.
struct EndedJob {
  const Job& job;
  const std::string& job_id;
  const Session& session;
  Ending& ending;
  const ElasticPart* elastic;  ///< null: the job is not elastic
  JobTimeline& timeline;
  Reports& reports;
  const KeptOperations& operations;
  Streams& streams;
  Printer& printer;
  JobCleanup& cleanup;
  const std::vector<JobFinding>& findings;
  const std::vector<std::string>& mpi_problem;  ///< lines: why a host serves no MPI
  double started_wall_seconds;
  double wall_seconds;  ///< since then
};

/// Returns hvdrun's exit code.
int conclude(const EndedJob& ended);

/// The programs of a job with their arguments.
std::string what_runs(const Job& job);

}  // namespace hvd::launcher
