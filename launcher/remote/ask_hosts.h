/// @file ask_hosts.h — a question, as shell text, to all hosts of a job at once.
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "base/error.h"
#include "launcher/job/job.h"
#include "launcher/process/capture.h"

namespace hvd::launcher {

/// How long a host may take, the way to it included.
constexpr auto most_time_to_answer = std::chrono::seconds(15);

/// Runs @p script in /bin/sh on @p host: by the job's launch agent or ssh, here without either.
CaptureResult ask(const MappedHost& host, const Job& job, const std::string& script);

/// Why there is no answer, for what ask() brought back instead of one.
Error no_answer(const MappedHost& host, const CaptureResult& done);

/// Calls @p work(i) for each host of the map, some dozens at a time in threads of their own.  It must not throw.
void for_each_host(const Job& job, const std::function<void(std::size_t)>& work);

/// Fills in job.machines by what hvdrank says there: of the remote hosts, and of this one where it has GPUs.  Throws
/// Error for the first other host that does not answer.
/// @param python  asked there for NCCL's version; empty: nobody is
void look_at_machines(Job& job, const std::string& python);

/// Python text: "nccl 2.30.7", the wheel that torch brings.
std::string nccl_question();
/// Shell words behind an interpreter: runs its stdin.  Not "-", which would import from the working folder, where
/// others may have put modules.
inline constexpr const char* run_stdin =
    " -c 'import sys;sys.path[:1]==[\"\"]and sys.path.pop(0);exec(sys.stdin.read())'";

}  // namespace hvd::launcher
