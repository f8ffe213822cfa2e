/// @file ask.h — a question, as shell text, to all hosts of a job at once.
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "base/error.h"
#include "launcher/job.h"
#include "launcher/supervise/capture.h"

namespace hvd::launcher {

/// How long a host may take, the way to it included.
constexpr auto most_time_to_answer = std::chrono::seconds(15);

/// Runs @p script in /bin/sh on @p host: by the job's launch agent or ssh, here without either.
Captured ask(const PlanHost& host, const JobPlan& job, const std::string& script);

/// Why there is no answer, for what ask() brought back instead of one.
Error no_answer(const PlanHost& host, const Captured& done);

/// Calls @p work(i) for each host of the plan, some dozens at a time in threads of their own.  It must not throw.
void for_each_host(const JobPlan& job, const std::function<void(std::size_t)>& work);

/// Fills in job.machines by what hvdrank says there: of the remote hosts, and of this one where it has GPUs.  Throws
/// Error for the first other host that does not answer.
/// @param python  asked there for NCCL's version; empty: nobody is
void look_at_machines(JobPlan& job, const std::string& python);

}  // namespace hvd::launcher
