/// @file job_findings.h — what --agreement has found in a job: for the verdict, and for the timeline at once.
///
/// Thread: the event loop's.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "base/files/leftovers.h"
#include "launcher/supervise/watch/job_timeline.h"
#include "launcher/verdict/verdict_document.h"
#include "wire/shared/agreement_finding.h"

namespace hvd::launcher {

class JobFindings {
 public:
  explicit JobFindings(JobTimeline& timeline) : timeline_(timeline) {}
  /// The workers of an elastic job's present world, by rank.
  void world_is(std::vector<std::int32_t> workers) { workers_ = std::move(workers); }
  /// Takes a finding that @p rank has sent.
  void take(int rank, wire::AgreementFinding found) {
    for (int& one : found.ranks)
      if (static_cast<std::size_t>(one) < workers_.size()) one = workers_[static_cast<std::size_t>(one)];
    timeline_.found(rank, found);
    if (all_.size() < most_findings) all_.push_back({wall_seconds(), std::move(found)});
  }
  const std::vector<JobFinding>& all() const { return all_; }

 private:
  JobTimeline& timeline_;
  std::vector<std::int32_t> workers_;  ///< empty: a rank has its number in the output
  std::vector<JobFinding> all_;
};

}  // namespace hvd::launcher
