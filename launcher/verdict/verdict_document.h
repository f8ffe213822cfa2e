/// @file verdict_document.h — the verdict as data: one JSON object, for programs that act on a job's end.
///
/// Its schema is src/python/hvd/verdict.schema.json; hvdrun-verdict(5) explains it.  A change that an old reader would
/// misread needs a new verdict_version.  Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/verdict/cause_class.h"
#include "launcher/verdict/verdict.h"
#include "wire/shared/agreement_finding.h"

namespace hvd::launcher {

inline constexpr const char* verdict_schema = "hvdrun-verdict";
inline constexpr int verdict_version = 1;

/// What --agreement has found, and when: Unix time in seconds.
struct JobFinding {
  double time = 0;
  wire::AgreementFinding found;
};
inline constexpr std::size_t most_findings = 1000;  ///< in a verdict

/// The job whose verdict is written.
struct JudgedJob {
  std::string id;       ///< as in hvdrun ps; empty: the job has not started
  std::string payload;  ///< programs and arguments
  double started = 0;   ///< Unix time in seconds
  double ended = 0;
  std::int64_t ended_ns = 0;  ///< the same moment on the clock of death records
  bool is_elastic = false;
  std::vector<JobFinding> findings;
};

/// @param deaths  of all ranks; an elastic job's incidents are those that failed
/// @param size    number of ranks of the job
std::string verdict_json(const JudgedJob& job, const Verdict& verdict, const EndReason& ended,
                         const std::vector<wire::DeathRecord>& deaths, int size);

/// The verdict on a job that could not start.
std::string failed_start_json(const JudgedJob& job, const Error& error);

/// The verdict's lines and its advice, at most @p most_bytes long, for displays that show no more.  Empty: a good end.
std::string short_verdict(const Verdict& verdict, const Advice& advice, std::size_t most_bytes);

}  // namespace hvd::launcher
